"""Readers: files of the audited machine for `source.tree`, and what of them was really used.

What was read, and with which size and time of change, is what a cached answer depends on; so it is kept here.
"""

import base64
import os
import zlib
from collections.abc import Iterable, Mapping
from os.path import commonpath
from pathlib import Path
from typing import Any

import msgspec

from sublight.audit.doors import Door, read_in_parts
from sublight.audit.probe import files
from sublight.audit.replies import FileTold
from sublight.audit.source.outline import bindings
from sublight.audit.source.tree import Sources

_FIRST_BESIDE = 150  # source files that come along, at most, because one near them was asked for
_GROWTH = 4  # times as many the next time, where those were of use


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
    """Files that come through a door: many at once beforehand, then with each that is asked for those near it.

    Raises HostError when the connection is lost.
    """

    def __init__(self, door: Door) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self.door = door
        self._files: dict[str, bytes | None] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        # Of a folder listed with all below it: how many files come along with one, and what came the last time.
        self._ahead: dict[str, tuple[int, frozenset[str]]] = {}

    def fetch(self, folders: Iterable[str], paths: Iterable[str] = ()) -> None:
        """Every Python file below `folders`, and `paths`, in as few questions as an answer's size allows."""
        asked = list(paths)
        for found in read_in_parts(lambda arguments: self.door.ask({"read": arguments})["read"], asked, folders):
            self._files |= {path: _bytes(entry) for path, entry in found.items()}
        self._files |= {path: None for path in asked if path not in self._files}

    def read(self, path: str) -> bytes | None:
        self.files.add(path)
        if path not in self._files:
            folder, _, name = path.rpartition("/")
            if not self.door.live:
                self.fetch([], [path])
            elif name in self.names(folder):
                self._fetch_near(path)
            else:
                self._files[path] = None
        return self._files.get(path)

    def _fetch_near(self, path: str) -> None:
        """One question for a file and source files near it; what has no room in the answer is left for later.

        Those of its folder come along at first. Where a quarter of what came along was then read, somebody is
        reading the whole package, and the next time several times as many come, the nearest first.
        """
        tree = min((tree for tree in self._ahead if path.startswith(f"{tree}/")), key=len, default="")
        window, last = self._ahead.get(tree, (_FIRST_BESIDE, frozenset()))
        if last and 4 * len(last & self.files) >= len(last):
            window *= _GROWTH
        folder = path.rpartition("/")[0]
        beside = self._missing(tree if window > _FIRST_BESIDE else folder)
        beside.sort(key=lambda item: (-len(commonpath((path, item))), item))
        asked = list(dict.fromkeys([path, *beside[:window]]))
        reply = self.door.ask({"read": {"paths": asked}})["read"]
        found = msgspec.json.decode(reply.answer, type=dict[str, FileTold]) if reply.answer else {}
        fresh = {item: _bytes(entry) for item, entry in found.items() if not entry.later}
        self._files = {path: None} | self._files | fresh
        self._ahead[tree] = window, frozenset(fresh) - {path}

    def _missing(self, top: str) -> list[str]:
        """Source files that are not here yet: of a folder, and of all listed folders below it."""
        return [
            item
            for folder, held in self._names.items()
            if folder == top or folder.startswith(f"{top}/")
            for name in held
            if name.endswith(".py") and (item := f"{folder}/{name}") not in self._files
        ]

    def names(self, folder: str) -> tuple[str, ...]:
        self.folders.add(folder)
        if folder not in self._names:
            self._names[folder] = ()
            if not self._known_absent(folder):
                reply = self.door.ask({"names": {"folders": [folder], "below": self.door.live}})["names"]
                found = _decoded(reply.answer)
                self._names |= {place: tuple(held) for place, held in found.items()}
                self._ahead.setdefault(folder, (_FIRST_BESIDE, frozenset()))
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

    def absent(self, package: str) -> list[str]:
        """Modules of a package that were asked for and have no source, as a reader sees their paths.

        What a module above them binds is a name of that module, and was looked for as a module in passing.
        """
        found = []
        for name, module in self._modules.items():
            above, _, last = name.rpartition(".")
            parent = self._modules.get(above)
            if module is not None or name.partition(".")[0] != package or (parent and last in bindings(parent)):
                continue
            found.append(f"{name.replace('.', '/')}.py")
        return sorted(found)

    def unparsed(self) -> tuple[str, ...]:
        """Source files that this Python cannot parse, and why."""
        own = {module.error for module in self._modules.values() if module is not None and module.error}
        return tuple(sorted(own | self._elsewhere.unparsed))


def reader(door: Door) -> AnyReader:
    return DiskReader() if door.reads_here else DoorReader(door)


def status(door: Door, paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Size and time of change of each file or folder that is there; of none when the connection is lost."""
    if door.lost:
        return {}
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


def _bytes(entry: FileTold) -> bytes | None:
    return zlib.decompress(base64.b64decode(entry.data)) if entry.data is not None else None
