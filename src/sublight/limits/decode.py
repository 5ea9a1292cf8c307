"""The limit of one decode step: every row with its floor, what binds it, and totals that are sums of rows.

Three numbers are kept apart, here and everywhere they are printed:

- naive: the bytes of the weights that one token needs, each once, over the bandwidth of all GPUs together. What people
  quote. It leaves out what engines hold twice, caches, other tokens' experts, and every message.
- roofline: the floor. What the busiest rank must read and multiply, row after row, plus the collectives. A measurement
  below it means that an assumption printed beside it does not hold.
- practical: a prediction, not a floor. One launch a row at the rate this card was measured at for so many bytes.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from sublight.facts.gpu import Gpu
from sublight.facts.interconnect import Interconnect
from sublight.facts.model import Model
from sublight.facts.quantization.base import Finding
from sublight.facts.workload import Workload, check_fit
from sublight.limits.collectives import Collective, step_collectives
from sublight.limits.cost import Cost
from sublight.limits.cuts import cut_findings
from sublight.limits.memory import MemoryFit, fit_findings, memory_fit
from sublight.limits.ops import Op, experts_hit, step_ops
from sublight.limits.remarks import workload_findings
from sublight.records import Evidence, Figure, Record, not_known
from sublight.rows import ROWS

Bound = Literal["memory", "compute", "latency"]


class RowLimit(msgspec.Struct, frozen=True, kw_only=True):
    """One row's floor on the busiest rank. `time_s` is the larger of what memory and what arithmetic needs."""

    id: str
    stage: str
    cost: Cost
    memory_s: float
    compute_s: float
    time_s: float
    bound: Bound
    practical_s: float | None
    formats: tuple[str, ...]
    rule: str

    @property
    def title(self) -> str:
        return ("MTP: " if self.stage == "mtp" else "") + ROWS[self.id].title


class Term(msgspec.Struct, frozen=True):
    """A step on the way from the naive number to the floor: what it is, and the seconds it adds."""

    id: str
    label: str
    seconds: float


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one step.

    Attributes:
        naive_s: active bytes over all bandwidth.
        memory_s: bytes of the busiest rank over its bandwidth, no messages.
        rows_s: sum of the rows' floors, without collectives.
        strict_s: nothing but physics: all bytes and all arithmetic perfectly overlapped, no message at all.
        best_s: rows and the best published collectives: the roofline, and the headline.
        nccl_s: rows and NCCL's collectives.
        practical_s: prediction from measured rates for each row's size, with the best collectives.
        without_speculation_s: `best_s` of the same workload when nothing is drafted; None when nothing is anyway.
    """

    naive_s: float
    memory_s: float
    rows_s: float
    strict_s: float
    best_s: Figure
    nccl_s: Figure
    practical_s: Figure
    without_speculation_s: Figure | None = None


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    source: str
    model_type: str
    hidden: int
    expert_width: int
    parameters: int
    mtp_parameters: int
    active_parameters: int
    checkpoint_bytes: float
    mtp_bytes: float
    active_bytes: float
    quantization: str
    quantization_source: str
    kv_cache_declared: str
    layers: int
    moe_layers: int
    experts: int
    top_k: int


class GpuSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    target: str
    count: int
    interconnect: str
    memory_bytes: Figure
    bandwidth_bytes_per_s: Figure
    data_sheet_bandwidth_bytes_per_s: Figure
    flops_per_s: dict[str, Figure]


class DecodeLimit(Record, frozen=True, kw_only=True):
    """The floor of a decode step, with everything it was computed from."""

    schema = "limit"
    version = 1

    model: ModelSummary
    gpu: GpuSummary
    workload: Workload
    rows: tuple[RowLimit, ...]
    collectives: tuple[Collective, ...]
    terms: tuple[Term, ...]
    totals: Totals
    experts_hit: float
    memory: MemoryFit
    findings: tuple[Finding, ...]

    def flaws(self) -> Iterator[str]:
        from sublight.limits.closing import limit_flaws

        return limit_flaws(self)

    def row(self, id_: str, stage: str = "main") -> RowLimit:
        return next(r for r in self.rows if r.id == id_ and r.stage == stage)

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that one sequence gains a step; None under speculation that nobody measured."""
        speculation = self.workload.speculation
        return 1.0 if speculation is None else speculation.tokens_per_step

    @property
    def weight_bytes(self) -> float:
        """Weights and scales the busiest rank reads in the step."""
        return sum(r.cost.bytes.weights_and_scales for r in self.rows)

    @property
    def cache_bytes(self) -> float:
        return sum(r.cost.bytes.caches for r in self.rows)

    @property
    def flops(self) -> float:
        return sum(sum(r.cost.flops.values()) for r in self.rows)

    @property
    def launches(self) -> int:
        """Launches of the step at the least: one a row and layer, and one a collective."""
        return sum(r.cost.calls for r in self.rows) + sum(c.calls for c in self.collectives)


