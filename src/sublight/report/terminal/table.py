"""A table on a terminal: columns chosen to fit, sections opened by their group, totals under a rule.

The widths are decided first (`fit`); what is left is to wrap and to pad, which rich's own table does at fifteen
milliseconds for forty lines, a seventh of what a command may take, and without a cell that runs over all columns.
"""

from collections.abc import Iterator, Sequence

import msgspec

from sublight.report.blocks import Cell, Line, Table
from sublight.report.terminal.fit import Fit, Need, fit
from sublight.report.terminal.screen import STYLES, Screen, beside, hang, plain, widest
from sublight.report.terminal.text import Text
from sublight.report.visible import visible

GAP = 2
INDENT = 2  # of the first column of lines that belong to a group


def table(block: Table, screen: Screen) -> Iterator[Text]:
    """The table, then its caption and the names of the columns there was no room for."""
    if not block.columns:
        return
    chosen = fit(_needs(block), screen.width, GAP)
    if any(column.narrow for column in block.columns) and _is_broken(block, chosen):
        block = msgspec.structs.replace(
            block, columns=tuple(msgspec.structs.replace(c, title=c.narrow or c.title) for c in block.columns)
        )
        chosen = fit(_needs(block), screen.width, GAP)
    if chosen is None:
        yield from _cards(block, screen)
    else:
        yield from _grid(block, chosen, screen)
        missing = [column.title for index, column in enumerate(block.columns) if index not in chosen.shown]
        if missing:
            yield from plain(f"No room at this width for: {', '.join(missing)}", "muted").wrapped(screen.prose)
    if block.caption:
        yield from plain(block.caption, "muted").wrapped(screen.prose)


def _is_broken(block: Table, chosen: Fit | None) -> bool:
    """Whether some column has no room for its longest word."""
    if chosen is None:
        return True
    needs = _needs(block)
    return any(width < needs[index].unbroken for index, width in zip(chosen.shown, chosen.widths, strict=True))


def is_title(line: Line) -> bool:
    """Whether a line opens a section with a title alone, which may run over all columns."""
    return line.kind == "group" and not any(cell.text for cell in line.cells[1:])


def _indents(block: Table) -> list[int]:
    """How far each line's first cell is moved in: the lines of a group, until a total closes it."""
    indents = []
    grouped = False
    for line in block.lines:
        grouped = line.kind == "group" or (grouped and line.kind != "total")
        indents.append(INDENT if grouped and line.kind == "row" else 0)
    return indents


def _needs(block: Table) -> list[Need]:
    indents = _indents(block)
    needs = []
    for index, column in enumerate(block.columns):
        cells = [
            " " * (indent if index == 0 else 0) + visible(line.cells[index].text)
            for line, indent in zip(block.lines, indents, strict=True)
            if not is_title(line)
        ]
        wraps = column.align == "left"
        words = [word for text in [visible(column.title), *(cells if wraps else ())] for word in text.split()]
        body = widest(cells)
        unbroken = max(widest(words), 1 if wraps else body)
        whole = max(body, widest([column.title]), 1)
        needs.append(Need(whole, unbroken, wraps, column.priority, names=index == 0, asked=column.least))
    return needs


def _grid(block: Table, chosen: Fit, screen: Screen) -> Iterator[Text]:
    rule = Text("─" * (sum(chosen.widths) + GAP * (len(chosen.widths) - 1)), "dim")
    right = [block.columns[index].align == "right" for index in chosen.shown]
    if any(column.title for column in block.columns):
        heads = [
            plain(block.columns[index].title, "strong").wrapped(width)
            for index, width in zip(chosen.shown, chosen.widths, strict=True)
        ]
        height = max(len(head) for head in heads)
        # Titles stand on the rule, whatever their height.
        yield from beside([[Text()] * (height - len(head)) + head for head in heads], chosen.widths, GAP, right)
        yield rule
    previous = "group"
    for line, indent in zip(block.lines, _indents(block), strict=True):
        if is_title(line):
            yield from _text(line.cells[0], line).wrapped(screen.width)
        else:
            if line.kind == "total" and previous == "row":
                yield rule
            cells = zip(chosen.shown, chosen.widths, strict=True)
            wrapped = [_cell(line, index, width, indent) for index, width in cells]
            yield from beside(wrapped, chosen.widths, GAP, right)
        previous = line.kind


def _cell(line: Line, index: int, width: int, indent: int) -> list[Text]:
    text = _text(line.cells[index], line)
    if index == 0 and indent:
        return hang(Text(" " * indent), text, width)
    return text.wrapped(width)


def _text(cell: Cell, line: Line) -> Text:
    """The cell's text; groups and totals are bold whatever their tone."""
    return Text(visible(cell.text), STYLES[cell.tone] if line.kind == "row" else f"bold {STYLES[cell.tone]}")


def _cards(block: Table, screen: Screen) -> Iterator[Text]:
    """Where the columns that must be shown do not fit side by side: each line as a list of its cells by title."""
    titles = [column.title for column in block.columns]
    lead = min(widest(titles), screen.width // 3)
    for line in block.lines:
        yield from _text(line.cells[0], line).wrapped(screen.width)
        for title, cell in zip(titles[1:], line.cells[1:], strict=True):
            if cell.text:
                yield from _card_line(title, _text(cell, line), lead, screen)


def _card_line(title: str, value: Text, lead: int, screen: Screen) -> Sequence[Text]:
    name = plain(title, "muted")
    if name.width > lead:
        return [*name.wrapped(screen.width), *hang(Text("  "), value, screen.width)]
    return hang(Text.of("  ", name, " " * (lead - name.width + GAP)), value, screen.width)
