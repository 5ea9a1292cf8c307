"""Rows of a step, measured in a process that is watched. This side holds no torch and no GPU."""

from collections.abc import Callable

import msgspec

from sublight.bench.answering import Done, Failed, Machine, over_time
from sublight.bench.ops.job import Began, OpsJob, Said, Timed
from sublight.bench.ops.plan import Launch, RowPlan, step_launches
from sublight.bench.record.measurement import clock_for
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.bench.watch import Ended, watch
from sublight.errors import BenchError
from sublight.facts.model import Model
from sublight.facts.workload import Workload, check_fit

_MODULE = "sublight.bench.ops.worker"


def bench_ops(
    model: Model,
    workload: Workload,
    *,
    device: str = "cuda",
    seed: int = 0,
    eager: bool = False,
    limit_s: float = 120.0,
    budget_s: float = 0.4,
    progress: Callable[[str], None] | None = None,
) -> OpsBench:
    """Time the rows of one decode step on one GPU, at the shapes of one rank.

    Args:
        eager: time calls one by one between CUDA events, instead of replays of a graph.
        limit_s: how long a launch may take between two signs of life. One that hangs, or takes its process down, is
            ended and named, and the others go on.
        budget_s: for the rounds of one launch.
        progress: told which row is at work.

    Raises:
        BenchError: no such device here, or a process that ended before it timed anything.
        UsageError: a layout that the model cannot be cut into.
    """
    check_fit(model, workload)
    plans = step_launches(model, workload)
    launches = dict(enumerate(launch for plan in plans for launch, _ in plan.launches))
    job = OpsJob(launches=launches, device=device, seed=seed, clock=clock_for(device, eager), budget_s=budget_s)
    listener = _Listener(job, plans, progress or (lambda _: None))
    while listener.done is None and listener.job.launches:
        ended = watch(_MODULE, msgspec.json.encode(listener.job), limit_s, listener.hear)
        if listener.done is None:
            listener.lost(ended)
    return listener.record(model, workload)


class _Listener:
    """What the process said so far, and what is left to do if it has to be started again."""

    def __init__(self, job: OpsJob, plans: list[RowPlan], progress: Callable[[str], None]) -> None:
        self.job = job
        self.plans = plans
        self.progress = progress
        self.names = [plan.id for plan in plans for _ in plan.launches]
        self.machine: Machine | None = None
        self.done: Done | None = None
        self.timed: dict[int, Timed] = {}
        self.now = -1

    def hear(self, line: bytes) -> None:
        said = msgspec.json.decode(line, type=Said)
        match said:
            case Machine():
                self.machine = self.machine or said
            case Began():
                self.now = said.launch
                self.progress("ceilings of memory" if said.launch < 0 else self._words(said.launch))
            case Timed():
                self._keep(said)
            case Failed():
                raise BenchError(said.asked, said.found, said.hint)
            case Done():
                self.done = said

    def lost(self, ended: Ended) -> None:
        """The process is gone before its work was done: the launch is out, and the rest is left to do.

        Raises:
            BenchError: it was at no launch.
        """
        if self.now < 0:
            raise BenchError("timing the rows of a step", ended.reason, "a longer --time-limit, or --device cpu")
        self._keep(Timed(launch=self.now, library="", measurement=None, reason=ended.reason))

    def record(self, model: Model, workload: Workload) -> OpsBench:
        assert self.machine is not None
        numbers = iter(range(len(self.names)))
        rows = [
            OpRow(id=plan.id, parts=tuple(self._part(next(numbers), launch, count) for launch, count in plan.launches))
            for plan in self.plans
        ]
        return OpsBench(
            environment=over_time(self.machine, self.done),
            seed=self.job.seed,
            model=model.name,
            layout=str(workload.layout),
            tokens=workload.tokens,
            context=workload.context,
            kv_dtype=workload.kv_dtype,
            ceilings=self.machine.ceilings,
            rows=tuple(rows),
        )

    def _part(self, number: int, launch: Launch, count: int) -> Part:
        timed = self.timed[number]
        return Part(
            what=launch.what,
            library=timed.library,
            count=count,
            bytes=launch.bytes,
            measurement=timed.measurement,
            reason=timed.reason,
        )

    def _keep(self, timed: Timed) -> None:
        self.timed[timed.launch] = timed
        left = {number: launch for number, launch in self.job.launches.items() if number != timed.launch}
        self.job = msgspec.structs.replace(self.job, launches=left)
        self.now = -1

    def _words(self, number: int) -> str:
        return f"{self.names[number]}: {self.job.launches[number].what}"
