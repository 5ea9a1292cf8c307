"""Which row each kernel of a step belongs to, where its name alone does not say: by its place in the layer.

Attention (or the mixer that stands for it) runs once a layer and its kernels are known by name, so it cuts the step
into layers. Between two of them lie the end of one layer's attention half, its MLP half, and the start of the next
layer's attention half; the GEMMs there are matched to the products that the plan lists, in order, refusing those whose
grid cannot make so many columns. What runs on another stream than attention is the shared expert's. Small kernels go to
the row that they stand inside of; the rest are norms and elementwise work between rows.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sublight.rows import ROWS, Group
from sublight.trace.classify import Category, Classification, Kind
from sublight.trace.columns import Grid, can_make, weight_bits
from sublight.trace.plan import LayerPlan, Plan, Product
from sublight.units import counted

UNKNOWN = "unknown"
NORMS = "norms"
_ATTENTION = (Group.ATTENTION_PROJECTIONS, Group.ATTENTION_CORE, Group.LINEAR_ATTENTION)
_MIXERS = frozenset({"attn.core", "linear.state", "mamba.state"})
_SMALL = frozenset({
    Kind.ELEMENTWISE, Kind.COPY, Kind.SET, Kind.QUANTISE, Kind.ACTIVATION, Kind.INDEX, Kind.REDUCE, Kind.ROPE,
    Kind.SORT, Kind.SOFTMAX, Kind.BOOKKEEPING, Kind.NORM, Kind.KV_WRITE, Kind.KV_READ,
})  # fmt: skip
_UNMATCHED = 3.0  # cost of a product without a kernel, and of a kernel without a product
_NOT_TOLD = 0.5  # cost of a match that nothing confirms
_OTHER_FORMAT = 1.0
_MOST_REMEMBERED = 64  # orders of one stream

# The order of products before attention differs between engines, and torch.compile moves independent ones about even
# from layer to layer: the order that fits best is taken, window by window.
_FIRST = ("attn.qkv", "linear.in", "mamba.in")
_ORDERS = (
    (*_FIRST, "attn.qkv_a", "indexer.k", "indexer.q", "attn.q_b", "attn.absorb_k"),
    (*_FIRST, "indexer.k", "attn.qkv_a", "indexer.q", "attn.q_b", "attn.absorb_k"),
    (*_FIRST, "attn.qkv_a", "attn.q_b", "indexer.q", "indexer.k", "attn.absorb_k"),
    (*_FIRST, "attn.qkv_a", "attn.q_b", "attn.absorb_k", "indexer.q", "indexer.k"),
    (*_FIRST, "attn.qkv_a", "indexer.q", "indexer.k", "attn.q_b", "attn.absorb_k"),
)


class Event(NamedTuple):
    """A kernel of the step, in order of start."""

    name: str
    known: Classification
    lane: int
    grid: Grid | None


Pairs = list[tuple[int, int]]
Matched = dict[tuple[tuple[Product, ...], tuple[Event, ...]], tuple[float, Pairs]]


class Resolved(NamedTuple):
    """A row for each event; `why` says what stood in the way where products could not be told apart.

    `misfit` says that products have not the sizes of the plan, which is so of every prefill.
    """

    rows: list[str]
    why: str
    misfit: str = ""


def resolve(events: Sequence[Event], plan: Plan | None) -> Resolved:
    """Rows of one step's events. Without a plan, only names and neighbours decide."""
    resolver = Resolver(plan)
    return resolver.resolve(np.array([resolver.number(event) for event in events], np.int64))


