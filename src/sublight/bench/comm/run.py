"""From a step's messages to their times: torchrun starts the processes, which are watched. No torch here."""

from collections.abc import Callable

import msgspec

from sublight.bench.answering import Failed
from sublight.bench.comm.job import Began, CommJob, Done, Machine, Said, Send, Tried
from sublight.bench.record.comm import CommBench, Message, Way
from sublight.bench.watch import Ended, watch
from sublight.errors import BenchError, UsageError
from sublight.facts.model import Model
from sublight.facts.workload import Workload, check_fit
from sublight.limits.collectives import step_collectives
from sublight.units import counted

_MODULE = "sublight.bench.comm.worker"
_LOGIT_BYTES = 4
_ROUNDS = 21
_REHEARSED_ROUNDS = 7
_MOST_PROCESSES = 64


def bench_comm(
    model: Model,
    workload: Workload,
    *,
    processes: int,
    device: str = "cuda",
    seed: int = 0,
    limit_s: float = 120.0,
    progress: Callable[[str], None] | None = None,
) -> CommBench:
    """Time the collectives of one decode step.

    Args:
        processes: ranks to start. Payloads are those of the workload's layout, whatever their number.
        limit_s: how long the processes may be silent. A way that hangs is ended and named; the others go on.
        progress: told what is tried.

    Raises:
        BenchError: too few GPUs, or processes that ended or hung before they tried anything.
        UsageError: a step that sends nothing, a number of processes that is none, or more of them than ranks.
    """
    check_fit(model, workload)
    if not 2 <= processes <= _MOST_PROCESSES:
        found = f"{processes} of them send nothing to each other" if processes < 2 else f"{processes}"
        raise UsageError("the processes of collectives", found, f"--processes from 2 to {_MOST_PROCESSES}, or --tp 8")
    sends = step_sends(model, workload)
    if not sends:
        raise UsageError(f"collectives of {model.name} as {workload.layout}", "one GPU sends nothing", "--tp 8")
    ranks = workload.layout.tp
    if processes > ranks:
        found = f"{counted(processes, 'process', 'processes')}, and {workload.layout} has {counted(ranks, 'rank')}"
        raise UsageError("the processes of collectives", found, f"--processes from 2 to {ranks}")
    rounds = _ROUNDS if device == "cuda" else _REHEARSED_ROUNDS
    job = CommJob(sends=tuple(sends), device=device, seed=seed, rounds=rounds)
    listener = _Listener(job, processes, progress or (lambda _: None))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nnodes=1", f"--nproc-per-node={processes}"]
    while not listener.done:
        ended = watch(_MODULE, msgspec.json.encode(listener.job), limit_s, listener.hear, launcher)
        if not listener.done:
            listener.lost(ended)
    machine = listener.machine
    assert machine is not None
    return CommBench(
        environment=machine.environment,
        seed=seed,
        model=model.name,
        layout=str(workload.layout),
        processes=processes,
        tokens=workload.tokens,
        topology=machine.topology,
        messages=listener.messages(),
    )


def step_sends(model: Model, workload: Workload) -> list[Send]:
    """The step's messages by operation and payload; logits as engines gather them, whole FP32 shards."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    # The time of a call is asked for and not used: without it a link would have to be named.
    for item in step_collectives(model, workload, None, call_s=1e-6):
        payload = item.payload_bytes
        if item.id == "comm.logits":
            payload = workload.tokens * -(-model.vocab // workload.layout.tp) * _LOGIT_BYTES
        rows = found.setdefault((item.operation, payload), {})
        rows[item.id] = rows.get(item.id, 0) + item.calls
    return [Send(operation=o, payload_bytes=p, rows=rows) for (o, p), rows in found.items()]


class _Listener:
    """What the processes said so far, and what is left to try if they have to be started again."""

    def __init__(self, job: CommJob, processes: int, progress: Callable[[str], None]) -> None:
        self.job = job
        self.asked = f"collectives between {processes} processes"
        self.progress = progress
        self.machine: Machine | None = None
        self.tried: dict[int, list[Way]] = {}
        self.now: Began | None = None
        self.done = False
        self.untried = "nothing here times it"

    def hear(self, line: bytes) -> None:
        said = msgspec.json.decode(line, type=Said)
        match said:
            case Machine():
                self.machine = self.machine or said
            case Began():
                self.now = said
                self.progress(f"{self._send(said)} by {said.name}")
            case Tried():
                self._keep(said.send, said.way, said.found)
            case Failed():
                raise BenchError(said.asked, said.found, said.hint)
            case Done():
                self.done = True

    def lost(self, ended: Ended) -> None:
        """The processes are gone before their work was done: what they were at is out, and the rest is left to try.

        Processes that cannot be started again after that leave the rest untried, and what was timed stays.

        Raises:
            BenchError: they were at nothing yet.
        """
        hint = "a longer --time-limit, NCCL_DEBUG=INFO to see what waits, or --device cpu"
        if self.now is None and not self.tried:
            raise BenchError(self.asked, ended.reason, hint)
        if self.now is None:
            self.untried, self.done = f"not tried, the processes could not be started again: {ended.reason}", True
            return
        self._keep(self.now.send, self.now.way, Way(name=self.now.name, reason=ended.reason))

    def messages(self) -> tuple[Message, ...]:
        """Raises BenchError where nothing has a time."""
        if not any(way.measurement is not None for ways in self.tried.values() for way in ways):
            reasons = dict.fromkeys(f"{way.name}: {way.reason}" for ways in self.tried.values() for way in ways)
            raise BenchError(self.asked, "; ".join(reasons) or "there is no way to try", "NCCL_DEBUG=INFO")
        none = [Way(name="none", reason=self.untried)]
        return tuple(
            Message(
                operation=send.operation,
                payload_bytes=send.payload_bytes,
                rows=send.rows,
                ways=tuple(self.tried.get(number, none)),
            )
            for number, send in enumerate(self.job.sends)
        )

    def _send(self, began: Began) -> str:
        send = self.job.sends[began.send]
        return f"{send.operation} of {send.payload_bytes:,} B"

    def _keep(self, send: int, way: str, found: Way) -> None:
        self.tried.setdefault(send, []).append(found)
        self.job = msgspec.structs.replace(self.job, skip=(*self.job.skip, (send, way)))
        self.now = None
