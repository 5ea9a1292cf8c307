"""Logs of power and clocks that ran beside a profile: what each card drew, and what held its clocks down.

Read are the tables of `nvidia-smi --query-gpu=... --format=csv`, once or in a loop, with or without units, and the
short names of common loggers (index, util, power_w, limit_w). Their times are a wall clock without its zone and can not
be laid on a trace, so the moments in which a card was busy stand for the steps.

A card is told by its index, or else by its bus address or UUID. A log with none of them is one card's, unless lines
share a time: those may be several cards or several moments, and are refused.
"""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from sublight.errors import InputFileError
from sublight.files import read_small_file

_BUSY, _MOST = 90.0, 100.0  # per cent
_FORM = (
    "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw,power.limit,clocks.sm,clocks.max.sm,"
    "clocks_event_reasons.active --format=csv -lms 200 > power.csv   while the engine decodes"
)
# Columns by nvidia-smi's names without units, and by those of common loggers; of several the first is taken.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "index": ("index", "gpu", "gpu_index", "id"),
    "time": ("timestamp", "time"),
    "bus": ("pci.bus_id", "gpu_bus_id"),
    "uuid": ("uuid", "gpu_uuid"),
    "utilization": ("utilization.gpu", "util", "utilization", "gpu_util"),
    "power": ("power.draw.instant", "power.draw", "power.draw.average", "power_w", "power"),
    "limit": ("enforced.power.limit", "power.limit", "limit_w", "power_limit_w"),
    "clock": ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics", "sm_mhz", "sm_clock_mhz"),
    "most": ("clocks.max.sm", "clocks.max.gr", "clocks.max.graphics", "max_sm_mhz"),
    "active": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
}
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons\.(?!active$|supported$|counters)(\w+)")
# NVML's bits. Those of an idle card and of clocks that somebody set hold nothing down that was not meant to be.
_BITS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
_UNIT = re.compile(r"\s*\[.*\]$")
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?(?=\s*(?:%|W|MHz)?$)")
_INDEX = re.compile(r"[0-9]{1,4}")


class HeldDown(msgspec.Struct, frozen=True):
    """What lowered the clocks, and in which share of the busy moments; as nvidia-smi calls it."""

    reason: str
    share: float


class GpuPower(msgspec.Struct, frozen=True, kw_only=True):
    """One card of a log. Medians over the moments in which it was busy; None where the log does not say.

    Attributes:
        index: of the card on its host; where the log has none, its place in the order of bus addresses or UUIDs.
        moments: how many lines it has.
        busy: in how many of them it was busy, for 90 % of the time or more; all where the log tells no utilisation.
        most_clock_mhz: what the card could run at, or the highest clock in the log.
        rated: whether that is the card's own maximum.
    """

    source: str
    index: int
    moments: int
    busy: int
    utilization: float | None = None
    power_w: float | None = None
    limit_w: float | None = None
    clock_mhz: float | None = None
    most_clock_mhz: float | None = None
    rated: bool = False
    held_down: tuple[HeldDown, ...] = ()


Values = dict[str, str]  # by the keys of `_COLUMNS`, and of single reasons by their own names


def read_power_log(path: str | Path) -> tuple[GpuPower, ...]:
    """The cards of a log, by their index.

    Raises:
        InputFileError: it can not be read, is no table of GPUs that tells their power or their clocks, or does not tell
            its cards apart.
    """
    asked = f"reading the power log {path}"
    text = read_small_file(Path(path), asked, _FORM, at_most=1 << 28).decode("utf-8-sig", "replace")
    try:
        lines = [line for line in csv.reader(text.splitlines(), skipinitialspace=True) if line]
    except csv.Error as error:
        raise InputFileError(asked, f"it is no table: {error}", _FORM) from None
    if not lines or not _columns(lines[0]):
        shown = ", ".join(lines[0])[:120] if lines else "it is empty"
        raise InputFileError(asked, f"its first line names no power and no clock: {shown}", _FORM)
    rows = _rows(lines)
    if not rows:
        raise InputFileError(asked, "no line under its header has as many cells as it", _FORM)
    cards = _cards(rows)
    if cards is None:
        raise InputFileError(asked, "lines of one time and no index: several cards, or one several times?", _FORM)
    return tuple(_summed(str(path), index, cards[index]) for index in sorted(cards))


