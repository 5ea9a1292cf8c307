"""One field of a configuration changed at a time: the rows that depend on it move by what they should, no other.

The configuration is small and made up; the sizes are drawn, so that no number of a real model can be typed into the
code that passes here.
"""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.facts.gpu import get_gpu
from sublight.facts.model import Model, build_model
from sublight.facts.workload import Layout, Workload
from sublight.limits.decode import DecodeLimit, decode_limit

GPU = get_gpu("h200")


def config(**fields: int) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model_type": "glm_moe_dsa",
        "hidden_size": 256,
        "vocab_size": 1024,
        "num_hidden_layers": 6,
        "first_k_dense_replace": 2,
        "intermediate_size": 512,
        "moe_intermediate_size": 128,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "n_shared_experts": 1,
        "num_attention_heads": 8,
        "q_lora_rank": 64,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 24,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "index_n_heads": 4,
        "index_head_dim": 16,
        "index_topk": 100,
        "torch_dtype": "bfloat16",
    }
    return base | fields


def model(fields: Mapping[str, int], exclude: tuple[str, ...] = ("lm_head", "*self_attn*")) -> Model:
    quant = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": list(exclude)}}
    return build_model(config(**fields), quant, name="made-up", source="test")


def limit(fields: Mapping[str, int], **kwargs: Any) -> DecodeLimit:
    layout = kwargs.pop("layout", Layout())
    return decode_limit(model(fields, **kwargs), GPU, Workload(context=64, layout=layout), call_s=1e-6)


def weights(found: DecodeLimit) -> dict[str, float]:
    return {r.id: r.cost.bytes.weights for r in found.rows}


def caches(found: DecodeLimit) -> dict[str, float]:
    return {r.id: r.cost.bytes.kv_read + r.cost.bytes.index for r in found.rows}


def moved(before: DecodeLimit, after: DecodeLimit) -> set[str]:
    """Rows whose bytes of any kind, arithmetic, or calls differ."""
    old = {r.id: r.cost for r in before.rows}
    return {r.id for r in after.rows if r.cost != old[r.id]}


LAYERS = st.integers(3, 12)
LAYOUTS = st.sampled_from([Layout(), Layout(tp=2), Layout(tp=4, dp=2, ep=2)])


@given(LAYERS, LAYOUTS)
@settings(max_examples=25, deadline=None)
def test_a_layer_more(layers: int, layout: Layout) -> None:
    before = limit({"num_hidden_layers": layers}, layout=layout)
    after = limit({"num_hidden_layers": layers + 1}, layout=layout)
    old, new = weights(before), weights(after)
    sparse = layers - 2
    for row in ("attn.qkv_a", "attn.q_b", "attn.o", "attn.absorb_k", "attn.absorb_v", "indexer.q", "indexer.k"):
        assert new[row] * layers == old[row] * (layers + 1)
    for row in ("moe.router", "moe.experts", "moe.shared"):
        assert abs(new[row] * sparse - old[row] * (sparse + 1)) <= 1e-9 * new[row] * sparse
    assert moved(before, after).isdisjoint({"mlp.dense", "head", "embedding", "sampling"})
    assert after.row("attn.core").cost.calls == layers + 1


@given(st.integers(5, 40), LAYOUTS)
@settings(max_examples=25, deadline=None)
def test_experts_move_the_router_alone_when_one_token_reads_top_k(experts: int, layout: Layout) -> None:
    experts *= 2
    before, after = limit({"n_routed_experts": experts}), limit({"n_routed_experts": 2 * experts})
    assert moved(before, after) == {"moe.router"}
    old, new = weights(before)["moe.router"], weights(after)["moe.router"]
    # The FP32 correction bias and the BF16 matrix both have one row an expert.
    assert new == 2 * old
    assert model({"n_routed_experts": 2 * experts}).parameters() - model(
        {"n_routed_experts": experts}
    ).parameters() == (experts * 4 * (3 * 256 * 128) + experts * 4 * (256 + 1))


@given(st.integers(1, 8))
def test_expert_width(steps: int) -> None:
    before, after = limit({"moe_intermediate_size": 64 * steps}), limit({"moe_intermediate_size": 128 * steps})
    old, new = weights(before), weights(after)
    assert moved(before, after) == {"moe.experts", "moe.shared"}
    assert new["moe.experts"] == 2 * old["moe.experts"] == 4 * 4 * 3 * 256 * 128 * steps / 2
    assert new["moe.shared"] == 2 * old["moe.shared"]


@given(st.integers(1, 6))
def test_dense_width(steps: int) -> None:
    before, after = limit({"intermediate_size": 64 * steps}), limit({"intermediate_size": 128 * steps})
    assert moved(before, after) == {"mlp.dense"}
    assert weights(after)["mlp.dense"] == 2 * weights(before)["mlp.dense"] == 2 * 3 * 256 * 128 * steps / 2


@given(st.integers(1, 100))
def test_vocabulary(steps: int) -> None:
    before, after = limit({"vocab_size": 64 * steps}), limit({"vocab_size": 128 * steps})
    assert moved(before, after) == {"head", "sampling"}
    assert weights(after)["head"] == 2 * weights(before)["head"] == 2 * 256 * 128 * steps


