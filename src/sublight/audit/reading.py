"""Readers: files of the audited machine for `source.tree`, and what of them was really used.

What was read, and with which size and time of change, is what a cached answer depends on; so it is kept here.
"""

import base64
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from os.path import commonpath
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
            with open(path, "rb") as file:  # noqa: PTH123 - thousands of files
                return file.read()
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> tuple[str, ...]:
        self.folders.add(folder)
        return tuple(files.names([folder]).get(folder, ()))


States = dict[str, tuple[int, int]]


class Told(msgspec.Struct, frozen=True):
    """A file of another machine as it came: its size and time of change, and zlib of what it holds."""

    size: int
    changed: int
    data: bytes


class Far:
    """What has come of another machine's files, for all that read them in a run, and for the next run.

    Args:
        before: what an earlier run kept: path -> file. What has changed since is left out, by one question.
        states: tells size and time of change of paths, as `status` does.

    Attributes:
        ahead: of a folder listed with all below it: how many files come along with one, and what came the last time.
        told: every file that came or still holds, for the next run.
        fresh: whether those are others than an earlier run kept.
    """

    def __init__(
        self, before: Callable[[], Mapping[str, Told]] = dict, states: Callable[[Iterable[str]], States] = lambda _: {}
    ) -> None:
        self.files: dict[str, bytes | None] = {}
        self.names: dict[str, tuple[str, ...]] = {}
        self.ahead: dict[str, tuple[int, frozenset[str]]] = {}
        self.told: dict[str, Told] = {}
        self.fresh = False
        self._before: Callable[[], Mapping[str, Told]] | None = before
        self._states = states

    def take(self, found: Mapping[str, FileTold]) -> None:
        for path, entry in found.items():
            data = base64.b64decode(entry.data) if entry.data is not None else None
            self.files[path] = zlib.decompress(data) if data is not None else None
            if data is not None:
                self.told[path] = Told(entry.size, entry.mtime_ns, data)
                self.fresh = True

    def remember(self) -> None:
        """What an earlier run kept and still holds, at the first call."""
        before, self._before = self._before, None
        kept = before() if before is not None else {}
        if not kept:
            return
        now = self._states(kept)
        same = {path: one for path, one in kept.items() if now.get(path) == (one.size, one.changed)}
        self.fresh = len(same) < len(kept)
        self.told |= same
        self.files |= {path: zlib.decompress(one.data) for path, one in same.items()}


class DoorReader:
    """Files that come through a door: many at once beforehand, then with each that is asked for those near it.

    Raises HostError when the connection is lost.
    """

    def __init__(self, door: Door, far: Far | None = None) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self.door = door
        self._far = far if far is not None else Far()
        self._files = self._far.files
        self._names = self._far.names
        self._ahead = self._far.ahead

    def fetch(self, folders: Iterable[str], paths: Iterable[str] = ()) -> None:
        """Every Python file below `folders`, and `paths`, in as few questions as an answer's size allows."""
        self._far.remember()
        asked = [path for path in paths if path not in self._files]
        whole: list[str] = []
        for folder in folders:
            if folder in self._names and any(path.startswith(f"{folder}/") for path in self._files):
                asked += self._missing(folder)  # some of it was read before
            elif not self._known_absent(folder):
                whole.append(folder)
        if not asked and not whole:
            return
        for found in read_in_parts(lambda arguments: self.door.ask({"read": arguments})["read"], asked, whole):
            self._far.take(found)
        for path in asked:
            self._files.setdefault(path, None)

    def read(self, path: str) -> bytes | None:
        self.files.add(path)
        self._far.remember()
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
        told = msgspec.json.decode(reply.answer, type=dict[str, FileTold]) if reply.answer else {}
        found = {item: entry for item, entry in told.items() if not entry.later}
        self._far.take(found)
        self._files.setdefault(path, None)
        self._ahead[tree] = window, frozenset(found) - {path}

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

        What a module above them binds is a name of that module, and was looked for as a module in passing; so was the
        package of a module that is missing.
        """
        found = set()
        for name, module in self._modules.items():
            above, _, last = name.rpartition(".")
            parent = self._modules.get(above)
            if module is not None or name.partition(".")[0] != package or (parent and last in bindings(parent)):
                continue
            found.add(name)
        packages = {name.rpartition(".")[0] for name in found}
        return sorted(f"{name.replace('.', '/')}.py" for name in found - packages)

    def unparsed(self) -> tuple[str, ...]:
        """Source files that this Python cannot parse, and why."""
        own = {module.error for module in self._modules.values() if module is not None and module.error}
        return tuple(sorted(own | self._elsewhere.unparsed))


def reader(door: Door, far: Far | None = None) -> AnyReader:
    return DiskReader() if door.reads_here else DoorReader(door, far)


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
