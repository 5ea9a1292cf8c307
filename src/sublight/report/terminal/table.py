"""A table on a terminal: columns chosen to fit, sections opened by their group, totals under a rule.

The widths are decided first (`fit`); what is left is to wrap and to pad, which rich's own table does three times slower
than these lines, at fifteen milliseconds for forty lines: a seventh of what a command may take. Nor does it know a
group's title that runs over all columns.
"""

from collections.abc import Iterator, Sequence

from rich.text import Text

from sublight.report.blocks import Cell, Line, Table, Tone
from sublight.report.terminal.fit import Fit, Need, fit
from sublight.report.terminal.screen import Screen, beside, plain, widest
from sublight.report.visible import visible

GAP = 2
INDENT = 2  # of the first column of lines that belong to a group


def table(block: Table, screen: Screen) -> Iterator[Text]:
    """The table, then its caption and the names of the columns there was no room for."""
    if not block.columns:
        return
    chosen = fit(_needs(block), screen.width, GAP)
    if chosen is None:
        yield from _cards(block, screen)
    else:
        yield from _grid(block, chosen, screen)
        missing = [column.title for index, column in enumerate(block.columns) if index not in chosen.shown]
        if missing:
            yield from screen.wrap(plain(f"No room at this width for: {', '.join(missing)}", "muted"), screen.prose)
    if block.caption:
        yield from screen.wrap(plain(block.caption, "muted"), screen.prose)


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
        needs.append(Need(max(body, widest([column.title]), 1), unbroken, wraps, column.priority, names=index == 0))
    return needs


def _grid(block: Table, chosen: Fit, screen: Screen) -> Iterator[Text]:
    rule = Text("─" * (sum(chosen.widths) + GAP * (len(chosen.widths) - 1)), style="dim")
    right = [block.columns[index].align == "right" for index in chosen.shown]
    if any(column.title for column in block.columns):
        heads = [
            screen.wrap(plain(block.columns[index].title, "strong"), width)
            for index, width in zip(chosen.shown, chosen.widths, strict=True)
        ]
        height = max(len(head) for head in heads)
        # Titles stand on the rule, whatever their height.
        yield from beside([[Text()] * (height - len(head)) + head for head in heads], chosen.widths, GAP, right)
        yield rule
    previous = "group"
    for line, indent in zip(block.lines, _indents(block), strict=True):
        if is_title(line):
            yield from screen.wrap(_text(line.cells[0], line), screen.width)
        else:
            if line.kind == "total" and previous == "row":
                yield rule
            cells = zip(chosen.shown, chosen.widths, strict=True)
            wrapped = [_cell(line, index, width, indent, screen) for index, width in cells]
            yield from beside(wrapped, chosen.widths, GAP, right)
        previous = line.kind


def _cell(line: Line, index: int, width: int, indent: int, screen: Screen) -> list[Text]:
    text = _text(line.cells[index], line)
    if index == 0 and indent:
        return screen.hang(Text(" " * indent), text, width)
    return screen.wrap(text, width)


def _text(cell: Cell, line: Line) -> Text:
    tone: Tone = "strong" if cell.tone == "plain" and line.kind != "row" else cell.tone
    text = plain(cell.text, tone)
    if line.kind != "row":
        text.stylize("bold")
    return text


def _cards(block: Table, screen: Screen) -> Iterator[Text]:
    """Where the columns that must be shown do not fit side by side: each line as a list of its cells by title."""
    titles = [column.title for column in block.columns]
    lead = min(widest(titles), screen.width // 3)
    for line in block.lines:
        yield from screen.wrap(_text(line.cells[0], line), screen.width)
        for title, cell in zip(titles[1:], line.cells[1:], strict=True):
            if cell.text:
                yield from _card_line(title, _text(cell, line), lead, screen)


def _card_line(title: str, value: Text, lead: int, screen: Screen) -> Sequence[Text]:
    name = plain(title, "muted")
    if name.cell_len > lead:
        return [*screen.wrap(name, screen.width), *screen.hang(Text("  "), value, screen.width)]
    return screen.hang(Text.assemble("  ", name, " " * (lead - name.cell_len + GAP)), value, screen.width)
