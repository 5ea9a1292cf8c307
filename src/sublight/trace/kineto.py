"""One event of a Kineto file: the fields we use, and how a stretch of JSON becomes events with exact times.

Three readings of the same text. The quick one lets msgspec check the types and make floats of the times; it does for
nearly all files. The exact one keeps the digits of a time as they stand. The careful one accepts any valid JSON object
and says per field what was not a number. A quicker one gives up on anything it would not get exactly right, so that
they never differ on the same event, and a stretch may be read by any of them.

Times are decimal microseconds. A double holds those to the nanosecond up to 2**43 (a hundred days): the whole part is
exact, and what is left, times a thousand, is off by less than half. Kineto counts from a base in the last quarter year,
so its own files are below that; time stamps since 1970 are not.
"""

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.trace.events import Nanoseconds

_EXACT_US = float(2**43)
_MOST = 2**62
_ZERO = msgspec.Raw(b"0")

# A number that an int64 column can take; anything larger goes the careful way.
Number = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]


class Args(msgspec.Struct, frozen=True, gc=False):
    """The arguments we use; a field that is absent in the file is absent here."""

    device: Number | None = None
    stream: Number | None = None
    correlation: Number = 0
    external: Number = msgspec.field(name="External id", default=0)
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: Number | None = msgspec.field(name="registers per thread", default=None)
    shared_memory: Number | None = msgspec.field(name="shared memory", default=None)
    bytes: Number | None = None
    node: Number | None = msgspec.field(name="graph node id", default=None)
    graph: Number | None = msgspec.field(name="graph id", default=None)
    collective: str | None = msgspec.field(name="Collective name", default=None)
    dtype: str | None = None
    elements_in: Number | None = msgspec.field(name="In msg nelems", default=None)
    elements_out: Number | None = msgspec.field(name="Out msg nelems", default=None)
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    group_size: Number | None = msgspec.field(name="Group size", default=None)
    name: str | None = None


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One row of `traceEvents`, without its times."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    args: Args = NO_ARGS


class QuickEvent(Event, gc=False):
    """A row whose times are numbers."""

    ts: float = 0.0
    dur: float = 0.0


class ExactEvent(Event, gc=False):
    """A row whose times are still text."""

    ts: msgspec.Raw = _ZERO
    dur: msgspec.Raw = _ZERO


