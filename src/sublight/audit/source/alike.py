"""Walks that only a name tells apart: one that answers all questions as an earlier one did is not walked again.

An engine settles its arguments once for every name of a backend, and most names are not told apart by most of its code:
of twenty, ten are compared with the same eight others and equal none of them. Each walk is given its name as an `Asked`
string. What it ends in is kept: the objects that changed since the start, the outcomes, and every place where the name
itself lies. The next name is first put to the kept walks' questions. Where it answers all of them in the same way, its
walk would have taken the same steps from the same start and left the same objects, with this name in those places; so
that is put in place instead.

Nothing is kept of a walk that leaves its name inside something that cannot be changed (a tuple, a choice).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, NamedTuple

import msgspec

from sublight.audit.source import goingon
from sublight.audit.source.asked import Asked, Question, Questions, answers_alike
from sublight.audit.source.evaluate import Checkpoint, Evaluator, Outcome
from sublight.audit.source.events import Event
from sublight.audit.source.goingon import Frame
from sublight.audit.source.values import (
    Bound,
    Choice,
    Class,
    Failure,
    Function,
    Instance,
    Native,
    Parent,
    Partial,
    Scope,
    Value,
)


class _Place(NamedTuple):
    """Where a name lies: in a dict under a key, in a list at an index."""

    holder: Any
    key: Any


class _Left(NamedTuple):
    """A walk as it was left, at its end or before some statement: all that is needed to be there with another name.

    Attributes:
        name: that it was made with.
        questions: that it was asked until then -> the answers.
        heard: question -> steps at the last place before it from which a walk can be gone on with.
        outcomes: of the stages that were through.
        events: since the start.
        end: the evaluator's state.
        places: where the name lies.
        frames: of the stage that was being walked, empty at the end.
        callee: what that stage called.
        seen: events before that stage.
    """

    name: Asked
    questions: Questions
    heard: dict[Question, int]
    outcomes: tuple[Outcome, ...]
    events: tuple[Event, ...]
    end: Checkpoint
    places: list[_Place]
    frames: list[Frame]
    callee: Value
    seen: int


# One part of a walk: given the name and what the parts before came to, what it comes to; None where there is no more.
Stage = Callable[[str, tuple[Outcome, ...]], Outcome | None]
_WORTH = 2_000  # steps that going on from a place has to save


class Alike:
    """Walks of one evaluator from one start.

    Args:
        walk: the evaluator.
        start: where every walk begins.
        worth: steps that are worth keeping a place to go on from.
    """

    def __init__(self, walk: Evaluator, start: Checkpoint, worth: int = _WORTH) -> None:
        self._walk = walk
        self._start = start
        self._worth = worth
        self._through: tuple[Outcome, ...] = ()  # of stages of the walk that is being made
        self._ends: dict[Hashable, list[_Left]] = {}
        self._stops: dict[Hashable, list[_Left]] = {}
        self._trails: dict[Hashable, list[tuple[Questions, dict[Question, int]]]] = {}

    def outcomes(self, name: str, rest: Hashable, stages: Sequence[Stage]) -> tuple[Outcome, ...]:
        """What the stages come to for a name. The evaluator then stands where it would after them.

        Stages do the same for every name with the same `rest`, and do not look at the name themselves.
        """
        for left in self._ends.get(rest, ()):
            if answers_alike(name, left.questions):
                return self._there(left, name)
        stops = [left for left in self._stops.get(rest, ()) if answers_alike(name, left.questions)]
        furthest = max(stops, key=lambda left: left.end.steps, default=None)
        asked = Asked(name)
        heard: dict[Question, int] = {}
        done: tuple[Outcome, ...] = ()
        if furthest is None:
            self._walk.back(self._start)
        else:
            done = self._there(furthest, asked)
            asked.questions.update(furthest.questions)
            heard.update(furthest.heard)
        self._trails.setdefault(rest, [])
        self._stop_where_it_parts(rest, asked, heard, furthest)

        def hear(question: Question) -> None:
            heard[question] = self._place()

        asked.heard = hear
        try:
            if furthest is not None:
                self._through = done
                done = (*done, self._walk.go_on(furthest.callee, furthest.frames, furthest.seen))
            for stage in stages[len(done) :]:
                self._through = done
                if (following := stage(asked, done)) is None:
                    break
                done = (*done, following)
        finally:
            asked.heard, self._walk.stop = None, -1
        self._trails[rest].append((asked.questions.copy(), heard))
        return self._ended(rest, asked, heard, done)

    def _there(self, left: _Left, name: str) -> tuple[Outcome, ...]:
        self._walk.forward(self._start, left.end, _with(left.events, left.name, name))
        _put(left.places, name)
        return tuple(_renamed(outcome, left.name, name) for outcome in left.outcomes)

    def _place(self) -> int:
        """Steps at the last place that the walk could be gone on from."""
        frames = goingon.frames(self._walk)
        blocks = sum(len(frame.blocks) for frame in frames)
        return self._walk.places[blocks - 1].steps if blocks else 0

    def _stop_where_it_parts(
        self, rest: Hashable, asked: Asked, heard: dict[Question, int], furthest: _Left | None
    ) -> None:
        """Has the state kept where this walk parts from those before it: others may go on from there as well."""
        parts = [
            next(
                (
                    where.get(question, 0)
                    for question, answer in questions.items()
                    if not _same(asked, question, answer)
                ),
                0,
            )
            for questions, where in self._trails[rest]
        ]
        at = max(parts, default=0)
        if at >= (furthest.end.steps if furthest else self._start.steps) + self._worth:
            self._walk.stop = at
            self._walk.stopped = lambda: self._stopped(rest, asked, heard)

    def _stopped(self, rest: Hashable, asked: Asked, heard: dict[Question, int]) -> None:
        frames = goingon.stands_at(self._walk)
        if frames:
            left = self._left(asked, heard, self._through, frames)
            if left is not None:
                self._stops.setdefault(rest, []).append(left)

    def _ended(
        self, rest: Hashable, asked: Asked, heard: dict[Question, int], outcomes: tuple[Outcome, ...]
    ) -> tuple[Outcome, ...]:
        left = self._left(asked, heard, outcomes, [])
        if left is None:
            return outcomes
        self._ends.setdefault(rest, []).append(left)
        _put(left.places, asked.text)
        return tuple(_renamed(outcome, asked, asked.text) for outcome in outcomes)

    def _left(
        self, asked: Asked, heard: dict[Question, int], outcomes: tuple[Outcome, ...], frames: list[Frame]
    ) -> _Left | None:
        """The walk as it now stands; None where the name lies in something that cannot be changed."""
        walk = self._walk
        end = walk.later(self._start)
        places = _Search(asked).places(walk, self._start, end, outcomes, frames)
        if places is None:
            return None
        events = tuple(walk.events[self._start.events :])
        asks = asked.questions.copy()
        return _Left(asked, asks, heard.copy(), outcomes, events, end, places, frames, walk.running, walk.began)


def _same(asked: Asked, question: Question, answer: Any) -> bool:
    return answers_alike(asked.text, {question: answer})


def _put(places: Iterable[_Place], name: str) -> None:
    for holder, key in places:
        holder[key] = name


def _renamed(outcome: Outcome, before: Asked, name: str) -> Outcome:
    value = name if outcome.value is before else outcome.value
    return msgspec.structs.replace(outcome, value=value, events=_with(outcome.events, before, name))


def _with(events: Iterable[Event], before: Asked, name: str) -> tuple[Event, ...]:
    """Events with another name in those that tell it; the rest are the same objects."""
    return tuple(_told(event, before, name) for event in events)


def _told(event: Event, before: Asked, name: str) -> Event:
    value = event.value
    if value is before:
        value = name
    elif event.kind == "call" and isinstance(value, dict) and any(each is before for each in value.values()):
        value = {key: name if each is before else each for key, each in value.items()}
    else:
        return event
    other = copy(event)
    other.value = value
    return other


class _Search:
    """Looks for the places of a name in everything that can be reached after its walk and not before."""

    def __init__(self, name: Asked) -> None:
        self._name = name
        self._places: list[_Place] = []
        self._seen: set[int] = set()
        self._todo: list[Value] = []
        self._fixed = False

    def places(
        self,
        walk: Evaluator,
        start: Checkpoint,
        end: Checkpoint,
        outcomes: Iterable[Outcome],
        frames: Iterable[Frame],
    ) -> list[_Place] | None:
        """None when the name lies in something that cannot be changed."""
        self._todo += [container for container, _ in end.later.values()]
        for at, loaded in end.modules.items():
            before = start.modules.get(at)
            if loaded is not None:
                self._new(loaded.space.names, before.names if before is not None else {})
        self._todo += [walk.environment, *(part for told in end.kept.values() for part in told)]
        self._todo += [outcome.value for outcome in outcomes if outcome.value is not self._name]
        self._todo += [
            each.value for each in walk.events[start.events :] if each.kind != "call" and each.value is not self._name
        ]
        for frame in frames:
            self._scope(frame.scope)
        self._todo += [walk.running]
        while self._todo and not self._fixed:
            value = self._todo.pop()
            if value.__class__ in _LOOK and id(value) not in self._seen:
                self._seen.add(id(value))
                _LOOK[value.__class__](self, value)
        return None if self._fixed else self._places

    def _new(self, names: dict[str, Value], before: dict[str, Value]) -> None:
        """What a module did not call so at the start; the rest of it is as it was, or is among what changed."""
        for key, value in names.items():
            if before.get(key) is not value:
                self._in(names, key, value)

    def _in(self, holder: Any, key: Any, value: Value) -> None:
        if value is self._name:
            self._places.append(_Place(holder, key))
        else:
            self._todo.append(value)

    def _dict(self, value: dict[Any, Value]) -> None:
        for key, each in value.items():
            self._in(value, key, each)

    def _list(self, value: list[Value]) -> None:
        for at, each in enumerate(value):
            self._in(value, at, each)

    def _parts(self, *parts: Value) -> None:
        self._fixed = self._fixed or any(part is self._name for part in parts)
        self._todo += parts

    def _scope(self, value: Scope | None) -> None:
        while value is not None and value is not value.module.scope:
            self._todo += [value.names, value.yields]
            value = value.outer


# Where a value of the read program holds others; modules are gone through by themselves.
_LOOK: dict[type, Callable[[_Search, Any], None]] = {
    dict: _Search._dict,
    list: _Search._list,
    tuple: lambda search, value: search._parts(*value),
    Choice: lambda search, value: search._parts(*value.options),
    Instance: lambda search, value: search._parts(value.attributes, value.cls),
    Class: lambda search, value: search._parts(value.declared),
    Bound: lambda search, value: search._parts(value.function, value.receiver),
    Native: lambda search, value: search._parts(value.receiver),
    Parent: lambda search, value: search._parts(value.receiver),
    Partial: lambda search, value: search._parts(value.target, value.arguments, value.keywords),
    Failure: lambda search, value: search._parts(value.value),
    Function: lambda search, value: search._scope(value.outer),
}
