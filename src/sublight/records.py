"""Records: what a command found, frozen, saved as JSON, and readable by a later version or refused clearly.

A record is a frozen struct with a schema name and a version. This module knows no record by name: whoever loads one
hands in the table of types it is prepared to read. `Figure` is the number every record is made of: a value never
travels without the class of its evidence and where it came from.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

import sublight
from sublight.errors import RecordError, SublightError
from sublight.files import read_small_file
from sublight.files import write_atomically as write_atomically  # noqa: PLC0414 - part of saving a record


class Evidence(StrEnum):
    """How a number is known. Classes are never mixed silently: a view prints them."""

    COMPUTED = "computed"  # arithmetic on other numbers, shown with its rule
    DATA_SHEET = "data sheet"  # the maker's own figure
    MEASURED = "measured here"  # by this program or handed to it as measured on this machine
    PUBLISHED = "published"  # measured by somebody else, with a source
    GIVEN = "given"  # the user said so
    UNCERTAIN = "uncertain"  # from a weak or contradictory source; check before use
    NOT_KNOWN = "not known"  # there is no value; the note says why


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One number with its evidence. `value` is None exactly when it is not known, and then `note` is the reason.

    The unit is in the name of the field that holds the figure.
    """

    value: float | None
    evidence: Evidence
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if (self.value is None) != (self.evidence is Evidence.NOT_KNOWN):
            raise ValueError("a figure has no value exactly when its evidence is 'not known'")
        if self.value is None and not self.note:
            raise ValueError("a figure that is not known needs the reason in its note")

    @property
    def known(self) -> float:
        """The value. Raises ValueError with the reason where there is none: callers check `value` first."""
        if self.value is None:
            raise ValueError(f"not known: {self.note}")
        return self.value


def not_known(reason: str) -> Figure:
    """A figure without a value, and why."""
    return Figure(None, Evidence.NOT_KNOWN, note=reason)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a command found. Subclasses set `schema` (what it is) and `version` (raised when a field changes)."""

    schema: ClassVar[str]
    version: ClassVar[int] = 1

    def flaws(self) -> Iterator[str]:
        """What cannot be so: sums that do not close, rows named twice. Nothing in a record that was not edited."""
        return iter(())


class Envelope(msgspec.Struct, frozen=True):
    """How a record lies on disk: the schema first, so that a file can be recognised without decoding the rest."""

    schema: str
    version: int
    written_by: str
    written_at: str
    environment: dict[str, str]
    record: msgspec.Raw


AnyRecord = TypeVar("AnyRecord", bound=Record)


def environment() -> dict[str, str]:
    """Where this was computed, without anything that identifies a person or a host."""
    import platform

    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
    }


def encode(record: Record) -> bytes:
    """The record in its envelope, as indented JSON ending in a newline."""
    envelope = Envelope(
        schema=f"sublight/{record.schema}",
        version=record.version,
        written_by=f"sublight {sublight.__version__}",
        written_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        environment=environment(),
        record=msgspec.Raw(_as_json(record)),
    )
    return msgspec.json.format(msgspec.json.encode(envelope), indent=1) + b"\n"


def _as_json(record: Record) -> bytes:
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:  # the name of a file that is no UTF-8
        return msgspec.json.encode(_spelled(msgspec.to_builtins(record)))


def _spelled(value: Any) -> Any:
    """The same with text that can be written down: bytes that are no UTF-8 become escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_spelled(key): _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, (list, tuple)) else value


