"""Words on a terminal: headings, paragraphs, facts, the headline figures, lists and notes."""

from collections.abc import Iterator
from itertools import zip_longest

from sublight.report.blocks import Facts, Heading, Headline, Listing, Note, Paragraph
from sublight.report.terminal.screen import Screen, beside, hang, plain, widest
from sublight.report.terminal.text import Text

GAP = 2
BETWEEN = 3  # columns between headline figures
FIGURE = 22  # the narrowest a headline figure may get before fewer stand side by side
FIGURE_WIDEST = 46
NOTES = {"info": ("Note", ""), "warn": ("Warning", "yellow"), "error": ("Error", "red")}


def title(text: str, screen: Screen) -> Iterator[Text]:
    """The name of the page, under which everything stands."""
    lines = plain(text, "strong").wrapped(screen.width)
    yield from lines
    yield Text("━" * max(line.width for line in lines), "dim")


def heading(block: Heading, screen: Screen) -> Iterator[Text]:
    """Two rules and none: the level shows without colour."""
    lines = plain(block.text, "strong").wrapped(screen.width)
    yield from lines
    if block.level < 3:
        yield Text(("━" if block.level == 1 else "─") * max(line.width for line in lines), "dim")


def paragraph(block: Paragraph, screen: Screen) -> Iterator[Text]:
    yield from plain(block.text, block.tone).wrapped(screen.prose)


def facts(block: Facts, screen: Screen) -> Iterator[Text]:
    """Labels in one column, values in another; a label too long for its column stands above its value."""
    lead = min(widest(label for label, _ in block.items), screen.width // 3)
    for label, cell in block.items:
        name, value = plain(label, "muted"), plain(cell.text, cell.tone)
        if name.width > lead:
            yield from name.wrapped(screen.prose)
            name = Text()
        yield from hang(Text.of(name, " " * (lead - name.width + GAP)), value, screen.prose)


def headline(block: Headline, screen: Screen) -> Iterator[Text]:
    """Figures side by side, as many as there is room for: label, the value between bars, what it means."""
    most = max(1, (screen.width + BETWEEN) // (FIGURE + BETWEEN))
    rows = -(-len(block.figures) // most) or 1
    across = max(1, -(-len(block.figures) // rows))  # four figures become two and two, not three and one
    width = min((screen.width + BETWEEN) // across - BETWEEN, FIGURE_WIDEST)
    figures = [
        (
            plain(label, "muted").wrapped(width - 2),
            plain(value, "strong").wrapped(width - 2),
            plain(explanation).wrapped(width - 2) if explanation else [],
        )
        for label, value, explanation in block.figures
    ]
    for start in range(0, len(figures), across):
        if start:
            yield Text()
        row = figures[start : start + across]
        columns: list[list[Text]] = [[] for _ in row]
        # Part by part, so that the values of neighbours stand on one line even where a label wraps.
        for parts in zip(*row, strict=True):
            height = max(len(part) for part in parts)
            for column, part in zip(columns, parts, strict=True):
                column.extend(line for line, _ in zip_longest(part, range(height), fillvalue=Text()))
        barred = [[Text.of(Text("┃ ", "cyan"), line) for line in column] for column in columns]
        yield from beside(barred, [width] * len(row), BETWEEN)


def listing(block: Listing, screen: Screen) -> Iterator[Text]:
    digits = len(str(len(block.items)))
    for index, item in enumerate(block.items, start=1):
        lead = f"{index:>{digits}}. " if block.ordered else "• "
        yield from hang(Text(lead, "dim"), plain(item.text, item.tone), screen.prose)


def note(block: Note, screen: Screen) -> Iterator[Text]:
    """A bar down the left side, as tall as the text."""
    name, style = NOTES[block.level]
    body = Text.of(Text(f"{name}: ", f"bold {style}"), plain(block.text))
    for line in body.wrapped(screen.prose - 2):
        yield Text.of(Text("▌ ", style or "dim"), line)