@given(st.integers(1, 8))
def test_heads(heads: int) -> None:
    before, after = limit({"num_attention_heads": heads}), limit({"num_attention_heads": 2 * heads})
    assert moved(before, after) == {"attn.q_b", "attn.absorb_k", "attn.absorb_v", "attn.o", "attn.core"}
    old, new = weights(before), weights(after)
    for row in ("attn.q_b", "attn.absorb_k", "attn.absorb_v", "attn.o"):
        assert new[row] == 2 * old[row]
    # The latent is shared by all heads: arithmetic doubles, bytes do not.
    core = (before.row("attn.core").cost, after.row("attn.core").cost)
    assert core[1].bytes == core[0].bytes
    assert core[1].flops["bf16"] == 2 * core[0].flops["bf16"]


@given(st.integers(1, 8))
def test_query_rank(rank: int) -> None:
    rank *= 16
    before, after = limit({"q_lora_rank": rank}), limit({"q_lora_rank": 2 * rank})
    assert moved(before, after) == {"attn.qkv_a", "attn.q_b", "indexer.q", "norms"}
    old, new = weights(before), weights(after)
    assert new["attn.qkv_a"] - old["attn.qkv_a"] == 6 * 2 * rank * 256
    assert new["attn.q_b"] == 2 * old["attn.q_b"]
    assert new["indexer.q"] == 2 * old["indexer.q"]
    assert new["norms"] - old["norms"] == 6 * 2 * rank


@given(st.integers(1, 8))
def test_latent_rank(rank: int) -> None:
    rank *= 16
    before, after = limit({"kv_lora_rank": rank}), limit({"kv_lora_rank": 2 * rank})
    assert moved(before, after) == {"attn.qkv_a", "attn.absorb_k", "attn.absorb_v", "attn.core", "norms"}
    assert weights(after)["attn.absorb_v"] == 2 * weights(before)["attn.absorb_v"]
    assert caches(after)["attn.core"] - caches(before)["attn.core"] == 6 * 64 * rank * 2


@given(st.integers(1, 8))
def test_indexer_heads(heads: int) -> None:
    before, after = limit({"index_n_heads": heads}), limit({"index_n_heads": 2 * heads})
    assert moved(before, after) == {"indexer.q", "indexer.k", "indexer.scores"}
    assert caches(after)["indexer.scores"] == caches(before)["indexer.scores"]
    assert after.row("indexer.scores").cost.flops["fp8"] == 2 * before.row("indexer.scores").cost.flops["fp8"]


def test_top_k_of_attention_bounds_what_is_read_and_not_what_is_scored() -> None:
    before, after = limit({"index_topk": 1000}), limit({"index_topk": 16})
    assert moved(before, after) == {"attn.core"}
    assert caches(before)["attn.core"] == 6 * 64 * (32 + 8) * 2
    assert caches(after)["attn.core"] == 6 * 16 * (32 + 8) * 2
    assert caches(after)["indexer.scores"] == 6 * 64 * (16 + 4)


def test_hidden_size_moves_what_touches_the_residual() -> None:
    before, after = limit({"hidden_size": 256}), limit({"hidden_size": 512})
    old, new = weights(before), weights(after)
    doubled = {"attn.qkv_a", "attn.o", "indexer.k", "moe.experts", "moe.shared", "mlp.dense", "head", "embedding"}
    assert {row for row in old if new[row] == 2 * old[row]} >= doubled
    assert {row for row in old if new[row] == old[row]} >= {"attn.q_b", "attn.absorb_k", "attn.absorb_v", "indexer.q"}


def test_the_format_of_one_module_moves_its_row_alone() -> None:
    before = limit({}, exclude=("lm_head", "*self_attn*"))
    every = ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "indexer*"]
    after = limit({}, exclude=("lm_head", *(f"*self_attn.{name}" for name in every)))
    assert moved(before, after) == {"attn.o"}
    old, new = before.row("attn.o").cost.bytes, after.row("attn.o").cost.bytes
    assert old.weights == 6 * 256 * (8 * 16) * 2
    assert new.weights == old.weights / 4
    # One E4M3 scale for 16 values, and two FP32 scalars a tensor.
    assert new.scales == 6 * (256 * 8 * 16 / 16 + 8)
    # 0.5 byte a value at the FP4 rate where the card has one, at the BF16 rate on this one.
    assert after.row("attn.o").formats == ("NVFP4",)


def test_experts_of_a_layer_in_two_formats() -> None:
    """A scheme that names single experts: the entry is split, and the part that is hit is split alike."""
    quant = ("lm_head", "*self_attn*", *(f"model.layers.*.mlp.experts.{e}.*" for e in range(4)))
    found = limit({}, exclude=quant)
    plain = limit({})
    # Four of sixteen experts in BF16, the rest in NVFP4: a token reads 1 and 3 of them on average.
    one = 3 * 256 * 128
    assert found.row("moe.experts").cost.bytes.weights == 4 * (1 * one * 2 + 3 * one / 2)
    assert plain.row("moe.experts").cost.bytes.weights == 4 * 4 * one / 2
