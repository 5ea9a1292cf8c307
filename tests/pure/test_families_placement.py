"""Which layers are mixtures, and which width is an expert's: five ways to say the first, and no name for the second."""

from typing import Any

import pytest

from sublight.errors import ConfigError
from sublight.facts.families.placement import moe_layers
from sublight.facts.fields import Fields
from sublight.facts.inventory import Inventory
from sublight.facts.model import Model
from sublight.facts.quantization.base import Quantization, Unquantised
from tests.pure.test_families_totals import (
    DEEPSEEK_V3,
    GLM_4_5,
    GPT_OSS_120B,
    LLAMA_4_MAVERICK,
    MINIMAX_M2,
    MIXTRAL,
    MODELS,
    NEMOTRON_3_NANO,
    QWEN3_5_397B,
    QWEN3_235B,
    build,
)


def placed(config: dict[str, Any], layers: int) -> tuple[list[int], list[str]]:
    """(MoE layers, findings) of a configuration alone."""
    inventory = Inventory(Quantization("none", "", "", "", Unquantised()))
    inventory.layers = layers
    return moe_layers(Fields(config, "config.json"), inventory), [f.text for f in inventory.findings]


def widths(model: Model) -> dict[str, set[int]]:
    """Input width of the down projections of each kind of MLP."""
    found: dict[str, set[int]] = {}
    for t in model.main:
        if t.row in ("mlp.dense", "moe.experts", "moe.shared") and t.cut is not None and t.cut.axis == 1:
            found.setdefault(t.row, set()).add(t.shape[1])
    return found


def dense_layers(model: Model) -> set[int]:
    return {layer for t in model.main if t.row == "mlp.dense" for layer in t.layers}


@pytest.mark.parametrize(
    ("config", "sparse"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 1}, [1, 2, 3, 4, 5]),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, [2, 4]),
        ({"first_k_dense_replace": 6}, []),
        ({"decoder_sparse_step": 2, "mlp_only_layers": []}, [1, 3, 5]),
        ({"mlp_only_layers": [0, 5]}, [1, 2, 3, 4]),
        ({"decoder_sparse_step": 3, "mlp_only_layers": [2]}, [5]),
        ({"moe_layer_freq": [0, 1, 1, 0, 1, 1]}, [1, 2, 4, 5]),
        ({"mlp_layer_types": ["dense", "dense", "sparse", "sparse", "dense", "sparse"]}, [2, 3, 5]),
        ({"mlp_layer_types": ["dense"] + ["sparse"] * 5, "first_k_dense_replace": 1}, [1, 2, 3, 4, 5]),
        ({"mlp_layer_types": None, "first_k_dense_replace": 2}, [2, 3, 4, 5]),
    ],
)
def test_five_ways_to_place_experts(config: dict[str, Any], sparse: list[int]) -> None:
    assert placed(config, 6) == (sparse, [])


def test_a_conflict_says_which_field_won() -> None:
    config = {"first_k_dense_replace": 3, "mlp_layer_types": ["dense"] + ["sparse"] * 77}
    layers, findings = placed(config, 78)
    assert layers == list(range(1, 78))
    assert findings == ["mlp_layer_types gives 77 MoE layers, first_k_dense_replace gives 75; mlp_layer_types was used"]
    model = build(MODELS["GLM-5"][0], mlp_layer_types=config["mlp_layer_types"])
    assert [f.subject for f in model.findings if f.level == "warn"] == ["placement of MoE layers"]
    assert model.moe is not None and model.moe.layers == 77


def test_a_list_of_flags_as_in_mimo_v2_flash() -> None:
    """48 layers, a 0 and 47 ones."""
    layers, findings = placed({"moe_layer_freq": [0] + [1] * 47}, 48)
    assert (len(layers), layers[0], findings) == (47, 1, [])


def test_a_list_of_flags_as_in_minimax_m3() -> None:
    """60 layers, the first three dense; the prefix count beside it agrees and is no conflict."""
    layers, findings = placed({"moe_layer_freq": [0] * 3 + [1] * 57, "first_k_dense_replace": 3}, 60)
    assert (len(layers), layers[0], findings) == (57, 3, [])


