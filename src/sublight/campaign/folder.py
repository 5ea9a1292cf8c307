"""The folder of a campaign: every record in it by the time it was written; what is no record is named and left out."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from sublight import records
from sublight.errors import InputFileError, RecordError
from sublight.hosts.recording import Recording
from sublight.records import Record


class Entry(NamedTuple):
    """One file of the folder."""

    file: str
    written_at: str
    record: Record


class Folder(NamedTuple):
    """What was read: entries in order of time, and files that could not be used, each with the reason."""

    path: Path
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]

    def of(self, schema: str) -> list[Entry]:
        """Entries of one kind, oldest first."""
        return [e for e in self.entries if e.record.schema == schema]


def read_folder(path: Path, types: Mapping[str, type[Record]]) -> Folder:
    """All records of a campaign's folder. Raises InputFileError when it is no folder."""
    asked = f"reading {path} as a campaign"
    if not path.is_dir():
        if path.exists():
            raise InputFileError(
                asked, "it is a file", f"`sublight show {path}` prints a record; a campaign is a folder"
            )
        raise InputFileError(
            asked, "there is no such folder", f"mkdir {path}, then `sublight gap ... --campaign {path}`"
        )
    entries: list[Entry] = []
    left_out: list[str] = []
    for file in sorted(path.glob("*.json")):
        try:
            data = file.read_bytes()
            record = _without_recording(records.decode(data, types, file.name))
            entries.append(Entry(file.name, records.written_at(data), record))
        except OSError as error:
            left_out.append(f"{file.name}: {error.strerror or error}")
        except RecordError as error:
            left_out.append(f"{file.name}: {error.found}")
    # Records written within one second keep the order of their names, which are numbered.
    entries.sort(key=lambda e: (e.written_at, e.file))
    return Folder(path, tuple(entries), tuple(left_out))


def _without_recording(record: Record) -> Record:
    """The record without a machine's answers, which nothing here reads and which are most of its bytes."""
    kept = getattr(record, "recording", None)
    if not isinstance(kept, Recording):
        return record
    return msgspec.structs.replace(record, recording=Recording(kept.name))


def require(path: Path) -> None:
    """Raises InputFileError when a campaign's records cannot be kept there."""
    if not path.is_dir():
        found = "it is a file" if path.exists() else "there is no such folder"
        raise InputFileError(f"saving into {path}", found, f"mkdir {path}")


def add(path: Path, record: Record) -> str:
    """Save a record into the folder under the next free number of its kind; returns the file's name."""
    require(path)
    taken = [int(m[1]) for p in path.glob(f"{record.schema}-*.json") if (m := re.search(r"-(\d+)\.json$", p.name))]
    name = f"{record.schema}-{max(taken, default=0) + 1:03d}.json"
    records.save(record, path / name)
    return name


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")
