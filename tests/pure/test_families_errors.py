"""A configuration that lacks, garbles or contradicts a field is refused in one sentence that names it."""

from typing import Any

import pytest

from sublight.errors import ConfigError, SublightError, UnknownNameError
from sublight.facts.families import FAMILIES
from tests.pure.test_families_totals import (
    DEEPSEEK_V3,
    GEMMA_4_26B,
    GLM_5,
    GPT_OSS_120B,
    LLAMA_3_8B,
    LLAMA_4_MAVERICK,
    MINIMAX_M2,
    MODELS,
    NEMOTRON_3_NANO,
    NEMOTRON_3_SUPER,
    QWEN3_5_397B,
    QWEN3_NEXT,
    build,
)

# What a model cannot be sized without, by family. Every other field of the configurations has a meaning when absent.
NEEDED = {
    "GLM-5": {
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "num_attention_heads",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "index_n_heads",
        "index_head_dim",
        "intermediate_size",
        "num_experts_per_tok",
        "moe_intermediate_size",
    },
    "GLM-4.5": {"hidden_size", "num_attention_heads", "n_routed_experts", "moe_intermediate_size", "intermediate_size"},
    "Qwen3-235B-A22B": {"hidden_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size"},
    "Qwen3-Next-80B-A3B": {
        "full_attention_interval",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "num_experts",
    },
    "Qwen3.5-27B": {"intermediate_size", "linear_num_value_heads"},
    "gpt-oss-120b": {"num_local_experts", "num_experts_per_tok", "intermediate_size", "sliding_window"},
    "Mixtral-8x7B": {"num_local_experts", "intermediate_size"},
    "MiniMax-M2": {"num_local_experts", "intermediate_size"},
    "Llama-4-Maverick": {"interleave_moe_layer_step", "intermediate_size_mlp", "num_local_experts"},
    "Nemotron-3-Super": {
        "hybrid_override_pattern",
        "mtp_hybrid_override_pattern",
        "mamba_num_heads",
        "mamba_head_dim",
        "n_groups",
        "ssm_state_size",
        "conv_kernel",
        "head_dim",
        "n_routed_experts",
        "moe_shared_expert_intermediate_size",
    },
    "Gemma-4-26B-A4B": {
        "layer_types",
        "sliding_window",
        "head_dim",
        "global_head_dim",
        "intermediate_size",
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
    },
    "Qwen2.5-7B": {"intermediate_size", "num_attention_heads"},
}


