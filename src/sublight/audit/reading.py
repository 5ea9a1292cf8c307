"""Readers: files of the audited machine for `source.tree`, and what of them was really used.

What was read, and with which size and time of change, is what a cached answer depends on; so it is kept here.
"""

import base64
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sublight.audit.doors import Door
from sublight.audit.probe import files
from sublight.audit.source.tree import Sources

_MOST_BESIDE = 150  # source files of a folder that are fetched because one of them was asked for


class DiskReader:
    """Files of this machine."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def read(self, path: str) -> bytes | None:
        self.files.add(path)
        try:
            return Path(path).read_bytes()
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> tuple[str, ...]:
        self.folders.add(folder)
        return tuple(files.names([folder]).get(folder, ()))


class DoorReader:
    """Files that come through a door: many at once beforehand, then one folder at a time as they are asked for."""

    def __init__(self, door: Door) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self.door = door
        self._files: dict[str, bytes | None] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def fetch(self, folders: Iterable[str], paths: Iterable[str] = ()) -> None:
        """Every Python file below `folders`, and `paths`, in one question."""
        asked = list(paths)
        reply = self.door.ask({"read": {"paths": asked, "folders": sorted(folders)}})["read"]
        found: dict[str, Any] = _decoded(reply.answer)
        self._files |= {path: _bytes(entry) for path, entry in found.items()}
        self._files |= {path: None for path in asked if path not in found}

    def read(self, path: str) -> bytes | None:
        self.files.add(path)
        if path not in self._files:
            folder, _, name = path.rpartition("/")
            if not self.door.live:
                self.fetch([], [path])
            elif name in self.names(folder):
                self.fetch([], self._near(folder, path))
            else:
                self._files[path] = None
        return self._files.get(path)

    def _near(self, folder: str, path: str) -> list[str]:
        """The source files of a folder, unless they are too many: whoever needs one of them soon needs others."""
        beside = [f"{folder}/{name}" for name in self.names(folder) if name.endswith(".py")]
        missing = [item for item in beside if item not in self._files]
        return missing if path in missing and len(missing) <= _MOST_BESIDE else [path]

    def names(self, folder: str) -> tuple[str, ...]:
        self.folders.add(folder)
        if folder not in self._names:
            self._names[folder] = ()
            if not self._known_absent(folder):
                reply = self.door.ask({"names": {"folders": [folder], "below": self.door.live}})["names"]
                found = _decoded(reply.answer)
                self._names |= {place: tuple(held) for place, held in found.items()}
        return self._names[folder]

    def _known_absent(self, folder: str) -> bool:
        """Whether the listing of some folder above says that the way to it does not exist."""
        child = folder
        while self.door.live and (parent := child.rpartition("/")[0]):
            if parent in self._names:
                return f"{child.rpartition('/')[2]}/" not in self._names[parent]
            child = parent
        return False


AnyReader = DiskReader | DoorReader


class Used(msgspec.Struct, frozen=True):
    """What was read: files, folders, names of modules, and those that this Python cannot parse with the reason."""

    files: set[str]
    folders: set[str]
    modules: set[str]
    unparsed: set[str]


class WatchedSources(Sources):
    """Sources that also tell what was read of them."""

    reader: AnyReader

    def __init__(self, reader: AnyReader, roots: Mapping[str, str]) -> None:
        super().__init__(reader, roots)
        self._elsewhere = Used(set(), set(), set(), set())

    def what_was_used(self) -> Used:
        """Everything, for whoever goes on with other sources of the same files."""
        return Used(self.reader.files, self.reader.folders, set(self.loaded()), set(self.unparsed()))

    def was_used(self, elsewhere: Used) -> None:
        """What was read of the same files in another process counts as read here."""
        self.reader.files |= elsewhere.files
        self.reader.folders |= elsewhere.folders
        self._elsewhere = elsewhere

    def used(self) -> set[str]:
        """Files and folders that answers were read from, or looked for in vain."""
        return self.reader.files | self.reader.folders

    def loaded(self) -> list[str]:
        """Names of the modules that were read."""
        own = {name for name, module in self._modules.items() if module is not None}
        return sorted(own | self._elsewhere.modules)

    def unparsed(self) -> tuple[str, ...]:
        """Source files that this Python cannot parse, and why."""
        own = {module.error for module in self._modules.values() if module is not None and module.error}
        return tuple(sorted(own | self._elsewhere.unparsed))


def reader(door: Door) -> AnyReader:
    return DiskReader() if door.reads_here else DoorReader(door)


def status(door: Door, paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Size and time of change of each file or folder that is there."""
    if not door.reads_here:
        answer = door.ask({"status": {"paths": sorted(paths)}})["status"].answer
        return {path: (size, changed) for path, (size, changed) in _decoded(answer).items()}
    found = {}
    for path in paths:
        try:
            state = os.stat(path)  # noqa: PTH116 - hundreds of paths at every start
        except (OSError, ValueError):
            continue
        found[path] = (state.st_size, state.st_mtime_ns)
    return found


def _decoded(answer: msgspec.Raw) -> dict[str, Any]:
    return msgspec.json.decode(answer, type=dict[str, Any]) if answer else {}


def _bytes(entry: Any) -> bytes | None:
    return zlib.decompress(base64.b64decode(entry["data"])) if entry and entry["data"] is not None else None
