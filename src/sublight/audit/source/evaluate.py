"""Evaluator: what a function of a program that is read, and never run, comes to for given facts.

    walk = Evaluator(sources, Facts(follow=("engine",), calls={"torch.cuda.get_device_capability": (12, 0)}))
    outcome = walk.call("engine.moe.choose", [...])
    outcome.value, outcome.refusal, outcome.events

The read program's state lives on between calls of one evaluator (objects made by one call can be handed to the next),
as it would in one process. For another question make another evaluator: modules stay parsed with their `Sources`.
"""

import ast
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from sublight.audit.source import calls, containers, creating, expressions, goingon, namespaces, objects, statements
from sublight.audit.source.events import Event
from sublight.audit.source.facts import Facts
from sublight.audit.source.goingon import Frame
from sublight.audit.source.journal import State
from sublight.audit.source.machine import Machine, OutOfSteps, Raising
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import MISSING, Class, Failure, Instance, Namespace, Scope, Unknown, Value


class Outcome(msgspec.Struct, frozen=True):
    """What one call came to.

    Attributes:
        value: what it returns; unknown when it raises or was given up.
        refusal: the exception it certainly ends with, None when it may return.
        events: what happened, in order. Events that hang on something unknown carry the conditions.
        gave_up: why the walk was not finished, "" when it was.
    """

    value: Any
    refusal: Failure | None
    events: tuple[Event, ...]
    gave_up: str = ""

    def of(self, *kinds: str) -> tuple[Event, ...]:
        """Events of these kinds."""
        return tuple(event for event in self.events if event.kind in kinds)

    @property
    def refused_at(self) -> Event | None:
        """The `raise` or `assert` that the call certainly ends with; where it is raised first, not where it passes."""
        if self.refusal is None:
            return None
        raised = [e for e in self.events if e.kind == "raise" and e.value is self.refusal]
        return next((e for e in raised if e.certain), raised[-1] if raised else None)


class Loaded(NamedTuple):
    """A module as it is at some moment."""

    space: Namespace
    names: dict[str, Value]
    written: dict[str, Value]
    done: set[int]
    loads: bool


class Checkpoint(NamedTuple):
    """The state of an evaluator at some moment."""

    mark: int
    modules: dict[str, Loaded | None]
    reached: set[str]
    environment: dict[str, Value]
    kept: dict[tuple[object, ...], tuple[Value, Value]]
    opened: list[Instance]
    events: int
    steps: int
    later: State  # what containers hold that changed since an earlier checkpoint, for `forward`


