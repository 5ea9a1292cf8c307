"""What rows attain by a benchmark of this card, and what is refused: another card, model, layout, step, a rehearsal."""

from typing import Any

import msgspec
import pytest

from sublight.bench.join import joined
from sublight.bench.record.comm import CommBench, Message, Way
from sublight.bench.record.kernels import Ceilings, KernelBench, Result, Shape
from sublight.bench.record.measurement import BenchRecord
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.errors import UsageError
from sublight.facts.gpu import parse_gpus, with_bandwidth
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Workload
from sublight.limits.decode import DecodeLimit, decode_limit
from tests.bench.test_records import WHERE, measurement

CEILINGS = Ceilings(copy_bytes_per_s=4.2e12, read_s=((1e6, 2e-6), (3e6, 3e-6)), read_by="a kernel")
COMMON: dict[str, Any] = {"environment": WHERE, "seed": 0, "model": "glm-5-nvfp4", "layout": "TP8"}


@pytest.fixture(scope="module")
def limit() -> DecodeLimit:
    _, gpu = parse_gpus("8xh200")
    workload = Workload(layout=Layout(tp=8))
    return decode_limit(read_model("glm-5-nvfp4"), gpu, workload, interconnect_for(gpu, None))


def part(us: float, count: int, **changes: Any) -> Part:
    return Part(what="x", library="cuBLAS", count=count, bytes=32e6, measurement=measurement(us * 1e-6, **changes))


def ops(*rows: OpRow, **changes: Any) -> OpsBench:
    fields: dict[str, Any] = COMMON | {"tokens": 1, "context": 1024, "kv_dtype": "bf16", "ceilings": CEILINGS}
    return OpsBench(**(fields | {"rows": rows} | changes))


QKV = OpRow(id="attn.qkv_a", parts=(part(10.0, 78),))


def test_rows_of_a_step(limit: DecodeLimit) -> None:
    none = OpRow(id="attn.core", parts=(Part(what="x", library="", count=78, bytes=0.0, reason="no kernel"),))
    hot = OpRow(id="attn.o", parts=(part(9.0, 78, warning="faster than memory allows, cache-hot"),))
    # 8.4 MB take 1.75 us from memory of 4.8 TB/s.
    below = OpRow(id="attn.q_b", parts=(part(1.2, 78),))
    found = joined(ops(QKV, none, hot, below), limit, "ops.json")
    assert found.rows == {"attn.qkv_a": pytest.approx(780e-6)}
    assert found.missing == {
        "attn.core": "no kernel",
        "attn.o": "faster than memory allows, cache-hot",
        "attn.q_b": "below its floor: read from a cache",
    }
    assert found.source.startswith("ops.json: measured on NVIDIA H200")
    assert found.under == {}


def test_a_time_that_only_a_slower_floor_rules_out_stays(limit: DecodeLimit) -> None:
    """8.4 MB in 2.5 us: more than 4.8 TB/s give, and the floor was taken at 2 TB/s."""
    _, gpu = parse_gpus("8xh200")
    slow = with_bandwidth(gpu, 2e12, source="--bandwidth")
    floor = decode_limit(read_model("glm-5-nvfp4"), slow, limit.workload, interconnect_for(gpu, None))
    found = joined(ops(OpRow(id="attn.q_b", parts=(part(2.5, 78),))), floor, "ops.json")
    assert found.rows["attn.q_b"] < floor.row("attn.q_b").time_s
    assert list(found.under) == ["attn.q_b"]
    assert "which stands on 2,000 GB/s (--bandwidth) where the data sheet says 4,800 GB/s" in found.under["attn.q_b"]


def test_the_fastest_candidate_at_the_step_s_tokens(limit: DecodeLimit) -> None:
    def shape(tokens: int, **us: float) -> Shape:
        results = tuple(
            Result(name=name, kind="peer", bytes=21e6, measurement=measurement(time * 1e-6))
            for name, time in us.items()
        )
        return Shape(
            tokens=tokens, experts_hit=8, bytes=21e6, copy_s=5e-6, floor_s=6e-6, routing="uniform", results=results
        )

    fields = COMMON | {"problem": "p", "weight_format": "nvfp4", "ceilings": CEILINGS, "absent": {}}
    bench = KernelBench(**fields, shapes=(shape(1, decode=14.0, humming=24.0), shape(2, decode=20.0)))
    found = joined(bench, limit, "k.json")
    assert found.rows == {"moe.experts": pytest.approx(75 * 14e-6)}
    assert "routed experts by decode" in found.source
    with pytest.raises(UsageError, match="not timed at 1 token"):
        joined(msgspec.structs.replace(bench, shapes=bench.shapes[1:]), limit, "k.json")


def test_collectives_by_the_fastest_way(limit: DecodeLimit) -> None:
    ways = (
        Way(name="NCCL", measurement=measurement(10e-6)),
        Way(name="symmetric memory, one-shot", measurement=measurement(7e-6)),
        Way(name="symmetric memory, two-shot", reason="not offered"),
    )
    calls = {c.id: c.calls for c in limit.collectives}
    message = Message(
        operation="all-reduce",
        payload_bytes=12288,
        rows={"comm.attention": calls["comm.attention"], "comm.mlp": calls["comm.mlp"]},
        ways=ways,
    )
    bench = CommBench(**COMMON, processes=8, tokens=1, topology="", messages=(message,))
    found = joined(bench, limit, "c.json")
    assert found.rows == {"comm.attention": pytest.approx(78 * 7e-6), "comm.mlp": pytest.approx(78 * 7e-6)}
    assert "all-reduce by symmetric memory, one-shot" in found.source
    # Faster than anything published is no impossibility, and is said.
    best_us = {c.id: c.best_s.known * 1e6 for c in limit.collectives}
    quick = msgspec.structs.replace(message, ways=(Way(name="NCCL", measurement=measurement(1e-6)),))
    assert best_us["comm.mlp"] > 1.0
    under = joined(msgspec.structs.replace(bench, messages=(quick,)), limit, "c.json")
    assert under.rows == {"comm.attention": pytest.approx(78e-6), "comm.mlp": pytest.approx(78e-6)}
    assert under.under["comm.mlp"].startswith("under the floor, which is the best published time and no law (")
    with pytest.raises(UsageError, match="2 processes took part, the step has 8 ranks"):
        joined(msgspec.structs.replace(bench, processes=2), limit, "c.json")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"environment": msgspec.structs.replace(WHERE, device="cpu")}, "it is a rehearsal on a CPU"),
        ({"environment": msgspec.structs.replace(WHERE, card="b200", title="NVIDIA B200")}, "measured on NVIDIA B200"),
        ({"model": "glm-5"}, "it is of glm-5, the step one of glm-5-nvfp4"),
        ({"layout": "TP4"}, "it is of TP4, the step of TP8"),
        ({"tokens": 2}, "it is of 2 tokens a step"),
        ({"context": 4096}, "it is of context 4,096 in bf16, this of 1,024"),
        ({"rows": ()}, "none of its rows can be used"),
    ],
)
def test_times_of_another_step(limit: DecodeLimit, changes: dict[str, Any], found: str) -> None:
    record: BenchRecord = ops(QKV, **changes)
    with pytest.raises(UsageError) as error:
        joined(record, limit, "ops.json")
    assert found in error.value.found
