"""A reporter: it streams a report in Markdown for about twenty seconds, with a table of figures and a chart.

Every section is a step of its own, so a server that dies in the middle goes on with that one. What it says is made of
`figures`, and nothing of it is true.
"""

from accord.agents.content import answer_id, said_all, say
from accord.agents.function import agent
from accord.core.context import Context
from accord.core.output import text_of
from accord.demo.figures import Week, chart, weeks_of
from accord.demo.pace import moment, typed
from accord.model import AgentSkill, Part

TOPIC = "The checkout service"
OPENERS = ("write a report about", "write a report on", "report on", "report about", "summarise", "summarize")

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
    """Read, write, draw."""
    topic = topic_of(ctx.text)
    weeks = weeks_of(topic)
    await ctx.step("read", _read, ctx, topic)
    written = ""
    for title, text in sections(topic, weeks):
        await ctx.step(title, _write, ctx, written, text)
        written += text
    await said_all(ctx)
    await ctx.step("figures", _figures, ctx, weeks)
    await ctx.step("chart", _draw, ctx, topic, weeks)


def topic_of(text: str) -> str:
    """Return what a report is wanted about."""
    said = text.strip().rstrip(".!?")
    opener = next((one for one in OPENERS if said.lower().startswith(one)), "")
    found = said[len(opener) :].strip()
    return found[:1].upper() + found[1:] if found else TOPIC


def sections(topic: str, weeks: list[Week]) -> list[tuple[str, str]]:
    """Return the report, section by section."""
    first, last = weeks[0], weeks[-1]
    growth = round(100 * (last.requests / first.requests - 1))
    worst = max(weeks, key=lambda week: week.errors)
    rows = "".join(f"| {week.week} | {week.requests:,} | {week.errors} | {week.p95_ms} ms |\n" for week in weeks)
    return [
        (
            "summary",
            f"# {topic}\n\n**In short:** traffic is up {growth} % over eight weeks, answers come"
            f" {first.p95_ms - last.p95_ms} ms sooner, and errors are down from {first.errors} to {last.errors} a week."
            " Nothing needs anybody tonight; one thing is worth an hour this week.\n\n",
        ),
        ("table", f"## Week by week\n\n| week | requests | errors | p95 |\n| --- | ---: | ---: | ---: |\n{rows}\n"),
        (
            "findings",
            "## What stands out\n\n"
            f"1. **Week {worst.week} was the bad one**, with {worst.errors} errors. Most were timeouts of one upstream,"
            " and they ended when its pool was doubled.\n"
            "2. **Latency follows the cache.** It fell with every week in which more was answered from it.\n"
            "3. **Growth is steady**, not a burst: there is time to act before capacity is a question.\n\n",
        ),
        (
            "advice",
            "## What to do\n\n- Put an alarm on pool saturation, at 80 %:\n\n"
            "```yaml\nalert: PoolNearlyFull\nexpr: pool_in_use / pool_size > 0.8\nfor: 10m\n```\n\n"
            "- Keep the cache as it is.\n- Look again in four weeks.\n\n"
            "> The figures and the chart are attached as artifacts.\n",
        ),
    ]


async def _read(ctx: Context, topic: str) -> None:
    for doing in (f"Looking for figures about {topic}", "Reading eight weeks of them", "Writing"):
        await ctx.status(doing)
        await moment(1.0)


async def _write(ctx: Context, written: str, text: str) -> None:
    """Add a section to what is written; what a lost run has said of it is taken back."""
    said = next((one.parts for one in ctx.task.artifacts if one.artifact_id == answer_id(ctx)), ())
    if text_of(said) != written:
        await ctx.artifact(Part(text=written, media_type="text/markdown"), id=answer_id(ctx), last_chunk=False)
    async for piece in typed(text):
        await say(ctx, Part(text=piece, media_type="text/markdown"))


async def _figures(ctx: Context, weeks: list[Week]) -> None:
    await ctx.artifact({"unit": "week", "weeks": weeks}, id=f"{answer_id(ctx)}-figures", name="figures.json")


async def _draw(ctx: Context, topic: str, weeks: list[Week]) -> None:
    await ctx.status("Drawing the chart")
    await moment(1.0)
    picture = Part(raw=chart(topic, weeks).encode(), media_type="image/svg+xml", filename="requests.svg")
    await ctx.artifact(picture, id=f"{answer_id(ctx)}-chart", name="requests.svg", description="Requests a week")
