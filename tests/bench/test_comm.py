"""Collectives between two processes on this machine, through gloo: the same protocol as between GPUs."""

import os
from pathlib import Path

import pytest

from sublight.bench.comm.run import bench_comm, step_sends
from sublight.errors import BenchError, UsageError
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Workload
from tests.bench.models import write_tiny


def test_messages_of_a_step() -> None:
    """78 layers, two all-reduces each and one after the embedding; 154,880 logits in eight shards of FP32."""
    sends = step_sends(read_model("glm-5-nvfp4"), Workload(batch=2, layout=Layout(tp=8)))
    found = {(s.operation, s.payload_bytes): s.rows for s in sends}
    assert found[("all-reduce", 2 * 6144 * 2)] == {"comm.embedding": 1, "comm.attention": 78, "comm.mlp": 78}
    assert found[("all-gather", 2 * 19360 * 4)] == {"comm.logits": 1}


def test_two_processes(tmp_path: Path) -> None:
    model = read_model(str(write_tiny(tmp_path)))
    found = bench_comm(model, Workload(batch=2, layout=Layout(tp=2)), processes=2, device="cpu")
    assert found.is_rehearsal
    assert (found.processes, found.tokens, found.layout) == (2, 2, "TP2")
    reduce, gather = found.messages
    assert (reduce.operation, reduce.payload_bytes) == ("all-reduce", 2 * 256 * 2)
    assert reduce.rows == {"comm.embedding": 1, "comm.attention": 2, "comm.mlp": 2}
    assert reduce.best is not None and reduce.best.name == "gloo"
    taken = reduce.best.measurement
    assert taken is not None
    assert (taken.clock, taken.sets, taken.timing.rounds) == ("wall clock", 20, 7)
    assert 0 < taken.agreed.relative_error < taken.agreed.tolerance == pytest.approx(3e-3 * 2**0.5)
    assert taken.agreed.where == "all-reduce of 1,024 B between 2 ranks"
    assert [w.reason for w in reduce.ways[1:]] == ["symmetric memory is of GPUs"] * 2
    assert gather.best is not None and gather.best.measurement is not None
    assert gather.best.measurement.agreed.relative_error == 0


def test_nothing_to_send(tmp_path: Path) -> None:
    model = read_model(str(write_tiny(tmp_path)))
    with pytest.raises(UsageError, match="one GPU sends nothing"):
        bench_comm(model, Workload(), processes=2, device="cpu")
    with pytest.raises(UsageError, match="1 of them send nothing to each other"):
        bench_comm(model, Workload(layout=Layout(tp=2)), processes=1, device="cpu")


def test_processes_that_say_nothing(tmp_path: Path) -> None:
    model = read_model(str(write_tiny(tmp_path)))
    with pytest.raises(BenchError, match=r"no answer within 0\.05 s") as caught:
        bench_comm(model, Workload(layout=Layout(tp=2)), processes=2, device="cpu", limit_s=0.05)
    assert caught.value.asked == "collectives between 2 processes"


# A worker in which the all-reduce has two more ways: one never returns on one rank, one takes its process down.
_WORKER = """
import os, sys, time
from sublight.bench.comm import ways, worker

def hangs(payload, device, seed):
    open(f"{PLACE}/{os.getpid()}", "w").close()
    if int(os.environ["RANK"]) == 1:
        time.sleep(3600)
    return ways._all_reduce(payload, device, seed)

def dies(payload, device, seed):
    if int(os.environ["RANK"]) == 0:
        raise RuntimeError("an unhandled system error")
    time.sleep(3600)

ways.WAYS["all-reduce"] = {"hangs": hangs, "dies": dies, **ways.WAYS["all-reduce"]}
if __name__ == "__main__":
    worker.main(*sys.argv[1:])
"""


def test_a_way_that_hangs_and_one_that_dies_are_named_and_the_others_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "pids"
    place.mkdir()
    (tmp_path / "bad_worker.py").write_text(_WORKER.replace("{PLACE}", str(place)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("sublight.bench.comm.run._MODULE", "bad_worker")
    told: list[str] = []
    model = read_model(str(write_tiny(tmp_path)))
    found = bench_comm(
        model, Workload(layout=Layout(tp=2)), processes=2, device="cpu", limit_s=25.0, progress=told.append
    )
    reduce, gather = found.messages
    reasons = {way.name: way.reason for way in reduce.ways}
    assert reasons["hangs"] == "no answer within 25 s"
    assert "RuntimeError: an unhandled system error" in reasons["dies"]
    assert reduce.best is not None and reduce.best.name == "gloo"
    assert gather.best is not None and gather.best.name == "gloo"
    assert told[:3] == [f"all-reduce of 512 B by {name}" for name in ("hangs", "dies", "gloo")]
    # Both ranks of the run that hung are gone, the one that waited as well.
    pids = [int(p.name) for p in place.iterdir()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
