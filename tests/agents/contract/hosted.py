"""The agents that subjects make, for a process of their own: `hosted:function.slow` is one, in its scratch folder."""

import os
from pathlib import Path

from accord.engine.agent import Agent
from tests.agents.contract.subjects import subject


class Made:
    """A subject's agents by their behaviours, each made when it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, behaviour: str) -> Agent:
        found = subject(self._name)
        if found.make is None or behaviour not in found.has:
            raise AttributeError(behaviour)
        return found.make(behaviour, Path(os.environ["SCRATCH"]) / self._name)


def __getattr__(name: str) -> Made:
    return Made(name)
