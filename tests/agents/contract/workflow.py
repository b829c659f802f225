"""Workflows: files whose steps are commands."""

import os
from pathlib import Path

from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from accord.workflows.agent_type import AGENT_TYPE
from tests.agents.contract.scratch import BEAT_SECONDS
from tests.agents.contract.subjects import Subject, called

BEHAVIOURS = {
    "echo": ["printf 'you said %s' {{input}}"],
    "slow": [f"while :; do printf . >> beats; sleep {BEAT_SECONDS}; done"],
    "fail": ["echo 'no such city' >&2; exit 3"],
    "steps": [
        "echo 1 >> steps",
        f"echo 2 >> steps; until test -e go; do sleep {BEAT_SECONDS}; done",
        "echo 3 >> steps; printf done",
    ],
}


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    name = called("workflow", behaviour)
    lines = ['version: "1.0"', f"name: {name}", "swarm: {pattern: pipeline}", "workflows:", "- name: main", "  steps:"]
    for number, command in enumerate(BEHAVIOURS[behaviour]):
        lines += [f"  - name: s{number}", "    type: deterministic", "    command: |", f"      {command}"]
    file = scratch / f"{behaviour}.yaml"
    file.write_text("\n".join(lines))
    return AGENT_TYPE.make(AgentArguments(options=AGENT_TYPE.options(), name=name, target=file, env=os.environ))


SUBJECT = Subject(kind="workflow", make=make, has=frozenset(BEHAVIOURS), crash=Crash.RESUME)
