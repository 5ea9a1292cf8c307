"""The rows of a step as launches: shapes of one rank, counted as the limit counts them, and run on a CPU."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sublight.bench.ceilings import measure_ceilings
from sublight.bench.environment import seen
from sublight.bench.ops import products
from sublight.bench.ops.plan import Launch, step_launches
from sublight.bench.ops.products import Missing, Product, make
from sublight.bench.ops.run import bench_ops
from sublight.bench.ops.work import _Bench
from sublight.bench.protocol import StoppingRule
from sublight.errors import BenchError
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Workload
from sublight.limits.ops import step_ops
from tests.bench.models import write_tiny

CPU = torch.device("cpu")
TP8 = Workload(layout=Layout(tp=8))


def launches(name: str, workload: Workload) -> dict[str, list[tuple[Launch, int]]]:
    return {plan.id: list(plan.launches) for plan in step_launches(read_model(name), workload)}


def test_glm_5_on_one_of_eight_ranks() -> None:
    """By hand from the configuration: 64 heads, q_lora 2048, latent 512 + 64, hidden 6144, vocabulary 154,880."""
    found = launches("glm-5-nvfp4", TP8)
    (qkv_a, count), *rest = found["attn.qkv_a"]
    assert (qkv_a.rows, qkv_a.columns, count, rest) == (2048 + 576, 6144, 78, [])
    absorb, _ = found["attn.absorb_k"][0]
    assert (absorb.batch, absorb.rows, absorb.columns, absorb.turned) == (8, 192, 512, True)
    values, _ = found["attn.absorb_v"][0]
    assert (values.batch, values.rows, values.columns, values.turned) == (8, 256, 512, False)
    shared, count = found["moe.shared"][0]
    assert (shared.product, shared.columns, shared.batch, shared.weight_format, count) == (
        "mlp",
        6144,
        256,
        "nvfp4",
        75,
    )
    head, count = found["head"][0]
    assert (head.rows, head.columns, count) == (19360, 6144, 1)
    assert head.bytes == 19360 * 6144 * 2 + 2 * (19360 + 6144)
    assert {(norm.columns, count) for norm, count in found["norms"]} == {(6144, 157), (2048, 78), (512, 78), (128, 78)}
    assert found["moe.experts"][0][0].reason == "`sublight bench kernels` times it"
    assert "latent" in found["attn.core"][0][0].reason


@pytest.mark.parametrize("name", ["glm-5-nvfp4", "glm-5-fp8", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"])
def test_every_row_of_the_limit_is_there(name: str) -> None:
    workload = Workload(batch=3, layout=Layout(tp=2))
    model = read_model(name)
    plans = {plan.id: plan for plan in step_launches(model, workload)}
    ops = {op.id: op for op in step_ops(model, workload)}
    assert set(plans) == set(ops)
    for id_, plan in plans.items():
        counts = [count for launch, count in plan.launches if launch.product != "none"]
        if counts and len(plan.launches) == 1:
            assert counts[0] == ops[id_].cost.calls, id_
    for launch, count in (part for plan in plans.values() for part in plan.launches):
        assert count > 0
        assert (0 < launch.cold_bytes <= launch.bytes) == (launch.product != "none"), launch
    assert sum(count for _, count in plans["norms"].launches) == ops["norms"].cost.calls


def test_weights_of_a_row_are_those_of_the_limit() -> None:
    """What launches read of weights adds up to the row's bytes."""
    for name in ("glm-5-nvfp4", "qwen3-30b-a3b", "deepseek-v3"):
        model = read_model(name)
        ops = {op.id: op for op in step_ops(model, TP8)}
        for id_, found in launches(name, TP8).items():
            if id_ in ("norms", "embedding", "sampling") or any(
                part.product in ("none", "attention") for part, _ in found
            ):
                continue
            read = sum(count * launch.cold_bytes for launch, count in found)
            assert read == sum(count * (launch.bytes - _activations(launch)) for launch, count in found)
            bytes_ = ops[id_].cost.bytes
            vectors = (
                0.0
                if id_ != "moe.router"
                else sum(t.storage.total_bytes for t in model.main if t.row == id_ and not t.is_matrix)
            )
            assert read == pytest.approx(bytes_.weights_and_scales - vectors, rel=1e-9), (name, id_)


def _activations(launch: Launch) -> float:
    if launch.product == "mlp":
        return 2.0 * launch.tokens * 2 * launch.columns
    return 2.0 * launch.tokens * launch.batch * (launch.rows + launch.columns)


def test_data_parallel_attention_takes_its_own_sequences() -> None:
    found = launches("glm-5-nvfp4", Workload(batch=16, layout=Layout(tp=8, dp=8)))
    assert found["attn.o"][0][0].tokens == 2
    assert found["head"][0][0].tokens == 16


KINDS = [
    Launch(product="linear", what="bf16", rows=96, columns=128, tokens=3),
    Launch(product="linear", what="fp32", rows=32, columns=128, tokens=3, weight_format="fp32"),
    Launch(product="linear", what="fp8", rows=96, columns=128, tokens=3, weight_format="fp8"),
    Launch(product="mlp", what="mlp", rows=128, columns=128, batch=64, tokens=2),
    Launch(product="batched", what="k", rows=24, columns=64, batch=4, tokens=2, turned=True),
    Launch(product="batched", what="v", rows=24, columns=64, batch=4, tokens=2),
    Launch(product="norm", what="norm", columns=256, tokens=2),
    Launch(product="embedding", what="embedding", rows=50, columns=64, tokens=3),
    Launch(product="argmax", what="argmax", columns=500, tokens=3),
    Launch(product="attention", what="gqa", rows=40, columns=32, batch=2, tokens=1, heads=(8, 2)),
]


