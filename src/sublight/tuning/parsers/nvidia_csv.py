"""Tables of GPUs as CSV: `nvidia-smi --query-gpu=... --format=csv`, and those that people log beside a run."""

import csv
import re

import msgspec

from sublight.tuning.parsers.values import has_value, number, plain

# Names of columns that mean one thing, in nvidia-smi's spelling without its unit and in those of common loggers.
_SAME = {
    "timestamp": "timestamp",
    "index": "index",
    "pci.bus_id": "bus",
    "gpu_bus_id": "bus",
    "gpu": "index",
    "name": "name",
    "compute_cap": "compute_cap",
    "memory.total": "memory.total",
    "utilization.gpu": "utilization",
    "util": "utilization",
    "power.draw": "power.draw",
    "power_w": "power.draw",
    "power.limit": "power.limit",
    "limit_w": "power.limit",
    "pstate": "pstate",
    "pcie.link.gen.current": "gen.current",
    "pcie.link.gen.max": "gen.max",
    "pcie.link.width.current": "width.current",
    "pcie.link.width.max": "width.max",
    "persistence_mode": "persistence",
}
_SAME |= {name: name for name in _SAME.values()}
_BUSY = 90  # percent
_TELLING = {"name", "utilization", "power.draw", "compute_cap", "gen.current", "persistence"}
# One card a line without a header: name, compute capability, and what else was asked for.
_BARE = re.compile(r"(NVIDIA [^,]+), ([0-9]{1,2}\.[0-9])(?:, (.*))?")


class Row(msgspec.Struct, frozen=True):
    """One GPU; only columns that are known by name, as printed."""

    line: int
    values: dict[str, str]
    header: int = 0  # the line of its columns' names; 0 where there is none

    def text(self, column: str) -> str:
        value = self.values.get(column, "")
        return value if has_value(value) else ""

    def number(self, column: str) -> float | None:
        return number(self.values.get(column, ""))


def looks_like(text: str) -> bool:
    return bool(parse(text))


def parse(text: str) -> tuple[Row, ...]:
    """A row a card; none for text that is no such table, and for a log that does not say which card a line is of.

    A log has many rows a card. One of them stands for the card: of those at 90 % and more (of all, if none is) the one
    of median power.
    """
    samples: dict[str, list[Row]] = {}
    for order, row in enumerate(_rows(text)):
        own = row.text("index") or row.text("bus").lower()
        if not own and row.text("timestamp"):
            return ()
        samples.setdefault(own or f"line {order}", []).append(row)
    return tuple(map(_telling, samples.values()))


def keep(text: str) -> str:
    """The columns that are known by name; nothing of the others, which can be serial numbers."""
    lines = [""] * len(plain(text).splitlines())
    for row in _rows(text):
        values = [value.replace(",", " ") for value in row.values.values()]
        if not row.header:
            lines[row.line - 1] = ", ".join(values[1:])  # the index is the line's
            continue
        # With a column more, for a table of one column is none.
        lines[row.header - 1] = ",".join([*row.values, ""])
        lines[row.line - 1] = ",".join([*values, ""])
    return "\n".join(lines) + "\n"


def _rows(text: str) -> list[Row]:
    lines = [(place, line) for place, line in enumerate(plain(text).splitlines(), 1) if line.strip()]
    if not lines:
        return []
    header, columns = lines[0][0], _columns(lines[0][1])
    if not columns:
        return _bare(lines)
    rows = []
    for place, line in lines[1:]:
        if again := _columns(line):  # a log that was appended to, perhaps with other columns
            header, columns = place, again
            continue
        cells = _cells(line)
        if len(cells) == len(columns):
            known = {column: cell.strip() for column, cell in zip(columns, cells, strict=True) if column}
            rows.append(Row(place, known, header))
    return rows


def _telling(rows: list[Row]) -> Row:
    busy = [row for row in rows if (row.number("utilization") or 0) >= _BUSY] or rows
    by_power = sorted((row for row in busy if row.number("power.draw") is not None), key=_power)
    return by_power[(len(by_power) - 1) // 2] if by_power else busy[0]


def _power(row: Row) -> float:
    return row.number("power.draw") or 0.0


def _columns(header: str) -> list[str]:
    """What each column is, "" where that is not known; empty for a line that is no header of such a table."""
    names = [_SAME.get(re.sub(r"\s*\[.*\]$", "", name.strip().lower()), "") for name in _cells(header)]
    return names if _TELLING & set(names) and len(names) > 1 else []


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:  # a cell beyond all measure
        return []


def _bare(lines: list[tuple[int, str]]) -> list[Row]:
    rows = []
    for index, (place, line) in enumerate(lines):
        match = _BARE.fullmatch(line.strip())
        if match is None:
            return []
        values = {"index": str(index), "name": match[1], "compute_cap": match[2]}
        if match[3]:
            values["memory.total"] = match[3].split(",")[0].strip()
        rows.append(Row(place, values))
    return rows
