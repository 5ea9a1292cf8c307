"""Rows, messages and totals of small models, added up by hand."""

from typing import Any

import msgspec
import pytest

from sublight.errors import UsageError
from sublight.facts.gpu import get_gpu
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import Model, build_model, read_model
from sublight.facts.tensors import Cache
from sublight.facts.workload import Layout, Routing, Speculation, Workload
from sublight.limits.collectives import step_collectives
from sublight.limits.decode import DecodeLimit, decode_limit
from sublight.limits.memory import memory_fit
from sublight.limits.ops import _cache_cost
from sublight.limits.sweep import Point, crossovers, sweep

GPU = get_gpu("h200")
BANDWIDTH = 4.8e12
DENSE = {
    "model_type": "llama", "hidden_size": 256, "vocab_size": 1000, "num_hidden_layers": 3, "intermediate_size": 512,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "torch_dtype": "bfloat16",
}  # fmt: skip
GLM4 = {
    "model_type": "glm4_moe", "hidden_size": 256, "vocab_size": 1024, "num_hidden_layers": 5, "intermediate_size": 512,
    "first_k_dense_replace": 1, "moe_intermediate_size": 64, "n_routed_experts": 16, "num_experts_per_tok": 4,
    "n_shared_experts": 1, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def build(config: dict[str, Any], **fields: Any) -> Model:
    return build_model(config | fields, None, name="made-up", source="test")


def limit(model: Model, **work: Any) -> DecodeLimit:
    return decode_limit(model, GPU, Workload(**work), call_s=1e-6)


def drafting(length: int, **work: Any) -> dict[str, Any]:
    return {"speculation": Speculation(draft_length=length, verify_width=length + 1), **work}


def test_logits_are_looked_through_where_they_were_made() -> None:
    """1,000 rows of lm_head over 8 ranks are 125 FP32 logits a token on each."""
    found = limit(build(DENSE), batch=3, layout=Layout(tp=4))
    assert found.row("sampling").cost.bytes.activations == 3 * 250 * 4
    assert limit(build(DENSE, vocab_size=1001), layout=Layout(tp=4)).row("sampling").cost.bytes.activations == 251 * 4


def test_activations_are_counted_once_in_and_once_out() -> None:
    rows = {r.id: r.cost.bytes.activations for r in limit(build(DENSE), batch=2, layout=Layout(tp=2)).rows}
    # BF16, two tokens, three layers: 256 values in, (8 + 2 x 4) heads of 32 over two ranks out.
    assert rows["attn.qkv"] == 2 * 3 * 2 * (256 + 256)
    assert rows["attn.o"] == 2 * 3 * 2 * (128 + 256)
    # What lies between gate and down never leaves the row.
    assert rows["mlp.dense"] == 2 * 3 * 2 * (256 + 256)
    assert rows["head"] == 2 * 2 * (256 + 500)


def test_activations_cost_time_where_one_launch_overflows_l2() -> None:
    """lm_head of a million rows at batch 64: 128 MB of logits a launch, more than the 50 MB of L2."""
    model = build(DENSE, vocab_size=1_000_000)
    row = limit(model, batch=64).row("head")
    weights, logits = 256 * 1_000_000 * 2, 64 * (1_000_000 + 256) * 2
    assert row.memory_s == pytest.approx((weights + logits) / BANDWIDTH, rel=1e-12)
    small = limit(model, batch=1).row("head")
    assert small.memory_s == pytest.approx(weights / BANDWIDTH, rel=1e-12)


def test_a_recurrent_state_is_read_and_written() -> None:
    model = read_model("qwen3.5-397b-a17b")
    recurrent, convolution = 45 * 64 * 128 * 128 * 4, 45 * 3 * (2 * 16 * 128 + 64 * 128) * 2
    state = sum(r.cost.bytes.state for r in limit(model, batch=3).rows)
    assert state == 2 * 3 * (recurrent + convolution)


def test_tokens_verified_together_move_the_window_along() -> None:
    """gpt-oss: 18 layers read 128 tokens, and three more where four tokens are verified; 18 read the whole context."""
    model, context = read_model("gpt-oss-120b"), 8192
    plain = decode_limit(model, GPU, Workload(context=context)).row("attn.core").cost.bytes
    assert plain.kv_read == 2048 * (18 * 128 + 18 * context)
    assert plain.kv_written == 2048 * 36
    limited = next(c for c in model.caches if c.window)
    wide = Workload(context=context, **drafting(3))
    cost = _cache_cost(limited, wide, "main")
    assert cost.bytes.kv_read == 2048 * 18 * (128 + 3)
    assert cost.bytes.kv_written == 2048 * 18 * 4


def test_a_borrowed_cache_is_read_but_not_written() -> None:
    """Gemma-4 E-models share the cache of an earlier layer."""
    cache = Cache(
        stage="main", row="attn.core", kind="kv", layers=(0, 1), heads=4, values_per_head=64, query_heads=8,
        flops_per_head=128, borrowed=True,
    )  # fmt: skip
    cost = _cache_cost(cache, Workload(context=10), "main")
    assert (cost.bytes.kv_read, cost.bytes.kv_written) == (10 * 4 * 64 * 2 * 2, 0)


@pytest.mark.parametrize(("modules", "drafts"), [(1, 1), (1, 3), (3, 3), (3, 6), (2, 1)])
def test_a_drafted_token_passes_one_module(modules: int, drafts: int) -> None:
    """Modules draft in turn, so drafts count and not modules times drafts; each ends in lm_head."""
    one = limit(build(GLM4, num_nextn_predict_layers=1), layout=Layout(tp=2), **drafting(1))
    found = limit(build(GLM4, num_nextn_predict_layers=modules), layout=Layout(tp=2), **drafting(drafts))
    for row in ("attn.qkv", "moe.experts", "moe.shared", "mtp.in", "head", "norms"):
        single, several = one.row(row, "mtp").cost, found.row(row, "mtp").cost
        assert several.calls == drafts * single.calls
        assert several.bytes.weights == pytest.approx(drafts * single.bytes.weights, rel=1e-12)
        assert several.bytes.activations == pytest.approx(drafts * single.bytes.activations, rel=1e-12)
        assert several.flops == pytest.approx({rate: drafts * n for rate, n in single.flops.items()}, rel=1e-12)
    assert one.row("attn.core", "mtp").cost.calls == 1
    assert one.row("attn.core", "mtp").cost.bytes.kv_read == 1024 * 2 * 2 * 32 * 2


@pytest.mark.parametrize(("modules", "drafts"), [(1, 1), (1, 3), (3, 3)])
def test_collectives_of_drafting(modules: int, drafts: int) -> None:
    """Main: 1 embedding, 5 attention, 5 MLP, 1 logits over the width. A draft: 1 + 1 + 1 + 1 over one token."""
    model = build(GLM4, num_nextn_predict_layers=modules)
    work = Workload(batch=2, layout=Layout(tp=2), **drafting(drafts))
    found = {(c.id, c.payload_bytes): c.calls for c in step_collectives(model, work, None, 1e-6)}
    wide, narrow = 2 * (drafts + 1) * 256 * 2, 2 * 256 * 2
    assert found == {
        ("comm.embedding", wide): 1, ("comm.attention", wide): 5, ("comm.mlp", wide): 5,
        ("comm.logits", 2 * (drafts + 1) * 8): 1,
        ("comm.embedding", narrow): drafts, ("comm.attention", narrow): drafts, ("comm.mlp", narrow): drafts,
        ("comm.logits", 2 * 8): drafts,
    }  # fmt: skip


def test_pipeline_stages_hand_over_hidden_state_and_residual() -> None:
    found = step_collectives(build(DENSE), Workload(batch=3, layout=Layout(pp=3)), None, 1e-6)
    assert [(c.id, c.operation, c.calls, c.payload_bytes, c.gpus) for c in found] == [
        ("comm.pipeline", "send", 2, 2 * 3 * 256 * 2, 3)
    ]


def test_a_rank_of_data_parallel_attention_owns_its_tokens() -> None:
    """Eight tokens over four groups: two go through a rank's router, all eight through its experts."""
    model = build(GLM4)
    rows = {r.id: r.cost for r in limit(model, batch=8, layout=Layout(tp=4, dp=4, ep=4)).rows}
    assert rows["moe.router"].flops["bf16"] == 2 * 4 * 2 * 16 * 256
    assert rows["moe.shared"].flops["bf16"] == 2 * 4 * 2 * 3 * 64 * 256
    assert rows["attn.qkv"].flops["bf16"] == 2 * 5 * 2 * (8 + 2 * 4) * 32 * 256
    # The dense MLP is cut over all ranks and sees everybody's tokens.
    assert rows["mlp.dense"].flops["bf16"] == 2 * 1 * 8 * 3 * 128 * 256
    experts = rows["moe.experts"]
    assert experts.flops["bf16"] == pytest.approx(2 * 4 * (8 * 4 / 4) * 3 * 64 * 256)


def test_the_busiest_rank_multiplies_at_least_once_an_expert() -> None:
    """One token, top-4 of 16 over 4 ranks: the mean is one product a rank, the busiest rank's experts are more."""
    found = limit(build(GLM4), layout=Layout(tp=4, ep=4))
    row, hit = found.row("moe.experts"), 1.9
    busiest = row.cost.bytes.weights / (4 * 3 * 64 * 256 * 2)
    assert hit < busiest < 2.1
    assert row.cost.flops["bf16"] == pytest.approx(2 * 4 * busiest * 3 * 64 * 256)
    imbalance = next(t for t in found.terms if t.id == "imbalance")
    assert imbalance.seconds == pytest.approx((busiest - 1) * 4 * 3 * 64 * 256 * 2 / BANDWIDTH)


def test_totals_hold_arithmetic_where_it_binds() -> None:
    """At batch 4,096 arithmetic is the longer part of the step, and no total may forget it."""
    found = limit(build(DENSE, hidden_size=1024, intermediate_size=4096), batch=4096, context=1)
    compute_s = sum(r.compute_s for r in found.rows)
    assert found.totals.strict_s == pytest.approx(compute_s)
    assert found.totals.strict_s > found.totals.memory_s
    row = found.row("mlp.dense")
    assert row.practical_s is not None and row.practical_s >= row.compute_s > row.memory_s
    assert row.practical_s == row.compute_s


def test_without_speculation_is_the_plain_floor() -> None:
    model = read_model("glm-5-nvfp4")
    link = interconnect_for(GPU)
    drafted = decode_limit(model, GPU, Workload(layout=Layout(tp=8), **drafting(3)), link)
    plain = decode_limit(model, GPU, Workload(layout=Layout(tp=8)), link)
    assert drafted.totals.without_speculation_s == plain.totals.best_s
    assert plain.totals.best_s != plain.totals.nccl_s


def test_states_take_their_room_before_tokens_do() -> None:
    model = read_model("qwen3.5-397b-a17b")
    work = Workload(batch=64, layout=Layout(tp=8))
    fit = memory_fit(model, GPU, work)
    assert fit.capacity_bytes is not None and fit.tokens is not None
    left = fit.capacity_bytes - fit.weights_bytes - 64 * fit.state_bytes_per_sequence
    assert fit.state_bytes_per_sequence > 0
    assert fit.tokens == int(left / fit.kv_bytes_per_token)


def test_expert_parallel_ranks_hold_their_experts_whole() -> None:
    model = build(GLM4)
    whole, dealt = (memory_fit(model, GPU, Workload(layout=Layout(tp=4, ep=ep))).weights_bytes for ep in (1, 4))
    assert whole == dealt
    alone = memory_fit(model, GPU, Workload()).weights_bytes
    experts = 4 * 16 * 3 * 64 * 256 * 2
    assert alone - dealt > experts * 3 / 4


def test_a_step_inside_l2_says_so() -> None:
    small = limit(build(DENSE))
    assert [f.subject for f in small.findings if f.level == "warn"] == ["L2 cache"]
    assert not [f for f in limit(read_model("glm-4.7"), layout=Layout(tp=8)).findings if f.subject == "L2 cache"]


def test_a_crossover_is_the_first_batch_that_arithmetic_binds() -> None:
    found = sweep(build(DENSE, hidden_size=1024, intermediate_size=4096), GPU, Workload(context=1))
    turned = crossovers(found.points)["mlp.dense"]
    bounds = {p.batch: p.bound["mlp.dense"] for p in found.points}
    assert bounds[turned] == "compute" and bounds[turned // 2] == "memory"
    assert bounds[1024] == "compute" and turned < 1024

    def point(batch: int, bound: str) -> Point:
        first = found.points[0]
        return msgspec.structs.replace(first, batch=batch, bound={"mlp.dense": bound})

    assert crossovers([point(1, "memory"), point(2, "compute"), point(4, "compute")]) == {"mlp.dense": 2}


SKEWED = Routing((100.0,) * 8 + (1.0,) * 120, "measured.json")


def test_measured_routing_weighs_the_same_on_one_rank_and_on_several() -> None:
    """Eight hot experts on one rank: it expects 8 x 0.8696 + 8 x 0.0087, and no busiest rank expects less."""
    model = read_model("qwen3-235b-a22b")
    hot, cold = 8 * 100 / 920, 8 * 1 / 920
    found = decode_limit(model, GPU, Workload(layout=Layout(tp=8, ep=8), routing=SKEWED), call_s=1e-6)
    layer = 3 * 4096 * 1536 * 2
    busiest = found.row("moe.experts").cost.bytes.weights / (94 * layer)
    assert 8 * hot + 8 * cold <= busiest < 8 * hot + 8 * cold + 0.1
    assert found.experts_hit == 8.0


def test_measured_routing_reaches_every_rank_count() -> None:
    """A histogram that is flat is uniform routing, whichever way it is worked out."""
    model = read_model("qwen3-235b-a22b")
    flat = Routing((7.0,) * 128, "flat.json")

    def busiest(routing: Routing) -> float:
        work = Workload(batch=4, layout=Layout(tp=8, ep=8), routing=routing)
        return decode_limit(model, GPU, work, call_s=1e-6).row("moe.experts").cost.bytes.weights

    assert busiest(flat) == pytest.approx(busiest(Routing()), rel=0.01)


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ([1.0] + [0.0] * 127, "1 of its counts is above zero, and every token is sent to 8 different experts"),
        ([1.0] * 7 + [0.0] * 121, "7 of its counts are above zero"),
        ([1e308] * 128, "finite sum above zero"),
        ([0.0] * 128, "finite sum above zero"),
        ([-1.0] + [2.0] * 127, "zero or more"),
    ],
)
def test_impossible_histograms(counts: list[float], found: str) -> None:
    with pytest.raises(UsageError, match=found):
        limit(read_model("qwen3-235b-a22b"), batch=2, layout=Layout(tp=8), routing=Routing(tuple(counts), "one.json"))


def test_a_step_that_does_not_fit_is_said_first() -> None:
    model = read_model("deepseek-v3")
    alone = decode_limit(model, GPU, Workload())
    assert (alone.findings[0].level, alone.findings[0].subject) == ("error", "does not fit")
    assert "the weights of a rank take 673 GB of 141 GB" in alone.findings[0].text
    many = decode_limit(model, GPU, Workload(batch=1024, context=131072, layout=Layout(tp=8)), call_s=1e-6)
    assert "1,024 sequences of 131,072 tokens take more than" in many.findings[0].text
    fine = decode_limit(model, GPU, Workload(batch=64, context=8192, layout=Layout(tp=8)), call_s=1e-6)
    assert not [f for f in fine.findings if f.subject == "does not fit"]


def test_heads_that_do_not_divide_are_said() -> None:
    found = limit(read_model("nemotron-3-nano-30b-a3b-nvfp4"), layout=Layout(tp=16))
    assert any(f.subject == "layout" and "8 heads or groups over 16 ranks" in f.text for f in found.findings)
    even = limit(read_model("nemotron-3-nano-30b-a3b-nvfp4"), layout=Layout(tp=8))
    assert not [f for f in even.findings if f.subject == "layout"]
