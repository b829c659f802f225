"""Figures about any topic, which are made up and always the same, and a chart of them as SVG.

Nothing is looked up and nothing drawn by others: numbers come from the letters of the topic.
"""

from html import escape
from zlib import crc32

from msgspec import Struct

WEEKS = 8
WIDTH, HEIGHT, FLOOR, LEFT = 640, 260, 216, 48
TEAL, GREY, PAPER = "#0d9488", "#71717a", "#ffffff"


class Week(Struct, frozen=True):
    """What was asked about a topic in a week, how much of it was left open, and how long an answer took."""

    week: int
    questions: int
    open: int
    minutes: int


def weeks_of(topic: str) -> list[Week]:
    """Return some weeks of a topic: slowly more of everything, and better towards the end."""
    seed = crc32(topic.strip().lower().encode())
    found = []
    for number in range(WEEKS):
        noise = (seed >> (number * 3)) % 23
        questions = 1200 + 90 * number + 14 * noise
        found.append(Week(36 + number, questions, max(3, 31 - 3 * number + noise // 4), 210 - 9 * number + noise))
    return found


def chart(topic: str, weeks: list[Week]) -> str:
    """Return the questions of each week as bars."""
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
