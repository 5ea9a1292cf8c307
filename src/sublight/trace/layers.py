"""How many layers a step has, and in how many of them each row occurs, so that models of unequal depth can be compared.

Attention (or the mixer that stands for it) runs once a layer, and its kernels are known by name; what lies between one
run of them and the next is a layer, with its first products standing in the layer before. Where no attention is known,
the kernels that come equally often as most others do mark the layers. A row that three layers of 78 have, such as a
dense MLP, is counted by those three; what comes once a step, such as the lm_head, by one.

To be drawn, a layer begins with the first event behind the MLP half of the layer before, where its kernels are known.
"""

from collections import Counter

import msgspec
import numpy as np
import numpy.typing as npt

from sublight.rows import ROWS, Group
from sublight.trace.events import Kind, Trace
from sublight.trace.labels import Labels
from sublight.trace.refine import events_of
from sublight.trace.steps import Step

_MIXERS = frozenset({"attn.core", "linear.state", "mamba.state"})
_WORK, _PRODUCTS = ("attention", "state"), ("gemm", "moe-gemm")
_MLP_HALF = frozenset({
    *(row.id for row in ROWS.values() if row.group in (Group.ROUTED_EXPERTS, Group.SHARED_EXPERTS, Group.DENSE_MLP)),
    "comm.mlp", "comm.tokens", "comm.scatter",
})  # fmt: skip
_FIRST_HALF = frozenset(
    row.id
    for row in ROWS.values()
    if row.group in (Group.ATTENTION_PROJECTIONS, Group.INDEXER, Group.LINEAR_ATTENTION, Group.ATTENTION_CORE)
)
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


class LayerTimes(msgspec.Struct, frozen=True):
    """When each layer of a step begins, and when the last one ends, both after the step's start."""

    starts_ns: tuple[int, ...]
    end_ns: int
    how: str


def find_layers(trace: Trace, step: Step, labels: Labels) -> Layers | None:
    """The layers of a step; None where nothing in it repeats."""
    rows = events_of(trace, step)
    begins, how = _begins(trace, rows, labels)
    if len(begins) < _FEWEST:
        return None
    shown, words = labels.shown()
    stretch = np.searchsorted(begins, np.arange(len(rows)), side="right")
    pairs = np.unique(np.stack([shown[rows].astype(np.int64), stretch]), axis=1)
    with_row = Counter(words[row] for row in pairs[0].tolist())
    # What prepares the step before the first layer counts to a row, but makes no layer.
    return Layers(len(begins), {row: min(times, len(begins)) for row, times in with_row.items()}, how)


def layer_times(trace: Trace, step: Step, labels: Labels) -> LayerTimes | None:
    """Where the layers of a step lie in time; None where nothing in it repeats."""
    rows, gpu = events_of(trace, step), trace.gpu
    begins, how = _begins(trace, rows, labels)
    if len(begins) < _FEWEST:
        return None
    half = np.flatnonzero(np.array([row in _MLP_HALF for row in labels.rows], bool)[labels.row[rows]])
    # The last event of an MLP half in front of each attention, and the one at the end of the step.
    before = np.searchsorted(half, begins) - 1
    last = np.where(before >= 0, half[np.maximum(before, 0)] if len(half) else -1, -1)
    begun = np.where(last >= np.append(0, begins[:-1]), last + 1, begins)
    if len(half) and not before[0] >= 0:
        begun[0] = _first_of(np.array([row in _FIRST_HALF for row in labels.rows], bool)[labels.row[rows]], begins[0])
    until = rows[half] if len(half) and half[-1] > begins[-1] else rows
    end = int((gpu.start[until] + gpu.duration[until]).max())
    starts = np.unique(gpu.start[rows[begun]] - step.start_ns).tolist()
    return LayerTimes(tuple(starts), min(end, step.end_ns) - step.start_ns, how)


def attention_runs(trace: Trace, step: Step, labels: Labels) -> int:
    """How often attention runs in a step, also where it does so once."""
    return len(_runs(labels, _mixers(labels, rows := events_of(trace, step)), rows))


def _first_of(wanted: npt.NDArray[np.bool_], before: int) -> int:
    """The first wanted event in front of a place; the place if there is none."""
    found = np.flatnonzero(wanted[:before])
    return int(found[0]) if len(found) else before


def _begins(trace: Trace, rows: Places, labels: Labels) -> tuple[Places, str]:
    """What marks each layer: the places of its attention among these events."""
    names = trace.gpu.name[rows].astype(np.int64)
    begins = _attention(labels, rows, names)
    if len(begins) >= _FEWEST:
        return begins, "runs of attention"
    return _commonest(names, trace.gpu.kind[rows] == Kind.KERNEL), "kernels that come equally often"


def _attention(labels: Labels, rows: Places, names: Places) -> Places:
    """Where each run of attention begins: its kernels with no product between them.

    Kernels that run once prepare attention for the whole step and are no layer.
    """
    mixers = _mixers(labels, rows)
    return _runs(labels, mixers[(np.bincount(names, minlength=1)[names] > 1)[mixers]], rows)


def _mixers(labels: Labels, rows: Places) -> Places:
    """Which of these events are kernels of attention, or of what stands for it."""
    mixer = np.array([row in _MIXERS for row in labels.rows], bool)[labels.row[rows]]
    return np.flatnonzero(mixer & np.array([kind in _WORK for kind in labels.kinds], bool)[labels.kind[rows]])


def _runs(labels: Labels, mixers: Places, rows: Places) -> Places:
    product = np.array([kind in _PRODUCTS for kind in labels.kinds], bool)[labels.kind[rows]]
    before = np.cumsum(product)[mixers]
    return mixers[np.append(True, before[1:] > before[:-1])] if len(mixers) else mixers


def _commonest(names: Places, kernel: npt.NDArray[np.bool_]) -> Places:
    """Where the first of those names comes that run equally often, at the count that most names have."""
    times = np.bincount(names[kernel], minlength=1)
    counts = Counter(times[times >= _FEWEST].tolist())
    if not counts:
        return np.empty(0, np.int64)
    usual = max(counts, key=lambda count: (counts[count], -count))
    first = next(name for name in names.tolist() if times[name] == usual)
    return np.flatnonzero((names == first) & kernel)
