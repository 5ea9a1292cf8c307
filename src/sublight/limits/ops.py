"""The rows of one step on one rank: from the inventory and the workload to a cost each. Arithmetic only.

A row is the rank's share for the busiest rank of one pipeline stage after the other: a token passes all stages.
"""

from collections.abc import Iterable

import msgspec

from sublight.facts.formats import Compute
from sublight.facts.model import Model
from sublight.facts.tensors import Cache, Stage, Tensor
from sublight.facts.workload import Workload, cache_bytes_per_token
from sublight.limits.cost import Bytes, Cost
from sublight.limits.routing import Expectation, busiest_rank_experts, distinct_experts
from sublight.limits.sharding import cache_values_on_rank, heads_on_rank, shape_on_rank
from sublight.rows import ROWS
from sublight.units import counted

_ACTIVATION_BYTES = 2  # BF16 between launches
_LOGIT_BYTES = 4  # engines gather and sample logits in FP32
_MLP_ROWS = ("mlp.dense", "moe.experts", "moe.shared")


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the step on the busiest rank.

    Attributes:
        id: of the row, in `sublight.rows.ROWS`.
        stage: the model itself, or its MTP layers (drafting).
        cost: over all layers and all drafting passes.
        share_bytes: weights and scales of the row, each byte once, over the ranks of one stage: what a rank would read
            if nothing were held twice and the experts lay evenly.
        once_bytes: the same for the experts of one token alone.
        formats: of its matrices, most bytes first.
        rule: what was counted, in words.
    """

    id: str
    stage: Stage
    cost: Cost
    share_bytes: float
    once_bytes: float
    formats: tuple[str, ...]
    rule: str


class Experts(msgspec.Struct, frozen=True):
    """Different experts a layer reads in this step: of `count`, in all and on the busiest expert-parallel rank."""

    count: int
    total: Expectation
    busiest: Expectation
    one_token: float


class Runs(msgspec.Struct, frozen=True):
    """How often a step goes through a stage: its layers, on average over its MTP modules, and what lies outside."""

    stage: Stage
    in_layers: float = 1.0
    outside: int = 1

    def of(self, layers: tuple[int, ...]) -> float:
        return self.in_layers if layers else self.outside


def stage_runs(model: Model, workload: Workload, stage: Stage) -> Runs:
    """The model once; MTP modules in turn, one for each drafted token, each followed by the model's lm_head."""
    if stage == "main" or workload.speculation is None:
        return Runs(stage)
    drafts = workload.speculation.draft_length
    return Runs(stage, drafts / max(1, model.mtp_modules), drafts)


def experts_hit(model: Model, workload: Workload, stage: Stage = "main") -> Experts | None:
    """None for a dense model. Drafting takes one token a sequence through the MTP layers, not the verify width."""
    if model.moe is None:
        return None
    tokens = workload.tokens if stage == "main" else workload.batch
    return Experts(
        model.moe.experts,
        distinct_experts(model.moe, tokens, workload.routing),
        busiest_rank_experts(model.moe, tokens, workload.layout.ep, workload.routing),
        float(model.moe.top_k),
    )


def step_ops(model: Model, workload: Workload) -> list[Op]:
    """Every row of a step, in the order of `ROWS`; drafting rows after the model's own."""
    ops = _stage_ops(model, workload, "main")
    if workload.speculation is not None:
        ops += _stage_ops(model, workload, "mtp")
    return ops


def _stage_ops(model: Model, workload: Workload, stage: Stage) -> list[Op]:
    tensors = [t for t in model.tensors if t.stage == stage and t.read != "never"]
    if stage == "mtp":
        # A draft ends in the model's own lm_head, and begins with its own embedding of the drafted token.
        tensors += [t for t in model.main if t.row in ("head", "embedding")]
    caches = [c for c in model.caches if c.stage == stage]
    hit = experts_hit(model, workload, stage)
    runs = stage_runs(model, workload, stage)
    ops = []
    by_row: dict[str, tuple[list[Tensor], list[Cache]]] = {}
    for tensor in tensors:
        by_row.setdefault(tensor.row, ([], []))[0].append(tensor)
    for cache in caches:
        by_row.setdefault(cache.row, ([], []))[1].append(cache)
    for row in ROWS.values():
        if row.id in by_row:
            ops.append(_op(row.id, by_row[row.id], workload, runs, hit))
    if stage == "main":
        ops.append(_sampling(model, workload))
    return ops