class Resolver:
    """Rows for the steps of one trace, one step after the other.

    Steps are alike, but streams beside each other are interleaved differently in each: what depends on one stream, or
    on the products of one layer, is worked out once.
    """

    def __init__(self, plan: Plan | None) -> None:
        self._plan = plan
        self._events: list[Event] = []
        self._numbers: dict[Event, int] = {}
        self._small: dict[tuple[bytes, tuple[str, ...]], list[str]] = {}
        self._matched: Matched = {}

    def number(self, event: Event) -> int:
        """The number of an event for `resolve`; equal events have one."""
        number = self._numbers.setdefault(event, len(self._events))
        if number == len(self._events):
            self._events.append(event)
        return number

    def resolve(self, numbers: npt.NDArray[np.int64]) -> Resolved:
        """Rows of one step, given by the numbers of its events."""
        events = [self._events[number] for number in numbers.tolist()]
        rows = [event.known.row for event in events]
        why = misfit = ""
        if self._plan is not None:
            why, misfit = _products(events, self._plan, rows, self._matched)
        _followers(events, self._places(numbers, _open_or_split), rows)
        _collectives(events, self._places(numbers, _tells_messages), rows)
        lane = np.array([event.lane for event in self._events], np.int64)[numbers]
        for one in np.unique(lane).tolist():
            self._neighbours(events, numbers, np.flatnonzero(lane == one), rows)
        leftover = [UNKNOWN if e.known.kind is Kind.UNKNOWN else _leftover(e) for e in self._events]
        return Resolved(
            [row or leftover[number] for row, number in zip(rows, numbers.tolist(), strict=True)], why, misfit
        )

    def _places(self, numbers: npt.NDArray[np.int64], wanted: Callable[[Event], bool]) -> list[int]:
        """Where in the step those events are."""
        places: list[int] = np.flatnonzero(np.array([wanted(event) for event in self._events], bool)[numbers]).tolist()
        return places

    def _neighbours(
        self, events: Sequence[Event], numbers: npt.NDArray[np.int64], on_lane: npt.NDArray[np.int64], rows: list[str]
    ) -> None:
        places = on_lane.tolist()
        key = (numbers[on_lane].tobytes(), tuple([rows[place] for place in places]))
        found = self._small.get(key)
        if found is None:
            found = _neighbours([events[place] for place in places], key[1])
            if len(self._small) < _MOST_REMEMBERED:
                self._small[key] = found
        for place, row in zip(places, found, strict=True):
            rows[place] = row


_MESSAGES = {
    Kind.REDUCE_SCATTER: "comm.scatter",
    Kind.ALL_TO_ALL: "comm.tokens",
    Kind.SEND: "comm.pipeline",
}


def _tells_messages(event: Event) -> bool:
    known = event.known
    is_product = known.kind in (Kind.GEMM, Kind.MOE_GEMM)
    return is_product or known.category is Category.COMMUNICATION or known.row in _MIXERS


def _collectives(events: Sequence[Event], places: Sequence[int], rows: list[str]) -> None:
    """Which message a collective is: by the product before it, on whatever stream; the first has none before it.

    Where no product could be placed, attention tells: the message after it is its own, the next one the MLP's. Without
    either it stays what its name says.
    """
    last, products, mixed, since = "", False, False, False
    for number in places:
        event = events[number]
        if event.known.kind in (Kind.GEMM, Kind.MOE_GEMM):
            last, products = rows[number] or last, True
        elif rows[number] in _MIXERS:
            mixed = since = True
        if event.known.category is not Category.COMMUNICATION or rows[number]:
            continue
        kind = event.known.kind
        if kind in _MESSAGES:
            rows[number] = _MESSAGES[kind]
        elif kind is Kind.ALL_GATHER:
            rows[number] = "comm.logits" if last == "head" else "comm.gather"
        elif not products:
            rows[number] = "comm.embedding"
        elif last:
            rows[number] = "comm.attention" if ROWS[last].group in _ATTENTION else "comm.mlp"
        elif mixed:
            rows[number] = "comm.attention" if since else "comm.mlp"
            since = False


def _leftover(event: Event) -> str:
    """A known kernel that nothing places: a GEMM stays unknown, small work is counted as such, a message as one."""
    if event.known.category is Category.COMMUNICATION:
        return ""
    return NORMS if event.known.kind in _SMALL or event.known.kind in (Kind.SAMPLING, Kind.ROUTING) else UNKNOWN


def _is_split(event: Event) -> bool:
    return _named_split(event.name)


@cache
def _named_split(name: str) -> bool:
    return "splitkreduce" in name.lower()


def _open_or_split(event: Event) -> bool:
    return event.known.kind is Kind.GEMM or _is_split(event)


