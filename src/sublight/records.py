"""Records: what a command found, frozen, saved as JSON, and readable by a later version or refused clearly.

A record is a frozen struct with a schema name and a version. This module knows no record by name: whoever loads one
hands in the table of types it is prepared to read. `Figure` is the number every record is made of: a value never
travels without the class of its evidence and where it came from.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

import sublight
from sublight.errors import InputFileError, RecordError


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
        record=msgspec.Raw(msgspec.json.encode(record)),
    )
    return msgspec.json.format(msgspec.json.encode(envelope), indent=1) + b"\n"


def decode(data: bytes, types: Mapping[str, type[Record]], name: str = "the record") -> Record:
    """A record from its JSON.

    Args:
        data: what `encode` wrote, by this or an earlier version.
        types: schema name -> record type, for the kinds the caller can use.
        name: how an error calls the input.

    Raises:
        RecordError: not JSON, no envelope, an unknown schema, a newer version, or a field that does not fit.
    """
    asked = f"reading {name} as a saved record"
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
    except msgspec.DecodeError as error:
        raise RecordError(asked, f"this is not a record that Sublight wrote ({error})", _SAVE_HINT) from None
    known = {f"sublight/{schema}": record_type for schema, record_type in types.items()}
    record_type = known.get(envelope.schema)
    if record_type is None:
        kinds = ", ".join(sorted(known)) or "none"
        raise RecordError(asked, f"its schema is {envelope.schema!r}; readable here: {kinds}", _SAVE_HINT)
    if envelope.version > record_type.version:
        raise RecordError(
            asked,
            f"it has version {envelope.version} of {envelope.schema!r}, written by {envelope.written_by}; "
            f"this is sublight {sublight.__version__}, which reads up to version {record_type.version}",
            "a Sublight at least as new as the one that wrote it",
        )
    try:
        return msgspec.json.decode(envelope.record, type=record_type)
    except msgspec.DecodeError as error:
        raise RecordError(asked, f"a field does not fit schema {envelope.schema!r}: {error}", _SAVE_HINT) from None


_SAVE_HINT = "a file written with --save"


def written_at(data: bytes) -> str:
    """When a record was written, in UTC; "" for what is no record of ours."""
    try:
        return msgspec.json.decode(data, type=Envelope).written_at
    except msgspec.DecodeError:
        return ""


def load(path: Path, types: Mapping[str, type[Record]]) -> Record:
    """A record from a file. Raises InputFileError when it cannot be read, RecordError when it is not a record."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputFileError(f"reading {path}", error.strerror or str(error), _SAVE_HINT) from None
    return decode(data, types, str(path))


def save(record: Record, path: Path) -> None:
    """Write the record so that the file is either the old one or the whole new one."""
    write_atomically(path, encode(record))


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: written beside it, then renamed. Raises InputFileError."""
    import tempfile

    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).chmod(0o666 & ~_umask())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputFileError(
            f"writing {path}", error.strerror or str(error), "a folder that exists and can be written to"
        ) from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def to_builtins(record: Record) -> Any:
    """The record as plain dicts and lists, for callers that want to look inside without its type."""
    return msgspec.to_builtins(record)
