"""Kernels of a model's expert layer, measured in a process that is watched. This side holds no torch and no GPU."""

from collections.abc import Callable

import msgspec

from sublight.bench.answering import Done, Failed, Machine, over_time
from sublight.bench.kernels.job import Began, Compared, Job, Measured, Prepared, Refused, Said
from sublight.bench.peers import PEERS
from sublight.bench.record.kernels import Checked, KernelBench, Result, Shape
from sublight.bench.record.measurement import clock_for
from sublight.bench.torchless import require_torch
from sublight.bench.watch import Ended, watch
from sublight.errors import BenchError, UnknownNameError, UsageError
from sublight.facts.model import Model
from sublight.facts.workload import Layout, Routing
from sublight.kernels.catalogue import all_kernels
from sublight.kernels.problem import MoeProblem
from sublight.units import counted

_MODULE = "sublight.bench.kernels.worker"
_MOST_TOKENS = 65536


def bench_kernels(
    model: Model,
    layout: Layout,
    tokens: tuple[int, ...],
    *,
    device: str = "cuda",
    candidates: tuple[str, ...] = (),
    sweep: tuple[int, ...] = (),
    routing: Routing | None = None,
    eager: bool = False,
    seed: int = 0,
    limit_s: float = 300.0,
    budget_s: float = 2.0,
    progress: Callable[[str], None] | None = None,
) -> KernelBench:
    """Compare and time every candidate at one rank's shapes.

    Args:
        candidates: by name; all of them where left out.
        sweep: numbers of tokens to compare at without timing.
        eager: time calls one by one between CUDA events, instead of replays of a graph.
        limit_s: how long a candidate may take between two signs of life, compiling included.
        progress: told what is at work.

    Raises:
        BenchError: no torch, no GPU, or a process that ended for another reason than a candidate.
        KernelError: a model without such a layer.
        UnknownNameError: a candidate that nobody knows.
        UsageError: numbers of tokens out of range.
    """
    if not tokens or min(tokens) < 1 or max((*tokens, *sweep)) > _MOST_TOKENS:
        raise UsageError("--tokens", f"{list(tokens)}", f"numbers from 1 to {_MOST_TOKENS}, such as 1,2,4,8")
    problem, load = rank_problem(model, layout, max((*tokens, *sweep)))
    job = Job(
        problem=problem,
        tokens=tuple(dict.fromkeys(tokens)),
        sweep=tuple(t for t in dict.fromkeys(sweep) if t not in tokens),
        candidates=chosen(candidates, device),
        device=device,
        seed=seed,
        clock=clock_for(device, eager),
        counts=routing.counts if routing is not None else (),
        budget_s=budget_s,
    )
    require_torch("timing the layers of experts", device)
    listener = _Listener(job, progress or (lambda _: None))
    if not candidates:
        listener.absent |= {k.name: f"it computes {k.op}, not a layer" for k in all_kernels() if k.op != MoeProblem.op}
    while listener.job.candidates:
        ended = watch(_MODULE, msgspec.json.encode(listener.job), limit_s, listener.hear)
        if listener.done is not None:
            break
        listener.lost(ended)
    return listener.record(model, layout, load)


def rank_problem(model: Model, layout: Layout, tokens: int) -> tuple[MoeProblem, str]:
    """The layer of one rank, and what was assumed of its load, in words.

    Under expert parallelism a rank is sent top_k/ep pairs a token on average. Where that is a whole number, the rank is
    measured at this mean load: each token with so many of the rank's own experts. Otherwise experts are drawn among
    all ranks' and those of others are skipped.
    """
    problem = MoeProblem.of(model, layout, tokens)
    ranks = problem.expert_ranks
    if ranks == 1 or problem.top_k % ranks:
        return problem, "" if ranks == 1 else "experts drawn among all ranks', others' skipped"
    mean = problem.top_k // ranks
    local = msgspec.structs.replace(problem, top_k=mean, expert_ranks=1)
    return local, f"at the mean load of an expert-parallel rank: {mean} of its own experts for each token of the batch"