def power_of(cards: Sequence[GpuPower], number: int, *, several: bool = False) -> GpuPower | None:
    """The card of a rank or device, by its index; None where there is no such card.

    The only card of a log is that of an only trace, whatever their numbers; of `several` traces it may be any.
    """
    if len(cards) == 1 and not several:
        return cards[0]
    return next((card for card in cards if card.index == number), None)


def _columns(line: list[str]) -> dict[str, int]:
    """Where each column stands, if the line is a header with power or clocks."""
    names = [_UNIT.sub("", cell.strip().lower()) for cell in line]
    found = {key: name for key, known in _COLUMNS.items() if (name := next((n for n in known if n in names), ""))}
    if not found.keys() & {"power", "clock"}:
        return {}
    reasons = {name: place for place, name in enumerate(names) if _REASON.fullmatch(name)}
    return {key: names.index(name) for key, name in found.items()} | reasons


def _rows(lines: list[list[str]]) -> list[Values]:
    """Each whole line. A header may come again, with other columns, where logs were appended to each other."""
    columns, width, rows = _columns(lines[0]), len(lines[0]), []
    for line in lines[1:]:
        if again := _columns(line):
            columns, width = again, len(line)
        elif len(line) == width:
            rows.append({key: line[place].strip() for key, place in columns.items()})
    return rows


def _cards(rows: list[Values]) -> dict[int, list[Values]] | None:
    """The lines of each card; None where it can not be told which card a line is of."""
    cards: dict[int, list[Values]] = {}
    key = next((key for key in ("index", "bus", "uuid") if all(row.get(key) for row in rows)), "")
    if not key:
        times = [row["time"] for row in rows if row.get("time")]
        return {0: rows} if len(set(times)) == len(times) else None
    numbered = [row for row in rows if key == "index" and _INDEX.fullmatch(row[key])]
    by_number, rows = bool(numbered), numbered or rows
    # By its bus address a card comes where nvidia-smi counts it.
    order = {name: number for number, name in enumerate(sorted({row[key].lower() for row in rows}))}
    for row in rows:
        cards.setdefault(int(row[key]) if by_number else order[row[key].lower()], []).append(row)
    return cards


def _summed(source: str, index: int, lines: list[Values]) -> GpuPower:
    def column(key: str, among: list[Values]) -> list[float]:
        values = (_number(line.get(key, "")) for line in among)
        return [value for value in values if value is not None]

    def of(key: str, among: list[Values], taken: Callable[[list[float]], float] = median) -> float | None:
        values = column(key, among)
        return taken(values) if values else None

    told = [line for line in lines if _number(line.get("utilization", "")) is not None]
    busy = [line for line in told if _BUSY <= (_number(line["utilization"]) or 0.0) <= _MOST] if told else lines
    rated = of("most", lines, max)
    return GpuPower(
        source=source,
        index=index,
        moments=len(lines),
        busy=len(busy),
        utilization=of("utilization", busy),
        power_w=of("power", busy),
        limit_w=of("limit", busy),
        clock_mhz=of("clock", busy),
        most_clock_mhz=of("clock", lines, max) if rated is None else rated,
        rated=rated is not None,
        held_down=_held_down(busy),
    )


def _held_down(busy: list[Values]) -> tuple[HeldDown, ...]:
    times: dict[str, int] = {}
    for line in busy:
        for reason in _reasons(line):
            times[reason] = times.get(reason, 0) + 1
    found = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    return tuple(HeldDown(reason, count / len(busy)) for reason, count in found)


def _reasons(line: Values) -> set[str]:
    """From the bit mask, and from columns of single reasons."""
    found = {
        match[1]
        for name, value in line.items()
        if (match := _REASON.fullmatch(name)) and match[1] in _BITS.values() and value.lower() == "active"
    }
    mask = line.get("active", "")
    bits = int(mask, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask) else 0
    return found | {reason for bit, reason in _BITS.items() if bits & bit}


def _number(text: str) -> float | None:
    """The value of a cell, whose unit its column fixes; None for N/A and what else is no number."""
    match = _NUMBER.match(text)
    return float(match[0]) if match else None