def _op(row: str, parts: tuple[list[Tensor], list[Cache]], workload: Workload, runs: Runs, hit: Experts | None) -> Op:
    tensors, caches = parts
    stage = runs.stage
    cost = Cost()
    share = once = 0.0
    for tensor in tensors:
        piece, its_share, its_once = _tensor_cost(tensor, workload, stage, hit)
        times = runs.of(tensor.layers)
        cost, share, once = cost + piece.times(times), share + its_share * times, once + its_once * times
    for cache in caches:
        cost += _cache_cost(cache, workload, stage).times(runs.of(cache.layers))
    moved = Bytes(activations=_activation_bytes(row, tensors, workload, runs))
    return Op(
        id=row,
        stage=stage,
        cost=cost + Cost(calls=_calls(row, tensors, caches, runs), bytes=moved),
        share_bytes=share,
        once_bytes=once,
        formats=_formats(tensors),
        rule=_rule(row, tensors, caches, workload, hit),
    )


def _tokens(part: str, workload: Workload, stage: Stage) -> int:
    """Tokens that a rank takes through a tensor of this part."""
    width = workload.width if stage == "main" else 1
    # Under data-parallel attention a rank runs attention, router and shared expert for its own sequences only, and the
    # rest for everybody's.
    owned = part in ("attention", "shared", "router", "replicated") and workload.layout.dp > 1
    return (workload.sequences_per_rank if owned else workload.batch) * width


