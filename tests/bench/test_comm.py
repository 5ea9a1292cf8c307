"""Collectives between two processes on this machine, through gloo: the same protocol as between GPUs."""

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


def test_processes_that_do_not_end(tmp_path: Path) -> None:
    model = read_model(str(write_tiny(tmp_path)))
    with pytest.raises(BenchError, match=r"did not end within 0\.05 s"):
        bench_comm(model, Workload(layout=Layout(tp=2)), processes=2, device="cpu", limit_s=0.05)