def decode(data: bytes, types: Mapping[str, type[Record]], name: str = "the record") -> Record:
    """A record from its JSON.

    Args:
        data: what `encode` wrote, by this or an earlier version.
        types: schema name -> record type, for the kinds the caller can use.
        name: how an error calls the input.

    Raises:
        RecordError: not JSON, no envelope, an unknown schema, a newer version, a field that does not fit, or values
            that cannot be so together.
    """
    asked = f"reading {name} as a saved record"
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except _UNDECODABLE as error:
        raise RecordError(asked, f"this is not a record that Sublight wrote ({error})", _SAVE_HINT) from None
    known = {f"sublight/{schema}": record_type for schema, record_type in types.items()}
    record_type = known.get(envelope.schema)
    if record_type is None:
        kinds = ", ".join(sorted(known)) or "none"
        raise RecordError(asked, f"its schema is {envelope.schema!r}; readable here: {kinds}", _SAVE_HINT)
    if envelope.version < 1:
        raise RecordError(asked, f"it has version {envelope.version}; versions count from 1", _SAVE_HINT)
    if envelope.version > record_type.version:
        raise RecordError(
            asked,
            f"it has version {envelope.version} of {envelope.schema!r}, written by {envelope.written_by}; "
            f"this is sublight {sublight.__version__}, which reads up to version {record_type.version}",
            "a Sublight at least as new as the one that wrote it",
        )
    try:
        record = msgspec.json.decode(envelope.record, type=record_type)
    except _UNDECODABLE as error:
        raise RecordError(asked, f"a field does not fit schema {envelope.schema!r}: {error}", _SAVE_HINT) from None
    except SublightError as error:
        raise RecordError(asked, f"{error.asked}: {error.found}", _SAVE_HINT) from None
    flaw = next(impossible_numbers(record), "") or next(record.flaws(), "")
    if flaw:
        raise RecordError(asked, f"{flaw}; it was changed after it was written", _SAVE_HINT)
    return record


# What fields count that cannot be below zero, by the ends of their names. Moments and offsets can, and what a claim
# leaves beside the naive number.
_COUNTED = ("_s", "_ns", "bytes", "_per_token", "_per_sequence", "calls", "count", "counts", "parameters", "flops")
_SIGNED = ("start_ns", "end_ns", "offset_ns", "room_s")


def impossible_numbers(value: object, name: str = "the record", counted: bool = False) -> Iterator[str]:
    """Every number in a record that is not finite, or is below zero where its field is a time, a size or a count."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            own = field.endswith(_COUNTED) and not field.endswith(_SIGNED)
            yield from impossible_numbers(getattr(value, field), f"{name}.{field}", counted or own)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from impossible_numbers(item, f"{name}.{key}", counted)
    elif isinstance(value, (tuple, list)):
        for place, item in enumerate(value):
            yield from impossible_numbers(item, f"{name}[{place}]", counted)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            yield f"{name} is {value}, not finite"
        elif counted and value < 0:
            yield f"{name} is {value:g}, below zero"


def differ(stored: float | None, computed: float | None) -> bool:
    """Whether a stored number is not what it is computed from, beyond rounding."""
    if stored is None or computed is None:
        return stored is not computed
    return not math.isclose(stored, computed, rel_tol=1e-6, abs_tol=1e-12)


def repeated(names: Iterable[Any]) -> list[Any]:
    """What occurs more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


_SAVE_HINT = "a file written with --save"
_LARGEST = 512 * 1024 * 1024  # a trace of every kernel of a long run is a record too
# What msgspec raises for bytes that are no JSON of a type: broken, not UTF-8, or nested beyond any record.
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def written_at(data: bytes) -> str:
    """When a record was written, in UTC; "" for what is no record of ours."""
    try:
        return msgspec.json.decode(data, type=Envelope).written_at
    except _UNDECODABLE:
        return ""


def load(path: Path, types: Mapping[str, type[Record]]) -> Record:
    """A record from a file. Raises InputFileError when it cannot be read, RecordError when it is not a record."""
    return decode(read_small_file(path, f"reading {path}", _SAVE_HINT, _LARGEST), types, str(path))


def save(record: Record, path: Path) -> None:
    """Write the record so that the file is either the old one or the whole new one."""
    write_atomically(path, encode(record))


def to_builtins(record: Record) -> Any:
    """The record as plain dicts and lists, for callers that want to look inside without its type."""
    return msgspec.to_builtins(record)
