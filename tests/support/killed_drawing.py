"""What was recorded of a killed reducer (tests/support/killed.py), as one picture in five steps.

┌ 1 before ──────┐
├ 2 kill -9 ─────┤   each: Kafka ─▶ Redis ─▶ two reducers ─▶ results,
├ 3 owned again ─┤         and how many of all rows are in results
├ 4 caught up ───┤
├ 5 when each window's results came; the sums
└────────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.support.killed import Moment, Story

WIDTH = 560
TOP = 58
PANEL = 200
MARGIN = 20
WORDS_X = 116
CHART_ROW = 24

INK, QUIET, LINE, PAPER = "#1f1b18", "#6b625b", "#d8d2cb", "#fdfcfa"
RUST, RED, BLUE, GREEN = "#a8380f", "#b00020", "#1f6fb2", "#1f6f43"

CHART_WORDS = (
    "Each window, and when its last results came: those of reducer-2 (green),",
    "and those of the buckets that reducer-1 had (red).",
)

FONT = "system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif"

OTHER = "reducer-2"
BOX_W, BOX_H = 108, 32
COLUMNS = (MARGIN, 157, 294, WIDTH - MARGIN - BOX_W)
"""Left edges of Kafka, Redis, the reducers and the results."""


@dataclass(frozen=True, slots=True)
class Step:
    """One panel: how many rows are where, what has happened, and how the killed one is drawn."""

    moment: Moment
    title: str
    words: str
    state: str = ""


def drawing(story: Story) -> str:
    """The picture as SVG."""
    steps = _steps(story)
    chart = TOP + PANEL * len(steps)
    height = chart + 166 + CHART_ROW * len(story.windows)
    parts = [*_head(story, height)]
    for number, step in enumerate(steps):
        parts += _panel(story, TOP + PANEL * number, number + 1, step)
    parts += _chart(story, chart)
    for number, line in enumerate((*CHART_WORDS, _caption(story))):
        parts.append(_text(MARGIN, height - 54 + 20 * number, line, size=13, colour=QUIET))
    return "\n".join([*parts, "</svg>", ""])


def _steps(story: Story) -> tuple[Step, ...]:
    before, others, all_of_them, _last = story.moments
    window, lost = story.open_window, story.buckets_of_victim
    taken = " and ".join(
        f"{name}, started anew," if name == story.process else name for name in story.taken_by
    )
    return (
        Step(before, "Two reducers count.", f"Each merges {lost} of {story.buckets} buckets."),
        Step(
            Moment(0.0, before.sent, before.counted),
            f"{story.process} is killed in the middle of a window.",
            "Its memory is gone. The counts are in Redis, the rows in Kafka.",
            "dead",
        ),
        Step(
            others,
            f"{OTHER} goes on.",
            f"{window.results - window.held} of {window.results} results of that window have come, "
            f"{window.held} are missing.",
            "dead",
        ),
        Step(
            all_of_them,
            f"The {window.held} missing results have come.",
            f"{taken} read progress and counts again.",
            "back",
        ),
    )


def _caption(story: Story) -> str:
    return f"{story.date}, commit {story.commit}; {story.buckets} buckets, windows of 2 s"


def _head(story: Story, height: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" font-family="{escape(FONT)}">'
    )
    yield "<title>A reducer is killed while rows are counted, and every row counts once</title>"
    yield (
        f"<desc>{story.sent:,} rows sent, {story.counted:,} counted; of {story.results:,} results "
        f"{story.missing} missing, {story.doubled} twice, {story.wrong} wrong.</desc>"
    )
    yield f'<rect width="{WIDTH}" height="{height}" rx="10" fill="{PAPER}" stroke="{LINE}"/>'
    title = f"{story.rate:,} rows a second, and kill -9 of a reducer"
    yield _text(MARGIN, 36, title, size=17, bold=True)


def _panel(story: Story, top: int, number: int, step: Step) -> Iterator[str]:
    yield from _title(top, number, step.moment, step.title, step.words)
    middle = top + 102
    upper, lower = middle - 21, middle + 21
    yield from _box(COLUMNS[0], middle, "rows in Kafka")
    yield from _box(COLUMNS[1], middle, "counts in Redis")
    yield from _box(COLUMNS[2], upper, story.process, step.state)
    yield from _box(COLUMNS[2], lower, OTHER)
    yield from _box(COLUMNS[3], middle, "results", colour=GREEN)
    yield _arrow(COLUMNS[0] + BOX_W, middle, COLUMNS[1], middle)
    for at in (lower,) if step.state == "dead" else (upper, lower):
        yield _arrow(COLUMNS[1] + BOX_W, middle, COLUMNS[2], at)
        yield _arrow(COLUMNS[2] + BOX_W, at, COLUMNS[3], middle)
    yield from _bar(story, top + 152, step.moment)


def _title(top: int, number: int, moment: Moment, title: str, words: str) -> Iterator[str]:
    yield f'<line x1="0" x2="{WIDTH}" y1="{top}" y2="{top}" stroke="{LINE}"/>'
    yield _text(MARGIN, top + 27, str(number), colour=RUST, bold=True)
    yield _text(WORDS_X - 14, top + 27, _when(moment), colour=RUST, bold=True, end=True)
    yield _text(WORDS_X, top + 27, title, bold=True)
    yield _text(MARGIN, top + 51, words)


def _bar(story: Story, top: int, moment: Moment) -> Iterator[str]:
    """Rows in results and rows on their way, as parts of all rows of the run."""
    wide = WIDTH - 2 * MARGIN
    counted = wide * moment.counted / story.sent
    sent = wide * moment.sent / story.sent
    yield f'<rect x="{MARGIN}" y="{top}" width="{wide}" height="10" rx="3" fill="{LINE}"/>'
    yield f'<rect x="{MARGIN}" y="{top}" width="{sent:.1f}" height="10" rx="3" fill="{BLUE}"/>'
    yield f'<rect x="{MARGIN}" y="{top}" width="{counted:.1f}" height="10" rx="3" fill="{GREEN}"/>'
    waiting = moment.sent - moment.counted
    sums = f"{moment.sent:,} sent = {moment.counted:,} in results + {waiting:,} on the way"
    yield _text(MARGIN, top + 30, sums)


def _chart(story: Story, top: int) -> Iterator[str]:
    """When the results of each window came, and the sums of the run."""
    sums = f"{story.counted:,} of {story.sent:,} rows are counted, each once."
    rest = (
        f"{story.results:,} results: {story.missing} missing, {story.doubled} twice, "
        f"{story.wrong} wrong."
    )
    yield from _title(top, 5, story.moments[-1], sums, rest)
    yield from _times(story, top + 66)


def _times(story: Story, top: int) -> Iterator[str]:
    first = story.windows[0].start_s
    last = max(max(each.others_s, each.held_s) for each in story.windows)
    scale = (WIDTH - 2 * MARGIN - 110) / (last - first)
    bottom = top + 20 + CHART_ROW * len(story.windows)

    def x(at_s: float) -> float:
        return MARGIN + (at_s - first) * scale

    yield (
        f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{top}" y2="{bottom}" stroke="{RED}" '
        'stroke-dasharray="4 3"/>'
    )
    yield _text(x(0) + 6, top + 10, "kill -9", size=13, colour=RED)
    for number, each in enumerate(story.windows):
        y = top + 20 + CHART_ROW * number
        wide = (each.end_s - each.start_s) * scale
        yield (
            f'<rect x="{x(each.start_s):.1f}" y="{y}" width="{wide:.1f}" height="14" rx="3" '
            f'fill="none" stroke="{BLUE}"/>'
        )
        for at_s, colour in ((each.others_s, GREEN), (each.held_s, RUST)):
            yield f'<circle cx="{x(at_s):.1f}" cy="{y + 7}" r="4.5" fill="{colour}"/>'
        label = f"{each.counted:,} of {each.sent:,}"
        yield _text(WIDTH - MARGIN, y + 12, label, size=13, end=True)


def _when(moment: Moment) -> str:
    return f"{moment.at_s:+.1f} s".replace("-", "\u2212") if moment.at_s else "0 s"


def _box(x: float, middle: float, name: str, state: str = "", colour: str = INK) -> Iterator[str]:
    edge = {"dead": RED, "back": BLUE}.get(state, colour)
    dashed = ' stroke-dasharray="5 4"' if state == "dead" else ""
    yield (
        f'<rect x="{x}" y="{middle - BOX_H / 2}" width="{BOX_W}" height="{BOX_H}" rx="5" '
        f'fill="#ffffff" stroke="{edge}" stroke-width="1.5"{dashed}/>'
    )
    yield _text(x + BOX_W / 2, middle + 5, name, size=13, colour=edge, centre=True)
    if state == "dead":
        yield (
            f'<path d="M{x + 4} {middle + 13} L{x + BOX_W - 4} {middle - 13}" stroke="{RED}" '
            'stroke-width="2"/>'
        )


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1 + 3}" y1="{y1}" x2="{x2 - 9}" y2="{y2}" stroke="{QUIET}" '
        f'stroke-width="1.5"/><path d="M{x2 - 3} {y2} l-8 -4 v8 z" fill="{QUIET}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 15,
    colour: str = INK,
    bold: bool = False,
    centre: bool = False,
    end: bool = False,
) -> str:
    anchor = ' text-anchor="middle"' if centre else ' text-anchor="end"' if end else ""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{weight}{anchor}>'
        f"{escape(text)}</text>"
    )
