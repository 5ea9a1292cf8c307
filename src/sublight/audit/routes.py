"""What an engine's own source answers: what it declares, where each name leads, which versions and variables it wants.

An engine's description reads code it has never seen. Where reading fails, that backend is not known, with the reason,
and the others go on.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any, TypeVar

import msgspec

from sublight.audit.beside import beside
from sublight.audit.engines.base import Declaration, Engine, Gate, HasFormats, Pin, Route
from sublight.audit.guarded import Together, guards
from sublight.audit.importable import needs_of
from sublight.audit.installation import Installation
from sublight.audit.ladder import Answer, Proof
from sublight.audit.reading import DiskReader, DoorReader, Used, WatchedSources
from sublight.audit.source.tree import Sources
from sublight.audit.target import Target

_Answer = TypeVar("_Answer")
_BESIDES = 1 / 8  # what versions and variables take to read, in parts of what all backends take


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One backend as declared, and where asking for it leads."""

    declaration: Declaration
    route: Route


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Everything read from one engine for one target.

    Attributes:
        autos: area -> what runs when nothing is asked for.
        not_read: area, or what else is asked of an engine -> why nothing could be read of it.
        unparsed: source files that this Python cannot parse, and why.
        guards: around imports of some path.
    """

    backends: tuple[Answered, ...] = ()
    autos: dict[str, Route] = {}
    pins: tuple[Pin, ...] = ()
    variables: frozenset[str] | None = None
    not_read: dict[str, str] = {}
    unparsed: tuple[str, ...] = ()
    guards: tuple[Together, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol that some path imports."""
        return tuple(dict.fromkeys(need.symbol for answered in self.backends for need in needs_of(answered.route)))

    @property
    def tried(self) -> tuple[str, ...]:
        """Those, and what is lost with one of them under the same guard."""
        return tuple(dict.fromkeys([*self.symbols, *(symbol for guard in self.guards for symbol in guard.symbols)]))


def as_it_is(engine: Engine, installation: Installation) -> dict[str, Any]:
    """What an engine that tests its installation before it offers a kernel is told of this one.

    Only descriptions that take it are told. Without an interpreter nothing is known, and everything counts as there.
    """
    if installation.interpreter is None or "assumed" not in signature(engine.route).parameters:
        return {}
    from sublight.audit.engines.vllm.walk import Assumed

    tools = installation.toolchain.tools if installation.toolchain else ()
    on_path = frozenset(tool.tool for tool in tools if "on the PATH" in tool.found_by)

    def importable(symbol: str) -> bool | None:
        """Packages that nobody ships are not there; what is in those that are, the sources tell."""
        top = symbol.partition(".")[0]
        return None if installation.owners(top) or top in sys.stdlib_module_names else False

    return {
        "assumed": Assumed(
            importable=importable,
            commands=on_path if installation.toolchain else None,
            environment=installation.environment,
        )
    }


def read(
    engine: Engine, sources: WatchedSources, target: Target, areas: tuple[str, ...], told: Mapping[str, Any] = {}
) -> Answers:
    """Everything an engine answers for a target. `told`: as `as_it_is` makes it."""
    declared: dict[str, tuple[Declaration, ...]] = {}
    not_read: dict[str, str] = {}
    for area in areas:
        try:
            declared[area] = engine.declared(sources, area)
            if isinstance(engine, HasFormats):
                declared[area] = tuple(item for item in declared[area] if engine.concerns(item, target))
        except Exception as error:
            not_read[area] = _failed(error)
            continue
        if not declared[area]:
            not_read[area] = _undeclared(sources, engine.package)
    lost: dict[str, str] = {}

    def besides() -> tuple[tuple[Pin, ...], frozenset[str] | None]:
        pins: tuple[Pin, ...] = ()
        pins = _or(lambda: engine.pins(sources), pins, lost, "versions that its code checks")
        return pins, _or(lambda: engine.known_variables(sources), None, lost, "variables that it reads")

    parts, (pins, variables) = _parts(engine, sources, target, declared, told, besides)
    backends = [answered for area in declared for answered in parts[area].backends]
    symbols = [need.symbol for answered in backends for need in answered.route.needs]
    modules = [module_of(sources, need.where) for answered in backends for need in answered.route.needs]
    return Answers(
        backends=tuple(backends),
        guards=_or(lambda: guards(sources, filter(None, modules), symbols), (), not_read, "guards around its imports"),
        autos={area: parts[area].auto for area in declared},
        pins=pins,
        variables=variables,
        not_read=not_read | lost,
        unparsed=sources.unparsed(),
    )


def _undeclared(sources: WatchedSources, package: str) -> str:
    """Why an area declares nothing: a file that cannot be parsed, is missing, was not recorded, or is laid out anew."""
    broken = [error for error in sources.unparsed() if error.startswith(f"{package}/")]
    if broken:
        return broken[0]
    absent = sources.absent(package)
    if not absent:
        return "this version declares its backends in a way that was not recognised"
    listed = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
    if isinstance(sources.reader, DoorReader) and not sources.reader.door.live:
        return f"the sources that declare its backends were not recorded in the snapshot: {listed}"
    return f"sources that declare its backends are missing: {listed}"