@pytest.mark.parametrize("launch", KINDS, ids=lambda launch: launch.what)
def test_products_give_what_they_should(launch: Launch) -> None:
    product = _made(launch)
    for i in (0, 1, 2):
        product.run(i)
        out, expected = product.out(i).float(), product.expected(i)
        assert out.shape == expected.shape
        assert float((out - expected).norm()) <= product.tolerance * float(expected.norm())
    assert not torch.equal(product.expected(0), product.expected(1))


def _made(launch: Launch) -> Product:
    try:
        return make(launch, 3, CPU, seed=1)
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        (Launch(product="none", what="x", reason="because"), "because"),
        (Launch(product="linear", what="x", rows=8, columns=16, weight_format="int4-g32"), "no product of int4-g32"),
        (Launch(product="mlp", what="x", columns=64, batch=64, weight_format="nvfp4"), "NVFP4 weights on a CPU"),
        (Launch(product="linear", what="x", rows=8, columns=16, weight_format="fp8"), "multiples of 16, not 8 x 16"),
    ],
)
def test_what_nothing_runs_says_why(launch: Launch, reason: str) -> None:
    with pytest.raises(Missing, match=reason):
        make(launch, 2, CPU, seed=0)


def test_a_rehearsal_of_a_step(tmp_path: Path) -> None:
    model = read_model(str(write_tiny(tmp_path)))
    found = bench_ops(model, Workload(batch=2), device="cpu", budget_s=0.01)
    assert found.is_rehearsal
    rows = {row.id: row for row in found.rows}
    assert rows["moe.experts"].step_s is None
    timed = {id_ for id_, row in rows.items() if row.step_s is not None}
    assert timed == {"embedding", "norms", "attn.qkv", "attn.o", "attn.core", "moe.router", "head", "sampling"}
    qkv = rows["attn.qkv"].parts[0]
    assert qkv.measurement is not None
    assert rows["attn.qkv"].step_s == pytest.approx(2 * qkv.measurement.seconds)
    assert qkv.measurement.agreed.where == "[2, 256] x [512, 256] BF16"
    assert (found.tokens, found.context, found.kv_dtype) == (2, 1024, "bf16")


# A worker in which one product never returns and another takes its process down.
_WORKER = """
import os, signal, sys, time
from sublight.bench.ops import products, worker

def hangs(made):
    time.sleep(3600)

def dies(made):
    os.kill(os.getpid(), signal.SIGKILL)

products._MAKERS |= {"attention": (hangs,), "argmax": (dies,)}
if __name__ == "__main__":
    worker.main(*sys.argv[1:])
"""


def test_a_launch_that_hangs_and_one_that_dies_are_named_and_the_others_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_ops_worker.py").write_text(_WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("sublight.bench.ops.run._MODULE", "bad_ops_worker")
    told: list[str] = []
    model = read_model(str(write_tiny(tmp_path)))
    found = bench_ops(model, Workload(), device="cpu", budget_s=0.01, limit_s=25.0, progress=told.append)
    rows = {row.id: row for row in found.rows}
    assert rows["attn.core"].reason == "no answer within 25 s"
    assert rows["sampling"].reason == "its process was ended by signal 9"
    assert {id_ for id_, row in rows.items() if row.step_s is not None} == {
        "embedding",
        "norms",
        "attn.qkv",
        "attn.o",
        "moe.router",
        "head",
    }
    assert told.count("ceilings of memory") == 2  # started again once: the last launch is the one that dies
    assert told[1].startswith("embedding: 1 row of")


def test_a_process_that_says_nothing(tmp_path: Path) -> None:
    model = read_model(str(write_tiny(tmp_path)))
    with pytest.raises(BenchError, match=r"no answer within 0\.05 s"):
        bench_ops(model, Workload(), device="cpu", limit_s=0.05)


def test_the_fastest_library_that_agrees_is_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that agree the faster one; one that is wrong is as if it were not there."""
    launch = Launch(product="norm", what="a norm", columns=64, bytes=1e3, cold_bytes=1e3)
    honest = make(launch, 4, CPU, 0)

    def slow(made: object) -> Product:
        def run(i: int) -> None:
            time.sleep(2e-3)
            honest.run(i)

        return replace(honest, library="slow", run=run)

    def wrong(made: object) -> Product:
        return replace(honest, library="wrong", run=lambda i: honest.out(i).zero_())

    job = StoppingRule(budget_s=0.01)
    bench = _Bench(CPU, seen("cpu"), measure_ceilings(CPU, None), 0, "wall clock", job)
    for libraries, library in (((slow, products._norm), honest.library), ((wrong, slow), "slow")):
        monkeypatch.setitem(products._MAKERS, "norm", libraries)
        timed = bench.timed(3, launch)
        assert (timed.launch, timed.library, timed.reason) == (3, library, "")
        assert timed.measurement is not None
    monkeypatch.setitem(products._MAKERS, "norm", (wrong,))
    assert "output all zero" in bench.timed(3, launch).reason