def _open_gemm(event: Event, row: str) -> bool:
    return event.known.kind is Kind.GEMM and not row and not _is_split(event)


def _products(events: Sequence[Event], plan: Plan, rows: list[str], matched: Matched) -> tuple[str, str]:
    """Match open GEMMs to the plan's products, in place. Returns why not and how they do not fit, or "".

    Args:
        events: of the step.
        plan: of the model.
        rows: of the events, "" where it is open.
        matched: what was matched before, and is added to.
    """
    with_mixer = [i for i, layer in enumerate(plan.layers) if layer.mixer]
    mixers = _mixer_runs(events, rows, len(with_mixer))
    if not mixers:
        times = len(_runs(events, _mixer_events(events, rows)))
        runs, layers = counted(times, "time"), counted(len(with_mixer), "layer")
        return f"attention runs {runs} in the step, and the model has it in {layers}", ""
    main = events[mixers[0][0]].lane
    for number, event in enumerate(events):
        if _open_gemm(event, rows[number]) and event.lane != main:
            rows[number] = "moe.shared"
    edges = [-1, *(last for _, last in mixers)]
    ends = [*(first for first, _ in mixers), len(events)]
    odd: list[int] = []
    for window, (after, before) in enumerate(zip(edges, ends, strict=True)):
        free = [n for n in range(after + 1, before) if _open_gemm(events[n], rows[n])]
        kernels, fits = tuple(events[n] for n in free), []
        for wanted in _wanted(plan, with_mixer, window):
            if (wanted, kernels) not in matched:
                matched[wanted, kernels] = _align(kernels, wanted)
            fits.append((matched[wanted, kernels], wanted))
        (_, pairs), chosen = min(fits, key=lambda fit: fit[0][0])
        # Engines fuse products, or add some; of the right model both at once are left in no usual layer.
        if len(pairs) < min(len(kernels), len(chosen)):
            odd.append(window)
        for kernel, product in pairs:
            rows[free[kernel]] = chosen[product].row
    if 2 * len(odd) <= len(edges):
        return "", ""
    return "", (
        f"in {len(odd)} of {len(edges)} stretches between attentions, kernels and products are left that do not fit "
        "each other: the model was cut over other ranks (--tp, --ep, --dp), or it is another"
    )


def _mixer_runs(events: Sequence[Event], rows: Sequence[str], layers: int) -> list[tuple[int, int]]:
    """First and last event of each layer's attention: runs of its kernels with no GEMM between them. Empty if unclear.

    Kernels that prepare attention for a whole step (FlashAttention 3 plans its schedule once) would count as a layer of
    their own: where there are too many runs, names seen once are left out, then all that are not seen once a layer.
    """
    found = _mixer_events(events, rows)
    times = Counter(events[n].name for n in found)
    every, repeated = set(times), {name for name, count in times.items() if count > 1}
    for names in (every, repeated, {name for name, count in times.items() if count == layers}):
        runs = _runs(events, [n for n in found if events[n].name in names])
        if len(runs) == layers:
            return runs
    return []


def _mixer_events(events: Sequence[Event], rows: Sequence[str]) -> list[int]:
    kinds = (Kind.ATTENTION, Kind.STATE)
    return [n for n, event in enumerate(events) if rows[n] in _MIXERS and event.known.kind in kinds]


