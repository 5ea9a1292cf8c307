"""What an earlier audit found, as long as nothing it depends on has changed.

An entry holds an answer, and every file and folder it was read from with size and time of change. It is used only when
all of them are as they were, so that an edited installation is seen. The key holds the rest: the question, what is
installed, and Sublight's own version and files. A cache that cannot be read or written is no error, only slow.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import sublight
from sublight.audit.doors import Door
from sublight.audit.reading import status
from sublight.errors import InputFileError
from sublight.files import write_atomically

_Answer = TypeVar("_Answer")
_KEPT = 400  # entries; the oldest go first
State = dict[str, tuple[int, int]]


class _Entry(msgspec.Struct, frozen=True):
    paths: tuple[str, ...]
    state: State
    answer: msgspec.Raw


class Cache:
    """Entries in a folder of files; without a folder it remembers nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._told: dict[str, dict[str, tuple[int, int] | None]] = {}
        self.hits = 0
        self.misses = 0

    def get(
        self,
        kind: str,
        key: tuple[Any, ...],
        answer_type: type[_Answer],
        door: Door,
        compute: Callable[[], tuple[_Answer, Iterable[str]]],
    ) -> _Answer:
        """The answer of an earlier run, else `compute`'s, which also tells the paths it was read from."""
        if self._folder is None:
            return compute()[0]
        path = self._folder / f"{kind}-{_digest(key)}.json"
        entry = _read(path)
        if entry is not None and self.status(door, entry.paths) == entry.state:
            with suppress(msgspec.DecodeError):
                answer = msgspec.json.decode(entry.answer, type=answer_type)
                self.hits += 1
                return answer
        self.misses += 1
        answer, paths = compute()
        self._write(path, answer, tuple(sorted(set(paths))), door)
        return answer

    def peek(self, kind: str, key: tuple[Any, ...], answer_type: type[_Answer]) -> _Answer | None:
        """An answer without a look at what it depends on: for answers that are checked in another way."""
        entry = _read(self._folder / f"{kind}-{_digest(key)}.json") if self._folder else None
        if entry is None:
            return None
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(entry.answer, type=answer_type)
        return None

    def put(self, kind: str, key: tuple[Any, ...], answer: Any, door: Door, paths: Iterable[str] = ()) -> None:
        if self._folder is not None:
            self._write(self._folder / f"{kind}-{_digest(key)}.json", answer, tuple(sorted(set(paths))), door)

    def status(self, door: Door, paths: Iterable[str]) -> State:
        """`reading.status`; of another machine's files each is asked for once in a run, which is one look at it.

        A file that changes later in the run has an older state here than it has then, so what is kept is not used.
        """
        if door.reads_here:
            return status(door, paths)
        asked = list(paths)
        told = self._told.setdefault(door.key, {})
        missing = [path for path in asked if path not in told]
        if missing:
            found = status(door, missing)
            if door.lost:
                return {}
            told |= {path: found.get(path) for path in missing}
        return {path: state for path in asked if (state := told[path]) is not None}

    def _write(self, path: Path, answer: Any, paths: tuple[str, ...], door: Door) -> None:
        entry = _Entry(paths, self.status(door, paths) if paths else {}, msgspec.Raw(msgspec.json.encode(answer)))
        with suppress(OSError, InputFileError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, msgspec.json.encode(entry))
            _forget_oldest(path.parent)


def default_folder() -> Path:
    """$XDG_CACHE_HOME/sublight/audit, as the XDG base directory specification has it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return home / "sublight" / "audit"


def _read(path: Path) -> _Entry | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Entry)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _digest(key: tuple[Any, ...]) -> str:
    return hashlib.sha256(msgspec.json.encode([_ourselves(), *key], order="deterministic")).hexdigest()[:32]


@cache
def _ourselves() -> str:
    """Changes with every change of the audit's own code."""
    folder = Path(__file__).parent
    digest = hashlib.sha256(sublight.__version__.encode())
    for base, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(names):
            state = (Path(base) / name).stat()
            digest.update(f"{base}/{name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _forget_oldest(folder: Path) -> None:
    entries = list(folder.glob("*.json"))
    if len(entries) > _KEPT:
        for path in sorted(entries, key=lambda p: p.stat().st_mtime)[: len(entries) - _KEPT]:
            path.unlink(missing_ok=True)
