"""How many layers a step has, and in how many of them each row occurs, so that models of unequal depth can be compared.

Attention (or the mixer that stands for it) runs once a layer, and its kernels are known by name; what lies between one
run of them and the next is a layer, with its first products standing in the layer before. Where no attention is known,
the kernels that come equally often as most others do mark the layers. A row that three layers of 78 have, such as a
dense MLP, is counted by those three; what comes once a step, such as the lm_head, by one.
"""

from collections import Counter

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.trace.events import Kind, Trace
from sublight.trace.labels import Labels
from sublight.trace.refine import events_of
from sublight.trace.steps import Step

_MIXERS = frozenset({"attn.core", "linear.state", "mamba.state"})
_WORK, _PRODUCTS = ("attention", "state"), ("gemm", "moe-gemm")
_FEWEST = 2
Places = npt.NDArray[np.int64]


class Layers(msgspec.Struct, frozen=True):
    """`with_row` says for each row in how many layers it has an event; `how` says what marks a layer."""

    count: int
    with_row: dict[str, int]
    how: str

    def of(self, row: str) -> int:
        """How many layers share the time of a row; 1 for one that is not there."""
        return self.with_row.get(row, 1)


def find_layers(trace: Trace, step: Step, labels: Labels) -> Layers | None:
    """The layers of a step; None where nothing in it repeats."""
    gpu = trace.gpu
    rows = events_of(trace, step)
    names = gpu.name[rows].astype(np.int64)
    begins, how = _attention(labels, rows, names), "runs of attention"
    if len(begins) < _FEWEST:
        begins, how = _commonest(names, gpu.kind[rows] == Kind.KERNEL), "kernels that come equally often"
    if len(begins) < _FEWEST:
        return None
    shown, words = labels.shown()
    stretch = np.searchsorted(begins, np.arange(len(rows)), side="right")
    pairs = np.unique(np.stack([shown[rows].astype(np.int64), stretch]), axis=1)
    with_row = Counter(words[row] for row in pairs[0].tolist())
    # What prepares the step before the first layer counts to a row, but makes no layer.
    return Layers(len(begins), {row: min(times, len(begins)) for row, times in with_row.items()}, how)


def _attention(labels: Labels, rows: Places, names: Places) -> Places:
    """Where each run of attention begins: its kernels with no product between them.

    Kernels that run once prepare attention for the whole step and are no layer.
    """
    mixer = np.array([row in _MIXERS for row in labels.rows], bool)[labels.row[rows]]
    mixer &= np.array([kind in _WORK for kind in labels.kinds], bool)[labels.kind[rows]]
    found = np.flatnonzero(mixer & (np.bincount(names, minlength=1)[names] > 1))
    product = np.array([kind in _PRODUCTS for kind in labels.kinds], bool)[labels.kind[rows]]
    before = np.cumsum(product)[found]
    return found[np.append(True, before[1:] > before[:-1])] if len(found) else found


def _commonest(names: Places, kernel: npt.NDArray[np.bool_]) -> Places:
    """Where the first of those names comes that run equally often, at the count that most names have."""
    times = np.bincount(names[kernel], minlength=1)
    counts = Counter(times[times >= _FEWEST].tolist())
    if not counts:
        return np.empty(0, np.int64)
    usual = max(counts, key=lambda count: (counts[count], -count))
    first = next(name for name in names.tolist() if times[name] == usual)
    return np.flatnonzero((names == first) & kernel)
