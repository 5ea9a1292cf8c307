"""Published floors of GLM-5-NVFP4, worked out independently, have to come out within one per cent."""

import pytest

from sublight.facts.gpu import get_gpu
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import Model, read_model
from sublight.facts.workload import Layout, Workload
from sublight.limits.decode import DecodeLimit, decode_limit

TP8, EP8, DP = Layout(tp=8), Layout(tp=8, ep=8), Layout(tp=8, dp=8, ep=8)
WORKSTATION, SERVER, B200, H200 = "rtx-pro-6000-workstation", "rtx-pro-6000-server", "b200", "h200"


@pytest.fixture(scope="module")
def glm5() -> Model:
    return read_model("glm-5-nvfp4")


def limit(model: Model, gpu: str, layout: Layout, context: int = 1024, **work: object) -> DecodeLimit:
    card = get_gpu(gpu)
    return decode_limit(model, card, Workload(context=context, layout=layout, **work), interconnect_for(card))  # type: ignore[arg-type]


# Card, layout, memory ms at 1k / 32k / 128k, collectives best / NCCL ms, floor at 1k best / NCCL ms.
TABLE = [
    (WORKSTATION, TP8, (5.19, 5.42, 5.99), (1.45, 4.25), (6.64, 9.44)),
    (WORKSTATION, EP8, (6.58, 6.81, 7.38), (1.45, 4.25), (8.03, 10.83)),
    (WORKSTATION, DP, (18.70, 18.93, 19.50), (1.44, 4.22), (20.14, 22.92)),
    (SERVER, TP8, (5.82, 6.08, 6.72), (1.45, 4.25), (7.27, 10.07)),
    (SERVER, EP8, (7.38, 7.64, 8.28), (1.45, 4.25), (8.83, 11.63)),
    (B200, TP8, (1.21, 1.26, 1.39), (0.82, 4.16), (2.03, 5.36)),
    (B200, EP8, (1.53, 1.59, 1.72), (0.82, 4.16), (2.35, 5.69)),
    (B200, DP, (4.35, 4.41, 4.54), (0.82, 4.13), (5.17, 8.48)),
    (H200, TP8, (1.94, 2.02, 2.23), (0.58, 2.76), (2.52, 4.70)),
    (H200, EP8, (2.46, 2.54, 2.75), (0.58, 2.76), (3.04, 5.22)),
    (H200, DP, (6.98, 7.07, 7.28), (0.58, 2.75), (7.56, 9.73)),
]


@pytest.mark.parametrize(("gpu", "layout", "memory", "messages", "floors"), TABLE)
def test_floor_table(
    glm5: Model,
    gpu: str,
    layout: Layout,
    memory: tuple[float, float, float],
    messages: tuple[float, float],
    floors: tuple[float, float],
) -> None:
    at = [limit(glm5, gpu, layout, context) for context in (1024, 32768, 131072)]
    # The table is rounded to 0.01 ms.
    for found, expected in zip(at, memory, strict=True):
        assert found.totals.memory_s * 1e3 == pytest.approx(expected, rel=0.01, abs=0.006)
    totals = at[0].totals
    assert totals.best_s.known * 1e3 == pytest.approx(floors[0], rel=0.01)
    assert totals.nccl_s.known * 1e3 == pytest.approx(floors[1], rel=0.01)
    assert sum(c.calls for c in at[0].collectives) == (157 if layout.dp > 1 else 158)
    if layout.dp == 1:
        assert (totals.best_s.known - totals.rows_s) * 1e3 == pytest.approx(messages[0], rel=0.01)
        assert (totals.nccl_s.known - totals.rows_s) * 1e3 == pytest.approx(messages[1], rel=0.01)


def test_headline_to_the_hundredth(glm5: Model) -> None:
    totals = limit(glm5, WORKSTATION, TP8).totals
    assert round(totals.memory_s * 1e3, 2) == 5.19
    assert round(totals.best_s.known * 1e3, 2) == 6.64
    assert round(totals.nccl_s.known * 1e3, 2) == 9.44
    assert round(totals.naive_s * 1e3, 2) == 3.07


# Row -> weight megabytes of one TP8 rank in one step.
INVENTORY = {
    "attn.qkv_a": 2515.0,
    "attn.q_b": 654.3,
    "indexer.q": 1308.6,
    "indexer.k": 153.4,
    "attn.absorb_k": 122.7,
    "attn.absorb_v": 163.6,
    "attn.o": 1962.9,
    "mlp.dense": 47.8,
    "moe.router": 235.9,
    "moe.experts": 1592.5,
    "moe.shared": 199.1,
    "head": 237.9,
}


def test_inventory_of_a_rank(glm5: Model) -> None:
    found = limit(glm5, WORKSTATION, TP8)
    for row, megabytes in INVENTORY.items():
        assert found.row(row).cost.bytes.weights_and_scales / 1e6 == pytest.approx(megabytes, abs=0.15), row
    assert found.weight_bytes / 1e6 == pytest.approx(9193.7, rel=5e-4)
    experts = found.row("moe.experts").cost.bytes
    assert experts.weights / 1e6 == pytest.approx(1415.6, abs=0.1)
    assert experts.scales / 1e6 == pytest.approx(176.9, abs=0.1)
    assert {r.id: r.cost.calls for r in found.rows}["moe.experts"] == 75


