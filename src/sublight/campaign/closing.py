"""Which next steps later records answer. Where a record leaves it open whether it does, the step stays open.

A record answers for a step of the same model, cards and layout. Audits do not say whether decode runs in a CUDA graph:
what a log says of it is a sentence there, and no field.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from sublight.audit.record import Audit
from sublight.bench.join import joined
from sublight.bench.record.comm import CommBench
from sublight.bench.record.kernels import KernelBench
from sublight.bench.record.ops import OpsBench
from sublight.campaign.folder import Folder
from sublight.campaign.note import Note
from sublight.errors import UsageError
from sublight.facts.catalogue.gpus import cards_called
from sublight.gap.compare import Gap
from sublight.gap.next_steps import NextStep
from sublight.gap.same import SAME_SHAPES, alike
from sublight.limits.decode import DecodeLimit
from sublight.records import Evidence, Record
from sublight.trace.analysis import Analysis
from sublight.tuning.record import HostReport
from sublight.units import counted


class Closed(msgspec.Struct, frozen=True):
    """A next step, and the later file that answers it; `of` is the model and the cards that it was named for."""

    step: str
    title: str
    file: str
    evidence: str
    of: str = ""


class OpenStep(NextStep, frozen=True, kw_only=True):
    """A next step that nothing answers; `of` is the model and the cards that it was named for."""

    of: str = ""


def close_steps(folder: Folder) -> tuple[list[Closed], list[OpenStep]]:
    """Every next step that a gap of a model on its cards named, once: closed by the first later record, else open."""
    closed: dict[tuple[str, str], Closed] = {}
    named: dict[tuple[str, str], OpenStep] = {}
    for place, entry in enumerate(folder.entries):
        if not isinstance(entry.record, Gap):
            continue
        of = subject_of(entry.record.limit)
        for step in entry.record.steps:
            named[of, step.id] = OpenStep(**msgspec.structs.asdict(step), of=of)
            for later in folder.entries[place + 1 :]:
                evidence = _answers(step.id, later.record, entry.record.limit)
                if evidence and (of, step.id) not in closed:
                    closed[of, step.id] = Closed(step.id, step.title, later.file, evidence, of)
                    break
    return list(closed.values()), [step for key, step in named.items() if key not in closed]


def subject_of(limit: DecodeLimit) -> str:
    """What steps are named for: the model, and the cards it runs on."""
    return f"{limit.model.name} on {limit.gpu.count}x {limit.gpu.name}"


def step_names(folder: Folder) -> list[str]:
    """Every next step that a gap of the folder named, by id."""
    return list(dict.fromkeys(s.id for e in folder.entries if isinstance(e.record, Gap) for s in e.record.steps))


def _answers(step: str, record: Record, limit: DecodeLimit) -> str:
    """How a record answers a next step of the gap that `limit` belongs to; "" if it does not."""
    match record:
        case Note():
            return record.text if step in record.closes else ""
        case Gap():
            if not alike(limit, record.limit, SAME_SHAPES):
                return ""
            traced = _of_trace(step, record.trace) if record.trace is not None else ""
            return traced or _of_limit(step, record.limit)
        case Analysis():
            return _of_trace(step, record)
        case HostReport():
            return _of_host(step, record, limit)
        case Audit():
            return _of_cards(step, record.machine.cards, _catalogue_name, limit)
        case CommBench():
            return _of_messages(step, record, limit)
        case KernelBench() | OpsBench():
            return _of_memory(step, record, limit) or _of_rows(step, record, limit)
    return ""


def _of_trace(step: str, trace: Analysis) -> str:
    if step == "trace":
        wall = trace.breakdown.wall_ns / 1e6
        return f"a trace takes the step apart: {wall:,.2f} ms, idle {trace.breakdown.idle_ns / 1e6:,.2f} ms"
    if step == "cuda-graph":
        return f"decode {'runs' if trace.step.replayed else 'does not run'} in a CUDA graph"
    if step == "graph-gaps":
        idle = sum(i.ns for i in trace.breakdown.idle) / 1e6
        return f"{trace.step.kernels:,} kernels a step, idle {idle:,.2f} ms"
    if step in ("kernels", "ops"):
        return f"kernels sum to {trace.kernel_ns / 1e6:,.2f} ms in the step"
    return ""


def _of_limit(step: str, limit: DecodeLimit) -> str:
    """What was given as measured on this machine."""
    if step == "all-reduce" and any(c.best_s.evidence is Evidence.GIVEN for c in limit.collectives):
        return f"{(limit.collectives[0].best_s.value or 0) * 1e6:.1f} us a call were measured"
    if step == "bandwidth" and limit.gpu.bandwidth_bytes_per_s.evidence in (Evidence.GIVEN, Evidence.MEASURED):
        return f"{limit.gpu.bandwidth_bytes_per_s.known / 1e9:,.0f} GB/s were measured"
    return ""


def _of_host(step: str, report: HostReport, limit: DecodeLimit) -> str:
    names = dict(Counter(gpu.name for gpu in report.machine.gpus))
    known = {gpu.name: gpu.catalogue for gpu in report.machine.gpus}
    edition = _of_cards("edition", names, lambda name: known[name], limit)
    if step == "edition" or not edition:
        return edition if step == "edition" else ""
    return _of_peers(report, limit) if step == "p2p" else ""


def _of_cards(step: str, names: dict[str, int], catalogue: Callable[[str], str], limit: DecodeLimit) -> str:
    """That every card of a machine, by the name its driver gives, is the one that was assumed."""
    if step != "edition" or sum(names.values()) < limit.gpu.count:
        return ""
    if {catalogue(name) for name in names} != {limit.gpu.name}:
        return ""
    return f"the driver calls {'all of its' if len(names) == 1 else 'the'} cards {' and '.join(names)}"


def _catalogue_name(name: str) -> str:
    """The one card that goes by this name, "" where there is none or several share it."""
    called = list(cards_called(name))
    return called[0].name if len(called) == 1 else ""


def _of_peers(report: HostReport, limit: DecodeLimit) -> str:
    """Whether cards reach each other's memory. A pair that does not may be one that the step does not use."""
    peers = report.machine.peer_access
    if peers is None or len(peers.gpus) != len(report.machine.gpus):
        return ""
    size = range(len(peers.gpus))
    both = [{peers.paths[one][other], peers.paths[other][one]} for one in size for other in size[one + 1 :]]
    if both and all(said == {"OK"} for said in both):
        return f"P2P is OK for all {len(both)} pairs" if len(both) > 1 else "P2P is OK for the pair"
    if len(peers.gpus) != limit.gpu.count or not both:
        return ""
    refused = Counter("/".join(sorted(said - {"OK"})) for said in both if said != {"OK"})
    return f"P2P is not OK: {', '.join(f'{said} for {count} of {len(both)} pairs' for said, count in refused.items())}"