def decode_limit(
    model: Model, gpu: Gpu, workload: Workload, link: Interconnect | None = None, call_s: float | None = None
) -> DecodeLimit:
    """The limit of one decode step of `model` on `workload.layout.gpus` cards of `gpu`.

    Args:
        link: what connects the cards; not needed for one, or where `call_s` is given.
        call_s: time of one collective as measured by the user, in seconds.

    Raises:
        UsageError: a layout that the model cannot be cut into.
    """
    check_fit(model, workload)
    ops = step_ops(model, workload)
    bandwidth = gpu.memory_bandwidth_bytes_per_s.known
    rows = tuple(_row(op, gpu) for op in ops)
    collectives = tuple(step_collectives(model, workload, link, call_s))
    best, nccl = _together(collectives, "best_s"), _together(collectives, "nccl_s")
    memory_s = sum(r.memory_s for r in rows)
    rows_s = sum(r.time_s for r in rows)
    memory = memory_fit(model, gpu, workload)
    naive_s = model.active_bytes() / (bandwidth * workload.layout.gpus)
    totals = Totals(
        naive_s=naive_s,
        memory_s=memory_s,
        rows_s=rows_s,
        strict_s=max(memory_s, sum(r.compute_s for r in rows)),
        best_s=_plus(rows_s, best),
        nccl_s=_plus(rows_s, nccl),
        practical_s=_practical(rows, best, gpu),
        without_speculation_s=_without_speculation(model, gpu, workload, link, call_s),
    )
    return DecodeLimit(
        model=_model_summary(model),
        gpu=_gpu_summary(gpu, workload, link),
        workload=workload,
        rows=rows,
        collectives=collectives,
        terms=_terms(workload, ops, rows, bandwidth, naive_s, best),
        totals=totals,
        experts_hit=hit.total.value if (hit := experts_hit(model, workload)) is not None else 0.0,
        memory=memory,
        findings=(
            *fit_findings(memory, workload),
            *model.findings,
            *workload_findings(model, workload, gpu, sum(r.cost.bytes.from_memory for r in rows)),
            *cut_findings(model, workload),
        ),
    )


def _without_speculation(
    model: Model, gpu: Gpu, workload: Workload, link: Interconnect | None, call_s: float | None
) -> Figure | None:
    if workload.speculation is None:
        return None
    plain = decode_limit(model, gpu, msgspec.structs.replace(workload, speculation=None), link, call_s)
    return plain.totals.best_s


def rate_for(gpu: Gpu, rate: str) -> Figure:
    """The dense rate that products of a format run at on this card: their own, or BF16 where it has no such unit."""
    return gpu.peak(rate) if gpu.has_unit(rate) else gpu.bf16_flops_per_s


def _row(op: Op, gpu: Gpu) -> RowLimit:
    bandwidth = gpu.memory_bandwidth_bytes_per_s.known
    moved = op.cost.bytes
    per_call = moved.activations / max(1, op.cost.calls)
    # Activations pass through L2; they cost memory time only where one launch's do not fit there.
    spilled = moved.activations if gpu.l2_bytes.value is not None and per_call > gpu.l2_bytes.value else 0.0
    from_memory = moved.from_memory + spilled
    memory_s = from_memory / bandwidth
    compute_s = sum(count / rate_for(gpu, rate).known for rate, count in op.cost.flops.items())
    time_s = max(memory_s, compute_s)
    return RowLimit(
        id=op.id,
        stage=op.stage,
        cost=op.cost,
        memory_s=memory_s,
        compute_s=compute_s,
        time_s=time_s,
        bound="memory" if memory_s > compute_s else "compute" if compute_s > 0 else "latency",
        practical_s=_practical_row(op.cost.calls, from_memory, gpu, time_s),
        formats=op.formats,
        rule=op.rule,
    )


def _practical_row(calls: int, byte_count: float, gpu: Gpu, floor_s: float) -> float | None:
    """Every launch of the row at the measured time of a read of its size; never faster than the row's floor.

    Args:
        byte_count: what the floor counts as read from memory, over all calls.
        floor_s: of the row. A curve may promise more than the bandwidth does that the floor stands on.
    """
    if gpu.read_curve is None:
        return None
    if not calls:
        return floor_s
    return max(calls * gpu.read_curve.seconds(byte_count / calls), floor_s)


def _together(collectives: tuple[Collective, ...], choice: Literal["best_s", "nccl_s"]) -> Figure:
    """All calls of all collectives; not known as soon as one is not."""
    total, sources = 0.0, []
    for collective in collectives:
        one: Figure = getattr(collective, choice)
        if one.value is None:
            return one
        total += collective.calls * one.value
        sources.append(one)
    evidence = next((f.evidence for f in sources if f.evidence is not Evidence.COMPUTED), Evidence.COMPUTED)
    return Figure(total, evidence, source="; ".join(dict.fromkeys(f.source for f in sources if f.source)))


