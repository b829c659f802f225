"""Prompts become tasks, and tasks find agents, by rules."""

import pytest

from accord.agents.planner.planning import Command, command_of, picked, tasks_of
from accord.engine.child_tasks import ServedAgent
from accord.model import AgentSkill


@pytest.mark.parametrize(
    ("prompt", "tasks"),
    [
        ("Research the market\nWrite a summary", ["Research the market", "Write a summary"]),
        ("Please do this:\n1. research it\n2) write it up\n- send it", ["Research it", "Write it up", "Send it"]),
        ("research the market; write a summary", ["Research the market", "Write a summary"]),
        ("First research the market, then write a summary", ["Research the market", "Write a summary"]),
        ("Find a hotel and book a flight to Rome", ["Find a hotel", "Book a flight to Rome"]),
        ("Compare apples and oranges", ["Compare apples and oranges"]),
        ("Collect the data, analyse it and write a report", ["Collect the data", "Analyse it", "Write a report"]),
        ("Buy milk. Call Anna!", ["Buy milk", "Call Anna"]),
        ("Pay 3.5 euros", ["Pay 3.5 euros"]),
        ("do it\ndo it", ["Do it"]),
        ("  \n ... \n", []),
        ("x" * 200, ["X" + "x" * 118 + "…"]),
    ],
)
def test_a_prompt_becomes_tasks(prompt: str, tasks: list[str]) -> None:
    assert tasks_of(prompt) == tasks


AGENTS = {
    "Echo": ServedAgent(name="Echo", description="Says back what it is told"),
    "Translator": ServedAgent(name="Translator", description="Turns text into French"),
    "Desk": ServedAgent(
        name="Desk",
        description="Organises trips",
        skills=(AgentSkill(id="hotels", name="Hotels", description="Books rooms", tags=("travel", "booking")),),
    ),
}


@pytest.mark.parametrize(
    ("task", "agent"),
    [
        ("Translate the letter", "Translator"),
        ("A translation of the letter", "Translator"),
        ("Book a hotel in Rome", "Desk"),
        ("Ask the echo", "Echo"),
        ("Paint the wall", "Desk"),
    ],
)
def test_a_task_finds_the_agent_that_suits_it(task: str, agent: str) -> None:
    assert picked(task, AGENTS, "Desk") == agent


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("execute all", Command("execute")),
        ("yes", Command("execute")),
        ("Yes, please!", Command("execute")),
        ("Yes, please do it.", Command("execute")),
        ("ok", Command("execute")),
        ("y", Command("execute")),
        ("Yep!", Command("execute")),
        ("yes, all", Command("execute")),
        ("Yes, do that.", Command("execute")),
        ("sure, go ahead", Command("execute")),
        ("Yes, let's go", Command("execute")),
        ("No thanks", Command("status")),
        ("no, cancel 2", Command("cancel", (2,))),
        ("no one is to be invited", None),
        ("y axes are to be labelled", None),
        ("yes, run 2", Command("execute", (2,))),
        ("no", Command("status")),
        ("Not now.", Command("status")),
        ("yes men are to be invited", None),
        ("ok the invoice and send it", None),
        ("Run 2", Command("execute", (2,))),
        ("start tasks 1, 2 and 3.", Command("execute", (1, 2, 3))),
        ("go ahead", Command("execute")),
        ("please execute", Command("execute")),
        ("cancel #3", Command("cancel", (3,))),
        ("drop everything", Command("cancel")),
        ("status", Command("status")),
        ("how is it going?", Command("status")),
        ("done 2: the letter is sent", Command("done", (2,), "the letter is sent")),
        ("mark 1 as done", Command("done", (1,))),
        ("done", None),
        ("run the numbers for March", None),
        ("start a fire and cancel 3", None),
        ("Research the market", None),
    ],
)
def test_commands_are_told_from_prompts(text: str, command: Command | None) -> None:
    assert command_of(text) == command


BLANKS = " " * 100_000
"""A pattern that takes more than linear time for these does not end within a test."""


@pytest.mark.parametrize(
    "text",
    [
        f"x{BLANKS}x",
        f"run{BLANKS}x",
        "x" + "\t\v" * 50_000 + "x",
        "run " + "1" * 60 + "x",
        "run " + "1 " * 300 + "x",
        "run " + "1, and " * 140 + "x",
        "run" + " task" * 100_000 + " x",
        "x, " * 50_000 + "then, " * 50_000,
    ],
)
def test_no_prompt_takes_more_than_linear_time(text: str) -> None:
    assert tasks_of(text)
    assert command_of(text) is None


def test_blanks_of_a_prompt_and_of_a_result_do_not_matter() -> None:
    assert tasks_of(f"Find a hotel{BLANKS}and{BLANKS}book a flight") == ["Find a hotel", "Book a flight"]
    assert command_of(f"done{BLANKS}1 : a\n\n  b") == Command("done", (1,), "a\n\n  b")
    assert command_of("done 1:") is None
