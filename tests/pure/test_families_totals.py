"""Every family gives the published number of parameters, to the last element, from the fields that say it.

The totals are those of the released checkpoints. Where a release stores copies (embedding and lm_head again inside an
MTP layer) they are left out; correction biases and other FP32 vectors are in.
"""

from typing import Any

import pytest

from sublight.facts.model import Model, build_model

GLM_5 = {
    "model_type": "glm_moe_dsa",
    "hidden_size": 6144,
    "num_hidden_layers": 78,
    "vocab_size": 154880,
    "num_attention_heads": 64,
    "head_dim": 64,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
    "first_k_dense_replace": 3,
    "intermediate_size": 12288,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "num_nextn_predict_layers": 1,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "vocab_size": 129280,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "intermediate_size": 18432,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_group": 8,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "num_nextn_predict_layers": 1,
}
DEEPSEEK_V2 = {
    "model_type": "deepseek_v2",
    "hidden_size": 5120,
    "num_hidden_layers": 60,
    "vocab_size": 102400,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "intermediate_size": 12288,
    "n_routed_experts": 160,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1536,
    "n_group": 8,
    "topk_group": 3,
    "topk_method": "group_limited_greedy",
    "scoring_func": "softmax",
}
GLM_4_5 = {
    "model_type": "glm4_moe",
    "hidden_size": 5120,
    "num_hidden_layers": 92,
    "vocab_size": 151552,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "use_qk_norm": True,
    "first_k_dense_replace": 3,
    "intermediate_size": 12288,
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "num_nextn_predict_layers": 1,
}
QWEN3_235B = {
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "vocab_size": 151936,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 12288,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "vocab_size": 151936,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1,
}
QWEN3_5_397B = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 4096,
    "num_hidden_layers": 60,
    "vocab_size": 248320,
    "full_attention_interval": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 64,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 1024,
    "shared_expert_intermediate_size": 1024,
    "mtp_num_hidden_layers": 1,
}
QWEN3_5_27B = {
    "model_type": "qwen3_5_text",
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "vocab_size": 248320,
    "full_attention_interval": 4,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "intermediate_size": 17408,
    "mtp_num_hidden_layers": 1,
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "vocab_size": 201088,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "attention_bias": True,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "sliding_window": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "intermediate_size": 2880,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 32000,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "intermediate_size": 14336,
    "sliding_window": None,
}
MINIMAX_M2 = {
    "model_type": "minimax_m2",
    "hidden_size": 3072,
    "num_hidden_layers": 62,
    "vocab_size": 200064,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "use_qk_norm": True,
    "qk_norm_type": "per_layer",
    "use_routing_bias": True,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "intermediate_size": 1536,
    "use_mtp": True,
    "num_mtp_modules": 3,
}
LLAMA_4_MAVERICK = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "num_hidden_layers": 48,
    "vocab_size": 202048,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_chunk_size": 8192,
    "interleave_moe_layer_step": 2,
    "intermediate_size_mlp": 16384,
    "num_local_experts": 128,
    "num_experts_per_tok": 1,
    "intermediate_size": 8192,
}
NEMOTRON_3_NANO = {
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "num_hidden_layers": 52,
    "vocab_size": 131072,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "use_conv_bias": True,
    "mamba_ssm_cache_dtype": "float32",
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}
# The order of the layers changes no total; 40 Mamba, 40 expert and 8 attention layers are the release's.
NEMOTRON_3_SUPER = NEMOTRON_3_NANO | {
    "hidden_size": 4096,
    "num_hidden_layers": 88,
    "hybrid_override_pattern": "ME" * 40 + "*" * 8,
    "mamba_num_heads": 128,
    "n_routed_experts": 512,
    "num_experts_per_tok": 22,
    "moe_latent_size": 1024,
    "moe_intermediate_size": 2688,
    "moe_shared_expert_intermediate_size": 5376,
    "num_nextn_predict_layers": 1,
    "mtp_hybrid_override_pattern": "*E",
}
GEMMA_4_26B = {
    "model_type": "gemma4_text",
    "hidden_size": 2816,
    "num_hidden_layers": 30,
    "vocab_size": 262144,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
    "sliding_window": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "num_global_key_value_heads": 2,
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "intermediate_size": 2112,
    "enable_moe_block": True,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
}
LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
}

