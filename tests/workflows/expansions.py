"""What a plan comes to, one line for each step, as docs/workflows/patterns.md shows it."""

from accord.workflows.plan import Plan


def lines_of(plan: Plan) -> list[str]:
    lines = []
    for step in plan.steps:
        line = f"{step.name}: {step.agent or step.kind}"
        if step.depends_on:
            line += f", after {', '.join(step.depends_on)}"
        lines.append(line + (f", if {step.if_}" if step.if_ else ""))
    return lines