def chosen(names: tuple[str, ...], device: str) -> tuple[str, ...]:
    """The candidates asked for, or all there are. Raises UnknownNameError."""
    ours = [k.name for k in all_kernels() if k.op == MoeProblem.op]
    everyone = [*ours, *PEERS.names(), *(["reference"] if device == "cpu" else [])]
    askable = list(dict.fromkeys([*everyone, "reference"]))
    for name in names:
        if name not in askable and ":" not in name:
            raise UnknownNameError("kernel or peer", name, askable)
    return tuple(dict.fromkeys(names)) or tuple(everyone)


class _Listener:
    """What the process said so far, and what is left to do if it has to be started again."""

    def __init__(self, job: Job, progress: Callable[[str], None]) -> None:
        self.job = job
        self.progress = progress
        self.machine: Machine | None = None
        self.done: Done | None = None
        self.absent: dict[str, str] = {}
        self.ran: dict[str, str] = {}
        self.lost_at: dict[int, list[Result]] = {}
        self.shapes: dict[int, Shape] = {}
        self.checked: list[Checked] = []
        self.now = Began("", 0, "starting")

    def hear(self, line: bytes) -> None:
        said = msgspec.json.decode(line, type=Said)
        match said:
            case Began():
                self.now = said
                tokens = f" at {counted(said.tokens, 'token')}" if said.tokens else ""
                self.progress(f"{said.candidate or 'all'}{tokens}: {said.what}")
            case Machine():
                self.machine = self.machine or said
            case Refused():
                self.absent[said.candidate] = said.reason
            case Prepared():
                self.ran[said.candidate] = said.words
            case Measured():
                self.shapes[said.shape.tokens] = said.shape
            case Compared():
                self.checked.append(said.checked)
            case Failed():
                raise BenchError(said.asked, said.found, said.hint)
            case Done():
                self.done = said

    def lost(self, ended: Ended) -> None:
        """The process is gone before its work was done: its candidate is out, and the rest is left to do.

        Raises:
            BenchError: it ended while no candidate was at work.
        """
        name, tokens = self.now.candidate, self.now.tokens
        doing = f"{self.now.what} at {counted(tokens, 'token')}" if tokens else self.now.what
        if not name:
            raise BenchError(
                f"measuring kernels ({doing})", ended.reason, "fewer candidates (--peers), or a longer --time-limit"
            )
        words = f"{doing}: {ended.reason}"
        self.progress(f"{name}: {words}")
        if tokens:
            where = self.lost_at.setdefault(tokens, [])
            where.append(Result(name=name, kind="peer" if name in PEERS else "kernel", bytes=0.0, reason=words))
        self.absent[name] = f"{words}; taken out of what followed"
        swept = {(c.name, c.tokens) for c in self.checked}
        self.job = msgspec.structs.replace(
            self.job,
            candidates=tuple(c for c in self.job.candidates if c not in self.absent),
            tokens=tuple(t for t in self.job.tokens if t not in self.shapes),
            sweep=tuple(
                t for t in self.job.sweep if not all((c, t) in swept for c in self.job.candidates if c != name)
            ),
        )
        self.checked = [c for c in self.checked if c.tokens not in self.job.sweep]
        self.now = Began("", 0, "starting again")

    def record(self, model: Model, layout: Layout, load: str) -> KernelBench:
        lost = any(self.lost_at.values())
        if self.machine is None or not (lost or any(s.results for s in self.shapes.values())):
            reasons = "; ".join(f"{name}: {why}" for name, why in self.absent.items())
            raise BenchError(
                f"measuring kernels of {model.name}", f"none can run: {reasons}", "another model or --peers"
            )
        shapes = [
            msgspec.structs.replace(s, results=(*s.results, *self.lost_at.get(t, ())))
            for t, s in sorted(self.shapes.items())
        ]
        return KernelBench(
            environment=over_time(self.machine, self.done),
            seed=self.job.seed,
            model=model.name,
            layout=str(layout),
            problem=str(self.job.problem).partition(", ")[2] + (f"; {load}" if load else ""),
            weight_format=self.job.problem.weight_format,
            ceilings=self.machine.ceilings,
            shapes=tuple(shapes),
            absent=self.absent,
            ran=self.ran,
            swept=tuple(self.checked),
        )