# name -> (configuration, parameters, parameters of its MTP layers)
MODELS: dict[str, tuple[dict[str, Any], int, int]] = {
    "GLM-5": (GLM_5, 743_911_218_432, 9_952_920_576),
    # 21 layers with an indexer of their own: 57 fewer, 9,371,904 each.
    "GLM-5.2": (
        GLM_5 | {"head_dim": 192, "indexer_types": ["full"] * 2 + ["full", "shared", "shared", "shared"] * 19},
        753_329_940_480 - 9_952_920_576,
        9_952_920_576,
    ),
    "GLM-4.5": (GLM_4_5, 352_797_829_024, 3_988_069_792),
    "GLM-4.7-Flash": (
        {
            "model_type": "glm4_moe_lite",
            "hidden_size": 2048,
            "num_hidden_layers": 47,
            "vocab_size": 154880,
            "num_attention_heads": 20,
            "q_lora_rank": 768,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 192,
            "qk_rope_head_dim": 64,
            "v_head_dim": 256,
            "first_k_dense_replace": 1,
            "intermediate_size": 10240,
            "n_routed_experts": 64,
            "n_shared_experts": 1,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1536,
            "num_nextn_predict_layers": 1,
        },
        29_943_393_920,
        643_706_176,
    ),
    "DeepSeek-V3": (DEEPSEEK_V3, 671_026_419_200, 11_610_068_224),
    "DeepSeek-V3.2": (
        DEEPSEEK_V3 | {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
        671_877_944_064,
        11_624_027_648,
    ),
    "DeepSeek-V2": (DEEPSEEK_V2, 235_741_434_880, 0),
    "DeepSeek-V2-Lite": (
        DEEPSEEK_V2
        | {
            "hidden_size": 2048,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "q_lora_rank": None,
            "intermediate_size": 10944,
            "n_routed_experts": 64,
            "moe_intermediate_size": 1408,
            "n_group": 1,
            "topk_group": 1,
            "topk_method": "greedy",
        },
        15_706_484_224,
        0,
    ),
    "Kimi-K2": (
        DEEPSEEK_V3
        | {
            "model_type": "kimi_k2",
            "vocab_size": 163840,
            "num_attention_heads": 64,
            "first_k_dense_replace": 1,
            "n_routed_experts": 384,
            "n_group": 1,
            "topk_group": 1,
            "num_nextn_predict_layers": 0,
        },
        1_026_408_232_448,
        0,
    ),
    "Qwen3-235B-A22B": (QWEN3_235B, 235_093_634_560, 0),
    "Qwen3-30B-A3B": (
        QWEN3_235B
        | {
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
        },
        30_532_122_624,
        0,
    ),
    "Qwen3-Coder-480B-A35B": (
        QWEN3_235B
        | {
            "hidden_size": 6144,
            "num_hidden_layers": 62,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "num_experts": 160,
            "moe_intermediate_size": 2560,
        },
        480_154_875_392,
        0,
    ),
    "Qwen3-VL-235B-A22B": (QWEN3_235B | {"model_type": "qwen3_vl_moe_text"}, 235_093_634_560, 0),
    "Qwen3-Next-80B-A3B": (QWEN3_NEXT, 79_674_391_296, 0),
    "Qwen3.5-397B-A17B": (QWEN3_5_397B, 396_346_350_336, 6_595_568_128),
    "Qwen3.5-35B-A3B": (
        QWEN3_5_397B
        | {
            "hidden_size": 2048,
            "num_hidden_layers": 40,
            "num_attention_heads": 16,
            "linear_num_value_heads": 32,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
        },
        34_660_610_688,
        844_640_768,
    ),
    "Qwen3.5-27B": (QWEN3_5_27B, 26_895_998_464, 424_699_392),
    "gpt-oss-120b": (GPT_OSS_120B, 116_829_156_672, 0),
    "gpt-oss-20b": (
        GPT_OSS_120B
        | {
            "num_hidden_layers": 24,
            "num_local_experts": 32,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
        },
        20_914_757_184,
        0,
    ),
    "Mixtral-8x7B": (MIXTRAL, 46_702_792_704, 0),
    "MiniMax-M2": (MINIMAX_M2, 228_689_764_864, 0),
    "Llama-4-Maverick": (LLAMA_4_MAVERICK, 400_711_848_960, 0),
    # 31,577,937,344 in BF16 and 2,944 correction biases in FP32.
    "Nemotron-3-Nano": (NEMOTRON_3_NANO, 31_577_937_344 + 2_944, 0),
    "Nemotron-3-Super": (NEMOTRON_3_SUPER, 120_668_687_360 + 20_480, 2_942_325_248),
    # 30 of them are the scalars of the layers, which transformers holds as buffers.
    "Gemma-4-26B-A4B": (GEMMA_4_26B, 25_233_141_760 + 30, 0),
    "Llama-3-8B": (LLAMA_3_8B, 8_030_261_248, 0),
    "Mistral-7B": (
        LLAMA_3_8B | {"model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096},
        7_241_732_096,
        0,
    ),
    "Qwen2.5-7B": (
        {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "vocab_size": 152064,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "use_sliding_window": False,
            "sliding_window": 131072,
            "max_window_layers": 28,
        },
        7_615_616_512,
        0,
    ),
    "Qwen3-8B": (
        {
            "model_type": "qwen3",
            "hidden_size": 4096,
            "num_hidden_layers": 36,
            "vocab_size": 151936,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 12288,
        },
        8_190_735_360,
        0,
    ),
}


def build(config: dict[str, Any], **changes: Any) -> Model:
    """A model in BF16 from a configuration with some fields changed."""
    return build_model({"dtype": "bfloat16"} | config | changes, None, name="test", source="config.json")


@pytest.mark.parametrize("name", MODELS)
def test_parameters(name: str) -> None:
    config, main, mtp = MODELS[name]
    model = build(config)
    assert (model.parameters(), model.parameters("mtp"), model.parameters(None)) == (main, mtp, main + mtp)


def test_parameters_stored_in_fp32() -> None:
    """Router biases of Nemotron, routers and biases of MiniMax, state parameters of Qwen3.5: all else is BF16."""

    def wide(model: Model) -> dict[str, int]:
        return {t.name: t.parameters for t in model.main if t.format.name == "fp32"}

    assert wide(build(NEMOTRON_3_SUPER)) == {"backbone.layers.{layer}.mixer.gate.e_score_correction_bias": 20_480}
    assert wide(build(MINIMAX_M2)) == {
        "model.layers.{layer}.block_sparse_moe.gate.weight": 62 * 256 * 3072,
        "model.layers.{layer}.block_sparse_moe.e_score_correction_bias": 62 * 256,
    }
    assert wide(build(QWEN3_5_397B)) == {
        "model.layers.{layer}.linear_attn.A_log": 45 * 64,
        "model.layers.{layer}.linear_attn.norm.weight": 45 * 128,
    }


@pytest.mark.parametrize(
    ("name", "active"),
    [
        # With the embedding's rows 3,874,929,408.
        ("Qwen3-Next-80B-A3B", 3_874_929_408 - 151_936 * 2048),
        # 248 of 256 experts rest in each of 75 layers.
        ("GLM-5", 743_911_218_432 - 75 * 248 * 3 * 2048 * 6144 - 154_880 * 6144),
        # Of 120.7 B, 107,898,470,400 rest for one token.
        ("Nemotron-3-Super", 120_668_707_840 - 107_898_470_400 - 131_072 * 4096),
    ],
)
def test_active_parameters(name: str, active: int) -> None:
    assert build(MODELS[name][0]).active_parameters() == active


def test_a_tied_head_is_read_and_not_counted_twice() -> None:
    model = build(GEMMA_4_26B)
    head = next(t for t in model.main if t.row == "head")
    assert model.tied and head.tied
    assert head.parameters == 0
    assert head.values == 262_144 * 2816
    untied = build(GEMMA_4_26B, tie_word_embeddings=False)
    assert untied.parameters() - model.parameters() == head.values
    assert untied.active_parameters() == model.active_parameters()


def test_layers_that_borrow_a_cache_still_hold_their_unread_projections() -> None:
    """Gemma-4 E2B and E4B as first released: keys and values of the last layers are there, and never read."""
    small: dict[str, Any] = {
        "model_type": "gemma4_text",
        "hidden_size": 64,
        "num_hidden_layers": 6,
        "vocab_size": 100,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "sliding_window": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "global_head_dim": 32,
        "intermediate_size": 48,
        "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 50,
        "num_kv_shared_layers": 2,
    }
    model = build(small)
    unread = [(t.module.rpartition(".")[2], t.layers, t.parameters) for t in model.main if t.read == "never"]
    assert unread == [
        ("k_proj", (4,), 2 * 16 * 64),
        ("v_proj", (4,), 2 * 16 * 64),
        ("k_norm", (4,), 16),
        ("k_proj", (5,), 2 * 32 * 64),
        ("v_proj", (5,), 2 * 32 * 64),
        ("k_norm", (5,), 32),
    ]
    gates = {t.layers: t.shape for t in model.main if t.module.endswith("mlp.gate_proj")}
    assert gates == {(0, 1, 2, 3): (48, 64), (4, 5): (96, 64)}
    inputs = {t.module.rpartition(".")[2]: t.parameters for t in model.main if "per_layer" in t.module}
    assert inputs == {
        "embed_tokens_per_layer": 50 * 6 * 8,
        "per_layer_model_projection": 6 * 8 * 64,
        "per_layer_projection_norm": 8,
        "per_layer_input_gate": 6 * 8 * 64,
        "per_layer_projection": 6 * 8 * 64,
        "post_per_layer_input_norm": 6 * 64,
    }
    assert [(c.layers, c.window, c.borrowed) for c in model.caches] == [
        ((0, 2), 8, False),
        ((4,), 8, True),
        ((1, 3), None, False),
        ((5,), None, True),
    ]
