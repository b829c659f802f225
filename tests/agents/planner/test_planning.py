"""Prompts become tasks, and tasks find agents, by rules."""

import pytest

from accord.agents.planner.rules import PlanCommand, parse_command, pick_agent, split_prompt
from accord.engine.node_port import ServedAgent
from accord.model import AgentSkill
from tests.cases import each


@each(
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
    assert split_prompt(prompt) == tasks


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
    assert pick_agent(task, AGENTS, "Desk") == agent


@each(
    ("text", "command"),
    [
        ("execute all", PlanCommand("execute")),
        ("yes", PlanCommand("execute")),
        ("Yes, please!", PlanCommand("execute")),
        ("Yes, please do it.", PlanCommand("execute")),
        ("ok", PlanCommand("execute")),
        ("y", PlanCommand("execute")),
        ("Yep!", PlanCommand("execute")),
        ("yes, all", PlanCommand("execute")),
        ("Yes, do that.", PlanCommand("execute")),
        ("sure, go ahead", PlanCommand("execute")),
        ("Yes, let's go", PlanCommand("execute")),
        ("No thanks", PlanCommand("status")),
        ("no, cancel 2", PlanCommand("cancel", (2,))),
        ("no one is to be invited", None),
        ("y axes are to be labelled", None),
        ("yes, run 2", PlanCommand("execute", (2,))),
        ("no", PlanCommand("status")),
        ("Not now.", PlanCommand("status")),
        ("yes men are to be invited", None),
        ("ok the invoice and send it", None),
        ("Run 2", PlanCommand("execute", (2,))),
        ("start tasks 1, 2 and 3.", PlanCommand("execute", (1, 2, 3))),
        ("go ahead", PlanCommand("execute")),
        ("please execute", PlanCommand("execute")),
        ("cancel #3", PlanCommand("cancel", (3,))),
        ("drop everything", PlanCommand("cancel")),
        ("status", PlanCommand("status")),
        ("how is it going?", PlanCommand("status")),
        ("done 2: the letter is sent", PlanCommand("done", (2,), "the letter is sent")),
        ("mark 1 as done", PlanCommand("done", (1,))),
        ("done", None),
        ("run the numbers for March", None),
        ("start a fire and cancel 3", None),
        ("Research the market", None),
    ],
)
def test_commands_and_prompts_are_distinguished(text: str, command: PlanCommand | None) -> None:
    assert parse_command(text) == command


BLANKS = " " * 100_000
"""A pattern that takes more than linear time for these does not end within a test."""


@each(
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
    assert split_prompt(text)
    assert parse_command(text) is None


def test_blanks_of_a_prompt_and_of_a_result_do_not_matter() -> None:
    assert split_prompt(f"Find a hotel{BLANKS}and{BLANKS}book a flight") == ["Find a hotel", "Book a flight"]
    assert parse_command(f"done{BLANKS}1 : a\n\n  b") == PlanCommand("done", (1,), "a\n\n  b")
    assert parse_command("done 1:") is None
