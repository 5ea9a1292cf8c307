"""The measured step beside its floor, row by row, and what each row would give back if it alone ran at its floor."""

import msgspec

from sublight.gap.attainable import Attainable
from sublight.limits.decode import DecodeLimit
from sublight.limits.under import collective_floors
from sublight.rows import ROWS, Group
from sublight.trace.analysis import Analysis
from sublight.trace.idle import IdleKind
from sublight.trace.oddity import Oddity


class MeasuredRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the step: its floor, and where it stands in the measured one. Seconds a step.

    Attributes:
        floor_s: None for a row that the floor does not know (unknown kernels, kinds of work without a row).
        attainable_s: what it can reach on this card, see `sublight.gap.attainable`; None where nobody measured it.
        attainable_note: why that time does not lie between floor and measured; "" where it does.
        exposed_s: wall time in which it alone ran.
        overlapped_s: time beside other rows.
        summed_s: kernel times added up.
        saved_s: wall time the step would lose if this row alone ran at its floor: what is hidden under other rows
            stays hidden.
    """

    id: str
    floor_s: float | None
    attainable_s: float | None = None
    attainable_note: str = ""
    exposed_s: float
    overlapped_s: float
    summed_s: float
    calls: int
    saved_s: float
    backends: tuple[str, ...]

    @property
    def is_under_floor(self) -> bool:
        return self.attainable_s is not None and self.attainable_s < (self.floor_s or 0.0)

    @property
    def is_over_measured(self) -> bool:
        """Whether the step did better than what is said to be attainable; both are kernel times added up."""
        return self.attainable_s is not None and bool(self.calls) and self.attainable_s > self.summed_s

    @property
    def doubt(self) -> str:
        """What to know of the attainable time; records of earlier versions have no note."""
        if self.attainable_note:
            return self.attainable_note
        if self.is_under_floor:
            return _UNDER
        return _OVER if self.is_over_measured else ""


_UNDER = "under the floor: one of the two is off"
_OVER = "over the measured time: the step did better"
_FLOOR_OVER = (
    "over the measured time, as the floor is: what the floor stands on is not so, or the trace has part of the row "
    "elsewhere"
)
_TIMED_OVER = (
    f"{_OVER} than the benchmark, which makes each call by itself with nothing in the cache; in a step inputs were "
    "just written, launches are fused, or another kernel ran"
)
_EAGER_OVER = (
    f"{_OVER} than the benchmark, which launched each kernel by itself and timed that with CUDA events (--eager); its "
    "record without --eager replays a graph"
)
_PREDICTED_OVER = (
    f"{_OVER} than predicted, as one launch a row that only reads its bytes; to beat a prediction is legal"
)


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that one change would help together, or idle time, and what that change could give back.

    Attributes:
        id: stable name.
        title: what it is.
        rows: which rows; empty for idle time.
        saved_s: the most wall time it can give back.
        exposed_s, summed_s, floor_s: of the rows together.
        advice: what to try.
        command: a command or flag to try, or "".
        sure: how sure that is, in words.
    """

    id: str
    title: str
    rows: tuple[str, ...]
    saved_s: float
    exposed_s: float
    summed_s: float
    floor_s: float
    advice: str
    command: str
    sure: str


def measured_rows(limit: DecodeLimit, trace: Analysis, attainable: Attainable | None = None) -> tuple[MeasuredRow, ...]:
    """Every row that the floor or the trace has, in the order of `sublight.rows`, the others behind."""
    floors = floors_of(limit, trace)
    rows = {r.name: r for r in trace.breakdown.rows}
    found = []
    for id_ in [*(i for i in ROWS if i in floors or i in rows), *(i for i in rows if i not in ROWS)]:
        floor, row = floors.get(id_), rows.get(id_)
        exposed = row.exposed_ns * 1e-9 if row else 0.0
        beside = row.overlapped_ns * 1e-9 if row else 0.0
        measured = MeasuredRow(
            id=id_,
            floor_s=floor,
            attainable_s=attainable.rows.get(id_) if attainable is not None else None,
            exposed_s=exposed,
            overlapped_s=beside,
            summed_s=row.summed_ns * 1e-9 if row else 0.0,
            calls=row.calls if row else 0,
            saved_s=saved(exposed, beside, floor),
            backends=tuple(b.backend for b in row.backends if b.backend) if row else (),
        )
        if attainable is not None:
            measured = msgspec.structs.replace(measured, attainable_note=_note(measured, attainable))
        found.append(measured)
    return tuple(found)


def _note(row: MeasuredRow, attainable: Attainable) -> str:
    """Why a time lies under its floor, over the measured one, or both: the floor may be what is off."""
    notes = [attainable.under.get(row.id, _UNDER)] if row.is_under_floor else []
    if row.is_over_measured and (row.floor_s or 0.0) > row.summed_s:
        notes.append(_FLOOR_OVER)
    elif row.is_over_measured:
        timed = _EAGER_OVER if row.id in attainable.eager else _TIMED_OVER
        notes.append(_PREDICTED_OVER if attainable.predicted else timed)
    return "; ".join(notes)


def saved(exposed_s: float, overlapped_s: float, floor_s: float | None) -> float:
    """Wall time lost by a row that goes to its floor alone.

    At its floor it would still run `floor_s`, of which what fits beside the other rows as now stays hidden:
    exposed - max(0, floor - overlapped), never below nothing.
    """
    return max(0.0, exposed_s - max(0.0, (floor_s or 0.0) - overlapped_s))


