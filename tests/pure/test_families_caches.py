"""What a sequence leaves behind: keys and values, latents, states; what of them a step reads, and what is reserved."""

from typing import Any

import pytest

from sublight.facts.model import Model
from sublight.facts.tensors import Cache
from tests.pure.test_families_totals import (
    DEEPSEEK_V3,
    GEMMA_4_26B,
    GLM_5,
    GPT_OSS_120B,
    LLAMA_3_8B,
    LLAMA_4_MAVERICK,
    MIXTRAL,
    NEMOTRON_3_NANO,
    QWEN3_5_397B,
    QWEN3_NEXT,
    build,
)

_BF16 = 2


def growing(model: Model) -> list[Cache]:
    return [c for c in model.caches if c.grows and c.stage == "main"]


def states(model: Model) -> list[Cache]:
    return [c for c in model.caches if not c.grows and c.stage == "main"]


def read_at(model: Model, context: int) -> int:
    return sum(c.values_per_token * len(c.layers) * c.tokens_read(context) * _BF16 for c in growing(model))


def per_token(model: Model) -> int:
    return sum(c.values_per_token * len(c.layers) * _BF16 for c in growing(model))


def test_gpt_oss_reserves_more_than_it_reads() -> None:
    model = build(GPT_OSS_120B)
    assert per_token(model) == 36 * 2 * 8 * 64 * _BF16 == 73_728
    # 18 layers see all of 8192 tokens, 18 the last 128: 306.7 MB, where 36 full layers would read 604 MB.
    assert read_at(model, 8192) == 18 * 2048 * 8192 + 18 * 2048 * 128 == 306_708_480
    assert {c.layers[:2]: c.window for c in model.caches} == {(0, 2): 128, (1, 3): None}


def test_gpt_oss_alternates_where_the_configuration_does_not_say() -> None:
    config = {k: v for k, v in GPT_OSS_120B.items() if k != "layer_types"}
    assert build(config).caches == build(GPT_OSS_120B).caches


def test_gemma_keeps_fewer_and_larger_heads_in_global_layers() -> None:
    model = build(GEMMA_4_26B)
    sliding, full = growing(model)
    assert (sliding.heads, sliding.values_per_head, sliding.window, len(sliding.layers)) == (8, 2 * 256, 1024, 25)
    # One projection gives keys and values, which are normalised and rotated apart: both are kept.
    assert (full.heads, full.values_per_head, full.window, full.layers) == (2, 2 * 512, None, (5, 11, 17, 23, 29))
    assert read_at(model, 8192) == 25 * 8 * 512 * 1024 * _BF16 + 5 * 2 * 1024 * 8192 * _BF16


def test_llama_4_looks_back_within_a_chunk_except_in_every_fourth_layer() -> None:
    chunked = next(c for c in build(LLAMA_4_MAVERICK).caches if c.chunk)
    full = next(c for c in build(LLAMA_4_MAVERICK).caches if not c.chunk)
    assert full.layers == tuple(range(3, 48, 4))
    assert [chunked.tokens_read(n) for n in (1, 8192, 8193, 16384)] == [1, 8192, 1, 8192]
    assert full.tokens_read(16384) == 16384


@pytest.mark.parametrize(
    ("says", "full"),
    [
        ({"no_rope_layers": []}, tuple(range(3, 48, 4))),
        ({"no_rope_layers": [0] + [1] * 47}, (0,)),
        ({"no_rope_layer_interval": 16}, (15, 31, 47)),
        ({"layer_types": ["full_attention"] * 2 + ["chunked_attention"] * 46}, (0, 1)),
        ({"attention_chunk_size": None}, tuple(range(48))),
    ],
)
def test_llama_4_says_its_full_layers_in_several_ways(says: dict[str, Any], full: tuple[int, ...]) -> None:
    caches = build(LLAMA_4_MAVERICK, **says).caches
    assert [c.layers for c in caches if c.chunk is None] == [full]


def test_latent_caches_do_not_grow_with_heads() -> None:
    """GLM-5: 576 values a token and layer, whatever `head_dim` says: 89,856 B a token in BF16."""
    latent, index = growing(build(GLM_5))
    assert latent.values_per_token * len(latent.layers) * _BF16 == 576 * 78 * _BF16 == 89_856
    assert (latent.heads, latent.query_heads, latent.latent_split, latent.top_k) == (1, 64, (512, 64), 2048)
    assert latent.tokens_read(100_000) == 2048
    # 128 FP8 values and an FP32 scale a key; every key is scored.
    assert index.values_per_token * index.bytes_per_value == 132
    assert (len(index.layers), index.tokens_read(100_000)) == (78, 100_000)
    assert build(GLM_5, head_dim=192).caches == build(GLM_5).caches


