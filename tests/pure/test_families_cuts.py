"""How ranks share what a family adds: every piece is whole, what engines replicate is, and rows are known ones."""

import pytest

from sublight.facts.model import Model
from sublight.facts.tensors import Tensor
from sublight.rows import ROWS
from tests.pure.test_families_totals import (
    DEEPSEEK_V3,
    GEMMA_4_26B,
    GPT_OSS_120B,
    MINIMAX_M2,
    MODELS,
    NEMOTRON_3_NANO,
    NEMOTRON_3_SUPER,
    QWEN3_5_397B,
    QWEN3_NEXT,
    build,
)


def tensor(model: Model, name: str, stage: str = "main") -> Tensor:
    """The one tensor whose name ends so."""
    (found,) = [t for t in model.tensors if t.name.endswith(f".{name}") and t.stage == stage]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_every_cut_leaves_whole_pieces(name: str) -> None:
    model = build(MODELS[name][0])
    for t in model.tensors:
        assert t.row in ROWS
        if t.cut is not None:
            axis = t.cut.axis if len(t.shape) > t.cut.axis else 0
            assert t.shape[axis] % t.cut.units == 0, t.name
    for cache in model.caches:
        assert cache.row in ROWS
        assert cache.layers and cache.heads >= 1 and cache.values_per_head >= 1


@pytest.mark.parametrize("name", MODELS)
def test_layers_and_names_agree(name: str) -> None:
    """A tensor is inside the layers exactly when its name says so, and no name stands for two tensors of a layer."""
    model = build(MODELS[name][0])
    seen = set()
    for t in model.tensors:
        assert ("{layer}" in t.module) == bool(t.layers), t.name
        assert ("{expert}" in t.module) <= (t.copies == model.moe.experts if model.moe else False), t.name
        for layer in t.layers or (None,):
            key = (t.name, layer)
            assert key not in seen, key
            seen.add(key)
    main = {layer for t in model.main for layer in t.layers}
    assert main == set(range(model.layers))


@pytest.mark.parametrize("name", MODELS)
def test_routers_and_norms_are_whole_on_every_rank(name: str) -> None:
    for t in build(MODELS[name][0]).tensors:
        if t.part in ("router", "replicated"):
            assert t.cut is None, t.name
        if t.row == "moe.router":
            assert t.part == "router", t.name
        if t.row == "moe.experts":
            assert t.part == "experts" and t.read == "routed experts", t.name


def test_grouped_query_attention_is_cut_by_its_own_heads() -> None:
    model = build(GEMMA_4_26B)
    by_name = {(t.module.rpartition(".")[2], t.layers[0]): t for t in model.main if ".self_attn." in t.module}
    assert by_name["q_proj", 5].cut.units == 16  # type: ignore[union-attr]
    assert by_name["k_proj", 5].cut.units == 2  # type: ignore[union-attr]
    assert by_name["k_proj", 0].cut.units == 8  # type: ignore[union-attr]
    assert ("v_proj", 5) not in by_name
    assert by_name["o_proj", 5].shape == (2816, 16 * 512)


def test_norms_over_all_heads_are_cut_with_them() -> None:
    model = build(MINIMAX_M2)
    q, k = tensor(model, "q_norm.weight"), tensor(model, "k_norm.weight")
    assert (q.shape, q.cut and q.cut.units, k.shape, k.cut and k.cut.units) == ((48 * 128,), 48, (8 * 128,), 8)
    assert q.part == k.part == "attention"


def test_gated_attention_doubles_the_queries() -> None:
    model = build(QWEN3_NEXT)
    assert tensor(model, "q_proj.weight").shape == (2 * 16 * 256, 2048)
    assert tensor(model, "self_attn.o_proj.weight").shape == (2048, 16 * 256)
    plain = build(QWEN3_NEXT, attn_output_gate=False)
    assert tensor(plain, "q_proj.weight").shape == (16 * 256, 2048)


def test_delta_nets_are_packed_or_apart() -> None:
    packed, apart = build(QWEN3_NEXT), build(QWEN3_5_397B)
    key, value = 16 * 128, 32 * 128
    assert tensor(packed, "in_proj_qkvz.weight").shape == (2 * key + 2 * value, 2048)
    assert tensor(packed, "in_proj_ba.weight").shape == (2 * 32, 2048)
    value = 64 * 128
    shapes = {n: tensor(apart, f"in_proj_{n}.weight").shape[0] for n in ("qkv", "z", "b", "a")}
    assert shapes == {"qkv": 2 * key + value, "z": value, "b": 64, "a": 64}
    for model in (packed, apart):
        assert tensor(model, "conv1d.weight").kind == "conv"
        assert tensor(model, "linear_attn.norm.weight").cut is None
        assert {t.cut.units for t in model.main if t.row == "linear.in" and t.cut} == {16}


