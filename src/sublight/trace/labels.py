"""What each GPU event is, as small numbers beside the columns of the trace.

A name is judged once, however often it runs. What a name alone can not tell (a norm before attention from one before
the experts, the first all-reduce of a layer from the second) is refined afterwards by position: `Labels.with_rows`.
Only the row is therefore kept for each event; everything else is looked up by the event's name when it is asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt

from sublight.trace.events import Ids, Trace

UNKNOWN = "unknown"


class Classified(Protocol):
    """What is needed of a classification. `category` is compute, communication or memory; row and backend may be ""."""

    @property
    def kind(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def row(self) -> str: ...
    @property
    def backend(self) -> str: ...


_WINDOW = 1 << 16
Places = npt.NDArray[np.int64] | slice


class ByName:
    """A number for each event that its name decides: indexed like an array, and stored once for each name."""

    def __init__(self, of_name: Ids, name: Ids) -> None:
        self._of_name, self._name = of_name, name

    @overload
    def __getitem__(self, places: int) -> int: ...
    @overload
    def __getitem__(self, places: Places) -> Ids: ...
    def __getitem__(self, places: Places | int) -> Ids | int:
        return self._of_name[self._name[places]]

    def __len__(self) -> int:
        return len(self._name)

    def __iter__(self) -> Iterator[int]:
        return iter(self[:].tolist())


class Shown:
    """A number for each event that its row and its kind decide: indexed like an array, and never made as a whole."""

    def __init__(self, table: Ids, row: Ids, kind: ByName) -> None:
        self._table, self._row, self._kind = table, row, kind

    def __getitem__(self, places: Places) -> Ids:
        found: Ids = self._table[self._row[places], self._kind[places]]
        return found

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[int]:
        return iter(self[:].tolist())


@dataclass(frozen=True, slots=True)
class Labels:
    """Per event of `Trace.gpu` a number into the table beside the column.

    A name that nobody knows has the row "unknown". A name that is known and belongs to no row of a step (a copy, the
    bookkeeping of an engine) has the row "".
    """

    row: Ids
    kind: ByName
    category: ByName
    backend: ByName
    rows: tuple[str, ...]
    kinds: tuple[str, ...]
    categories: tuple[str, ...]
    backends: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    def with_rows(self, indices: npt.ArrayLike, row: str) -> "Labels":
        """The same labels with the events at `indices` moved to another row."""
        rows = self.rows if row in self.rows else (*self.rows, row)
        numbers = self.row.astype(np.min_scalar_type(len(rows)))
        numbers[np.asarray(indices, np.int64)] = rows.index(row)
        return replace(self, row=numbers, rows=rows)

    def shown(self) -> tuple[Shown, tuple[str, ...]]:
        """Per event the name it is counted under: its row, or its kind of work where it has none."""
        used = np.zeros((len(self.rows), len(self.kinds)), bool)
        for low in range(0, len(self), _WINDOW):
            span = slice(low, low + _WINDOW)
            used[self.row[span], self.kind[span]] = True
        pairs = np.argwhere(used).tolist()
        words = [self.rows[row] or self.kinds[kind] for row, kind in pairs]
        names = tuple(dict.fromkeys(words))
        numbers = {name: number for number, name in enumerate(names)}
        table = np.zeros(used.shape, np.min_scalar_type(len(names)))
        for (row, kind), word in zip(pairs, words, strict=True):
            table[row, kind] = numbers[word]
        return Shown(table, self.row, self.kind), names


def label(trace: Trace, classify: Callable[[str], Classified]) -> Labels:
    """Classify every name of the trace once.

    Args:
        trace: whose events.
        classify: what a name is; of the kind "unknown" where it can not tell.
    """
    found = [classify(name) for name in trace.gpu.names]
    row_of = [UNKNOWN if str(one.kind) == UNKNOWN else one.row for one in found]
    columns = [
        _numbered(values)
        for values in (
            row_of,
            [str(one.kind) for one in found],
            [str(one.category) for one in found],
            [one.backend for one in found],
        )
    ]
    (row, rows), (kind, kinds), (category, categories), (backend, backends) = columns
    name = trace.gpu.name
    return Labels(
        row=row[name],
        kind=ByName(kind, name),
        category=ByName(category, name),
        backend=ByName(backend, name),
        rows=rows,
        kinds=kinds,
        categories=categories,
        backends=backends,
    )


def _numbered(of_name: list[str]) -> tuple[Ids, tuple[str, ...]]:
    table = tuple(dict.fromkeys(of_name))
    numbers = {value: number for number, value in enumerate(table)}
    return np.array([numbers[value] for value in of_name], np.min_scalar_type(len(table))), table