def _plus(rows_s: float, messages: Figure) -> Figure:
    if messages.value is None:
        return not_known(messages.note)
    return Figure(rows_s + messages.value, Evidence.COMPUTED, source=messages.source)


def _practical(rows: tuple[RowLimit, ...], messages: Figure, gpu: Gpu) -> Figure:
    if gpu.read_curve is None:
        return not_known(f"no read rate by size was measured on {gpu.name}; --measured-gpu takes one")
    if messages.value is None:
        return not_known(messages.note)
    total = sum(r.practical_s or 0.0 for r in rows) + messages.value
    return Figure(total, Evidence.COMPUTED, source=gpu.read_curve.source)


def _terms(
    workload: Workload,
    ops: list[Op],
    rows: tuple[RowLimit, ...],
    bandwidth: float,
    naive_s: float,
    messages: Figure,
) -> tuple[Term, ...]:
    """What lies between the naive number and the floor; the terms sum to the rows' total and the best collectives."""
    layout = workload.layout
    main = [op for op in ops if op.stage == "main"]
    experts = [op for op in main if op.id in ("moe.experts", "moe.latent")]
    once = sum(op.once_bytes for op in main)
    shared_out = sum(op.share_bytes for op in main)
    held = sum(op.cost.bytes.weights_and_scales for op in main)
    expert_excess = sum(op.cost.bytes.weights_and_scales - op.share_bytes for op in experts)
    drafted = sum(r.memory_s for r in rows if r.stage == "mtp")
    # Naive spreads the bytes over all GPUs; stages of a pipeline work one after the other, so a token waits for each.
    pipeline = once / bandwidth - naive_s if layout.pp > 1 else 0.0
    rounding = once / bandwidth - naive_s - pipeline
    if layout.ep == 1:
        expert_excess = 0.0
    memory = sum(r.memory_s for r in rows if r.stage == "main")
    caches = sum(op.cost.bytes.caches for op in main)
    terms = [
        Term("naive", "active weights, each once, over all GPUs", naive_s),
        Term("pipeline", "pipeline stages take turns", pipeline),
        Term("union", "experts of the other tokens in the batch", (shared_out - once) / bandwidth),
        Term("imbalance", f"busiest rank of EP{layout.ep}", expert_excess / bandwidth),
        Term(
            "replication",
            "weights that every rank holds whole",
            rounding + (held - shared_out - expert_excess) / bandwidth,
        ),
        Term("caches", "KV cache, index keys and states", caches / bandwidth),
        Term("activations", "activations that do not fit in L2", memory - (held + caches) / bandwidth),
        Term("draft", "drafting", drafted),
        Term("compute", "rows bound by arithmetic", sum(r.time_s - r.memory_s for r in rows)),
    ]
    if messages.value is not None:
        terms.append(Term("collectives", "collectives, best published", messages.value))
    tiny = 1e-9 * sum(t.seconds for t in terms)
    return tuple(t for t in terms if t.id == "naive" or abs(t.seconds) > tiny)


def _model_summary(model: Model) -> ModelSummary:
    return ModelSummary(
        name=model.name,
        source=model.source,
        model_type=model.model_type,
        hidden=model.hidden,
        expert_width=model.moe.width if model.moe else 0,
        parameters=model.parameters(),
        mtp_parameters=model.parameters("mtp"),
        active_parameters=round(model.active_parameters()),
        checkpoint_bytes=model.checkpoint_bytes(),
        mtp_bytes=model.checkpoint_bytes("mtp"),
        active_bytes=model.active_bytes(),
        quantization=model.quantization.summary,
        quantization_source=model.quantization.source,
        kv_cache_declared=model.quantization.kv_cache,
        layers=model.layers,
        moe_layers=model.moe.layers if model.moe else 0,
        experts=model.moe.experts if model.moe else 0,
        top_k=model.moe.top_k if model.moe else 0,
    )


def _gpu_summary(gpu: Gpu, workload: Workload, link: Interconnect | None) -> GpuSummary:
    return GpuSummary(
        name=gpu.name,
        title=gpu.title,
        target=gpu.target,
        count=workload.layout.gpus,
        interconnect=link.name if link is not None and workload.layout.gpus > 1 else "",
        memory_bytes=gpu.memory_bytes,
        bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
        data_sheet_bandwidth_bytes_per_s=gpu.catalogued("memory_bandwidth_bytes_per_s"),
        flops_per_s={rate: rate_for(gpu, rate) for rate in ("bf16", "fp8", "fp4")},
    )
