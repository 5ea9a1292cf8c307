"""Logs of power and clocks that ran beside a profile: what each card drew, and what held its clocks down.

Read are the tables of `nvidia-smi --query-gpu=... --format=csv`, once or in a loop, with or without units, and the
short names of common loggers (index, util, power_w, limit_w). Their times are a wall clock without its zone and can not
be laid on a trace, so the moments in which a card was busy stand for the steps.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from sublight.errors import InputFileError
from sublight.files import read_small_file

_BUSY = 90.0  # per cent
_FORM = (
    "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw,power.limit,clocks.sm,clocks.max.sm,"
    "clocks_event_reasons.active --format=csv -lms 200 > power.csv   while the engine decodes"
)
# Columns by nvidia-smi's names without units, and by those of common loggers; of several the first is taken.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "index": ("index", "gpu", "gpu_index", "id"),
    "time": ("timestamp", "time"),
    "name": ("name", "gpu_name"),
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
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?=\s*(?:%|W|MHz)?$)")


class HeldDown(msgspec.Struct, frozen=True):
    """What lowered the clocks, and in which share of the busy moments; as nvidia-smi calls it."""

    reason: str
    share: float


class GpuPower(msgspec.Struct, frozen=True, kw_only=True):
    """One card of a log. Medians over the moments in which it was busy; None where the log does not say.

    Attributes:
        index: of the card on its host.
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


Values = dict[str, str]


def read_power_log(path: str | Path) -> tuple[GpuPower, ...]:
    """The cards of a log, by their index.

    Raises:
        InputFileError: it can not be read, or is no table of GPUs that tells their power or their clocks.
    """
    asked = f"reading the power log {path}"
    text = read_small_file(Path(path), asked, _FORM, at_most=1 << 28).decode("utf-8-sig", "replace")
    lines = list(csv.reader(text.splitlines(), skipinitialspace=True))
    header = next((line for line in lines if line), [])
    names = [_UNIT.sub("", cell.strip().lower()) for cell in header]
    columns = {key: found for key, known in _COLUMNS.items() if (found := next((n for n in known if n in names), ""))}
    if not columns.keys() & {"power", "clock"}:
        found = f"its first line names no power and no clock: {', '.join(header)[:120] or 'it is empty'}"
        raise InputFileError(asked, found, _FORM)
    cards: dict[int, list[Values]] = {}
    for card, values in _rows(lines, header, names, columns):
        cards.setdefault(card, []).append(values)
    if not cards:
        raise InputFileError(asked, "no line under its header has as many cells as it", _FORM)
    return tuple(_summed(str(path), index, cards[index], columns) for index in sorted(cards))


def power_of(cards: Sequence[GpuPower], number: int) -> GpuPower | None:
    """The card of a rank or device: the only one, or the one of that index; None where there is no such card."""
    return cards[0] if len(cards) == 1 else next((card for card in cards if card.index == number), None)


def _rows(
    lines: list[list[str]], header: list[str], names: list[str], columns: dict[str, str]
) -> Iterator[tuple[int, Values]]:
    """Each whole line with its card. Without an index, lines of one time are the cards in order."""
    at, place = "", 0
    for line in lines:
        if len(line) != len(header) or line == header:
            continue
        values = dict(zip(names, (cell.strip() for cell in line), strict=True))
        time = values.get(columns.get("time", ""), "")
        place, at = (place + 1 if time and time == at else 0), time
        index = _number(values.get(columns.get("index", ""), ""))
        yield (place if index is None else int(index)), values


def _summed(source: str, index: int, lines: list[Values], columns: dict[str, str]) -> GpuPower:
    def column(key: str, among: list[Values]) -> list[float]:
        values = (_number(line.get(columns.get(key, ""), "")) for line in among)
        return [value for value in values if value is not None]

    def of(key: str, among: list[Values], taken: Callable[[list[float]], float] = median) -> float | None:
        values = column(key, among)
        return taken(values) if values else None

    told = [line for line in lines if _number(line.get(columns.get("utilization", ""), "")) is not None]
    busy = [line for line in told if (_number(line[columns["utilization"]]) or 0.0) >= _BUSY] if told else lines
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
        held_down=_held_down(busy, columns),
    )


def _held_down(busy: list[Values], columns: dict[str, str]) -> tuple[HeldDown, ...]:
    times: dict[str, int] = {}
    for line in busy:
        for reason in _reasons(line, columns):
            times[reason] = times.get(reason, 0) + 1
    found = sorted(times.items(), key=lambda item: (-item[1], item[0]))
    return tuple(HeldDown(reason, count / len(busy)) for reason, count in found)


def _reasons(line: Values, columns: dict[str, str]) -> set[str]:
    """From the bit mask, and from columns of single reasons."""
    found = {
        match[1]
        for name, value in line.items()
        if (match := _REASON.fullmatch(name)) and match[1] in _BITS.values() and value.lower() == "active"
    }
    mask = line.get(columns.get("active", ""), "")
    bits = int(mask, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask) else 0
    return found | {reason for bit, reason in _BITS.items() if bits & bit}


def _number(text: str) -> float | None:
    """The value of a cell, whose unit its column fixes; None for N/A and what else is no number."""
    match = _NUMBER.match(text)
    return float(match[0]) if match else None
