"""Reading source files: many at once, compressed, each with what tells whether it changed."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

LARGEST_BYTES = 8 * 1024 * 1024  # of one source file; the largest that engines ship has 2 MB
MOST_FOLDERS = 20000
TOTAL_BYTES = 16 * 1024 * 1024  # of one answer, before it is compressed: some 5 MB on the way


def read(paths: list[str], folders: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The files at `paths`, and the Python files in and below `folders`.

    Returns path -> {"size", "mtime_ns", "data"}; `data` is base64 of zlib, None where the file could not be read or is
    too large. What this answer has no room for is {"later": true}, to be asked for again. A path that is no file is
    left out, so that absence is told from failure.
    """
    found: dict[str, dict[str, Any]] = {}
    total = 0
    for path in [*paths, *(path for folder in folders for path in _sources(folder))]:
        if path not in found and os.path.isfile(path):
            size = os.path.getsize(path)
            if size > LARGEST_BYTES:
                found[path] = {"size": size, "mtime_ns": 0, "data": None}
                continue
            total += size
            found[path] = _read(path) if total <= TOTAL_BYTES else {"later": True}
    return found


def _sources(folder: str) -> Iterator[str]:
    for base, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(base, name)


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            data = base64.b64encode(zlib.compress(file.read(), 6)).decode("ascii")
    except OSError:
        return {"size": 0, "mtime_ns": 0, "data": None}
    return {"size": state.st_size, "mtime_ns": state.st_mtime_ns, "data": data}


def names(folders: list[str], below: bool = False) -> dict[str, list[str]]:
    """What each folder holds, sorted; folders end in "/". A folder that is not there is left out.

    With `below` also what the folders inside it hold, where it is a package: a whole tree in one answer.
    """
    found: dict[str, list[str]] = {}
    for folder in folders:
        waiting = [folder]
        while waiting and len(found) < MOST_FOLDERS:
            place = waiting.pop()
            try:
                with os.scandir(place) as entries:
                    found[place] = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in entries)
            except OSError:
                continue
            if below and "__init__.py" in found[folder]:
                waiting += [
                    f"{place}/{name[:-1]}" for name in found[place] if name.endswith("/") and name != "__pycache__/"
                ]
    return found


def status(paths: list[str]) -> dict[str, list[int]]:
    """Size and time of change of each file or folder that is there; enough to tell whether an answer still holds."""
    found = {}
    for path in paths:
        try:
            state = os.stat(path)
        except OSError:
            continue
        found[path] = [state.st_size, state.st_mtime_ns]
    return found
