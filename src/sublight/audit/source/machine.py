"""The machine that walks a program: its state, and how unknown decisions split and join.

Every decision that hangs on something unknown is walked on both sides and the two ends are merged, so a function is
walked once whatever its number of unknown decisions. What happens on one side only carries the condition. A side that
refuses (raises) ends there: the walk goes on with the other one, and the refusal is among the events, with its
condition.
"""

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sublight.audit.source.events import Condition, Event, alternatives
from sublight.audit.source.facts import Facts
from sublight.audit.source.journal import Journal, State
from sublight.audit.source.tree import Module, Sources
from sublight.audit.source.values import (
    Class,
    Failure,
    Function,
    Instance,
    Namespace,
    Scope,
    Unknown,
    Value,
    one_of,
)


class Raising(Exception):  # noqa: N818 - it stands for the read program's exception and is no error of ours
    """The program that is read raises."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OutOfSteps(Exception):  # noqa: N818
    """The walk was given up: too many steps."""


class Ended(NamedTuple):
    """How a block ended other than by running through: "return", "break", "continue", "raise"."""

    kind: str
    value: Value = None


class Pending(NamedTuple):
    """A side of an unknown decision that left the block early, waiting to be joined where its way leads."""

    ended: Ended
    mark: int
    state: State


class Standing:
    """A block that is being walked: the statement it has come to, and the steps and events before that and it."""

    __slots__ = ("at", "body", "events", "scope", "steps")

    def __init__(self, body: list[ast.stmt], scope: Scope, events: int) -> None:
        self.body = body
        self.scope = scope
        self.events = events
        self.at = 0
        self.steps = 0


# The node is of the type that the table lists the function under.
Expression = Callable[["Machine", Any, Scope], Value]
Statement = Callable[["Machine", Any, Scope], Ended | None]


class Machine(ABC):
    """State of one walk. What each kind of syntax means is in the tables; calls and containers are left open."""

    def __init__(
        self,
        sources: Sources,
        facts: Facts,
        expressions: Mapping[type, Expression],
        statements: Mapping[type, Statement],
    ) -> None:
        self.sources = sources
        self.facts = facts
        self.returns = Journal()  # what changed since a checkpoint, whatever is walked meanwhile
        self.journal = Journal(self.returns)
        self.events: list[Event] = []
        self.conditions: list[Condition] = []
        self.pending: list[Pending] = []
        self.active: list[Function] = []
        self.handled: list[Failure] = []
        self.tries: list[tuple[Module, ast.Try | ast.With]] = []  # around here, and not outside the function
        self.environment: dict[str, Value] = dict(facts.environment)
        self.spaces: dict[str, Namespace | None] = {}
        self.reached: set[str] = set()  # modules that are loaded by now, walked or not
        self.kept: dict[tuple[object, ...], tuple[Value, Value]] = {}  # answers of cached functions
        self.decided: dict[ast.BoolOp, ast.expr] = {}  # an `or` -> the part that it came to when it was last asked
        self.resolving: set[tuple[str, str]] = set()  # imported names being looked up
        self.opened: list[Instance] = []  # objects that got an attribute whose name is not known
        self.steps = 0
        self.running: Value = None  # what was called from outside last, and how many events there were before it
        self.began = 0
        self.places: list[Standing] = []  # blocks that are being walked, the innermost last
        self.stop = -1  # steps after which `stopped` is called, before a statement
        self.stopped: Callable[[], None] = lambda: None
        self._most = facts.steps_at_most
        self._expressions = expressions
        self._statements = statements

    @abstractmethod
    def call(self, callee: Value, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope) -> Value:
        """Calls a value. A `MANY` among the arguments stands for any number of unknown ones."""

    @abstractmethod
    def asked(self, value: Value, name: str, arguments: list[Value], node: Any, scope: Scope) -> Value:
        """Calls a special method of an object of the sources; MISSING when its class defines none."""

    @abstractmethod
    def item(self, container: Value, key: Value, node: Any, scope: Scope) -> Value:
        """`container[key]`."""

    @abstractmethod
    def iterated(self, value: Value, node: Any, scope: Scope) -> Value:
        """What a `for` runs over: a container, or something unknown."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """`target = value`, taking tuples apart."""

    @abstractmethod
    def fields(self, cls: Class) -> list[tuple[str, Value]]:
        """Fields a record class's constructor is made from, with their defaults."""

    # -- walking ------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope) -> Value:
        self.steps += 1
        if self.steps > self._most:
            raise OutOfSteps(f"more than {self._most} steps")
        walk = self._expressions.get(node.__class__)
        if walk is None:
            return Unknown(f"{type(node).__name__} is not read")
        return walk(self, node, scope)

    def block(self, body: list[ast.stmt], scope: Scope, first: int = 0, events: int | None = None) -> Ended | None:
        """Statements from the `first` on; `events`: how many there were before the block, where it was begun before."""
        places = self.places
        depth = len(places)
        place = Standing(body, scope, len(self.events) if events is None else events)
        places.append(place)
        try:
            for at in range(first, len(body)):
                node = body[at]
                place.at, place.steps = at, self.steps
                if self.steps == self.stop:
                    self.stopped()
                self.steps += 1
                walk = self._statements.get(node.__class__)
                if walk is None:
                    self.note("not followed", scope.module.module, node, value=f"{type(node).__name__} is not read")
                    continue
                ended = walk(self, node, scope)
                if ended is not None:
                    return ended
        finally:
            del places[depth:]
        return None

    def note(
        self,
        kind: str,
        module: Module,
        node: ast.AST,
        name: str = "",
        outcome: bool | None = None,
        value: Value = None,
    ) -> Event:
        function = self.active[-1].dotted if self.active else ""
        conditions = tuple(self.conditions) if self.conditions else ()
        event = Event(kind, module, node, conditions, len(self.active), function, name, outcome, value)
        self.events.append(event)
        return event

    def branch(self, test: ast.expr, scope: Scope, answer: bool | None) -> None:
        """Notes a test that was just worked out."""
        event = self.note("branch", scope.module.module, test, outcome=answer)
        for either in alternatives(test):
            if either in self.decided:
                event.because = {**event.because, either: self.decided[either]}

    # -- unknown decisions --------------------------------------------------------------------------------------

    def fork(
        self,
        node: ast.AST,
        scope: Scope,
        yes: Callable[[], Ended | None],
        no: Callable[[], Ended | None],
    ) -> Ended | None:
        """Walks both sides of an unknown decision from the same state and joins what can be joined."""
        module = scope.module.module
        level, mark, waiting = self.journal.level, self.journal.mark(), len(self.pending)
        first, then = self._side(Condition(module, node, True), yes, mark, level + 1, waiting)
        second, otherwise = self._side(Condition(module, node, False), no, mark, level + 1, waiting)
        ended = self._join(module, node, mark, (first, then), (second, otherwise))
        if len(self.pending) == waiting:
            self.journal.release(level)
        return ended

    def _side(
        self, guard: Condition, walk: Callable[[], Ended | None], mark: int, level: int, waiting: int
    ) -> tuple[Ended | None, State]:
        known = len(self.conditions)
        self.conditions.append(guard)
        depth, handled, tries = len(self.active), len(self.handled), len(self.tries)
        try:
            ended = walk()
        except Raising as raising:
            ended = Ended("raise", raising.failure)
            del self.active[depth:], self.handled[handled:], self.tries[tries:]
        finally:
            del self.conditions[known:]
        self._rebase(waiting, mark)
        state = self.journal.leave(mark)
        self.journal.release(level)
        return ended, state

    def _rebase(self, waiting: int, mark: int) -> None:
        """Makes what waits since `waiting` relative to the earlier mark."""
        for at, item in enumerate(self.pending[waiting:], waiting):
            if item.mark > mark:
                self.pending[at] = item._replace(mark=mark, state=self.journal.rebase(item.state, item.mark, mark))

    def _join(
        self,
        module: Module,
        node: ast.AST,
        mark: int,
        a: tuple[Ended | None, State],
        b: tuple[Ended | None, State],
    ) -> Ended | None:
        (first, then), (second, otherwise) = a, b
        if first and first.kind == "raise" and second and second.kind == "raise":
            self.journal.resume(then)
            raise Raising(first.value)
        if first and first.kind == "raise":
            self.journal.resume(otherwise)
            return second
        if second and second.kind == "raise":
            self.journal.resume(then)
            return first
        if (first and first.kind) == (second and second.kind):
            self.journal.resume(then)
            self.journal.merge(mark, otherwise)
            return Ended(first.kind, one_of((first.value, second.value))) if first and second else None
        # One side leaves the block, or both to different places: it waits there for the other one.
        waits_first = first is not None and (second is None or first.kind == "return")
        if waits_first and first is not None:
            self.pending.append(Pending(first, mark, then))
            self.journal.resume(otherwise)
            self.conditions.append(Condition(module, node, False))
            return second
        assert second is not None
        self.pending.append(Pending(second, mark, otherwise))
        self.journal.resume(then)
        self.conditions.append(Condition(module, node, True))
        return first

    def arrive(self, kind: str, waiting: int, ended: Ended | None) -> tuple[Ended | None, list[Value]]:
        """Joins everything that waited for this place: returns of a function, breaks of a loop.

        Returns how the walk goes on (None: it runs on), and the values that those who waited brought.
        """
        values: list[Value] = []
        for at in range(len(self.pending) - 1, waiting - 1, -1):
            item = self.pending[at]
            if item.ended.kind != kind:
                continue
            del self.pending[at]
            values.append(item.ended.value)
            if ended is None or ended.kind == kind:
                self.journal.merge(item.mark, item.state)
                continue
            # The walk itself went elsewhere: it waits in turn, and the one that arrived goes on.
            self._rebase(waiting, item.mark)
            state = self.journal.leave(item.mark)
            if ended.kind != "raise":
                self.pending.append(Pending(ended, item.mark, state))
            self.journal.resume(item.state)
            ended = None
        return ended, values

    def guarded(self, node: ast.AST, scope: Scope, outcome: bool, walk: Callable[[], Value]) -> Value | None:
        """The value of an expression that is evaluated only if something unknown holds; None when it raises."""
        found: list[Value] = []

        def keep() -> None:
            found.append(walk())

        def skip() -> None:
            return None

        self.fork(node, scope, keep if outcome else skip, skip if outcome else keep)
        return found[0] if found else None
