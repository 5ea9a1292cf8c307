"""What an engine's own source answers: what it declares, where each name leads, which versions and variables it wants.

An engine's description reads code it has never seen. Where reading fails, that backend is not known, with the reason,
and the others go on.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from sublight.audit.engines.base import Declaration, Engine, Pin, Route
from sublight.audit.ladder import Answer
from sublight.audit.reading import WatchedSources
from sublight.audit.target import Target

_Answer = TypeVar("_Answer")


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One backend as declared, and where asking for it leads."""

    declaration: Declaration
    route: Route


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Everything read from one engine for one target.

    Attributes:
        autos: area -> what runs when nothing is asked for.
        not_read: area -> why nothing could be read of it.
        unparsed: source files that this Python cannot parse, and why.
    """

    backends: tuple[Answered, ...] = ()
    autos: dict[str, Route] = {}
    pins: tuple[Pin, ...] = ()
    variables: frozenset[str] | None = None
    not_read: dict[str, str] = {}
    unparsed: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol that some path imports."""
        return tuple(dict.fromkeys(need.symbol for answered in self.backends for need in answered.route.needs))


def read(engine: Engine, sources: WatchedSources, target: Target, areas: tuple[str, ...]) -> Answers:
    backends: list[Answered] = []
    autos: dict[str, Route] = {}
    not_read: dict[str, str] = {}
    for area in areas:
        try:
            declared = engine.declared(sources, area)
        except Exception as error:
            not_read[area] = _failed(error)
            continue
        if not declared:
            not_read[area] = "this version declares its backends in a way that was not recognised"
        backends += [_answered(engine, sources, item, target) for item in declared]
        autos[area] = _route(lambda area=area: engine.auto(sources, area, target))  # type: ignore[misc]
    return Answers(
        backends=tuple(backends),
        autos=autos,
        pins=_or(lambda: engine.pins(sources), ()),
        variables=_or(lambda: engine.known_variables(sources), None),
        not_read=not_read,
        unparsed=sources.unparsed(),
    )


def _answered(engine: Engine, sources: WatchedSources, declaration: Declaration, target: Target) -> Answered:
    return Answered(declaration=declaration, route=_route(lambda: engine.route(sources, declaration, target)))


def _route(ask: Callable[[], Route]) -> Route:
    try:
        return ask()
    except Exception as error:
        return Route(answer=Answer.NOT_KNOWN, why=_failed(error))


def _or(ask: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
    try:
        return ask()
    except Exception:
        return otherwise


def _failed(error: Exception) -> str:
    """The audited code is arbitrary; what reading it ran into is said, and counts as not known."""
    return f"reading the engine's source ran into {type(error).__name__}: {error}"
