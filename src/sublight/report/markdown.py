"""A document as GitHub-flavoured Markdown, for an issue or a wiki page.

Text is escaped so that it shows as what it is: no HTML, no links, no mentions, no formatting. Bars, waterfalls and
timelines become the terminal's drawing in a fenced block, since every Markdown viewer has a fixed-width font; curves
become the table of their points. Notes of table cells are left out, as on a terminal.
"""

import re
from collections.abc import Iterable, Iterator
from typing import assert_never

from sublight.report.blocks import (
    Bars,
    Block,
    Cell,
    Code,
    Curves,
    Document,
    Facts,
    Heading,
    Headline,
    Listing,
    Note,
    Paragraph,
    Table,
    Timeline,
    Waterfall,
)
from sublight.report.check import check
from sublight.report.points import marks_in_words, points_table
from sublight.report.visible import visible

CHART_WIDTH = 88  # what GitHub shows of a fenced block without scrolling
POINTS = 24  # lines of a table that stands for curves
_ALERTS = {"info": "NOTE", "warn": "WARNING", "error": "CAUTION"}

_ALWAYS = re.compile(r"([\\`*\[\]|~$#])")
# An underscore within a word never formats, and kernel names are full of them.
_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_BLOCK_START = re.compile(r"^(?:>|[-+=:](?!\w)|\d+(?=[.)](?:\s|$)))")
_ENTITY = re.compile(r"&(?=[#\w])")
_LINK = re.compile(r"(?i)(https?|ftp|mailto|xmpp)(?=:)|(www)(?=\.)")
# GitHub looks for these in the finished text, where no escape helps; a space of no width keeps them apart.
_MENTION = re.compile(r"(?<=@)(?=\w)|(?<=#)(?=\d)|(?<=\bGH)(?=-\d)", re.IGNORECASE)


def render_markdown(document: Document) -> str:
    """The document as one Markdown text.

    Raises:
        ValueError: a chart's numbers are not what it claims (`check`).
    """
    check(document)
    parts = [f"# {escape(document.title)}", *("\n".join(_block(block)) for block in document.whole)]
    if document.footer:
        parts += ["---", _opening(document.footer)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """`text` so that Markdown shows it as it is, on one line, anywhere but at the start of a block."""
    text = _MENTION.sub("\u200b", visible(text).strip())
    text = _ALWAYS.sub(r"\\\1", text)
    text = _UNDERSCORE.sub(r"\\_", text)
    text = _ENTITY.sub("&amp;", text).replace("<", "&lt;")
    # The backslash stands before what a link needs: the colon of a scheme, the dot after www.
    return _LINK.sub(lambda match: match[0] + "\\", text)


def _opening(text: str) -> str:
    """`text` at the start of a block, where some characters would make it a list, a quote, a rule or a table."""
    escaped = escape(text)
    start = _BLOCK_START.match(escaped)
    if start is None:
        return escaped
    place = start.end() if start[0].isdigit() else 0
    return f"{escaped[:place]}\\{escaped[place:]}"


def _block(block: Block) -> Iterable[str]:
    match block:
        case Heading():
            return [f"{'#' * block.level} {escape(block.text)}"]
        case Paragraph():
            return [_strong(block.text) if block.tone == "strong" else _opening(block.text)]
        case Facts():
            return [f"- {_strong(label)}: {_cell(cell)}" for label, cell in block.items]
        case Headline():
            return _headline(block)
        case Table():
            return _table(block)
        case Listing():
            leads = (f"{index}. " if block.ordered else "- " for index in range(1, len(block.items) + 1))
            items = (_strong(item.text) if item.tone == "strong" else _opening(item.text) for item in block.items)
            return [lead + item for lead, item in zip(leads, items, strict=True)]
        case Note():
            return [f"> [!{_ALERTS[block.level]}]", f"> {_opening(block.text)}"]
        case Code():
            return _fenced(block.text.strip("\n").split("\n"), "sh")
        case Bars() | Waterfall() | Timeline():
            return _drawing(block)
        case Curves():
            return _curves(block)
    assert_never(block)


def _cell(cell: Cell) -> str:
    return _strong(cell.text) if cell.tone == "strong" else escape(cell.text)


def _strong(text: str) -> str:
    escaped = escape(text)
    return f"**{escaped}**" if escaped else ""


def _grid(heads: Iterable[str], rights: Iterable[bool], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('---:' if right else '---' for right in rights)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _headline(block: Headline) -> Iterable[str]:
    if not block.figures:
        return []
    labels, values, explanations = zip(*block.figures, strict=True)
    rows = [[_strong(value) for value in values], [escape(text) for text in explanations]]
    return _grid([escape(label) for label in labels], [False] * len(labels), rows)


def _table(block: Table) -> Iterator[str]:
    if not block.columns:
        return
    rows = ([_strong(cell.text) if line.kind != "row" else _cell(cell) for cell in line.cells] for line in block.lines)
    heads = [escape(column.title) for column in block.columns]
    yield from _grid(heads, [column.align == "right" for column in block.columns], rows)
    yield from _caption(block.caption)


def _drawing(block: Bars | Waterfall | Timeline) -> Iterator[str]:
    from sublight.report.terminal.page import draw
    from sublight.report.terminal.screen import Screen

    screen = Screen(CHART_WIDTH, colour=False)
    yield from _fenced(screen.paint(draw(block, screen)).splitlines(), "text")


def _curves(block: Curves) -> Iterator[str]:
    if block.title:
        yield f"{_strong(block.title)}: {escape(block.y_label)} over {escape(block.x_label)}"
        yield ""
    yield from _table(points_table(block, [curve.name for curve in block.curves], POINTS))
    for words in marks_in_words(block):
        yield ""
        yield _opening(words)
    yield from _caption(block.caption)


def _caption(caption: str) -> Iterator[str]:
    if caption:
        yield ""
        yield _opening(caption)


def _fenced(lines: Iterable[str], language: str) -> Iterator[str]:
    """A code block that no line of its content can close."""
    content = [visible(line) for text in lines for line in [text.replace("\t", "    ").rstrip("\r")]]
    longest = max((len(run) for line in content for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield from content
    yield fence
