"""Tuned kernel configurations of the audited installation, looked up for the lines of a log that are about them.

A line names the folder that the engine looked into. It is looked into here where it is inside the audited installation,
and where the log is of the same version: then the same folder of the audited package, or the one with files of that
kind. Names are read, and nothing else; of a file that the log says is used, also what is in it.
"""

import re
from functools import cached_property

from sublight.audit.auditor import Auditor
from sublight.audit.log import EngineLog, Tuned, TunedFolder
from sublight.audit.log.record import Fact, FactKind
from sublight.audit.reading import AnyReader, reader
from sublight.audit.snapshot import KeepingDoor, SnapshotDoor

_FILE = re.compile(r"[EN]=[^/]*\.json")
_OF_A_TRITON = re.compile(r"triton_\d+_\d+_\d+")
_USED = (FactKind.TUNED_CONFIG, FactKind.OTHER_CONFIG)


def tuned_files(auditor: Auditor, log: EngineLog, version: str) -> Tuned:
    """What the lines of this log lead to.

    Args:
        version: of the log's engine as it is audited, "" where that is not known.
    """
    facts = log.of(FactKind.NO_CONFIG, *_USED)
    engine = auditor.engines.get(log.engine)
    place = auditor.place(engine) if engine is not None else None
    if not facts or engine is None or place is None:
        return Tuned(unread=f"no {log.engine} is audited here")
    same = not log.engine_version or not version or log.engine_version == version
    looking = _Looking(auditor, f"{place.folder}/{engine.package}", same)
    found = {asked: looking.folder(asked, fact.get("file")) for fact in facts if (asked := fact.get("folder"))}
    tables = {name: data for fact in facts if fact.kind in _USED for name, data in looking.table(fact).items()}
    if not same:
        unread = f"the log is of {log.engine} {log.engine_version}, and audited is {version}"
    else:
        recorded = isinstance(auditor.door, SnapshotDoor)
        unread = "the snapshot has no such folder" if recorded else "the audited installation has no such folder"
    folders = {asked: looking.told(path) for asked, path in found.items() if path}
    return Tuned(folders=folders, tables=tables, unread=unread)


def tuned_folders(auditor: Auditor, package: str) -> list[str]:
    """Every folder with tuned configurations inside a package's own."""
    return _Looking(auditor, package, True).everywhere


class _Looking:
    """Looks into the folder of one package.

    Args:
        same: whether a folder elsewhere stands for the one at the same place in here.
    """

    def __init__(self, auditor: Auditor, package: str, same: bool) -> None:
        self._door = auditor.door
        self._reader: AnyReader = reader(auditor.door, auditor.far)
        self._package, self._same = package, same

    def folder(self, asked: str, file: str) -> str:
        """The folder that a line is about, "" where there is none."""
        site, _, name = self._package.rpartition("/")
        inside = f"{asked}/".startswith(f"{self._package}/")
        if not (inside or self._same):
            return ""
        _, packaged, below = f"{asked}/".rpartition(f"/{name}/")
        path = asked if inside else f"{site}/{name}/{below}".rstrip("/")
        if (inside or packaged) and self._files(path):
            return path
        kind = file[:2]
        alike = [path for path in self.everywhere if any(name.startswith(kind) for name in self._files(path))]
        return max(alike, key=lambda path: (_common_end(path, asked), path), default="")

    def told(self, path: str) -> TunedFolder:
        """A folder as findings name it. One of a Triton version stands beside those of others, which count as well."""
        site = self._package.rpartition("/")[0]
        above, _, name = path.rpartition("/")
        if not _OF_A_TRITON.fullmatch(name):
            return TunedFolder(path.removeprefix(f"{site}/"), tuple(self._files(path)))
        beside = [other for other in self.everywhere if other.rpartition("/")[0] == above]
        files = tuple(f"{other.rpartition('/')[2]}/{file}" for other in beside for file in self._files(other))
        return TunedFolder(above.removeprefix(f"{site}/"), files)

    def table(self, fact: Fact) -> dict[str, bytes]:
        """The file that a line says is used, by name, and what is in it; nothing where it is not here."""
        name = fact.get("used") or fact.get("file")
        folder = self.folder(fact.get("used_folder") or fact.get("folder"), name)
        path = f"{folder}/{name}"
        if not folder or name not in self._files(folder):
            return {}
        if isinstance(self._door, SnapshotDoor) and path not in self._door.everything("read"):
            return {}
        data = self._reader.read(path)
        if isinstance(self._door, KeepingDoor):
            self._door.keep_files([path], ())
        return {} if data is None else {name: data}

    @cached_property
    def everywhere(self) -> list[str]:
        """Every folder in the package that holds such files."""
        if isinstance(self._door, SnapshotDoor):
            listed = [path for path in self._door.everything("names") if path.startswith(f"{self._package}/")]
        else:
            listed, waiting = [], [self._package]
            while waiting:
                path = waiting.pop()
                listed.append(path)
                inner = [name for name in self._reader.names(path) if name.endswith("/") and name != "__pycache__/"]
                waiting += [f"{path}/{name[:-1]}" for name in inner]
        return sorted(path for path in listed if self._files(path))

    def _files(self, path: str) -> list[str]:
        return [name for name in self._reader.names(path) if _FILE.fullmatch(name)]


def _common_end(path: str, other: str) -> int:
    """How many folders two paths have in common, counted from their ends."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), len(path.split("/")))
