"""Tables that grow while a file is read: columns, and a number for every distinct value of some of them.

A column grows in place (the allocator moves pages, not bytes) and is as narrow as its values allow, so the peak is the
finished table and little more. Keeping the pieces and joining them at the end takes twice that. A table travels between
processes as its arrays and its distinct values, see `sublight.trace.worker`.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sublight.trace.events import Ids, Nanoseconds

Column = npt.NDArray[Any]
_SORT_WINDOW = 1 << 16
_LEAST_ROOM = 1 << 12


class Numbering(dict[Any, int]):
    """Value -> number, in the order of first use: looking up an unknown value gives it the next number."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


class Growing:
    """One column that rows are appended to."""

    def __init__(self, kind: type[np.integer[Any]]) -> None:
        self._data: Column = np.empty(0, kind)
        self.used = 0

    def append(self, piece: Column) -> None:
        need = self.used + len(piece)
        kind = np.promote_types(self._data.dtype, piece.dtype)
        if kind != self._data.dtype:
            self._data = self._data[: self.used].astype(kind)
        if need > len(self._data):
            # What is added is written with zeros and so takes memory at once: a sixteenth, and none for a large piece.
            room = max(need >> 4, _LEAST_ROOM)
            self._data.resize(need + (room if len(piece) < room else 0), refcheck=False)
        self._data[self.used : need] = piece
        self.used = need

    def cut(self, length: int) -> None:
        """Forget all rows after the first `length`."""
        self.used = length

    def take(self) -> Column:
        """The column; this one is empty afterwards."""
        data = self._data
        data.resize(self.used, refcheck=False)
        self._data, self.used = np.empty(0, data.dtype), 0
        return data


class Table:
    """Columns of equal length under construction.

    Args:
        times: names of the int64 columns.
        numbers: names of the columns of small unsigned numbers that stand for themselves.
        values: names of the columns whose values are numbered.
    """

    def __init__(self, times: Sequence[str], numbers: Sequence[str], values: Sequence[str]) -> None:
        self.names = (*times, *numbers, *values)
        self.numbering = {name: Numbering() for name in values}
        self._columns = {name: Growing(np.int64 if name in times else np.uint8) for name in self.names}

    def __len__(self) -> int:
        return self._columns[self.names[0]].used

    def add_column(self, name: str, piece: Column) -> None:
        """Append to one column; the caller appends equally much to each."""
        self._columns[name].append(piece)

    def add_values(self, name: str, values: Iterable[Hashable]) -> None:
        """Append to a numbered column."""
        numbering = self.numbering[name]
        self._columns[name].append(narrowed(np.array([numbering[value] for value in values], np.int64)))

    def add_foreign(self, name: str, column: Column, values: Sequence[Hashable]) -> None:
        """Append to a numbered column what another table numbered: `values` says what its numbers mean."""
        numbering = self.numbering[name]
        ours = narrowed(np.array([numbering[value] for value in values], np.int64))
        self._columns[name].append(ours[column] if len(column) else column)

    def take(self, name: str) -> Column:
        """The whole column; the table gives it up."""
        return self._columns[name].take()

    def mark(self) -> tuple[int, dict[str, int]]:
        """How much there is, for `back_to`."""
        return len(self), {name: len(numbering) for name, numbering in self.numbering.items()}

    def back_to(self, mark: tuple[int, dict[str, int]]) -> None:
        """Forget everything added since."""
        length, known = mark
        for column in self._columns.values():
            column.cut(length)
        for name, count in known.items():
            numbering = self.numbering[name]
            for value in list(numbering)[count:]:
                del numbering[value]


def narrowed(column: npt.NDArray[np.int64]) -> Ids:
    """The same numbers in the narrowest unsigned type that holds them; negative ones become 0."""
    if not len(column):
        return column.astype(np.uint8)
    if int(column.min()) < 0:
        column = np.maximum(column, 0)
    return column.astype(np.min_scalar_type(int(column.max())))


def sort_by_start(columns: dict[str, Column]) -> None:
    """Sort equal-length columns by `columns["start"]` in place, keeping the order of equal starts.

    Profilers write almost in order, so overlapping windows are sorted first, which needs next to no extra memory. Only
    if a row was out of place by more than half a window is the whole table sorted at once.
    """
    start = columns["start"]
    for low in range(0, len(start), _SORT_WINDOW // 2):
        _sort_rows(columns, slice(low, low + _SORT_WINDOW))
    if not is_sorted(start):
        _sort_rows(columns, slice(None))


def _sort_rows(columns: dict[str, Column], rows: slice) -> None:
    start = columns["start"][rows]
    if is_sorted(start):
        return
    order = np.argsort(start, kind="stable")
    for column in columns.values():
        column[rows] = column[rows][order]


def is_sorted(values: Nanoseconds | Ids) -> bool:
    """Whether no value is below the one before it; looked at in windows, to make no large temporary."""
    return all(
        bool(
            (
                values[low + 1 : low + _SORT_WINDOW + 1] >= values[low : low + _SORT_WINDOW][: len(values) - low - 1]
            ).all()
        )
        for low in range(0, max(len(values) - 1, 0), _SORT_WINDOW)
    )
