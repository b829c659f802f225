"""An agent that means harm: whatever it may write holds something that a careless page would run, load or follow.

Its text names an address elsewhere, at which nothing may ever be asked.
"""

from collections.abc import AsyncIterator
from typing import Any

from accord import Context, agent
from accord.model import AgentSkill, Part

SCRIPT = "<script>window.__pwned = 'script'</script>"
IMAGE = "<img src=x onerror=\"window.__pwned = 'image'\">"
TURNED = "report\u202egnp.exe"
"""Reads as report, then exe.png, to whoever does not know that the rest is written from right to left."""

LONG = "W" * 3000


def markdown(elsewhere: str) -> str:
    return (
        f"# Before {SCRIPT}\n\n{IMAGE}\n\n"
        f"[a link](javascript:window.__pwned='link') <javascript:window.__pwned='auto'>\n\n"
        f"[data](data:text/html,{SCRIPT}) ![seen]({elsewhere}/seen.png)\n\n"
        "![svg](data:image/svg+xml,<svg/onload=alert(1)>)\n\n"
        f"{LONG}\n\n`{LONG}`\n\n| {LONG} |\n| --- |\n| x |\n\nAfter all of it\n"
    )


def page(elsewhere: str) -> str:
    return (
        f"<html><body onload=\"parent.__pwned = 'page'\">{SCRIPT}<script>top.__pwned = 'frame'</script>{IMAGE}"
        f'<img src="{elsewhere}/page.png"><link rel=stylesheet href="{elsewhere}/page.css">'
        f'<form action="{elsewhere}/form"><button>Send</button></form>'
        f'<meta http-equiv=refresh content="0;url={elsewhere}">'
        "Only a page</body></html>"
    )


def drawing(elsewhere: str) -> bytes:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40" onload="window.__pwned = 1">{SCRIPT}'
        f'<image href="{elsewhere}/drawing.png"/><circle cx="20" cy="20" r="9"/></svg>'
    ).encode()


SKILL = AgentSkill(id="harm", name=f"Harm {IMAGE}", description=SCRIPT, tags=(SCRIPT,), examples=(IMAGE,))


@agent(name=f"Mallory {IMAGE}", description=f"{SCRIPT} {LONG}", skills=[SKILL])
async def mallory(ctx: Context) -> AsyncIterator[Any]:
    """Say everything that may be said, in every way."""
    if ctx.text == "raise":
        raise ValueError(f"{SCRIPT} {IMAGE}")
    elsewhere = ctx.text.split()[-1]
    await ctx.status(f"{SCRIPT} {IMAGE} {LONG}")
    parts = [
        Part(text=markdown(elsewhere), media_type="text/markdown"),
        Part(text=page(elsewhere), media_type="text/html"),
        Part(text=f"{SCRIPT}{LONG}", media_type="text/x-script"),
        Part(data={SCRIPT: IMAGE, "__proto__": {"x": LONG}, "constructor": None}),
        Part(raw=drawing(elsewhere), media_type="image/svg+xml", filename=f"{IMAGE}.svg"),
        Part(raw=page(elsewhere).encode(), media_type="text/html", filename=TURNED),
        Part(raw=b"MZ", media_type=f"image/png;{SCRIPT}", filename="../../../etc/passwd"),
        Part(url=f"{elsewhere}/there.png", media_type="image/png", filename=LONG),
        Part(url="javascript:window.__pwned='url'", media_type="text/html", filename="click me"),
    ]
    for number, part in enumerate(parts):
        await ctx.artifact(part, id=f"{number}", name=f"{IMAGE} {number}", description=SCRIPT)
    form = {
        "type": "object",
        "title": IMAGE,
        "properties": {SCRIPT: {"type": "string", "title": IMAGE, "description": SCRIPT, "enum": [SCRIPT, LONG]}},
        "required": [SCRIPT],
    }
    await ctx.ask(markdown(elsewhere), metadata={"schema": form})
    yield "answered"
