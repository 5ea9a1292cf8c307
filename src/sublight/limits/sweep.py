"""The floor over batch sizes: where each row turns from memory-bound to compute-bound, and what a step then yields."""

from collections.abc import Iterator, Sequence

import msgspec

from sublight.facts.gpu import Gpu
from sublight.facts.interconnect import Interconnect
from sublight.facts.model import Model
from sublight.facts.workload import Workload
from sublight.limits.decode import DecodeLimit, decode_limit
from sublight.records import Figure, Record
from sublight.rows import ROWS

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The totals at one batch size, in seconds a step."""

    batch: int
    memory_s: float
    rows_s: float
    best_s: Figure
    nccl_s: Figure
    experts_s: float
    experts_hit: float
    bound: dict[str, str]


class Sweep(Record, frozen=True, kw_only=True):
    """One limit in full (at the first batch size), and the totals at all of them."""

    schema = "sweep"
    version = 1

    first: DecodeLimit
    points: tuple[Point, ...]

    def flaws(self) -> Iterator[str]:
        from sublight.limits.closing import sweep_flaws

        return sweep_flaws(self)


def crossovers(points: Sequence[Point]) -> dict[str, int]:
    """Row -> the first batch size at which arithmetic binds it; rows that memory binds throughout are not there."""
    found: dict[str, int] = {}
    for point in points:
        for id_, bound in point.bound.items():
            if bound == "compute":
                found.setdefault(id_, point.batch)
    return {id_: found[id_] for id_ in ROWS if id_ in found}


def sweep(
    model: Model,
    gpu: Gpu,
    workload: Workload,
    link: Interconnect | None = None,
    call_s: float | None = None,
    batches: Sequence[int] = (),
) -> Sweep:
    """The limit of the same workload at several batch sizes: its own, and the larger ones of `BATCHES` unless given."""
    batches = batches or sorted({workload.batch, *(b for b in BATCHES if b > workload.batch)})
    limits = [decode_limit(model, gpu, workload.with_batch(batch), link, call_s) for batch in batches]
    return Sweep(first=limits[0], points=tuple(map(_point, limits)))


def _point(limit: DecodeLimit) -> Point:
    experts = [r for r in limit.rows if r.id == "moe.experts" and r.stage == "main"]
    return Point(
        batch=limit.workload.batch,
        memory_s=limit.totals.memory_s,
        rows_s=limit.totals.rows_s,
        best_s=limit.totals.best_s,
        nccl_s=limit.totals.nccl_s,
        experts_s=sum(r.time_s for r in experts),
        experts_hit=limit.experts_hit,
        bound={r.id: r.bound for r in limit.rows if r.stage == "main"},
    )
