"""A step that is a command: deterministic, because no model has a part in it.

It says whether the command has ended well and what it printed. Whether that is what was wanted is `verification`, and
whether it is tried again is not decided here; how a command is run is `command`.
"""

from collections.abc import Mapping

from accord.workflows.document import Step, Verification
from accord.workflows.steps.command import Heard, Ran, run, run_shell
from accord.workflows.steps.kinds import StepKind
from accord.workflows.steps.scene import Result, Scene


async def shell(scene: Scene) -> Result:
    """Run the command of a step; raises Unresolved and UnsafeCommand before anything is run."""
    step = scene.step
    ran = await run_filled(scene, step, step.command or "", seconds=step.timeout, heard=scene.heard)
    return _result(ran, may_fail=not step.fail_on_error, is_captured=step.capture_output)


async def run_filled(
    scene: Scene,
    given: Step | Verification,
    command: str,
    *,
    seconds: float | None,
    env: Mapping[str, str] | None = None,
    heard: Heard | None = None,
) -> Ran:
    """Run a command with its values: the `argv` of a step or of a verification, or else a command for a shell."""
    if given.argv is None:
        command, variables = scene.values.shell(command, options=given.allow_options)
        env = scene.environment({**variables, **(env or {})})
        return await run_shell(command, directory=scene.place, env=env, seconds=seconds, heard=heard)
    argv = scene.values.argv(given.argv, options=given.allow_options, interpreter=given.allow_interpreter)
    return await run(argv, directory=scene.place, env=scene.environment(env or {}), seconds=seconds, heard=heard)


def _result(ran: Ran, *, may_fail: bool, is_captured: bool) -> Result:
    """Return what came of it; an exit code may be what a step is for, but a command that never ended is not."""
    ok = ran.error is None or (may_fail and ran.exit_code is not None)
    output = ran.output if is_captured else f"Command completed (exit code {ran.exit_code})"
    return Result(
        ok=ok,
        output=output,
        exit_code=ran.exit_code,
        reason="completed_by_process_exit" if ok else None,
        error=None if ok else ran.error,
    )


STEP = StepKind(do=shell)