def floors_of(limit: DecodeLimit, trace: Analysis) -> dict[str, float]:
    """Floors by row; collectives only where the trace has any (one rank run alone sends nothing)."""
    floors = {r.id: r.time_s for r in limit.rows if r.stage == "main"}
    if has_collectives(trace):
        floors |= collective_floors(limit)
    return floors


def has_collectives(trace: Analysis) -> bool:
    return any(r.category == "communication" for r in trace.breakdown.rows)


_REMEDIES: tuple[tuple[str, str, tuple[Group, ...], str, str], ...] = (
    (
        "attention",
        "attention core",
        (Group.ATTENTION_CORE,),
        "another attention backend, one that splits the keys over the card",
        "--attention-backend NAME",
    ),
    ("indexer", "index scores and top-k", (), "a fused indexer; fewer helper kernels around it", ""),
    (
        "experts",
        "routed experts",
        (Group.ROUTED_EXPERTS,),
        "another MoE backend; time the candidates at this shape first",
        "--moe-runner-backend NAME",
    ),
    ("shared", "shared and dense MLP", (Group.SHARED_EXPERTS, Group.DENSE_MLP), "a kernel made for one token", ""),
    (
        "linear",
        "linear attention and Mamba",
        (Group.LINEAR_ATTENTION,),
        "a fused state update; fewer kernels around it",
        "",
    ),
    (
        "norms",
        "norms and elementwise",
        (Group.NORMS, Group.EMBEDDING, Group.SAMPLING),
        "fusion of norms, rotary positions and cache writes into their neighbours",
        "",
    ),
    (
        "collectives",
        "collectives",
        (Group.COLLECTIVES,),
        "a one-shot or fused all-reduce; fewer ranks per all-reduce",
        "",
    ),
)
_PRODUCTS = ("attn.qkv", "attn.qkv_a", "attn.q_b", "attn.absorb_k", "attn.absorb_v", "attn.o", "indexer.q", "indexer.k",
             "moe.router", "moe.latent", "head", "mtp.in")  # fmt: skip


def remedies(limit: DecodeLimit, rows: tuple[MeasuredRow, ...], trace: Analysis) -> tuple[Remedy, ...]:
    """What to change, by the wall time it could give back. Groups are rows that one change helps together."""
    # Of several findings about a row the longest, which comes first.
    odd = {o.row: o for o in reversed(trace.oddities) if o.row}
    by_id = {r.id: r for r in rows}
    stored = {r.id: (r.formats[0] if r.formats else "BF16") for r in limit.rows if r.stage == "main"}
    found = []
    products: dict[str, list[MeasuredRow]] = {}
    for id_ in _PRODUCTS:
        if id_ in by_id:
            products.setdefault(stored.get(id_, "BF16"), []).append(by_id[id_])
    for format_, group in products.items():
        advice = "fewer and larger products: fuse those that read the same input; weights in fewer bits"
        found.append(_remedy(f"gemm-{format_.lower().replace(' ', '-')}", f"{format_} GEMMs", group, advice, "", odd))
    for id_, title, groups, advice, command in _REMEDIES:
        if id_ == "indexer":
            group = [r for r in rows if r.id == "indexer.scores"]
        else:
            group = [r for r in rows if r.id in ROWS and r.id not in _PRODUCTS and ROWS[r.id].group in groups]
        if group:
            found.append(_remedy(id_, title, group, advice, command, odd))
    unknown = [r for r in rows if r.id not in ROWS]
    if unknown:
        advice = "name the model and the layout that were traced" if trace.unresolved else "find out what they are"
        found.append(_remedy("unknown", "kernels of no row", unknown, advice, "", odd))
    found += _idle(trace)
    worth = [r for r in found if r.saved_s * 1e9 > 0.002 * trace.breakdown.wall_ns]
    return tuple(sorted(worth, key=lambda r: -r.saved_s))


def _remedy(id_: str, title: str, rows: list[MeasuredRow], advice: str, command: str, odd: dict[str, Oddity]) -> Remedy:
    seen = [odd[r.id] for r in rows if r.id in odd]
    sure = "seen in the trace" if seen else "arithmetic: measured less floor"
    if seen:
        advice = f"{seen[0].title}: {seen[0].advice}"
    return Remedy(
        id=id_,
        title=title,
        rows=tuple(r.id for r in rows),
        saved_s=sum(r.saved_s for r in rows),
        exposed_s=sum(r.exposed_s for r in rows),
        summed_s=sum(r.summed_s for r in rows),
        floor_s=sum(r.floor_s or 0.0 for r in rows),
        advice=advice,
        command=command,
        sure=sure,
    )


_IDLE = {
    IdleKind.LAUNCH: (
        "idle between kernels",
        "fewer kernels by fusion; programmatic dependent launch starts the next kernel early",
        "",
    ),
    IdleKind.HOST: (
        "waiting for the CPU",
        "CUDA graphs for decode, at the batch sizes that occur",
        "no --enforce-eager (vLLM), no --disable-cuda-graph (SGLang)",
    ),
    IdleKind.STEP: ("idle between steps", "overlapped scheduling; sampling on the GPU", ""),
    IdleKind.UNKNOWN: ("idle of unknown cause", "a trace with CPU activity tells launch gaps from waiting", ""),
}


def _idle(trace: Analysis) -> list[Remedy]:
    return [
        Remedy(
            id=f"idle-{idle.kind.name.lower()}",
            title=_IDLE[idle.kind][0],
            rows=(),
            saved_s=idle.ns * 1e-9,
            exposed_s=idle.ns * 1e-9,
            summed_s=0.0,
            floor_s=0.0,
            advice=_IDLE[idle.kind][1],
            command=_IDLE[idle.kind][2],
            sure="seen in the trace",
        )
        for idle in trace.breakdown.idle
    ]