def _runs(events: Sequence[Event], numbers: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        between = range(runs[-1][1] + 1, number) if runs else ()
        if not runs or any(events[n].known.kind in (Kind.GEMM, Kind.MOE_GEMM) for n in between):
            runs.append((number, number))
        else:
            runs[-1] = (runs[-1][0], number)
    return runs


def _wanted(plan: Plan, with_mixer: Sequence[int], window: int) -> list[tuple[Product, ...]]:
    """Products between one layer's attention and the next one's, in each order that engines use.

    Layers without attention lie between as well; after the last one come the products of the end.
    """
    first = with_mixer[window - 1] if window else None
    last = with_mixer[window] if window < len(with_mixer) else None
    wanted: list[Product] = []
    if first is not None:
        wanted += [*plan.layers[first].at("after"), *_mlp(plan.layers[first])]
    for layer in range(0 if first is None else first + 1, len(plan.layers) if last is None else last):
        wanted += _mlp(plan.layers[layer])
    if last is None:
        return [(*wanted, *plan.end)]
    before = {p.row: p for p in plan.layers[last].at("before")}
    orders = dict.fromkeys(tuple(before[row] for row in order if row in before) for order in _ORDERS)
    return [(*wanted, *order) for order in orders]


def _mlp(layer: LayerPlan) -> list[Product]:
    return [p for p in layer.at("mlp") if p.row != "moe.experts"]


def _align(events: Sequence[Event], wanted: Sequence[Product]) -> tuple[float, Pairs]:
    """Cheapest way to match kernels and products in order; either may be left over."""
    rows, columns = len(events), len(wanted)
    cost = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for e in range(rows + 1):
        for p in range(columns + 1):
            if e == p == 0:
                continue
            ways = []
            if e:
                ways.append(cost[e - 1][p] + _UNMATCHED)
            if p:
                ways.append(cost[e][p - 1] + _UNMATCHED)
            if e and p:
                ways.append(cost[e - 1][p - 1] + _mismatch(events[e - 1], wanted[p - 1]))
            cost[e][p] = min(ways)
    pairs = []
    e, p = rows, columns
    while e and p:
        here = cost[e][p]
        if here == cost[e - 1][p - 1] + _mismatch(events[e - 1], wanted[p - 1]):
            pairs.append((e - 1, p - 1))
            e, p = e - 1, p - 1
        elif here == cost[e - 1][p] + _UNMATCHED:
            e -= 1
        else:
            p -= 1
    return cost[rows][columns], pairs


def _mismatch(event: Event, product: Product) -> float:
    fits = can_make(event.name, event.grid, product.columns)
    if fits is False:
        return 4 * _UNMATCHED
    bits = weight_bits(event.name)
    # Weights of another format than the model was said to have are a reason to look on, not to give up.
    strange = _OTHER_FORMAT if bits is not None and bits != product.bits else 0.0
    return strange + (0.0 if fits else _NOT_TOLD)


def _followers(events: Sequence[Event], places: Sequence[int], rows: list[str]) -> None:
    """The reduction of a split-K GEMM belongs to the GEMM before it on its stream."""
    last: dict[int, str] = {}
    for number in places:
        event = events[number]
        if _is_split(event):
            rows[number] = rows[number] or last.get(event.lane, "")
        elif event.known.kind is Kind.GEMM:
            last[event.lane] = rows[number]


def _neighbours(events: Sequence[Event], given: Sequence[str]) -> list[str]:
    """The rows of one stream's events with those of small kernels filled in.

    Inside of one row they belong to it, and some kinds say which neighbour they serve.
    """
    rows, following = list(given), _following(given)
    before = ""
    for number, after in enumerate(following):
        kind = events[number].known.kind
        if not rows[number] and kind in _SMALL and kind is not Kind.NORM:
            rows[number] = _beside(events, number, before, after, rows)
        before = rows[number] or before
    return rows


def _following(rows: Sequence[str]) -> list[int]:
    """For each event of a stream the next one that has a row; -1 after the last."""
    found = []
    after = -1
    for number in reversed(range(len(rows))):
        found.append(after)
        after = number if rows[number] else after
    return found[::-1]


def _beside(events: Sequence[Event], number: int, before: str, after: int, rows: Sequence[str]) -> str:
    kind = events[number].known.kind
    next_row = rows[after] if after >= 0 else ""
    if before and before == next_row and before != NORMS:
        return before
    if kind is Kind.KV_WRITE or (kind is Kind.COPY and next_row == "attn.core"):
        return "attn.core"
    if kind is Kind.REDUCE and before == "moe.experts":
        return before  # the sum over a token's experts
    if kind in (Kind.QUANTISE, Kind.ACTIVATION) and next_row and not next_row.startswith("comm."):
        # A product of 16-bit weights takes no quantised input: then it was made for whatever came before.
        plain = kind is Kind.QUANTISE and weight_bits(events[after].name) == 16
        return before if plain and before.startswith("indexer.") else "" if plain else next_row
    return ""
