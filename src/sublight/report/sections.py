"""A table cut into its sections, with what each cell sorts by: the shape an HTML table wants.

A page can sort the lines of a section; groups and totals stay where they are. Cells are finished text, so their order
is read back from it: a column sorts as numbers if its cells are numbers of one unit, prefixes allowed for (920 us is
less than 6.64 ms), and by its letters otherwise.
"""

import math
import re
from collections.abc import Sequence

import msgspec

from sublight.report.blocks import Cell, Line, Table

SHORT = 28  # characters that a cell may have in a column that does not wrap
_NUMBER = re.compile(
    r"[≈~<>]?\s*([-+\u2212]?)(\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)\s*(%|[^\W\d]+(?:/[^\W\d]+)?)?", re.IGNORECASE
)
_BASES = frozenset(["s", "B", "B/s", "b/s", "bit/s", "FLOP", "FLOP/s", "FLOPS", "Hz", "W", "J"])
_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


class Entry(msgspec.Struct, frozen=True):
    """A cell and what it sorts by: a number, or None for text and for what is not known."""

    cell: Cell
    key: float | None


class Row(msgspec.Struct, frozen=True):
    kind: str
    entries: tuple[Entry, ...]

    @property
    def is_title(self) -> bool:
        """Whether the row opens its section with a title alone, which may run over all columns."""
        return self.kind == "group" and not any(entry.cell.text for entry in self.entries[1:])


class Section(msgspec.Struct):
    """Lines up to the next group; `rows` holds the group's own line first, where there is one."""

    rows: list[Row] = []


def sections(table: Table) -> list[Section]:
    found: list[Section] = []
    numeric = [_numeric(table, index) for index in range(len(table.columns))]
    for line in table.lines:
        if not found or line.kind == "group":
            found.append(Section())
        found[-1].rows.append(_row(line, numeric))
    return found


def notes(table: Table) -> list[tuple[str, str]]:
    """The notes of all cells in reading order, each with where it belongs: the line's name, and the column's."""
    found = []
    for line in table.lines:
        for index, (column, cell) in enumerate(zip(table.columns, line.cells, strict=True)):
            if cell.note:
                found.append((line.cells[0].text + (f", {column.title}" if index else ""), cell.note))
    return found


def sorting(table: Table) -> list[str]:
    """How each column sorts: "number", "text", or "" where no section has lines enough to be worth it."""
    runs = [sum(row.kind == "row" for row in section.rows) for section in sections(table)]
    if max(runs, default=0) < 3:
        return ["" for _ in table.columns]
    return ["number" if _numeric(table, index) else "text" for index in range(len(table.columns))]


def shapes(table: Table) -> list[str]:
    """How wide each column wants to be: "short" stays on one line, "long" is prose that wraps at a readable width."""
    return [
        "short" if max((len(row.entries[index].cell.text) for row in _body(table)), default=0) <= SHORT else "long"
        for index in range(len(table.columns))
    ]


def measure(text: str) -> tuple[float, str] | None:
    """The number a text is, in the base of its unit, and that base: ("920 us") is (0.00092, "s")."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    sign, digits, unit = match[1], match[2].replace(",", ""), match[3] or ""
    value = float(digits) * (-1 if sign and sign != "+" else 1)
    if not math.isfinite(value):
        return None
    if unit not in _BASES and unit[1:] in _BASES and unit[0] in _PREFIXES:
        return value * _PREFIXES[unit[0]], unit[1:]
    return value, unit


def _body(table: Table) -> list[Row]:
    return [row for section in sections(table) for row in section.rows if not row.is_title]


def _numeric(table: Table, index: int) -> bool:
    """Whether the column's lines are numbers of one unit, save for blanks and a few words."""
    texts = [line.cells[index].text for line in table.lines if line.kind == "row" and line.cells[index].text.strip()]
    measures = [found for found in map(measure, texts) if found is not None]
    return len({base for _, base in measures}) == 1 and len(measures) * 2 > len(texts)


def _row(line: Line, numeric: Sequence[bool]) -> Row:
    entries = []
    for cell, is_number in zip(line.cells, numeric, strict=True):
        found = measure(cell.text) if is_number else None
        entries.append(Entry(cell, found[0] if found else None))
    return Row(line.kind, tuple(entries))