@pytest.mark.parametrize(("name", "field"), [(n, f) for n, fields in NEEDED.items() for f in sorted(fields)])
def test_a_missing_field_is_named(name: str, field: str) -> None:
    config = MODELS[name][0]
    assert field in config
    for changed in ({k: v for k, v in config.items() if k != field}, config | {field: None}):
        with pytest.raises(ConfigError) as caught:
            build(changed)
        assert field in str(caught.value)


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (GLM_5, {"indexer_types": ["full"] * 77}, "indexer_types has 77 entries for 78 layers"),
        (GLM_5, {"indexer_types": ["none"] * 78}, "indexer_types holds ['none']"),
        (GLM_5, {"q_lora_rank": None}, "q_lora_rank"),
        (QWEN3_NEXT, {"layer_types": ["linear_attention"] * 47}, "layer_types has 47 entries for 48 layers"),
        (QWEN3_NEXT, {"layer_types": ["mamba"] * 48}, "layer_types holds 'mamba'"),
        (QWEN3_NEXT, {"linear_num_value_heads": 24}, "24 linear value heads do not divide over 16 key heads"),
        (QWEN3_NEXT, {"num_key_value_heads": 3}, "16 attention heads do not divide over 3 key-value heads"),
        (QWEN3_NEXT, {"mamba_ssm_dtype": "float8"}, 'mamba_ssm_dtype is "float8"'),
        (QWEN3_NEXT, {"num_experts_per_tok": 513}, "513 of 512 experts"),
        (QWEN3_5_397B, {"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings is true"),
        (GPT_OSS_120B, {"layer_types": ["sliding_attention"] * 35}, "layer_types has 35 entries for 36 layers"),
        (GPT_OSS_120B, {"layer_types": ["linear_attention"] * 36}, "layer_types holds 'linear_attention'"),
        (GPT_OSS_120B, {"layer_types": [1] * 36}, "layer_types holds 1"),
        (GEMMA_4_26B, {"layer_types": ["chunked_attention"] * 30}, "layer_types holds 'chunked_attention'"),
        (GEMMA_4_26B, {"num_kv_shared_layers": 30}, "num_kv_shared_layers is 30 of 30 layers"),
        (GEMMA_4_26B, {"num_kv_shared_layers": 26}, "every layer of full_attention"),
        (LLAMA_4_MAVERICK, {"moe_layers": [48]}, "moe_layers names layer 48 of 48"),
        (LLAMA_4_MAVERICK, {"no_rope_layers": [1]}, "no_rope_layers has 1 entry for 48 layers"),
        (MINIMAX_M2, {"attn_type_list": [1] * 61}, "attn_type_list has 61 entries for 62 layers"),
        (MINIMAX_M2, {"attn_type_list": [0] + [1] * 61}, "attn_type_list holds [0, 1]"),
        (MINIMAX_M2, {"shared_intermediate_size": 512}, "shared_intermediate_size is 512"),
        (MINIMAX_M2, {"qk_norm_type": "per_head"}, 'qk_norm_type is "per_head"'),
        (NEMOTRON_3_NANO, {"hybrid_override_pattern": "MEX"}, "hybrid_override_pattern holds 'X'"),
        (NEMOTRON_3_NANO, {"hybrid_override_pattern": "MEME"}, "4 layers, and num_hidden_layers is 52"),
        (NEMOTRON_3_NANO, {"layers_block_type": ["mamba", "conv"]}, "layers_block_type holds 'conv'"),
        (NEMOTRON_3_NANO, {"n_groups": 7}, "64 Mamba heads do not divide over 7 groups"),
        (NEMOTRON_3_SUPER, {"mtp_hybrid_override_pattern": "*?"}, "mtp_hybrid_override_pattern holds '?'"),
        (LLAMA_3_8B, {"hidden_size": 4100}, "4100 is no multiple of 32 heads"),
        (LLAMA_3_8B, {"model_type": "qwen2", "use_sliding_window": "yes"}, "use_sliding_window is 'yes'"),
        (DEEPSEEK_V3, {"n_group": 7}, "256 experts in 7 groups"),
        (DEEPSEEK_V3, {"kv_lora_rank": 512.0}, "kv_lora_rank is 512.0"),
        (DEEPSEEK_V3, {"kv_lora_rank": True}, "kv_lora_rank is True"),
    ],
)
def test_what_is_wrong_is_said(config: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(config, **changes)
    assert said in caught.value.found or said in caught.value.hint
    assert caught.value.hint


@pytest.mark.parametrize(("name", "near"), [("glm4moe", "glm4_moe"), ("qwen3moe", "qwen3_moe"), ("gptoss", "gpt_oss")])
def test_an_unknown_family_names_its_neighbours(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        build({"model_type": name})
    assert near in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("junk", [-1, 0.5, float("inf"), "many", [], {}, True, 10**9])
def test_junk_in_any_size_is_refused_or_has_no_bearing(name: str, junk: object) -> None:
    """Whatever stands in one field: a model, or one of our own errors; never another exception."""
    config = MODELS[name][0]
    for field in config:
        if field != "model_type":
            try:
                build(config | {field: junk})
            except SublightError as error:
                assert error.hint


def test_every_family_is_covered_by_a_published_model() -> None:
    assert {config["model_type"] for config, _, _ in MODELS.values()} == set(FAMILIES.names())