def _tensor_cost(tensor: Tensor, workload: Workload, stage: Stage, hit: Experts | None) -> tuple[Cost, float, float]:
    """Cost on the busiest rank; bytes of an even share; bytes of an even share for one token's experts."""
    layout, layers = workload.layout, max(1, len(tensor.layers))
    tokens = _tokens(tensor.part, workload, stage)
    whole = tensor.format.storage(tensor.shape).total_bytes * layers
    if tensor.read == "one row a token":
        rows = -(-tokens // layout.tp) if tensor.cut is not None else tokens
        row_bytes = tensor.format.storage(tensor.shape[1:]).total_bytes
        return Cost(bytes=Bytes(weights=rows * row_bytes)), rows * row_bytes, rows * row_bytes
    shape = shape_on_rank(tensor, layout)
    held = tensor.format.storage(shape)
    values = 1
    for size in shape:
        values *= size
    copies, even, single, products = float(tensor.copies), float(tensor.copies), float(tensor.copies), float(tokens)
    if tensor.read == "routed experts" and hit is not None:
        # An entry may stand for some of the experts only (a mixed checkpoint): its part of what is hit.
        part = tensor.copies / hit.count
        copies, even, single = hit.busiest.value * part, hit.total.value * part, hit.one_token * part
        # Products are one a (token, expert) pair; the busiest rank has at least the mean, and at least one an expert.
        products = max(tokens * hit.one_token / layout.ep * part, copies)
        even = even / layout.ep
        single = single / layout.ep
        multiplied = products * values
        spread = layout.expert_tp
    else:
        multiplied = copies * products * values
        spread = layout.tp
    flops: dict[str, float] = {}
    if tensor.is_matrix:
        flops[_rate(tensor.format.compute)] = 2.0 * multiplied * layers
    cost = Cost(
        bytes=Bytes(weights=held.payload_bytes * copies * layers, scales=held.scale_bytes * copies * layers),
        flops=flops,
    )
    return cost, whole * even / spread, whole * single / spread


def _rate(compute: Compute) -> str:
    return "bf16" if compute == "fp32" else compute


def _cache_cost(cache: Cache, workload: Workload, stage: Stage) -> Cost:
    layout, layers = workload.layout, len(cache.layers)
    width = workload.width if stage == "main" else 1
    sequences = workload.sequences_per_rank
    tokens = sequences * width
    heads = heads_on_rank(cache.query_heads, layout) if cache.kind != "index" else cache.query_heads
    if not cache.grows:
        state = cache_values_on_rank(cache, layout) * cache.bytes_per_value
        return Cost(
            bytes=Bytes(state=2.0 * state * sequences * layers),
            flops={"bf16": float(heads * cache.flops_per_head * tokens * layers)},
        )
    on_rank = cache_bytes_per_token(cache, workload.kv_dtype) * heads_on_rank(cache.heads, layout) / cache.heads
    read = cache.tokens_read(workload.context)
    # Tokens of one sequence that are verified together share what they read; a window moves along with them.
    span = min(workload.context, read + width - 1) if cache.window is not None else read
    rate = "fp8" if cache.kind == "index" or workload.kv_dtype != "bf16" else "bf16"
    flops = {rate: float(heads * cache.flops_per_head * read * tokens * layers)}
    written = 0.0 if cache.borrowed else on_rank * tokens * layers
    if cache.kind == "index":
        return Cost(bytes=Bytes(index=on_rank * span * sequences * layers, kv_written=written), flops=flops)
    return Cost(bytes=Bytes(kv_read=on_rank * span * sequences * layers, kv_written=written), flops=flops)


def _calls(row: str, tensors: Iterable[Tensor], caches: Iterable[Cache], runs: Runs) -> int:
    """Launches of the row: one in each layer that has it, and for norms one each, as they lie apart."""
    layers: set[int] = set()
    outside = False
    apart = 0.0
    for tensor in tensors:
        layers.update(tensor.layers)
        outside |= not tensor.layers
        if row == "norms" and tensor.leaf == "weight":
            apart += tensor.count * runs.of(tensor.layers)
    for cache in caches:
        layers.update(cache.layers)
    return round(apart if row == "norms" else len(layers) * runs.in_layers + outside * runs.outside)


def _activation_bytes(row: str, tensors: list[Tensor], workload: Workload, runs: Runs) -> float:
    """Inputs once and outputs once for each launch; what lies between gate and down of one MLP never leaves it."""
    matrices = [t for t in tensors if t.is_matrix]
    if not matrices:
        return 0.0
    shapes = [shape_on_rank(t, workload.layout) for t in matrices]
    inward = shapes[0][1]
    outward = (
        shapes[-1][0]
        if row in _MLP_ROWS
        else sum({t.module: s[0] for t, s in zip(matrices, shapes, strict=True)}.values())
    )
    layers = {layer for t in matrices for layer in t.layers}
    tokens = _tokens(matrices[0].part, workload, runs.stage)
    launches = len(layers) * runs.in_layers if layers else runs.outside
    return float(tokens * (inward + outward) * _ACTIVATION_BYTES * launches)


def _sampling(model: Model, workload: Workload) -> Op:
    """Each rank looks through the logits that its part of lm_head made; what it then sends is its best candidate."""
    shard = -(-model.vocab // workload.layout.tp)
    read = float(workload.tokens * shard * _LOGIT_BYTES)
    return Op(
        id="sampling",
        stage="main",
        cost=Cost(calls=1, bytes=Bytes(activations=read)),
        share_bytes=0.0,
        once_bytes=0.0,
        formats=(),
        rule=f"{workload.tokens:,} x {shard:,} FP32 logits of a rank, read once",
    )


def _formats(tensors: Iterable[Tensor]) -> tuple[str, ...]:
    weight: dict[str, float] = {}
    for tensor in tensors:
        if tensor.is_matrix or tensor.kind == "embedding":
            weight[tensor.format.title] = weight.get(tensor.format.title, 0.0) + tensor.storage.total_bytes
    return tuple(sorted(weight, key=lambda title: -weight[title]))


def _rule(row: str, tensors: list[Tensor], caches: list[Cache], workload: Workload, hit: Experts | None) -> str:
    layout = workload.layout
    words = []
    matrices = [t for t in tensors if t.is_matrix]
    if row == "moe.experts" and hit is not None:
        held = shape_on_rank(matrices[0], layout) if matrices else ()
        experts = "expert" if hit.busiest.value == 1 else "experts"
        where = "on the busiest rank" if layout.ep > 1 else "a layer"
        words.append(f"{hit.busiest.value:.4g} {experts} {where} ({hit.busiest.how}), each {list(held)} and back")
    else:
        shapes = dict.fromkeys(
            f"{list(shape_on_rank(t, layout))}" + ("" if t.cut is not None else " on every rank") for t in matrices
        )
        words += list(shapes)[:3]
        if any(t.kind == "embedding" for t in tensors):
            words.append("one row a token")
    for cache in caches:
        words.append(_cache_rule(cache, workload))
    if row == "norms":
        words.append("vectors, whole on every rank")
    return "; ".join(words)


def _cache_rule(cache: Cache, workload: Workload) -> str:
    layers = counted(len(cache.layers), "layer")
    if not cache.grows:
        size = cache_values_on_rank(cache, workload.layout) * cache.bytes_per_value
        return f"{layers}: a state of {size:,.0f} B a sequence, read and written"
    on_rank = (
        cache_bytes_per_token(cache, workload.kv_dtype) * heads_on_rank(cache.heads, workload.layout) / cache.heads
    )
    read = cache.tokens_read(workload.context)
    why = ""
    if read < workload.context:
        why = " (top-k)" if read == cache.top_k else " (window)" if read == cache.window else " (chunk)"
    return f"{layers}: {counted(read, 'token')}{why} of {on_rank:,.0f} B each"
