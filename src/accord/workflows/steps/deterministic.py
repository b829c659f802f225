"""Deterministic steps: commands."""

from accord.workflows.commands import CommandResult, run_command
from accord.workflows.executors import Result, Scene, StepExecutorType


async def run_step(scene: Scene) -> Result:
    """Run the command of a step; raises Unresolved and UnsafeCommand before anything runs."""
    step = scene.step
    ran = await run_command(scene, step, step.command or "", seconds=step.timeout, heard=scene.heard)
    return _result(ran, may_fail=not step.fail_on_error, is_captured=step.capture_output)


def _result(ran: CommandResult, *, may_fail: bool, is_captured: bool) -> Result:
    """Return the result of a command. With `may_fail` any exit code is a success, but not a missing one."""
    ok = ran.error is None or (may_fail and ran.exit_code is not None)
    output = ran.output if is_captured else f"Command completed (exit code {ran.exit_code})"
    return Result(
        ok=ok,
        output=output,
        exit_code=ran.exit_code,
        reason="completed_by_process_exit" if ok else None,
        error=None if ok else ran.error,
    )


STEP = StepExecutorType(do=run_step)
