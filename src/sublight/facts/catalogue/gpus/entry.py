"""FigureEntry: a figure as a catalogue file states it, and the way from there to a `Figure` with evidence.

    [memory_bandwidth_bytes_per_s]
    value = 1597e9
    status = "data sheet"
    source = "se-ds"
    note = "..."

`source` is a key of the sources beside the figure, so that an address is written once. A text that could not be a key
(it has a space, a dot or a slash) is itself the source.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from sublight.errors import InputFileError, near_misses
from sublight.files import read_small_file
from sublight.records import Evidence, Figure

Status = Literal[
    "data sheet", "official", "measured", "secondary", "well known", "derived", "uncertain", "given", "not known"
]
# How a file says a figure is known -> its evidence class, and what that class leaves unsaid.
STATUS: dict[str, tuple[Evidence, str]] = {
    "data sheet": (Evidence.DATA_SHEET, ""),
    "official": (Evidence.DATA_SHEET, "the maker's documentation"),
    "measured": (Evidence.PUBLISHED, ""),
    "secondary": (Evidence.PUBLISHED, "no data sheet was checked"),
    "well known": (Evidence.PUBLISHED, "no page of the maker was checked"),
    "derived": (Evidence.COMPUTED, ""),
    "uncertain": (Evidence.UNCERTAIN, ""),
    "given": (Evidence.GIVEN, ""),
    "not known": (Evidence.NOT_KNOWN, ""),
}
_KEY = re.compile(r"[a-z0-9][a-z0-9-]*")

AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)


class FigureEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One figure of a file. A value of 0 says that the hardware is absent, and then the note has to say so."""

    status: Status
    value: float | None = None
    source: str = ""
    note: str = ""

    def figure(self, sources: Mapping[str, str], otherwise: str = "") -> Figure:
        """With its source spelled out; `otherwise` when it names none. Raises ValueError."""
        if self.value is not None and not (math.isfinite(self.value) and self.value >= 0):
            raise ValueError(f"value = {self.value} is not a number from 0 up")
        if self.value == 0 and not self.note:
            raise ValueError("value = 0 says that the hardware is absent, and needs a note that says so")
        evidence, unsaid = STATUS[self.status]
        note = "; ".join(part for part in (self.note, unsaid) if part)
        return Figure(self.value, evidence, source_text(self.source, sources) or otherwise, note)


def source_text(source: str, sources: Mapping[str, str]) -> str:
    """The source behind a key. Raises ValueError for a key that the sources lack."""
    if source in sources or not source:
        return sources.get(source, "")
    if _KEY.fullmatch(source):
        near = near_misses(source, sources)
        raise ValueError(f"source = {source!r} is no known source" + (f" ({' or '.join(near)}?)" if near else ""))
    return source


def read_toml(path: Path, asked: str, hint: str) -> dict[str, Any]:
    """A TOML file as a dict. Raises InputFileError."""
    data = read_small_file(path, asked, hint)
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputFileError(asked, f"it is not TOML: {error}", hint) from None


def convert(raw: Any, into: type[AnyStruct]) -> AnyStruct:
    """A part of a file as its struct. Raises ValueError with the place inside the part."""
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
