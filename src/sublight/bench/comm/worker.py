"""One rank of a run under torchrun: python -m torch.distributed.run ... -m sublight.bench.comm.worker JOB LINES

All ranks make the same calls in the same order: numbers of repeats are the first rank's, and a round's time is the
slowest rank's.
"""

import os
import sys
from collections.abc import Callable

import msgspec
import torch
import torch.distributed as dist

from sublight.bench.answering import answer_watcher
from sublight.bench.clocks import Timed, ready
from sublight.bench.comm.job import Began, CommJob, Done, Machine, Said, Send, Tried
from sublight.bench.comm.ways import WAYS, Unavailable, Ways
from sublight.bench.environment import require_cuda, seen
from sublight.bench.protocol import StoppingRule, interleave
from sublight.bench.record.comm import Way
from sublight.bench.record.measurement import Agreed, Environment, Measurement, clock_for
from sublight.errors import BenchError
from sublight.units import counted


def main(job_file: str, lines_file: str) -> None:
    answer_watcher(CommJob, _work, job_file, lines_file, aloud=int(os.environ["RANK"]) == 0)
    if dist.is_initialized():
        dist.destroy_process_group()


def _work(job: CommJob, say: Callable[[Said], None]) -> None:
    local, count = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    if job.device == "cuda":
        require_cuda("timing collectives")
        if torch.cuda.device_count() < count:
            found = f"this machine has {counted(torch.cuda.device_count(), 'GPU')}"
            raise BenchError(f"{count} processes with a GPU each", found, "--processes with as many as there are GPUs")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    if job.device == "cuda":
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    environment = seen(job.device)
    if job.device == "cuda":
        version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        environment = msgspec.structs.replace(environment, nccl=".".join(map(str, version)))
    say(Machine(environment, _topology(job.device, count)))
    for number, send in enumerate(job.sends):
        for way, maker in WAYS.get(send.operation, {}).items():
            if (number, way) in job.skip:
                continue
            name = _named(way, device)
            say(Began(number, way, name))
            try:
                made = maker(send.payload_bytes, device, job.seed)
            except Unavailable as reason:
                say(Tried(number, way, Way(name=name, reason=str(reason))))
                continue
            say(Tried(number, way, _way(job, send, name, made, device, environment)))
    say(Done())


def _named(name: str, device: torch.device) -> str:
    return name if name != "library" else "NCCL" if device.type == "cuda" else "gloo"


def _way(job: CommJob, send: Send, name: str, made: Ways, device: torch.device, environment: Environment) -> Way:
    clock = clock_for(device.type)
    where = f"{send.operation} of {send.payload_bytes:,} B between {dist.get_world_size()} ranks"
    worst = 0.0
    made.fill()
    for call in made.calls:
        call()
    worst = max(worst, made.error())
    timed = ready(clock, made.calls)
    made.fill()
    timed.once()
    # What a rank finds decides for all: one that went on alone would wait for the others for ever.
    worst = _slowest(max(worst, made.error()), device)
    if not worst <= made.tolerance:
        return Way(name=name, reason=f"its result is wrong: relative error {worst:.3g}, allowed {made.tolerance:.3g}")
    made.zero()
    timed.repeats = round(_slowest(float(timed.repeats), device))
    rule = StoppingRule(least=job.rounds, most=job.rounds)
    timing = interleave({name: _together(timed, device)}, {name: timed.calls * timed.repeats}, rule)[name]
    measurement = Measurement(
        agreed=Agreed(
            relative_error=worst,
            tolerance=made.tolerance,
            against="the same sum or order of values in fp32",
            modes=("eager", "graph") if device.type == "cuda" else ("eager",),
            runs=2 * len(made.calls),
            where=where,
        ),
        clock=clock,
        environment=environment.key,
        timing=timing,
        sets=len(made.calls),
        cold=None,
    )
    return Way(name=name, measurement=measurement)


def _together(timed: Timed, device: torch.device) -> Callable[[], float]:
    """A round that all ranks begin together; its time is that of the slowest."""

    def run() -> float:
        dist.barrier()
        return _slowest(timed.round(), device)

    return run


def _slowest(value: float, device: torch.device) -> float:
    """The largest of all ranks'; a value that is not a number counts as larger than any."""
    held = torch.tensor([value if value == value else 1e30], dtype=torch.float64, device=device)  # noqa: PLR0124
    dist.all_reduce(held, op=dist.ReduceOp.MAX)
    return float(held.item())


def _topology(device: str, count: int) -> str:
    if device != "cuda":
        return "one machine's memory, through gloo"
    reach = all(torch.cuda.can_device_access_peer(a, b) for a in range(count) for b in range(count) if a != b)
    return f"{count} GPUs of one host, which {'reach' if reach else 'do not all reach'} each other's memory"


if __name__ == "__main__":
    main(*sys.argv[1:])