@pytest.mark.parametrize(
    ("context", "index", "kv", "gflop"),
    [(1024, 10.5, 92.0, 15.9), (32768, 337.4, 184.0, 37.6), (131072, 1349.5, 184.0, 100.4)],
)
def test_caches_and_arithmetic(glm5: Model, context: int, index: float, kv: float, gflop: float) -> None:
    found = limit(glm5, WORKSTATION, TP8, context)
    assert found.row("indexer.scores").cost.bytes.index / 1e6 == pytest.approx(index, rel=0.005)
    assert found.row("attn.core").cost.bytes.kv_read / 1e6 == pytest.approx(kv, rel=0.001)
    assert found.flops / 1e9 == pytest.approx(gflop, rel=0.01)


@pytest.mark.parametrize(("layout", "megabytes"), [(TP8, 9194), (EP8, 11684), (DP, 33402), (Layout(tp=4, pp=2), 14174)])
def test_weights_of_the_busiest_rank(glm5: Model, layout: Layout, megabytes: float) -> None:
    assert limit(glm5, WORKSTATION, layout).weight_bytes / 1e6 == pytest.approx(megabytes, rel=1e-3)


@pytest.mark.parametrize(
    ("batch", "expected"), [(1, 1.217), (2, 1.440), (4, 1.868), (8, 2.655), (16, 3.990), (32, 5.942), (64, 8.204)]
)
def test_batches_read_the_expected_union_of_experts(glm5: Model, batch: int, expected: float) -> None:
    """8x B200 at 7.7 TB/s, FP8 KV of 576 B and an index key of 132 B: bytes alone, in ms."""
    found = limit(glm5, B200, TP8, 8192, batch=batch, kv_dtype="fp8")
    assert found.totals.memory_s * 1e3 == pytest.approx(expected, abs=0.0015)


def test_what_the_three_numbers_mean(glm5: Model) -> None:
    found = limit(glm5, H200, TP8)
    assert glm5.active_bytes() / 1e9 == pytest.approx(44.06, abs=0.005)
    assert found.totals.naive_s == pytest.approx(glm5.active_bytes() / (8 * 4.8e12), rel=1e-12)
    assert found.totals.naive_s < found.totals.memory_s <= found.totals.rows_s < found.totals.best_s.known
    assert found.totals.strict_s <= found.totals.rows_s
    practical = found.totals.practical_s
    assert practical.known > found.totals.best_s.known
    assert limit(glm5, WORKSTATION, TP8).totals.practical_s.value is None
    assert "rtx-pro-6000-workstation" in limit(glm5, WORKSTATION, TP8).totals.practical_s.note


@pytest.mark.parametrize("layout", [TP8, EP8, DP, Layout(tp=4, pp=2), Layout(tp=4, dp=2, ep=4, pp=2), Layout(tp=1)])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_terms_close(glm5: Model, layout: Layout, batch: int) -> None:
    card = get_gpu(B200)
    found = decode_limit(glm5, card, Workload(batch=batch, layout=layout), interconnect_for(card), call_s=5e-6)
    assert sum(t.seconds for t in found.terms) == pytest.approx(found.totals.best_s.known, rel=1e-9)
    assert sum(r.time_s for r in found.rows) == pytest.approx(found.totals.rows_s, rel=1e-12)
    assert all(t.seconds >= -1e-12 for t in found.terms)


def test_a_given_all_reduce_replaces_every_collective(glm5: Model) -> None:
    found = decode_limit(glm5, get_gpu(WORKSTATION), Workload(layout=TP8), None, call_s=10e-6)
    assert (found.totals.best_s.known - found.totals.rows_s) == pytest.approx(158 * 10e-6)
    assert found.totals.best_s == found.totals.nccl_s


def test_speculation_compares_with_the_width_it_verifies(glm5: Model) -> None:
    from sublight.facts.workload import Speculation

    plain = limit(glm5, B200, TP8)
    wide = limit(glm5, B200, TP8, speculation=Speculation(draft_length=3, verify_width=4, tokens_per_step=2.99))
    # Four tokens a sequence hit the experts that a batch of four hits.
    assert wide.experts_hit == pytest.approx(limit(glm5, B200, TP8, batch=4).experts_hit)
    assert wide.totals.memory_s > plain.totals.memory_s
    # KV is read once for all of them.
    assert wide.row("attn.core").cost.bytes.kv_read == plain.row("attn.core").cost.bytes.kv_read
    drafted = [r for r in wide.rows if r.stage == "mtp"]
    assert {r.id for r in drafted} >= {"moe.experts", "attn.o", "head", "mtp.in"}
    # Three passes through one MTP layer, each ending in lm_head.
    assert wide.row("head", "mtp").cost.bytes.weights == pytest.approx(3 * plain.row("head").cost.bytes.weights)
    assert wide.tokens_per_step == 2.99
