"""A reporter: it streams a report in Markdown for twenty seconds, with made-up figures and a chart."""

import re
from html import escape
from zlib import crc32

from msgspec import Struct

from accord.agents.function import agent
from accord.agents.messages import answer_id, append_answer, finish_answer
from accord.demo import pause, type_text
from accord.engine.context import Context
from accord.engine.messages import text_of
from accord.model import AgentSkill, Part

WEEKS = 8
WIDTH, HEIGHT, FLOOR, LEFT = 640, 260, 216, 48
TEAL, GREY, PAPER = "#0d9488", "#71717a", "#ffffff"


class Week(Struct, frozen=True):
    """A topic's figures for one week: questions, open questions, and minutes until an answer."""

    week: int
    questions: int
    open: int
    minutes: int


def weeks_of(topic: str) -> list[Week]:
    """Return weeks of figures for a topic: growing, and improving towards the end."""
    seed = crc32(topic.strip().lower().encode())
    found = []
    for number in range(WEEKS):
        noise = (seed >> (number * 3)) % 23
        questions = 1200 + 90 * number + 14 * noise
        found.append(Week(36 + number, questions, max(3, 31 - 3 * number + noise // 4), 210 - 9 * number + noise))
    return found


def chart(topic: str, weeks: list[Week]) -> str:
    """Return an SVG bar chart of the questions of each week."""
    most = max(week.questions for week in weeks)
    step = (WIDTH - LEFT - 24) / len(weeks)
    bars = "".join(_bar(LEFT + at * step, step, week, most) for at, week in enumerate(weeks))
    lines = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - 24}" y1="{y}" y2="{y}" stroke="{GREY}" stroke-opacity=".25"/>'
        for y in range(FLOOR, 55, -40)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' font-family="system-ui,sans-serif" font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>'
        f'<text x="24" y="30" font-size="15" font-weight="600" fill="#18181b">{escape(topic[:60])}</text>'
        f'<text x="24" y="48" fill="{GREY}">questions a week</text>{lines}{bars}</svg>'
    )


def _bar(left: float, step: float, week: Week, most: int) -> str:
    height = round(150 * week.questions / most)
    middle = left + step / 2
    return (
        f'<rect x="{left + step * 0.2:.0f}" y="{FLOOR - height}" width="{step * 0.6:.0f}" height="{height}" rx="3"'
        f' fill="{TEAL}"/>'
        f'<text x="{middle:.0f}" y="{FLOOR + 18}" text-anchor="middle" fill="{GREY}">w{week.week}</text>'
        f'<text x="{middle:.0f}" y="{FLOOR - height - 6}" text-anchor="middle" fill="{GREY}">{week.questions}</text>'
    )


TOPIC = "the checkout service"
ARTICLES = ("the ", "our ", "a ", "an ", "my ", "your ")
OPENER = re.compile(
    r"\A(please\s+)?((can|could|would) you\s+)?(please\s+)?"
    r"((write|report|tell|give)\b(\s+(me|us))?(\s+(a|an|the))?(\s+(short|weekly|brief))*"
    r"(\s+(report|summary|article|text|something))?(\s+(about|on|of))?|summari[sz]e)(\s+|$)",
    re.IGNORECASE,
)
"""The usual openings of a request for a report. The topic follows."""

SKILL = AgentSkill(
    id="report",
    name="Weekly report",
    description="Reads eight weeks of figures and writes them up, with a table and a chart.",
    tags=("report", "markdown", "chart"),
    examples=("Write a report about the checkout service", "Summarise the search cluster"),
    output_modes=("text/markdown", "application/json", "image/svg+xml"),
)


@agent(
    name="Reporter",
    description="Writes a report about anything, as one reads it: Markdown, figures and a chart.",
    skills=[SKILL],
    output_modes=["text/markdown", "application/json", "image/svg+xml"],
    on_crash="resume",
)
async def reporter(ctx: Context) -> None:
    """Read figures, write the sections, and draw a chart."""
    topic = topic_of(ctx.text)
    weeks = weeks_of(topic)
    await ctx.step("read", _read, ctx, topic)
    written = ""
    for title, text in sections(topic, weeks):
        await ctx.step(title, _write, ctx, written, text)
        written += text
    await finish_answer(ctx)
    await ctx.step("figures", _figures, ctx, weeks)
    await ctx.step("chart", _draw, ctx, topic, weeks)


def topic_of(text: str) -> str:
    """Return the topic of a requested report, as part of a sentence."""
    said = " ".join(text.split()).rstrip(" .!?")
    found = OPENER.sub("", said, count=1)
    return found[:1].lower() + found[1:] if found.lower().startswith(ARTICLES) else found or TOPIC


def sections(topic: str, weeks: list[Week]) -> list[tuple[str, str]]:
    """Return the titles and texts of the report's sections."""
    first, last = weeks[0], weeks[-1]
    growth = round(100 * (last.questions / first.questions - 1))
    worst = max(weeks, key=lambda week: week.open)
    rows = "".join(f"| {week.week} | {week.questions:,} | {week.open} | {week.minutes} min |\n" for week in weeks)
    return [
        (
            "summary",
            f"# {titled(topic)}\n\n**In short:** people ask {growth} % more about {topic} than eight weeks ago, hear"
            f" back {first.minutes - last.minutes} minutes sooner, and {last.open} questions a week stay open instead"
            f" of {first.open}. Nothing needs anybody tonight; one thing is worth an hour this week.\n\n",
        ),
        ("table", f"## Week by week\n\n| week | questions | open | answer |\n| --- | ---: | ---: | ---: |\n{rows}\n"),
        (
            "findings",
            "## What stands out\n\n"
            f"1. **Week {worst.week} was the bad one**: {worst.open} questions about {topic} found nobody. Most were"
            " the same question, and they ended when its answer was written down.\n"
            "2. **Answers follow what is written down.** They came sooner with every week in which more of it was.\n"
            "3. **Growth is steady**, not a burst: there is time to act before it is too much for anybody.\n\n",
        ),
        (
            "advice",
            "## What to do\n\n- Be told before too many are open:\n\n"
            f"```yaml\nalert: open questions\nabout: {topic}\nwhen: open > {first.open}\nfor: 1 week\n```\n\n"
            "- Go on writing answers down.\n- Look again in four weeks.\n\n"
            "> The figures, which are made up, and the chart are attached as artifacts.\n",
        ),
    ]


def titled(topic: str) -> str:
    """Return a topic as a title."""
    return topic[:1].upper() + topic[1:]


async def _read(ctx: Context, topic: str) -> None:
    for doing in (f"Looking for figures about {topic}", "Reading eight weeks of them", "Writing"):
        await ctx.status(doing)
        await pause(1.0)


async def _write(ctx: Context, written: str, text: str) -> None:
    """Append a section to the written text. Chunks of a crashed execution are replaced."""
    said = next((artifact.parts for artifact in ctx.task.artifacts if artifact.artifact_id == answer_id(ctx)), ())
    if text_of(said) != written:
        await ctx.artifact(Part(text=written, media_type="text/markdown"), id=answer_id(ctx), last_chunk=False)
    async for piece in type_text(text):
        await append_answer(ctx, Part(text=piece, media_type="text/markdown"))


async def _figures(ctx: Context, weeks: list[Week]) -> None:
    await ctx.artifact({"unit": "week", "weeks": weeks}, id=f"{answer_id(ctx)}-figures", name="figures.json")


async def _draw(ctx: Context, topic: str, weeks: list[Week]) -> None:
    await ctx.status("Drawing the chart")
    await pause(1.0)
    picture = Part(raw=chart(titled(topic), weeks).encode(), media_type="image/svg+xml", filename="questions.svg")
    await ctx.artifact(picture, id=f"{answer_id(ctx)}-chart", name="questions.svg", description="Questions a week")
