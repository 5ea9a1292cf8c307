"""Audit: the record of what can run where, with the proof of every rung; and the forms of its parts."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from sublight.audit.code import Coverage
from sublight.audit.engines.base import Gate
from sublight.audit.ladder import Answer, Ladder, Proof, Rung
from sublight.audit.target import Target
from sublight.hosts.recording import Recording
from sublight.records import Record, repeated


class Build(msgspec.Struct, frozen=True):
    """Whether code for an architecture can be built here."""

    answer: Answer
    why: str
    proofs: tuple[Proof, ...] = ()
    hint: str = ""


class CodeSet(msgspec.Struct, frozen=True, kw_only=True):
    """What one package can run on the target's card.

    Attributes:
        package: import name.
        distributions: whose files were read; empty where none has GPU code.
        coverage: of the shipped code.
        build: what builds the rest on the machine, and whether it can; None where nothing is built.
        prebuilt: distributions that bring code which would be built otherwise.
    """

    package: str
    distributions: tuple[str, ...] = ()
    coverage: Coverage = Coverage()
    build: Build | None = None
    prebuilt: tuple[str, ...] = ()


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """The two sets: what gates claim, and what was shipped or can be built."""

    claimed: tuple[str, ...] = ()
    gates: tuple[Proof, ...] = ()
    code: tuple[CodeSet, ...] = ()


class SymbolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one symbol.

    Attributes:
        answer: FAIL when importing it failed, or its source shows that it is not there; PASS only for a real import.
        why: asked and found, in a sentence.
        home: where it is really defined, "" when that is not known.
        instead: names that do exist, where the asked one does not.
        gates: conditions on the card that stand in the code behind it; an import does not meet them.
    """

    symbol: str
    answer: Answer
    why: str
    home: str = ""
    instead: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    proofs: tuple[Proof, ...] = ()
    hint: str = ""


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something a reader should know that is not the answer of one backend's rung."""

    level: Literal["info", "warn", "error"]
    subject: str
    text: str
    proofs: tuple[Proof, ...] = ()
    hint: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says an engine chose.

    Attributes:
        area: whose backends it chose among, "" for layers that no area is about.
        text: what it chose and out of what.
        other_run: whether the log is of another run than the one that is asked about.
    """

    engine: str
    area: str
    text: str
    proofs: tuple[Proof, ...] = ()
    other_run: bool = False


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One flag.

    Attributes:
        engine: whose flag it is.
        area: of the backend.
        flag: what to type, with every option that the answers hang on.
        proven: rungs on a GPU that passed ("executed"); empty where nobody has proved anything.
        open: rungs below those that are not known.
        slow: why it is slow whatever the card, "" where nothing says so.
    """

    engine: str
    area: str
    flag: str
    proven: tuple[Rung, ...] = ()
    open: tuple[Rung, ...] = ()
    slow: str = ""


class MachineSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and what it runs.

    Attributes:
        recorded: whether a snapshot answered in its place.
        cards: name -> how many.
        reasons: what nobody could be asked, and why.
    """

    name: str
    recorded: bool = False
    python: str
    cards: dict[str, int] = {}
    driver: str = ""
    driver_cuda: str = ""
    tools: tuple[str, ...] = ()
    reasons: dict[str, str] = {}


class Auto(msgspec.Struct, frozen=True, kw_only=True):
    """What runs in an area when nothing is asked for."""

    area: str
    answer: Answer
    why: str
    destination: str = ""
    proofs: tuple[Proof, ...] = ()


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Why an engine does not start when it is asked for nothing: it refuses what it takes in an area by itself.

    Attributes:
        area: the area.
        why: in the engine's words.
        instead: flags of the area that nothing speaks against; empty where each of its backends has a no.
    """

    engine: str
    area: str
    why: str
    instead: tuple[str, ...] = ()


class BackendCode(msgspec.Struct, frozen=True, kw_only=True):
    """The two sets of one backend: what gates claim, and what was shipped or can be built."""

    area: str
    name: str
    capability: Capability


class EngineAudit(msgspec.Struct, frozen=True, kw_only=True):
    """One engine.

    Attributes:
        version: of the distribution, "" for a source tree.
        place: the folder it was read from.
        ladders: every backend of every area asked for, in the order it is declared.
        autos: by area.
        code: by backend, where gates or code were found.
        not_read: areas, and what else is asked of an engine, that could not be read, and why.
        files_read: source files the answers were read from.
    """

    name: str
    version: str
    distribution: str
    place: str
    ladders: tuple[Ladder, ...]
    autos: tuple[Auto, ...] = ()
    code: tuple[BackendCode, ...] = ()
    not_read: dict[str, str] = {}
    files_read: int = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time went. Importing and trying are apart: they run the engine's own code.

    Attributes:
        imported: symbols, now and not taken from the cache.
        cached: whether nothing was read anew.
    """

    asking_s: float
    reading_s: float
    importing_s: float
    trying_s: float = 0.0
    imported: int
    cached: bool


class Audit(Record, frozen=True, kw_only=True):
    """An audit of one machine for one target; `target` is None when only symbols were asked for."""

    schema = "audit"
    version = 1

    machine: MachineSummary
    target: Target | None
    engines: tuple[EngineAudit, ...] = ()
    symbols: tuple[SymbolAnswer, ...] = ()
    choices: tuple[Choice, ...] = ()
    findings: tuple[AuditFinding, ...] = ()
    flags: tuple[Flag, ...] = ()
    stops: tuple[Stop, ...] = ()
    timings: Timings
    recording: Recording | None = None

    def __post_init__(self) -> None:
        from sublight.audit.flags import worth_trying

        # They follow from the ladders, whatever an earlier version made of those.
        found = tuple(flag for each in self.engines for flag in worth_trying(each.name, each.ladders, each.autos))
        msgspec.structs.force_setattr(self, "flags", found)
        msgspec.structs.force_setattr(self, "stops", tuple(_stops(self.engines, found)))

    def flaws(self) -> Iterator[str]:
        for engine in self.engines:
            for name in repeated(f"{ladder.area} {ladder.name}" for ladder in engine.ladders):
                yield f"{engine.name}'s {name} is there twice"
            for ladder in engine.ladders:
                if tuple(step.rung for step in ladder.steps) != tuple(Rung):
                    yield f"{engine.name}'s {ladder.name} has not each rung once, in order"


# How engines' descriptions begin what ends a start; any other no is an area without work, or a kernel for another.
_ENDS = ("refused", "accepted, but the server stops", "accepted, but fails when")


def _stops(engines: tuple[EngineAudit, ...], flags: tuple[Flag, ...]) -> Iterator[Stop]:
    for engine in engines:
        ran = {ladder.area for ladder in engine.ladders if ladder.has_run}
        for auto in engine.autos:
            if auto.answer is Answer.FAIL and auto.why.startswith(_ENDS) and auto.area not in ran:
                instead = (flag.flag for flag in flags if (flag.engine, flag.area) == (engine.name, auto.area))
                yield Stop(engine=engine.name, area=auto.area, why=auto.why, instead=tuple(dict.fromkeys(instead)))