def test_experts_are_stacked_or_apart_as_the_release_has_them() -> None:
    def experts(model: Model) -> dict[str, tuple[int, ...]]:
        return {t.module.partition("layers.{layer}.")[2]: t.shape for t in model.main if t.row == "moe.experts"}

    assert experts(build(QWEN3_5_397B)) == {
        "mlp.experts.gate_up_proj": (2 * 1024, 4096),
        "mlp.experts.down_proj": (4096, 1024),
    }
    quantised = build(QWEN3_5_397B, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert experts(quantised) == {
        "mlp.experts.{expert}.gate_proj": (1024, 4096),
        "mlp.experts.{expert}.up_proj": (1024, 4096),
        "mlp.experts.{expert}.down_proj": (4096, 1024),
    }
    assert quantised.parameters() == build(QWEN3_5_397B).parameters()
    mxfp4 = build(GPT_OSS_120B, quantization_config={"quant_method": "mxfp4"})
    stacks = [t for t in mxfp4.main if t.row == "moe.experts" and t.is_matrix]
    assert [(t.module.rpartition(".")[2], t.format.name, t.copies) for t in stacks] == [
        ("gate_up_proj", "mxfp4", 128),
        ("down_proj", "mxfp4", 128),
    ]
    biases = {t.leaf: (t.shape, t.cut is None) for t in mxfp4.main if t.row == "moe.experts" and not t.is_matrix}
    assert biases == {"gate_up_proj_bias": ((5760,), False), "down_proj_bias": ((2880,), True)}


def test_sinks_go_with_the_heads() -> None:
    sinks = tensor(build(GPT_OSS_120B), "self_attn.sinks")
    assert (sinks.row, sinks.part, sinks.shape, sinks.cut and sinks.cut.units) == ("attn.core", "attention", (64,), 64)


def test_mamba_is_cut_by_groups() -> None:
    model = build(NEMOTRON_3_NANO)
    width, mixed = 64 * 64, 64 * 64 + 2 * 8 * 128
    assert tensor(model, "in_proj.weight").shape == (width + mixed + 64, 2688)
    assert tensor(model, "conv1d.weight").shape == (mixed, 4)
    assert tensor(model, "conv1d.bias").shape == (mixed,)
    assert tensor(model, "out_proj.weight").shape == (2688, width)
    pieces = {t.cut.units for t in model.main if t.row.startswith("mamba.") and t.cut}
    assert pieces == {8}
    single = build(NEMOTRON_3_NANO, n_groups=1)
    assert tensor(single, "A_log").cut.units == 64  # type: ignore[union-attr]


def test_latent_experts_work_on_the_narrow_vector() -> None:
    model = build(NEMOTRON_3_SUPER)
    assert tensor(model, "fc1_latent_proj.weight").shape == (1024, 4096)
    assert tensor(model, "fc2_latent_proj.weight").shape == (4096, 1024)
    assert tensor(model, "fc1_latent_proj.weight").cut is None
    assert tensor(model, "up_proj.weight".replace("up", "experts.{expert}.up")).shape == (2688, 1024)
    assert tensor(model, "shared_experts.up_proj.weight").shape == (5376, 4096)


def test_the_shared_experts_gate_is_one_whole_row() -> None:
    gate = tensor(build(QWEN3_NEXT), "shared_expert_gate.weight")
    assert (gate.shape, gate.cut, gate.part, gate.row) == ((1, 2048), None, "shared", "moe.shared")


def test_drafting_layers_have_their_own_prefix_or_number() -> None:
    assert {t.module.partition(".")[0] for t in build(QWEN3_5_397B).tensors if t.stage == "mtp"} == {"mtp"}
    assert {t.module.partition(".")[0] for t in build(NEMOTRON_3_SUPER).tensors if t.stage == "mtp"} == {"mtp"}
    numbered = {layer for t in build(DEEPSEEK_V3).tensors if t.stage == "mtp" for layer in t.layers}
    assert numbered == {61}
    ends = {t.name: t.layers for t in build(NEMOTRON_3_SUPER).tensors if t.stage == "mtp" and "norm" in t.name}
    assert ends == {
        "mtp.layers.{layer}.norm.weight": (0, 1),
        "mtp.layers.{layer}.enorm.weight": (0,),
        "mtp.layers.{layer}.hnorm.weight": (0,),
        "mtp.layers.{layer}.final_layernorm.weight": (1,),
    }
    two = build(NEMOTRON_3_SUPER, num_nextn_predict_layers=2)
    assert two.parameters("mtp") == 2 * build(NEMOTRON_3_SUPER).parameters("mtp")
