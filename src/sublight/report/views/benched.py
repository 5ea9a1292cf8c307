"""What the pages of benchmarks share: where it ran, what is doubtful about a time, and how numbers are written."""

from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.measurement import BenchRecord, Environment, Measurement
from sublight.report.blocks import Block, Cell, Facts, Note
from sublight.units import show_percent, show_rate, significant

_REHEARSAL = (
    "A rehearsal on a CPU: it shows that the protocol runs and that results agree. Its times are of this processor and "
    "stand for no GPU's."
)


def rehearsal(bench: BenchRecord) -> list[Block]:
    return [Note(_REHEARSAL, "warn")] if bench.is_rehearsal else []


def bench_facts(bench: BenchRecord, ceilings: Ceilings | None, first: list[tuple[str, Cell]]) -> Facts:
    environment = bench.environment
    items = [*first, ("machine", Cell(_machine(environment)))]
    if environment.clocks_mhz:
        seen = ", ".join(f"{name} {mhz:,.0f} MHz" for name, mhz in environment.clocks_mhz.items())
        items.append(("clocks seen", Cell(seen)))
    if ceilings is not None:
        best = max(ceilings.read_s, key=lambda point: point[0] / point[1])
        reads = f"largest read {show_rate(best[0] / best[1])} ({ceilings.read_by})"
        items.append(("memory, this run", Cell(f"copy {show_rate(ceilings.copy_bytes_per_s)}; {reads}")))
    items += [("note", Cell(note, "warn" if not bench.is_rehearsal else "muted")) for note in environment.notes]
    items.append(("seed", Cell(str(bench.seed))))
    return Facts(tuple(items))


def _machine(environment: Environment) -> str:
    parts = [environment.title, environment.target]
    parts += [f"driver {environment.driver}"] if environment.driver else []
    parts += [f"torch {environment.torch}"] if environment.torch else []
    parts += [f"CUDA {environment.cuda}"] if environment.cuda else []
    parts += [f"NCCL {environment.nccl}"] if environment.nccl else []
    parts += [f"L2 {environment.l2_bytes / 2**20:.0f} MiB"] if environment.l2_bytes else []
    return ", ".join(part for part in parts if part)


def remark(taken: Measurement, more: str, cache: bool = True) -> Cell:
    said = [taken.warning] if taken.warning else []
    if cache and taken.cold is False:
        said.append("part of its weights may lie in the cache")
    if not taken.timing.settled:
        said.append(f"spread {show_percent(taken.timing.spread)} when time was up")
    tone = "warn" if said else "muted"
    return Cell("; ".join([*said, *([more] if more else [])]), tone)  # type: ignore[arg-type]


def footer(bench: BenchRecord) -> str:
    where = "rehearsed on a CPU" if bench.is_rehearsal else "measured here"
    return f"Sublight: {where}; outputs were compared before anything was timed"


def us(seconds: float) -> str:
    return significant(seconds * 1e6, 3)


def gb_per_s(bytes_per_s: float) -> str:
    return significant(bytes_per_s / 1e9, 3)
