"""What the probe answers, typed. Fields are as `probe/` sends them; anything that is not told is None or empty."""

from collections.abc import Mapping

import msgspec


class FileTold(msgspec.Struct, frozen=True):
    """A source file: base64 of zlib, None where it could not be read. `later`: it has to be asked for again."""

    size: int = 0
    mtime_ns: int = 0
    data: str | None = None
    later: bool = False


class Interpreter(msgspec.Struct, frozen=True):
    """The interpreter that is audited.

    `environment` holds only variables that engines read, without secrets; `files` names the tree its paths are of.
    """

    executable: str
    version: str
    implementation: str
    prefix: str
    machine: str
    system: str
    libc: str
    path: tuple[str, ...]
    environment: dict[str, str]
    files: str = ""


class Distribution(msgspec.Struct, frozen=True):
    """An installed distribution. `record` is the hash of its RECORD; `error` says what is broken about its metadata."""

    name: str
    version: str
    folder: str
    info: str
    requires: tuple[str, ...] = ()
    files: int = 0
    record: str = ""
    error: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


class Owner(msgspec.Struct, frozen=True):
    """A distribution that ships files of an import name, and the folder they are imported from."""

    distribution: str
    version: str
    files: int
    folder: str


class Clash(msgspec.Struct, frozen=True):
    """Distributions that list the same paths with different contents; `matches`: how many files on disk are whose."""

    paths: int
    matches: dict[str, int]
    examples: tuple[str, ...]


class PathFile(msgspec.Struct, frozen=True):
    """A .pth file: folders it adds to the path, and code it runs at every start."""

    file: str
    folders: tuple[str, ...]
    code: tuple[str, ...]


class Distributions(msgspec.Struct, frozen=True):
    fingerprint: str
    unchanged: bool
    distributions: tuple[Distribution, ...] = ()
    owners: dict[str, tuple[Owner, ...]] = {}
    clashes: tuple[Clash, ...] = ()
    pth: tuple[PathFile, ...] = ()


class Place(msgspec.Struct, frozen=True):
    """Where a top-level package would be imported from."""

    folder: str
    file: str
    error: str = ""


class Card(msgspec.Struct, frozen=True):
    name: str | None
    major: int | None
    minor: int | None
    memory_bytes: int | None = None
    driver: str | None = None
    mig: str | None = None
    sm_count: int | None = None
    shared_memory_per_block_optin: int | None = None


class Cards(msgspec.Struct, frozen=True):
    """The cards as nvidia-smi and as the driver library tell them; `driver_cuda` is 13000 for CUDA 13.0."""

    smi: tuple[Card, ...] = ()
    smi_error: str = ""
    driver: tuple[Card, ...] = ()
    driver_cuda: int | None = None
    driver_error: str = ""

    @property
    def best(self) -> tuple[Card, ...]:
        """Those of the driver, which knows more; of nvidia-smi where the driver does not answer."""
        return self.driver or self.smi


class Tool(msgspec.Struct, frozen=True):
    """A compiler or assembler; `found_by` in the order programs look. `targets` without "sm_"."""

    tool: str
    path: str
    found_by: tuple[str, ...]
    release: str = ""
    targets: tuple[str, ...] = ()
    error: str = ""


class Toolchain(msgspec.Struct, frozen=True):
    tools: tuple[Tool, ...] = ()
    libraries: dict[str, str] = {}


class CodeObject(msgspec.Struct, frozen=True):
    """A file with GPU code. `units`: what each compiled unit was built for, and how many units are alike."""

    path: str
    size: int
    mtime_ns: int
    kind: str
    units: tuple[tuple[tuple[str, ...], int], ...] = ()
    needed: tuple[str, ...] = ()
    error: str = ""


class Objects(msgspec.Struct, frozen=True):
    objects: tuple[CodeObject, ...] = ()
    left_out: int = 0


class Swallowed(msgspec.Struct, frozen=True):
    """An import that failed on the way: what was asked for, by which module and line, and the error."""

    name: str
    by: str
    where: str
    message: str


class Imported(msgspec.Struct, frozen=True):
    """What came of importing a symbol.

    Attributes:
        outcome: "found", "error" (an exception), "crash" (a signal), "hang" (the time limit), "exit" (it left),
            "untried" (the time for all of them was over).
        kind: of what was found: "function", "module", "type", ...
        home: where it was really defined: its `__module__` and `__qualname__`.
        inside: the module whose import its process ended in, "" where it ended in none.
        lacks: the dotted name that is not there, where that is the error.
        frames: the last lines of the traceback, file:line.
        swallowed: imports that failed inside the symbol's own package.
        output: the end of what its process printed, where that process ended without an answer.
        loaded: files of the package and of that of `inside` that were used -> (size, time of change): the answer holds
            while they stay.
    """

    outcome: str
    message: str = ""
    kind: str = ""
    home: str = ""
    file: str = ""
    line: int = 0
    type: str = ""
    inside: str = ""
    lacks: str = ""
    frames: tuple[str, ...] = ()
    swallowed: tuple[Swallowed, ...] = ()
    output: str = ""
    loaded: dict[str, tuple[int, int]] = {}
    seconds: float = 0.0

    @property
    def is_import_error(self) -> bool:
        """Whether a guard around the import sees it fail: no `except` runs in a process that a signal ends."""
        return self.outcome == "error" and (self.type in ("ImportError", "ModuleNotFoundError") or bool(self.lacks))


class Told(msgspec.Struct, frozen=True):
    """One question's answer as the probe sends it: JSON of a type of this module, or empty and what went wrong."""

    answer: msgspec.Raw = msgspec.Raw(b"")
    error: str = ""
    seconds: float = 0.0


Reply = Mapping[str, Told]