def test_a_list_of_flags_in_a_model() -> None:
    model = build(DEEPSEEK_V3, moe_layer_freq=[0, 1] * 30 + [1], first_k_dense_replace=None)
    assert model.moe is not None and model.moe.layers == 31
    assert dense_layers(model) == set(range(0, 60, 2))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # intermediate_size is the dense width here...
        (DEEPSEEK_V3, {"mlp.dense": {18432}, "moe.experts": {2048}, "moe.shared": {2048}}),
        (GLM_4_5, {"mlp.dense": {12288}, "moe.experts": {1536}, "moe.shared": {1536}}),
        # ...unused here...
        (QWEN3_235B, {"moe.experts": {1536}}),
        (NEMOTRON_3_NANO, {"moe.experts": {1856}, "moe.shared": {3712}}),
        # ...the expert's width here...
        (MIXTRAL, {"moe.experts": {14336}}),
        (MINIMAX_M2, {"moe.experts": {1536}}),
        (GPT_OSS_120B, {"moe.experts": {2880}}),
        (LLAMA_4_MAVERICK, {"mlp.dense": {16384}, "moe.experts": {8192}, "moe.shared": {8192}}),
        # ...and absent here.
        (QWEN3_5_397B, {"moe.experts": {1024}, "moe.shared": {1024}}),
    ],
)
def test_which_width_is_the_experts(config: dict[str, Any], expected: dict[str, set[int]]) -> None:
    assert widths(build(config)) == expected


def test_several_shared_experts_are_one_wide_mlp() -> None:
    assert widths(build(MODELS["DeepSeek-V2"][0]))["moe.shared"] == {2 * 1536}


def test_llama_4_mixes_every_second_layer() -> None:
    model = build(LLAMA_4_MAVERICK)
    assert model.moe is not None
    assert (model.moe.layers, model.moe.top_k, model.moe.shared) == (24, 1, 1)
    assert dense_layers(model) == set(range(0, 48, 2))
    assert dense_layers(build(LLAMA_4_MAVERICK, moe_layers=[5, 7])) == set(range(48)) - {5, 7}
    assert dense_layers(build(LLAMA_4_MAVERICK, interleave_moe_layer_step=1)) == set()


def test_a_model_without_mixture_layers_has_no_experts() -> None:
    model = build(DEEPSEEK_V3, first_k_dense_replace=61)
    assert model.moe is None
    assert not model.has_mtp
    assert dense_layers(model) == set(range(61))
    assert build(QWEN3_235B, mlp_only_layers=list(range(94))).moe is None


def test_nemotron_kinds_by_name_and_by_letter() -> None:
    names = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    pattern = NEMOTRON_3_NANO["hybrid_override_pattern"]
    by_letter = build(NEMOTRON_3_NANO)
    by_name = build(NEMOTRON_3_NANO, hybrid_override_pattern=None, layers_block_type=[names[c] for c in pattern])
    assert by_name.tensors == by_letter.tensors
    newer = {"mamba": "linear_attention", "attention": "full_attention"}
    renamed = [newer.get(names[c], names[c]) for c in pattern]
    both = build(NEMOTRON_3_NANO, layers_block_type=renamed)
    assert (both.tensors, both.findings) == (by_letter.tensors, ())
    other = build(NEMOTRON_3_NANO, layers_block_type=["moe", *renamed[1:]])
    assert [f.subject for f in other.findings] == ["kinds of layers"]
    assert len({layer for t in other.main if t.row == "moe.router" for layer in t.layers}) == 24


def test_hybrids_say_their_full_layers_twice() -> None:
    types = (["linear_attention"] * 3 + ["full_attention"]) * 15
    assert build(QWEN3_5_397B, layer_types=types).findings == ()
    named = build(QWEN3_5_397B, layer_types=types, full_attention_interval=None)
    assert named.tensors == build(QWEN3_5_397B).tensors
    other = build(QWEN3_5_397B, layer_types=["full_attention", *types[1:]])
    assert [f.text for f in other.findings] == [
        "layer_types gives 16 layers, full_attention_interval 15; layer_types was used"
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"mlp_layer_types": ["dense"] * 5}, "mlp_layer_types has 5 entries for 6 layers"),
        ({"mlp_layer_types": ["moe"] * 6}, "mlp_layer_types holds ['moe']"),
        ({"moe_layer_freq": [0, 1]}, "moe_layer_freq has 2 entries for 6 layers"),
        ({"moe_layer_freq": [0, 1, 1, 1, 1, -1]}, "moe_layer_freq holds -1"),
        ({"mlp_only_layers": [6]}, "mlp_only_layers names layer 6 of 6"),
        ({"first_k_dense_replace": 7}, "first_k_dense_replace is 7 of 6 layers"),
        ({"first_k_dense_replace": 0, "moe_layer_freq": 0}, "moe_layer_freq is 0, which is below 1"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0, which is below 1"),
    ],
)
def test_placement_that_makes_no_sense(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        placed(config, 6)
    assert said in caught.value.found