def test_latent_attention_multiplies_latents() -> None:
    """Scores over latent and rotary part, then a sum of latents: two products of 576 and 512 a key and head."""
    (latent,) = growing(build(DEEPSEEK_V3))
    assert latent.flops_per_head == 2 * 576 + 2 * 512


def test_gated_delta_net_keeps_one_matrix_a_value_head() -> None:
    """Qwen3.5-397B: 45 layers of 64 heads of 128x128 in FP32, 188.7 MB a sequence whatever its length."""
    recurrent, conv = states(build(QWEN3_5_397B))
    assert (recurrent.heads, recurrent.values_per_head, recurrent.bytes_per_value) == (64, 128 * 128, 4)
    assert recurrent.values_per_token * 4 * len(recurrent.layers) == 188_743_680
    # q, k and v of the three tokens before, in BF16; a key head with its four value heads is one piece.
    channels = 2 * 16 * 128 + 64 * 128
    assert (conv.heads, conv.values_per_token, conv.bytes_per_value) == (16, 3 * channels, 2)
    assert conv.values_per_token * 2 * len(conv.layers) == 3_317_760
    assert recurrent.flops_per_head == 7 * 128 * 128
    assert conv.flops_per_head * conv.query_heads == 2 * 4 * channels
    assert [c.layers for c in growing(build(QWEN3_5_397B))] == [tuple(range(3, 60, 4))]


def test_mamba_keeps_one_matrix_a_head() -> None:
    recurrent, conv = states(build(NEMOTRON_3_NANO))
    assert (recurrent.heads, recurrent.values_per_head, recurrent.bytes_per_value) == (64, 64 * 128, 4)
    assert recurrent.flops_per_head == 5 * 64 * 128
    channels = 64 * 64 + 2 * 8 * 128
    assert (conv.heads, conv.values_per_token, conv.bytes_per_value) == (8, 3 * channels, 2)
    assert conv.flops_per_head * conv.query_heads == 2 * 4 * channels
    assert len(recurrent.layers) == len(conv.layers) == 23
    (kv,) = growing(build(NEMOTRON_3_NANO))
    assert kv.layers == (5, 12, 19, 26, 33, 42)


@pytest.mark.parametrize(("dtype", "value_bytes"), [("bfloat16", 2), ("float16", 2), ("float32", 4), (None, 4)])
def test_states_are_kept_in_their_own_dtype(dtype: str | None, value_bytes: int) -> None:
    for config, key in ((QWEN3_NEXT, "mamba_ssm_dtype"), (NEMOTRON_3_NANO, "mamba_ssm_cache_dtype")):
        assert states(build(config, **{key: dtype}))[0].bytes_per_value == value_bytes


def test_mixtral_without_head_dim() -> None:
    (kv,) = growing(build(MIXTRAL))
    assert (kv.heads, kv.values_per_head, kv.window) == (8, 2 * 4096 // 32, None)
    assert [c.window for c in build(MIXTRAL, sliding_window=4096).caches] == [4096]


def test_mistral_looks_back_a_window_in_every_layer() -> None:
    (kv,) = growing(build(LLAMA_3_8B, model_type="mistral", sliding_window=4096))
    assert (kv.window, kv.layers) == (4096, tuple(range(32)))


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("says", "limited"),
    [
        ({"use_sliding_window": False}, ()),
        ({"use_sliding_window": True, "sliding_window": None}, ()),
        ({"use_sliding_window": True, "max_window_layers": 28}, (28, 29, 30, 31)),
        (
            {"use_sliding_window": True, "layer_types": ["sliding_attention"] + ["full_attention"] * 31},
            (0,),
        ),
    ],
)
def test_qwen_uses_its_window_only_when_told(model_type: str, says: dict[str, Any], limited: tuple[int, ...]) -> None:
    config = LLAMA_3_8B | {"model_type": model_type, "sliding_window": 4096} | says
    found = {layer: c.window for c in build(config).caches for layer in c.layers}
    assert found == {layer: 4096 if layer in limited else None for layer in range(32)}
