"""Does it fit, and how many tokens then: weights and caches of the fullest rank against the card's memory."""

import msgspec

from sublight.facts.gpu import Gpu
from sublight.facts.model import Model
from sublight.facts.quantization.base import Finding
from sublight.facts.tensors import Cache
from sublight.facts.workload import Workload, cache_bytes_per_token
from sublight.limits.sharding import bytes_on_rank, cache_values_on_rank, heads_on_rank
from sublight.units import counted, show_bytes


class MemoryFit(msgspec.Struct, frozen=True, kw_only=True):
    """Of the fullest rank, in bytes.

    Attributes:
        capacity_bytes: the card's memory, or None when it is not known.
        weights_bytes: everything held, MTP layers included when drafting.
        kv_bytes_per_token: what one token of one sequence takes. Layers with a window are counted whole, as engines
            that give every layer equal pages reserve it.
        kv_bytes_per_token_windowed: the same for layers without a window only: what grows for good.
        state_bytes_per_sequence: what a sequence takes whatever its length.
        tokens: that fit beside the weights with nothing else held: an upper bound, over all sequences of a rank. None
            when nothing is known of the memory; 0 when not even the weights fit.
    """

    capacity_bytes: float | None
    weights_bytes: float
    kv_bytes_per_token: float
    kv_bytes_per_token_windowed: float
    state_bytes_per_sequence: float
    tokens: int | None

    @property
    def fits(self) -> bool | None:
        """Whether the weights fit at all; None when the memory is not known."""
        return None if self.capacity_bytes is None else self.weights_bytes <= self.capacity_bytes

    def holds(self, sequences: int, context: int) -> bool | None:
        """Whether the weights and the caches of so many sequences on a rank can fit at all, with nothing else held.

        Layers with a window are left out, so that only what cannot fit in any engine is said not to. None when the
        memory is not known.
        """
        if self.capacity_bytes is None:
            return None
        each = self.kv_bytes_per_token_windowed * context + self.state_bytes_per_sequence
        return self.weights_bytes + sequences * each <= self.capacity_bytes


def memory_fit(model: Model, gpu: Gpu, workload: Workload) -> MemoryFit:
    """What the fullest rank of the fullest pipeline stage holds."""
    layout = workload.layout
    stages = ("main", "mtp") if workload.speculation is not None else ("main",)
    # Stages hold equal runs of layers; the first has the embedding and the last the head, as large as each other.
    share = -(-model.layers // layout.pp) / model.layers
    inside = outside = 0.0
    for tensor in model.tensors:
        if tensor.stage in stages:
            held = bytes_on_rank(tensor, layout)
            if tensor.layers:
                inside += held
            elif layout.pp == 1 or tensor.part != "head":
                outside += held
    caches = [c for c in model.caches if c.stage in stages and not c.borrowed]
    growing = {id(c): _per_token(c, workload) for c in caches}
    kv = sum(growing.values()) * share
    kept = sum(b for c in caches if c.window is None and (b := growing[id(c)])) * share
    state = sum(cache_values_on_rank(c, layout) * c.bytes_per_value * len(c.layers) for c in caches if not c.grows)
    weights = inside * share + outside
    capacity = gpu.memory_bytes.value
    left = None if capacity is None else capacity - weights - state * share * workload.sequences_per_rank
    return MemoryFit(
        capacity_bytes=capacity,
        weights_bytes=weights,
        kv_bytes_per_token=kv,
        kv_bytes_per_token_windowed=kept,
        state_bytes_per_sequence=state * share,
        tokens=None if left is None or not kv else max(0, int(left / kv)),
    )


def fit_findings(memory: MemoryFit, workload: Workload) -> list[Finding]:
    """What to say first of a step that cannot be run: its floor is that of a card with more memory."""
    if memory.holds(workload.sequences_per_rank, workload.context) is not False or memory.capacity_bytes is None:
        return []
    capacity, weights = show_bytes(memory.capacity_bytes), show_bytes(memory.weights_bytes)
    if memory.fits is False:
        text = f"the weights of a rank take {weights} of {capacity}"
    else:
        each = counted(workload.context, "token")
        caches = counted(workload.sequences_per_rank, f"sequence of {each} takes", f"sequences of {each} take")
        text = (
            f"{caches} more than the "
            f"{show_bytes(memory.capacity_bytes - memory.weights_bytes)} that the weights ({weights}) leave on a card"
        )
    return [Finding("error", "does not fit", f"{text}: this step cannot be run, its floor is arithmetic")]


def _per_token(cache: Cache, workload: Workload) -> float:
    on_rank = heads_on_rank(cache.heads, workload.layout) / cache.heads
    return cache_bytes_per_token(cache, workload.kv_dtype) * on_rank * len(cache.layers)
