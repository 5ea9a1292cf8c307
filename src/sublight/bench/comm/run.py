"""From a step's messages to their times: torchrun starts the processes, the first of them answers. No torch here."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from sublight.bench.comm.job import Answer, CommJob, Send
from sublight.bench.record.comm import CommBench
from sublight.errors import BenchError, UsageError
from sublight.facts.model import Model
from sublight.facts.workload import Workload, check_fit
from sublight.limits.collectives import step_collectives

_LOGIT_BYTES = 4
_ROUNDS = 21
_REHEARSED_ROUNDS = 7
_MOST_PROCESSES = 64


def bench_comm(
    model: Model, workload: Workload, *, processes: int, device: str = "cuda", seed: int = 0, limit_s: float = 300.0
) -> CommBench:
    """Time the collectives of one decode step.

    Args:
        processes: ranks to start. Payloads are those of the workload's layout, whatever their number.
        limit_s: of the whole run.

    Raises:
        BenchError: too few GPUs, or processes that failed or did not end.
        UsageError: a step that sends nothing, or a number of processes that is none.
    """
    check_fit(model, workload)
    if not 2 <= processes <= _MOST_PROCESSES:
        found = f"{processes} of them send nothing to each other" if processes < 2 else f"{processes}"
        raise UsageError("the processes of collectives", found, f"--processes from 2 to {_MOST_PROCESSES}, or --tp 8")
    sends = step_sends(model, workload)
    if not sends:
        raise UsageError(f"collectives of {model.name} as {workload.layout}", "one GPU sends nothing", "--tp 8")
    rounds = _ROUNDS if device == "cuda" else _REHEARSED_ROUNDS
    job = CommJob(sends=tuple(sends), device=device, seed=seed, rounds=rounds)
    answer = _run(job, processes, limit_s)
    if answer.failed is not None:
        raise BenchError(answer.failed.asked, answer.failed.found, answer.failed.hint)
    assert answer.done is not None
    return CommBench(
        environment=answer.done.environment,
        seed=seed,
        model=model.name,
        layout=str(workload.layout),
        processes=processes,
        tokens=workload.tokens,
        topology=answer.done.topology,
        messages=answer.done.messages,
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


def _run(job: CommJob, processes: int, limit_s: float) -> Answer:
    with tempfile.TemporaryDirectory(prefix="sublight-bench-") as folder:
        job_file, answer_file, errors = (Path(folder) / name for name in ("job.json", "answer.json", "errors"))
        job_file.write_bytes(msgspec.json.encode(job))
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1"]
        argv += [f"--nproc-per-node={processes}", "-m", "sublight.bench.comm.worker", str(job_file), str(answer_file)]
        environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        with errors.open("wb") as stream:
            process = subprocess.Popen(  # noqa: S603
                argv,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environment,
                start_new_session=True,
            )
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                raise BenchError(
                    f"collectives between {processes} processes",
                    f"they did not end within {limit_s:g} s",
                    "a longer --time-limit, or NCCL_DEBUG=INFO to see what waits",
                ) from None
            finally:
                _end(process)
        if answer_file.exists():
            return msgspec.json.decode(answer_file.read_bytes(), type=Answer)
        raise BenchError(
            f"collectives between {processes} processes",
            _why(errors),
            "the same under NCCL_DEBUG=INFO, or --device cpu",
        )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """torchrun and what it started: they are a session of their own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _why(errors: Path) -> str:
    """The first line that names an error, or the last one."""
    lines = [line.strip() for line in errors.read_text("utf-8", "replace").splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line and "ChildFailedError" not in line]
    return (named or lines or ["they left without an answer"])[0 if named else -1][-400:]