def _of_messages(step: str, bench: CommBench, limit: DecodeLimit) -> str:
    """Every all-reduce of this very step, each by its fastest way."""
    if step != "all-reduce":
        return ""
    try:
        rows = joined(bench, limit, "").rows
    except UsageError:  # of another card, model, layout or batch
        return ""
    if not {c.id for c in limit.collectives if c.operation == "all-reduce" and c.calls} <= set(rows):
        return ""
    timed = []
    for message in bench.messages:
        way = message.best
        if message.operation == "all-reduce" and way is not None and way.measurement is not None:
            timed.append(f"{way.measurement.seconds * 1e6:.1f} us for {message.payload_bytes:,} bytes by {way.name}")
    return f"an all-reduce was timed: {', '.join(timed)}" if timed else ""


def _of_memory(step: str, bench: KernelBench | OpsBench, limit: DecodeLimit) -> str:
    """The largest read-only launch of a benchmark on this card."""
    if step != "bandwidth" or bench.is_rehearsal or bench.environment.card != limit.gpu.name:
        return ""
    if not bench.ceilings.read_s:
        return ""
    size, seconds = bench.ceilings.read_s[-1]
    return f"{size / seconds / 1e9:,.0f} GB/s were read from memory by one launch"


def _of_rows(step: str, bench: KernelBench | OpsBench, limit: DecodeLimit) -> str:
    """Every row of this very step that a kind of benchmark is for: the experts of one, all others of the other."""
    if step != ("kernels" if isinstance(bench, KernelBench) else "ops"):
        return ""
    try:
        rows = joined(bench, limit, "").rows
    except UsageError:  # of another card, model, layout, batch or context
        return ""
    wanted = {r.id for r in limit.rows if r.stage == "main" and (r.id == "moe.experts") == (step == "kernels")}
    if not wanted or not wanted <= set(rows):
        return ""
    timed = "the experts" if step == "kernels" else counted(len(wanted), "other row", "other rows")
    return f"{timed} took {sum(rows[row] for row in wanted) * 1e3:,.2f} ms a step"
