"""Journal: what changed since a mark, so that a branch can be tried, taken back, and merged with another.

Every change to a dict, list or set that a program holds is announced with `touch` first. A branch that hangs on
something unknown is run on the one state, its end kept (`leave`), undone, and the other branch run; then both ends are
merged value by value (`merge`). A branch that returned early waits until the function is through.
"""

from collections import Counter
from sys import getrefcount
from typing import Any

from sublight.audit.source.values import MANY, MISSING, identical, one_of

Container = dict[Any, Any] | list[Any] | set[Any]
OPTIONAL_AT_MOST = 16  # elements that may or may not be in a list, before it counts as unknown
State = dict[int, tuple[Container, Container]]  # id -> the container, and what it held


class Journal:
    def __init__(self, outer: "Journal | None" = None) -> None:
        self._outer = outer  # is told of every change too
        self._records: list[tuple[Container, Container]] = []
        self._last: dict[int, int] = {}
        self._marks: list[int] = []

    @property
    def level(self) -> int:
        """How many marks are being kept."""
        return len(self._marks)

    def mark(self) -> int:
        self._marks.append(len(self._records))
        return len(self._records)

    def release(self, level: int) -> None:
        """Marks set since `level` are needed no more."""
        del self._marks[level:]
        if not self._marks:
            self._records.clear()
            self._last.clear()

    def touch(self, container: Container, outward: bool = True) -> None:
        """Announces that `container` is about to change; not to the outer journal unless `outward`."""
        outer = self._outer
        if outward and outer is not None and outer._marks:
            outer._record(container)
        if self._marks:
            self._record(container)

    def _record(self, container: Container) -> None:
        at = self._last.get(id(container))
        if at is not None and at >= self._marks[-1] and at < len(self._records) and self._records[at][0] is container:
            return
        self._last[id(container)] = len(self._records)
        self._records.append((container, container.copy()))

    def since(self, mark: int) -> State:
        """What everything that changed since the mark holds now."""
        return {id(container): (container, container.copy()) for container, _ in self._records[mark:]}

    def held_since(self, mark: int) -> State:
        """The same, without what nothing but this journal holds any more: names of functions that are through."""
        entries = Counter(id(container) for container, _ in self._records[mark:])
        found: State = {}
        for at in range(mark, len(self._records)):
            if _references(self._records, at) - _OURS > entries[id(self._records[at][0])]:
                container = self._records[at][0]
                found[id(container)] = (container, container.copy())
        return found

    def leave(self, mark: int) -> State:
        """The state now, taken back to what it was at the mark."""
        state = self.since(mark)
        for container, before in reversed(self._records[mark:]):
            _fill(container, before)
        del self._records[mark:]
        return state

    def resume(self, state: State) -> None:
        """Puts a state in place that was left at the same mark."""
        for container, content in state.values():
            self.touch(container)
            _fill(container, content)

    def at(self, mark: int) -> State:
        """What everything that changed since the mark held at the mark."""
        held: State = {}
        for container, before in self._records[mark:]:
            held.setdefault(id(container), (container, before))
        return held

    def rebase(self, state: State, mark: int, onto: int) -> State:
        """A state left at `mark`, as seen from the earlier mark `onto`."""
        between = {id(container): (container, container.copy()) for container, _ in self._records[onto:mark]}
        return {**between, **{key: kept for key, kept in self.at(mark).items() if key in between}, **state}

    def merge(self, mark: int, state: State) -> None:
        """The state now becomes: this one or the given one, which was left at `mark`."""
        before = self.at(mark)
        for key in before | state:
            container, other = state.get(key) or before[key]
            merged = _merged(container, other)
            if merged is not None:
                self.touch(container)
                _fill(container, merged)


def _references(records: list[tuple[Container, Container]], at: int) -> int:
    """To the container of an entry, those of this very look at it included."""
    container = records[at][0]
    return getrefcount(container)


_OURS = _references([({}, {})], 0) - 1  # of the look, however this Python counts them


def _fill(container: Container, content: Any) -> None:
    container.clear()
    if isinstance(container, list):
        container.extend(content)
    else:
        container.update(content)


def _lists(now: list[Any], other: list[Any]) -> list[Any]:
    """What both begin with, then the rest of each, as elements that may not be there."""
    same = 0
    while same < min(len(now), len(other)) and identical(now[same], other[same]):
        same += 1
    rest = [*now[same:], *other[same:]]
    if len(rest) > OPTIONAL_AT_MOST or MANY in rest:
        return [*now[:same], MANY]
    return [*now[:same], *(one_of((item, MISSING)) for item in rest)]


def _merged(now: Container, other: Container) -> Container | None:
    """None when the two are the same already."""
    if isinstance(now, dict) and isinstance(other, dict):
        return {
            key: now[key] if key in now and key in other and identical(now[key], other[key])
            else one_of((now.get(key, MISSING), other.get(key, MISSING)))
            for key in now | other
        }  # fmt: skip
    if isinstance(now, list) and isinstance(other, list):
        if len(now) == len(other):
            return [one_of(pair) for pair in zip(now, other, strict=True)]
        return _lists(now, other)
    if isinstance(now, set) and isinstance(other, set):
        return None if now == other else {*(now & other), MANY}
    return None
