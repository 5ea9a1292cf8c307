"""Tables of GPUs as CSV: `nvidia-smi --query-gpu=... --format=csv`, and those that people log beside a run."""

import csv
import re

import msgspec

from sublight.tuning.parsers.values import has_value, number, plain

# Names of columns that mean one thing, in nvidia-smi's spelling without its unit and in those of common loggers.
_SAME = {
    "index": "index",
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
_TELLING = {"name", "utilization", "power.draw", "compute_cap", "gen.current", "persistence"}
# One card a line without a header: name, compute capability, and what else was asked for.
_BARE = re.compile(r"(NVIDIA [^,]+), ([0-9]{1,2}\.[0-9])(?:, (.*))?")


class Row(msgspec.Struct, frozen=True):
    """One GPU; only columns that are known by name, as printed."""

    line: int
    values: dict[str, str]

    def text(self, column: str) -> str:
        value = self.values.get(column, "")
        return value if has_value(value) else ""

    def number(self, column: str) -> float | None:
        return number(self.values.get(column, ""))


def looks_like(text: str) -> bool:
    return bool(parse(text))


def parse(text: str) -> tuple[Row, ...]:
    """The rows; none for text that is no such table."""
    lines = [(place, line) for place, line in enumerate(plain(text).splitlines(), 1) if line.strip()]
    if not lines:
        return ()
    columns = _columns(lines[0][1])
    if not _TELLING & set(columns) or len(columns) < 2:
        return _bare(lines)
    rows = []
    for place, line in lines[1:]:
        cells = next(csv.reader([line], skipinitialspace=True))
        if len(cells) == len(columns):
            known = {column: cell.strip() for column, cell in zip(columns, cells, strict=True) if column}
            rows.append(Row(place, known))
    return tuple(rows)


def _columns(header: str) -> list[str]:
    names = next(csv.reader([header], skipinitialspace=True))
    return [_SAME.get(re.sub(r"\s*\[.*\]$", "", name.strip().lower()), "") for name in names]


def _bare(lines: list[tuple[int, str]]) -> tuple[Row, ...]:
    rows = []
    for index, (place, line) in enumerate(lines):
        match = _BARE.fullmatch(line.strip())
        if match is None:
            return ()
        values = {"index": str(index), "name": match[1], "compute_cap": match[2]}
        if match[3]:
            values["memory.total"] = match[3].split(",")[0].strip()
        rows.append(Row(place, values))
    return tuple(rows)
