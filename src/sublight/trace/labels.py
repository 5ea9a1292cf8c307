"""What each GPU event is, as small numbers beside the columns of the trace.

A name is judged once, however often it runs. What a name alone can not tell (a norm before attention from one before
the experts, the first all-reduce of a layer from the second) is refined afterwards by position: `Labels.with_rows`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

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


@dataclass(frozen=True, slots=True)
class Labels:
    """Per event of `Trace.gpu` a number into the table beside the column.

    A name that nobody knows has the row "unknown". A name that is known and belongs to no row of a step (a copy, the
    bookkeeping of an engine) has the row "".
    """

    row: Ids
    kind: Ids
    category: Ids
    backend: Ids
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

    def shown(self) -> tuple[Ids, tuple[str, ...]]:
        """Per event the name it is counted under: its row, or its kind of work where it has none."""
        width = len(self.kinds)
        pairs = self.row.astype(np.int64) * width + self.kind
        used = np.flatnonzero(np.bincount(pairs, minlength=len(self.rows) * width))
        words = [self.rows[pair // width] or self.kinds[pair % width] for pair in used.tolist()]
        names = tuple(dict.fromkeys(words))
        numbers = {name: number for number, name in enumerate(names)}
        table = np.zeros(len(self.rows) * width, np.min_scalar_type(len(names)))
        table[used] = [numbers[word] for word in words]
        return table[pairs], names


def label(trace: Trace, classify: Callable[[str], Classified]) -> Labels:
    """Classify every name of the trace once.

    Args:
        trace: whose events.
        classify: what a name is; of the kind "unknown" where it can not tell.
    """
    found = [classify(name) for name in trace.gpu.names]
    row_of = [UNKNOWN if str(one.kind) == UNKNOWN else one.row for one in found]
    columns = [
        _column(values, trace.gpu.name)
        for values in (
            row_of,
            [str(one.kind) for one in found],
            [str(one.category) for one in found],
            [one.backend for one in found],
        )
    ]
    (row, rows), (kind, kinds), (category, categories), (backend, backends) = columns
    return Labels(row, kind, category, backend, rows, kinds, categories, backends)


def _column(of_name: list[str], name: Ids) -> tuple[Ids, tuple[str, ...]]:
    table = tuple(dict.fromkeys(of_name))
    numbers = {value: number for number, value in enumerate(table)}
    per_name = np.array([numbers[value] for value in of_name], np.min_scalar_type(len(table)))
    return per_name[name], table
