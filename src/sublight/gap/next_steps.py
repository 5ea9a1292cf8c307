"""What to measure next, in order of the milliseconds it would explain. Each says why, how, and how sure that is."""

import re
import shlex
from collections.abc import Mapping

import msgspec

from sublight.facts.catalogue.gpus import card_names, cards_called, catalogue_card
from sublight.facts.catalogue.models import model_names
from sublight.facts.published import launch_costs
from sublight.limits.decode import DecodeLimit
from sublight.records import Evidence
from sublight.rows import ROWS, Group
from sublight.units import counted, significant


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement worth making.

    Attributes:
        id: stable name.
        title: what to do.
        explains_low_s, explains_high_s: how much of the gap the answer would account for.
        why: the reasoning, with the numbers it stands on.
        command: what to type, or "" where it depends on the set-up.
        evidence: how the size is known.
        source: where it is from.
    """

    id: str
    title: str
    explains_low_s: float
    explains_high_s: float
    why: str
    command: str
    evidence: Evidence
    source: str = ""


_EXPERTS = "moe.experts"


def next_steps(
    limit: DecodeLimit, measured_s: float, excess_s: Mapping[str, float], kernels_source: str
) -> list[NextStep]:
    """Candidates for the gap between the floor and the measured step, largest first.

    Args:
        excess_s: what published times of single kernels take more than the floor, by row, where that is known.
        kernels_source: where those are from.
    """
    floor = limit.totals.best_s.value if limit.totals.best_s.value is not None else limit.totals.rows_s
    gap = measured_s - floor
    if gap <= 0:
        return []
    steps = [_trace(limit, gap), *_launches(limit, gap), *_collectives(limit, gap), *_bandwidth(limit, gap)]
    steps += _edition(limit, gap)
    steps += _kernels(limit, gap, excess_s, kernels_source)
    worth = [s for s in steps if s.explains_high_s > 0.002 * measured_s]
    return sorted(worth, key=lambda s: (-s.explains_high_s, -s.explains_low_s))


def _kernels(limit: DecodeLimit, gap: float, excess_s: Mapping[str, float], source: str) -> list[NextStep]:
    """Rows by the benchmark that times them. Messages have a step of their own."""
    alone = {row: seconds for row, seconds in excess_s.items() if ROWS[row].group is not Group.COLLECTIVES}
    other = sum(seconds for row, seconds in alone.items() if row != _EXPERTS)
    found = (
        ("kernels", "time the experts alone, at this model's shard shapes", excess_s.get(_EXPERTS, 0.0), "kernels"),
        ("ops", "time the other kernels of the step alone, at this model's shard shapes", other, "ops"),
    )
    return [
        NextStep(
            id=id_,
            title=title,
            explains_low_s=min(gap, more),
            explains_high_s=min(gap, more),
            why=f"measured elsewhere they take {significant(more * 1e3)} ms more than their rows' floor",
            command=_bench(limit, kind),
            evidence=Evidence.PUBLISHED,
            source=source,
        )
        for id_, title, more, kind in found
        if more > 0
    ]


def _bench(limit: DecodeLimit, kind: str) -> str:
    """The benchmark of this very step."""
    work, layout = limit.workload, limit.workload.layout
    words = [f"sublight bench {kind} {_model(limit)} --tp {layout.tp}"]
    if layout.ep > 1:
        words.append(f"--ep {layout.ep}")
    if kind == "kernels":
        return " ".join([*words, *([f"--tokens {work.tokens}"] if work.tokens > 1 else [])])
    if kind == "ops":
        words += [f"--dp {layout.dp}"] if layout.dp > 1 else []
    words.append(f"--batch {work.tokens}")
    if kind == "ops":
        words.append(f"--context {work.context}")
        words += [f"--kv-dtype {work.kv_dtype}"] if work.kv_dtype != "bf16" else []
    return " ".join(words)


def _model(limit: DecodeLimit) -> str:
    """The model as a command takes it: its name in the catalogue, or the file it was read from."""
    model = limit.model
    file = re.match(r".*?\.json", model.source)
    return model.name if model.name in model_names() or file is None else shlex.quote(file[0])


def _trace(limit: DecodeLimit, gap: float) -> NextStep:
    card = limit.gpu
    return NextStep(
        id="trace",
        title="record a profiler trace of a few decode steps",
        explains_low_s=gap,
        explains_high_s=gap,
        why="only a trace tells kernels, collectives, launch gaps and idle time apart, and a subtraction does not; "
        f"`sublight gap {_model(limit)} --gpus {card.count}x{card.name} --trace FILE`, with the same batch and layout, "
        "then joins it with the floor",
        command="curl -X POST http://HOST:PORT/start_profile   # decode a few tokens, then /stop_profile",
        evidence=Evidence.COMPUTED,
    )


def _launches(limit: DecodeLimit, gap: float) -> list[NextStep]:
    costs = launch_costs()
    low, high = costs.eager_s()
    node_low, node_high = costs.graph_node_s()
    count = limit.launches
    return [
        NextStep(
            id="cuda-graph",
            title="check that decode runs in a CUDA graph",
            explains_low_s=min(gap, count * low.known),
            explains_high_s=min(gap, count * high.known),
            why=f"the step has at least {counted(count, 'launch', 'launches')}; each costs "
            f"{low.known * 1e6:g}-{high.known * 1e6:g} us of "
            "CPU time without a graph",
            command="grep -iE 'cuda graph|capture|enforce.eager' SERVER_LOG",
            evidence=low.evidence,
            source=low.source,
        ),
        NextStep(
            id="graph-gaps",
            title="count the nodes of the captured graph",
            explains_low_s=min(gap, count * node_low.known),
            explains_high_s=min(gap, count * node_high.known),
            why=f"between two nodes of a graph lie {node_low.known * 1e6:g}-{node_high.known * 1e6:g} us; "
            f"at least {count:,} of them here, more where norms and quantisation are kernels of their own",
            command="",
            evidence=node_low.evidence,
            source=node_low.source,
        ),
    ]


def _collectives(limit: DecodeLimit, gap: float) -> list[NextStep]:
    calls = sum(c.calls for c in limit.collectives)
    if not calls or limit.totals.best_s.value is None:
        return []
    best = limit.totals.best_s.value - limit.totals.rows_s
    nccl = (limit.totals.nccl_s.value or limit.totals.best_s.value) - limit.totals.rows_s
    steps = []
    if nccl > best:
        steps.append(
            NextStep(
                id="all-reduce",
                title="time the step's all-reduce alone",
                explains_low_s=0.0,
                explains_high_s=min(gap, nccl - best),
                why=f"{counted(calls, 'call takes', 'calls take')} {significant(best * 1e3)} ms at the best published "
                f"time and {significant(nccl * 1e3)} ms through NCCL",
                command=_bench(limit, "comm"),
                evidence=Evidence.PUBLISHED,
                source=limit.totals.nccl_s.source,
            )
        )
    if limit.gpu.interconnect.startswith("pcie"):
        staged = launch_costs().staged_collective
        steps.append(
            NextStep(
                id="p2p",
                title="check that GPUs reach each other's memory (P2P)",
                explains_low_s=0.0,
                explains_high_s=min(gap, best * (staged.factor - 1)),
                why=f"with P2P off, messages are staged through host memory: about {staged.factor:g} times as slow",
                command="nvidia-smi topo -p2p r",
                evidence=staged.evidence,
                source=staged.source,
            )
        )
    return steps


def _bandwidth(limit: DecodeLimit, gap: float) -> list[NextStep]:
    sheet = limit.gpu.bandwidth_bytes_per_s
    replaced = sheet != limit.gpu.data_sheet_bandwidth_bytes_per_s
    if replaced or limit.gpu.name not in card_names():
        return []
    card = catalogue_card(limit.gpu.name)
    reached = card.figures.get("measured_bandwidth_bytes_per_s")
    if reached is None or reached.value is None:
        return []
    # Plain reads, where they were measured, go faster than the kernels do.
    reads = [size / seconds for size, seconds in card.curve.points] if card.curve is not None else []
    share = max([reached.value, *reads]) / sheet.known
    return [
        NextStep(
            id="bandwidth",
            title="measure what the memory of this card really delivers",
            explains_low_s=0.0,
            explains_high_s=min(gap, limit.totals.memory_s * (1 / share - 1)),
            why=f"the floor uses {sheet.known / 1e9:,.0f} GB/s ({sheet.evidence.value}); the fastest reads known on "
            f"this card reach {share * 100:.0f} % of it",
            command="",
            evidence=Evidence.PUBLISHED,
            source=reached.source,
        )
    ]


def _edition(limit: DecodeLimit, gap: float) -> list[NextStep]:
    """Cards that share an everyday name and differ in bandwidth: which one it is moves every row."""
    own = limit.gpu.name
    here = limit.gpu.data_sheet_bandwidth_bytes_per_s
    if own not in card_names() or here.value is None:
        return []
    siblings = {c.name: c for name in catalogue_card(own).also_called for c in cards_called(name) if c.name != own}
    slower = []
    for card in siblings.values():
        sheet = card.figures["memory_bandwidth_bytes_per_s"]
        if sheet.value and sheet.value < here.value:
            slower.append((limit.totals.memory_s * (here.value / sheet.value - 1), card.name, sheet))
    if not slower:
        return []
    extra, name, sheet = max(slower, key=lambda found: found[:2])
    return [
        NextStep(
            id="edition",
            title="make sure which edition of the card it is",
            explains_low_s=0.0,
            explains_high_s=min(gap, extra),
            why=f"{name} reads at {sheet.known / 1e9:,.0f} GB/s: the same rows take {significant(extra * 1e3)} ms more",
            command="nvidia-smi --query-gpu=name,clocks.max.memory --format=csv",
            evidence=sheet.evidence,
            source=sheet.source,
        )
    ]