class Evaluator(Machine):
    """One program under one set of facts."""

    def __init__(self, sources: Sources, facts: Facts) -> None:
        super().__init__(sources, facts, expressions.TABLE | {ast.Call: calls.expression}, statements.TABLE)

    # -- questions ----------------------------------------------------------------------------------------------

    def name(self, dotted: str) -> Value:
        """What a dotted name of the program stands for; MISSING when there is nothing of that name."""
        parts = dotted.split(".")
        for at in range(len(parts), 0, -1):
            found = namespaces.space(self, ".".join(parts[:at]))
            if found is None:
                continue
            value: Value = found
            for part in parts[at:]:
                value = objects.get(self, value, part, _NODE, _scope())
                if value is MISSING:
                    return MISSING
            return value
        return MISSING

    def call_name(self, dotted: str, arguments: list[Value] | None = None, **keywords: Value) -> Outcome:
        """Calls what a dotted name stands for. A name that is not there gives an outcome that was given up."""
        callee = self.name(dotted)
        if callee is MISSING or isinstance(callee, Unknown):
            why = self.sources.unparsed_at(dotted) or (
                "" if callee is not MISSING else f"{dotted} is not in the sources"
            )
            if why:
                return Outcome(Unknown(why), None, (), why)
        return self.run(callee, arguments or [], keywords)

    def call_method(self, value: Value, name: str, arguments: list[Value] | None = None, **keywords: Value) -> Outcome:
        """Calls a method of an object that an earlier call made."""
        method = objects.get(self, value, name, _NODE, _scope())
        if method is MISSING:
            return Outcome(Unknown(f"there is no {name}"), None, (), f"{value!r} has no {name}")
        return self.run(method, arguments or [], keywords)

    def attribute(self, value: Value, name: str) -> Value:
        """An attribute of a value as it now stands; MISSING when there is none."""
        return objects.get(self, value, name, _NODE, _scope())

    def run(self, callee: Value, arguments: list[Value], keywords: dict[str, Value]) -> Outcome:
        self.running = callee
        return self._outcome(len(self.events), lambda: self.call(callee, arguments, keywords, _NODE, _scope()))

    def go_on(self, callee: Value, frames: list[Frame], seen: int) -> Outcome:
        """What a call comes to that stood at `frames`, as the evaluator does; `seen`: events there were before it."""
        self.running = callee
        return self._outcome(seen, lambda: goingon.go_on(self, frames))

    def _outcome(self, seen: int, work: Callable[[], Value]) -> Outcome:
        self.began = seen
        value: Value = Unknown("it raises")
        refusal: Failure | None = None
        gave_up = ""
        before, level = [len(held) for held in self._held()], self.journal.level
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _FRAMES))
        try:
            value = work()
        except Raising as raising:
            refusal = raising.failure
        except OutOfSteps as error:
            gave_up = str(error)
        except RecursionError:
            gave_up = "the program is nested too deeply"
        finally:
            sys.setrecursionlimit(limit)
        if gave_up:  # nobody on the way back has put away what stood open
            for held, length in zip(self._held(), before, strict=True):
                del held[length:]
            self.journal.release(level)
        return Outcome(value, refusal, tuple(self.events[seen:]), gave_up)

    def _held(self) -> tuple[list[Any], ...]:
        """What is opened on the way into a program and closed on the way out."""
        return self.conditions, self.pending, self.active, self.handled, self.tries, self.places

    def instance(self, dotted: str, attributes: dict[str, Value], open_: bool = True) -> Value:
        """An object of a class of the program, made without its constructor."""
        cls = self.name(dotted)
        return Instance(cls if isinstance(cls, Class) else None, attributes, open_)

    def checkpoint(self) -> "Checkpoint":
        """Everything as it now is, to come back to with `back`. One checkpoint at a time."""
        return self._now(self.returns.mark(), {})

    def later(self, than: "Checkpoint") -> "Checkpoint":
        """Everything as it now is, to go to with `forward` from an earlier checkpoint, any number of times."""
        return self._now(than.mark, self.returns.held_since(than.mark))

    def _now(self, mark: int, later: State) -> "Checkpoint":
        modules = {
            name: Loaded(found, found.names.copy(), found.written.copy(), found.done.copy(), found.loads)
            if found
            else None
            for name, found in self.spaces.items()
        }
        return Checkpoint(
            mark,
            modules,
            self.reached.copy(),
            self.environment.copy(),
            self.kept.copy(),
            self.opened.copy(),
            len(self.events),
            self.steps,
            later,
        )

    def back(self, to: "Checkpoint") -> None:
        """Undoes everything since the checkpoint, loading of modules included. It can be come back to again."""
        self.returns.leave(to.mark)
        for made in self.opened[len(to.opened) :]:
            made.open = False
        del self.events[to.events :]
        self._put(to)

    def forward(self, start: "Checkpoint", to: "Checkpoint", events: Iterable[Event]) -> None:
        """From a checkpoint to what came of it later (`later`), with the events of the way there."""
        self.back(start)
        self.returns.resume(to.later)
        self.events += events
        self._put(to)

    def _put(self, to: "Checkpoint") -> None:
        self.spaces = {name: kept and kept.space for name, kept in to.modules.items()}
        for kept in to.modules.values():
            if kept is not None:
                kept.space.names.clear()
                kept.space.names.update(kept.names)
                kept.space.written.clear()
                kept.space.written.update(kept.written)
                kept.space.done = kept.done.copy()
                kept.space.loads = kept.loads
        for made in to.opened:
            made.open = True
        self.opened = to.opened.copy()
        self.reached = to.reached.copy()
        self.environment.clear()
        self.environment.update(to.environment)
        self.kept = to.kept.copy()
        self.steps = to.steps

    # -- what the machine leaves open -----------------------------------------------------------------------------

    def call(self, callee: Value, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope) -> Value:
        return calls.call(self, callee, arguments, keywords, node, scope)

    def asked(self, value: Value, name: str, arguments: list[Value], node: Any, scope: Scope) -> Value:
        return calls.asked(self, value, name, arguments, node, scope)

    def item(self, container: Value, key: Value, node: Any, scope: Scope) -> Value:
        return containers.item(self, container, key, node, scope)

    def iterated(self, value: Value, node: Any, scope: Scope) -> Value:
        found = calls.asked(self, value, "__iter__", [], node, scope)
        return value if found is MISSING else found

    def fields(self, cls: Class) -> list[tuple[str, Value]]:
        return creating.defaults(self, cls)

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        statements.store(self, target, value, scope)


_FRAMES = 12_000  # of this Python: one call of the read program takes about ten
# Where a question of ours stands: in no file.
_NODE = ast.Constant(None, lineno=0, col_offset=0)


def _scope() -> Scope:
    return Scope(Namespace(Module("", "", b"")), None)
