"""Any plan, and how its run goes, for Hypothesis."""

from random import Random

from hypothesis import strategies as st

from accord.workflows.document import Barrier, Step
from tests.workflows.playing import Play, mapping, plan_of, step

STRATEGIES = ("fail-fast", "continue", "retry")

RULES = {
    "on_error": st.sampled_from([None, "fail", "skip", "retry", "continue"]),
    "retries": st.sampled_from([None, 0, 1, 2]),
    "retry_delay": st.sampled_from([None, 0.0, 0.01, 3.0]),
    "if_": st.sampled_from([None, None, None, "true", "false", "always()", "failed()"]),
}


@st.composite
def scripts(draw: st.DrawFn, strategies: tuple[str, ...] = STRATEGIES) -> Play:
    """Any plan, and how it goes."""
    parts: list[Step | Barrier] = []
    failures: dict[str, int] = {}
    items: dict[str, int] = {}
    fails = st.sampled_from([0, 0, 0, 1, 2, 9])
    for number in range(draw(st.integers(1, 9))):
        name = f"s{number}"
        known = [part.name for part in parts]
        after = draw(st.lists(st.sampled_from(known), unique=True, max_size=4)) if known else []
        kind = draw(st.sampled_from(["work", "work", "work", "approval", "map", "barrier"]))
        if kind == "barrier" and after:
            parts.append(
                Barrier(name=name, wait_for=tuple(after), mode=draw(st.sampled_from(["all", "any", "majority"])))
            )
            continue
        rules = draw(st.fixed_dictionaries(RULES))
        if kind == "map":
            each = draw(st.fixed_dictionaries(RULES))
            concurrency = draw(st.sampled_from([None, 1, 2]))
            parts.append(mapping(name, *after, each=each, concurrency=concurrency, **rules))
            items[name] = draw(st.integers(0, 4))
            failures.update({f"{name}[{index}]": draw(fails) for index in range(items[name])})
        else:
            parts.append(step(name, *after, type="approval" if kind == "approval" else "deterministic", **rules))
            failures[name] = draw(fails)
    most = draw(st.sampled_from([None, 1, 2, 3]))
    plan = plan_of(*parts, strategy=draw(st.sampled_from(strategies)), max_concurrency=most)
    return Play(plan, failures, items, Random(draw(st.integers(0, 2**32))))