class LooseEvent(msgspec.Struct, gc=False):
    """The same row before anything is believed about it."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = 0
    tid: Any = 0
    ts: msgspec.Raw = _ZERO
    dur: msgspec.Raw = _ZERO
    args: Any = None


class Batch(msgspec.Struct):
    """Consecutive events with their times. `bad` tells what was no number: (what was done, example)."""

    events: Sequence[Event]
    start: Nanoseconds
    duration: Nanoseconds
    bad: list[tuple[str, str]]


def joined(batches: list[Batch]) -> Batch:
    """One batch of several, in their order."""
    return Batch(
        [event for batch in batches for event in batch.events],
        np.concatenate([batch.start for batch in batches]),
        np.concatenate([batch.duration for batch in batches]),
        [bad for batch in batches for bad in batch.bad],
    )


_QUICK = msgspec.json.Decoder(list[QuickEvent])
_EXACT = msgspec.json.Decoder(list[ExactEvent])
_LOOSE = msgspec.json.Decoder(list[LooseEvent])


def decode(text: bytes) -> Batch:
    """The events of a JSON array. Raises msgspec.DecodeError where the text is not an array of objects."""
    try:
        for reading in (_quick, _exact):
            try:
                batch = reading(text)
            except msgspec.ValidationError:
                continue
            if batch is not None:
                return batch
        return loosely(_LOOSE.decode(text))
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None


def _quick(text: bytes) -> Batch | None:
    events = _QUICK.decode(text)
    start = _whole_ns(np.array([event.ts for event in events], np.float64))
    duration = _whole_ns(np.array([event.dur for event in events], np.float64))
    return None if start is None or duration is None else Batch(events, start, duration, [])


def _exact(text: bytes) -> Batch | None:
    events = _EXACT.decode(text)
    start = [exact_ns(bytes(event.ts)) for event in events]
    duration = [exact_ns(bytes(event.dur)) for event in events]
    if None in start or None in duration:
        return None
    return Batch(events, np.array(start, np.int64), np.array(duration, np.int64), [])


def _whole_ns(us: npt.NDArray[np.float64]) -> Nanoseconds | None:
    if not len(us):
        return np.empty(0, np.int64)
    if us.max() >= _EXACT_US or us.min() <= -_EXACT_US:
        return None
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def loosely(rows: list[LooseEvent]) -> Batch:
    """Events from rows of any content. A row whose time is no number comes out as a phase "?", which nothing uses."""
    events: list[Event] = []
    starts: list[int] = []
    durations: list[int] = []
    bad: list[tuple[str, str]] = []
    for row in rows:
        start, duration = exact_ns(bytes(row.ts)), exact_ns(bytes(row.dur))
        event = _believed(row, bad)
        if (event.ph == "X" and duration is None) or (event.ph in ("X", "B", "E") and start is None):
            field, raw = ("ts", row.ts) if start is None else ("dur", row.dur)
            shown = bytes(raw)[:40].decode("utf-8", "replace")
            bad.append(("a time that is no number; the event was left out", f'"{field}": {shown} of {event.name!r}'))
            event.ph = "?"
        events.append(event)
        starts.append(start or 0)
        durations.append(duration or 0)
    return Batch(events, np.array(starts, np.int64), np.array(durations, np.int64), bad)


def exact_ns(literal: bytes) -> int | None:
    """Nanoseconds from the text of a JSON number of microseconds, in quotes or not; None if it is no such number."""
    whole_text, _, fraction = literal.partition(b".")
    if whole_text.isdigit() and len(whole_text) <= 16 and len(fraction) <= 3 and (not fraction or fraction.isdigit()):
        ns = int(whole_text) * 1000 + int(fraction.ljust(3, b"0"))
        return ns if ns < _MOST else None
    text = literal.strip().strip(b'"').strip()
    try:
        us = float(text)
        if abs(us) < _EXACT_US:
            whole = int(us // 1)
            return whole * 1000 + round((us - whole) * 1000)
        exactly = (Decimal(text.decode("ascii")) * 1000).to_integral_value(ROUND_HALF_EVEN)
        return int(exactly) if abs(exactly) < _MOST else None
    except (ValueError, ArithmeticError):
        return None


def _believed(row: LooseEvent, bad: list[tuple[str, str]]) -> Event:
    name = _text(row.name)

    def refuse(field: str, value: object) -> None:
        bad.append(
            ("an argument that is not what it should be; it was taken as absent", f"{field}: {value!r} of {name!r}")
        )

    known: dict[str, Any] = {}
    if isinstance(row.args, dict):
        for field, key, convert in _ARGUMENTS:
            value = row.args.get(key)
            if value is None:
                continue
            believed = convert(value)
            if believed is None:
                # A process label or thread name may be anything; it is not worth a word.
                if field != "name":
                    refuse(key, value)
            else:
                known[field] = believed
    args = Args(**known) if known else NO_ARGS
    return Event(_text(row.ph), _text(row.cat), name, _identity(row.pid), _identity(row.tid), args)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _identity(value: Any) -> int | str:
    return value if isinstance(value, int) and not isinstance(value, bool) else _text(value)


def _integer(value: Any) -> int | None:
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return number if abs(number) < _MOST and not isinstance(value, bool) else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _triple(value: Any) -> tuple[int, int, int] | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    sizes = [_integer(item) for item in value]
    return (sizes[0], sizes[1], sizes[2]) if None not in sizes else None  # type: ignore[return-value]


_ARGUMENTS: list[tuple[str, str, Callable[[Any], Any]]] = [
    (
        field.name,
        field.encode_name,
        _triple
        if field.name in ("grid", "block")
        else _word
        if field.name in ("name", "collective", "dtype", "group")
        else _integer,
    )
    for field in msgspec.structs.fields(Args)
]
