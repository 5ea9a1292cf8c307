"""Auditor: one machine, looked at once. Engines and symbols are asked for through it, and every question is timed."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import msgspec

from sublight.audit.cache import Cache
from sublight.audit.doors import Door, FolderDoor
from sublight.audit.engines import ENGINES
from sublight.audit.engines.base import Engine
from sublight.audit.gathering import imports_of, known_distributions, remember
from sublight.audit.installation import Installation, look
from sublight.audit.probe.interpreter import files
from sublight.audit.reading import Far, Told, WatchedSources, reader
from sublight.audit.replies import Imported, Place
from sublight.audit.scene import Trying
from sublight.audit.snapshot import KeepingDoor, SnapshotDoor
from sublight.errors import UnknownNameError, UsageError
from sublight.units import counted


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to do and what to leave.

    Attributes:
        engines: empty for every one that is found.
        areas: empty for every area of an engine.
        imports: whether symbols are really imported in the target.
        tries: whether backends are called on this machine's GPU.
        try_limit_s: how long one of them may take, compiling included.
        log, trace: files that show what ran, "" for none.
    """

    engines: tuple[str, ...] = ()
    areas: tuple[str, ...] = ()
    imports: bool = True
    tries: bool = False
    try_limit_s: float = 300.0
    log: str = ""
    trace: str = ""


# Never read into: no gate or route of an engine lies in them, and they are as large as an engine.
_OUTSIDE = frozenset({"torch", "torchvision", "torchaudio", "numpy", "scipy", "sympy", "transformers"})


class Auditor:
    """Raises HostError, when it is made, if the machine cannot be asked.

    Args:
        packages: import names to ask for instead of those of every engine.
        say: is told what takes long, before it is done.
    """

    def __init__(
        self,
        door: Door,
        options: Options,
        cache: Cache,
        packages: Sequence[str] = (),
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.seconds = {"asking": 0.0, "reading": 0.0, "importing": 0.0, "trying": 0.0}
        self.door = door
        self.say = say
        self.options = options
        self.cache = cache
        self.imported: dict[str, Imported] = {}
        self.broken: dict[str, str] = {}
        self.fresh = 0  # symbols that were imported now, and not taken from the cache
        self.trouble = ""  # why imports that were asked for were not tried
        packages = packages or tuple(engine.package for engine in self.engines.values())
        if door.live:
            say(f"asking {door.name} what is installed")
        with self.timed("asking"):
            keeps = isinstance(door, KeepingDoor | SnapshotDoor)
            known = None if keeps else known_distributions(cache, door)
            self.installation: Installation = look(door, known, packages)
            if door.reads_here and _in_a_container(self.installation):
                door.reads_here = False
            remember(cache, door, self.installation)

    @cached_property
    def engines(self) -> dict[str, Engine]:
        """Every engine that Sublight can read, by name.

        A description of another package that cannot be loaded is left out, and `broken` says why.
        """
        found: dict[str, Engine] = {}
        for name in ENGINES.names():
            try:
                found[name] = ENGINES.load(name)
            except Exception as error:
                self.broken[name] = f"{type(error).__name__}: {error}"
        return found

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - started

    def place(self, engine: Engine) -> Place | None:
        found = self.installation.places.get(engine.package)
        return found if found is not None and found.folder else None

    def found(self) -> tuple[str, ...]:
        """Names of the engines that are there."""
        return tuple(name for name, engine in self.engines.items() if self.place(engine) is not None)

    def chosen(self) -> tuple[str, ...]:
        """Names of the engines to audit. Raises UsageError when one that was asked for, or any at all, is not there."""
        asked = self.options.engines
        for name in asked:
            if name in self.broken:
                hint = "the package that brings this description, in a version for this Sublight"
                raise UsageError(f"auditing {name}", f"its description cannot be loaded: {self.broken[name]}", hint)
            if name not in self.engines:
                raise UnknownNameError("engine", name, self.engines, ENGINES.hint)
        absent = [name for name in asked if name not in self.found()]
        if not absent and (asked or self.found()):
            return asked or tuple(name for name in self.found() if name not in self.left_out())
        there = f"found there: {', '.join(self.found())}" if self.found() else "no engine is there"
        seen = counted(len(self.installation.found.distributions), "distribution was", "distributions were")
        raise UsageError(
            f"auditing {' and '.join(absent) or 'an engine'} in {self.installation.name}",
            f"{self._why_absent(absent)}{there} ({seen} seen)",
            "--python with the interpreter that runs the engine, or --path with the folder it is installed in",
        )

    def left_out(self) -> tuple[str, ...]:
        """Libraries that nobody asked for by name, where an engine is there that calls them."""
        found = self.found()
        libraries = [name for name in found if getattr(self.engines[name], "library", False)]
        return () if self.options.engines or len(libraries) == len(found) else tuple(libraries)

    def _why_absent(self, absent: Sequence[str]) -> str:
        found = [self.installation.places.get(self.engines[name].package) for name in absent]
        broken = [place.error for place in found if place is not None and place.error]
        return f"{broken[0]}; " if broken else ""

    def sources(self) -> WatchedSources:
        """Sources of everything that is installed; of the packages asked for, from wherever they are imported."""
        owned = self.installation.found.owners.items()
        roots = {top: owners[0].folder for top, owners in owned if owners and top not in _OUTSIDE}
        roots |= {name: place.folder for name, place in self.installation.places.items() if place.folder}
        return WatchedSources(reader(self.door, self.far), roots)

    @cached_property
    def far(self) -> Far:
        """Files of another machine, as all engines read them; those of an earlier run while they are unchanged."""
        if not self.door.live:
            return Far()
        return Far(
            lambda: self.cache.peek("files", (self.door.key,), dict[str, Told]) or {},
            lambda paths: self.cache.status(self.door, paths),
        )

    def keep(self) -> None:
        """What came of another machine's files, for the next run."""
        if self.door.live and not self.door.reads_here and self.far.fresh:
            self.cache.put("files", (self.door.key,), self.far.told, self.door)

    def importing(self, symbols: Sequence[str]) -> dict[str, Imported]:
        """What came of importing these; empty, and `not_imported` says why, where that is not done."""
        if not symbols or self.not_imported:
            return {}
        self.say(
            f"importing up to {counted(len(symbols), 'symbol')} with {self.door.name}, each in a process that may fail"
        )
        with self.timed("importing"):
            found, fresh, self.trouble = imports_of(self.cache, self.door, self.installation, symbols)
        self.imported |= found
        self.fresh += fresh
        return found

    @property
    def not_imported(self) -> str:
        """Why nothing is imported, "" when it is."""
        if not self.options.imports:
            return "--no-import was given"
        if isinstance(self.door, FolderDoor):
            return "no interpreter was named, only a folder"
        return self.trouble

    @property
    def trying(self) -> Trying | None:
        """How backends are tried; None where `not_tried` says why they are not."""
        return None if self.not_tried else Trying(self.door.python, self.options.try_limit_s)

    @property
    def not_tried(self) -> str:
        """Why no backend is called, "" when it is."""
        if not self.options.tries:
            return "--try was not given"
        if not (self.door.live and self.door.reads_here):
            return "kernels are called where Sublight runs, and the engine is on another machine or in a container"
        return "" if self.door.python else "no interpreter was named, only a folder"


def _in_a_container(installation: Installation) -> bool:
    """Whether the interpreter's paths are of other files than this process's."""
    told = installation.interpreter.files if installation.interpreter is not None else ""
    return bool(told) and told != files()