class _Part(msgspec.Struct, frozen=True):
    """The answers of one area."""

    backends: tuple[Answered, ...]
    auto: Route


class _Apart(msgspec.Struct, frozen=True):
    """Areas that were read in another process, and what was used for them there."""

    parts: dict[str, _Part]
    used: Used


def _parts(
    engine: Engine,
    sources: WatchedSources,
    target: Target,
    declared: Mapping[str, tuple[Declaration, ...]],
    told: Mapping[str, Any],
    besides: Callable[[], _Answer],
) -> tuple[dict[str, _Part], _Answer]:
    """Every area, and something besides. Of files of this machine about half of the areas in a second process."""

    def part(area: str) -> _Part:
        backends = tuple(_answered(engine, sources, item, target, told) for item in declared[area])
        return _Part(backends, _route(partial(engine.auto, sources, area, target, **told)))

    def apart() -> _Apart:
        return _Apart({area: part(area) for area in there}, sources.what_was_used())

    here, there = _halves({area: len(found) for area, found in declared.items()})
    if not there or not isinstance(sources.reader, DiskReader):
        return {area: part(area) for area in declared}, besides()
    with beside(apart, _Apart) as wait:
        found = {area: part(area) for area in here}
        told_besides = besides()
        other = wait()
    sources.was_used(other.used)
    return found | other.parts, told_besides


def _halves(sizes: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Two lists of areas with about as many backends; whoever reads the first one has something besides to read."""
    halves: tuple[list[str], list[str]] = ([], [])
    totals = [sum(sizes.values()) * _BESIDES, 0.0]
    for area in sorted(sizes, key=lambda area: -sizes[area]):
        less = 0 if totals[0] <= totals[1] else 1
        halves[less].append(area)
        totals[less] += sizes[area]
    return halves if halves[0] else (halves[1], [])


def _answered(
    engine: Engine, sources: WatchedSources, declaration: Declaration, target: Target, told: Mapping[str, Any]
) -> Answered:
    route = _route(partial(engine.route, sources, declaration, target, **told))
    return Answered(declaration=declaration, route=_with_gates(engine, sources, route, target))


def _with_gates(engine: Engine, sources: WatchedSources, route: Route, target: Target) -> Route:
    """A route with the gates of every symbol that it needs, and so those that may be advised instead of it."""
    symbols = [need.symbol for need in route.needs if engine.package != need.symbol.partition(".")[0]]
    gates = {(gate.proof.where, gate.text): gate for gate in route.gates}
    own = any(gate.proof.where.startswith(f"{route.destination.partition('.')[0]}/") for gate in route.gates)
    for symbol in sorted(symbols, key=route.destination.__ne__):
        if symbol == route.destination and own:
            continue  # the route has those of the one backend of it that is called
        helper = symbol != route.destination and route.destination in symbols
        for gate in symbol_gates(sources, symbol, target.compute_capability):
            # A helper's list of cards that it takes is none of the kernel's.
            listed = () if helper and gate.answer is Answer.PASS else gate.targets
            gates.setdefault((gate.proof.where, gate.text), msgspec.structs.replace(gate, targets=listed))
    instead = tuple(
        msgspec.structs.replace(each, route=_with_gates(engine, sources, each.route, target)) for each in route.instead
    )
    return msgspec.structs.replace(route, gates=tuple(gates.values()), instead=instead)


def symbol_gates(sources: Sources, symbol: str, capability: tuple[int, int]) -> tuple[Gate, ...]:
    """Conditions on the card behind a symbol of a library whose gates can be read; () for every other symbol."""
    if symbol.partition(".")[0] != "flashinfer" or "flashinfer" not in sources.roots:
        return ()
    from sublight.audit.engines.flashinfer.gates import gates

    try:
        return gates(sources, symbol, capability)
    except Exception as error:  # what stands in the way of reading a gate may not open it
        return (Gate(Answer.NOT_KNOWN, _failed(error), Proof("source", symbol, "")),)


def _route(ask: Callable[[], Route]) -> Route:
    try:
        return ask()
    except Exception as error:
        return Route(answer=Answer.NOT_KNOWN, why=_failed(error))


def _or(ask: Callable[[], _Answer], otherwise: _Answer, not_read: dict[str, str], what: str) -> _Answer:
    try:
        return ask()
    except Exception as error:
        not_read[what] = _failed(error)
        return otherwise


def _failed(error: Exception) -> str:
    """The audited code is arbitrary; what reading it ran into is said, and counts as not known."""
    return f"reading the engine's source ran into {type(error).__name__}: {error}"


def module_of(sources: WatchedSources, where: str) -> str:
    """ "sglang/srt/server_args.py:176" -> "sglang.srt.server_args"; "" for what is no source of these packages."""
    dotted = where.rpartition(":")[0].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if dotted.partition(".")[0] in sources.roots else ""
