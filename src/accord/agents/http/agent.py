"""The kind `http`: a flow behind a webhook, which answers (`answering`) or calls back (`callback`).

It only chooses between the two; options are checked by whom they are for.
"""

from accord.agents.http.answering import HttpAgent
from accord.agents.http.callback import CallbackAgent
from accord.agents.http.options import HttpOptions
from accord.agents.kinds import Given, Kind
from accord.engine.agent import Agent


def make(given: Given) -> Agent:
    """Make an agent as its options say."""
    return CallbackAgent(given) if given.options.mode == "callback" else HttpAgent(given)


KIND = Kind(name="http", options=HttpOptions, make=make)
