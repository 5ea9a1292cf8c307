"""Layouts that fit or do not, cache layouts, and what a step reads of a context."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.errors import UsageError
from sublight.facts.model import Model, read_model
from sublight.facts.tensors import Cache
from sublight.facts.workload import (
    Layout,
    Routing,
    Speculation,
    Workload,
    cache_bytes_per_token,
    check_fit,
)


@pytest.fixture(scope="module")
def glm5() -> Model:
    return read_model("glm-5")


def per_token(model: Model, kv_dtype: str, kind: str) -> float:
    return sum(
        cache_bytes_per_token(c, kv_dtype) * len(c.layers) for c in model.caches if c.kind == kind and c.stage == "main"
    )


@pytest.mark.parametrize(
    ("kv_dtype", "total"), [("fp8", 44928), ("bf16", 89856), ("fp8_ds_mla", 656 * 78), ("nvfp4", 324 * 78)]
)
def test_a_latent_cache_ignores_head_dim(glm5: Model, kv_dtype: str, total: float) -> None:
    """576 values a token and layer in 78 layers, whatever head_dim says (64 in GLM-5, 192 in GLM-5.2)."""
    assert per_token(glm5, kv_dtype, "latent") == total
    assert per_token(read_model("glm-5.2"), kv_dtype, "latent") == total
    assert per_token(glm5, kv_dtype, "index") == 132 * 78
    assert per_token(read_model("glm-5.2"), kv_dtype, "index") == 132 * 21


def cache(**fields: Any) -> Cache:
    base: dict[str, Any] = {
        "row": "attn.core",
        "kind": "kv",
        "stage": "main",
        "layers": (0,),
        "heads": 2,
        "values_per_head": 128,
        "query_heads": 4,
        "flops_per_head": 256,
    }
    return Cache(**(base | fields))


@pytest.mark.parametrize(
    ("fields", "context", "read"),
    [
        ({}, 1000, 1000),
        ({"window": 128}, 100, 100),
        ({"window": 128}, 1000, 128),
        ({"top_k": 2048}, 2048, 2048),
        ({"top_k": 2048}, 2049, 2048),
        ({"chunk": 8192}, 8192, 8192),
        ({"chunk": 8192}, 8193, 1),
        ({"chunk": 8192}, 12288, 4096),
    ],
)
def test_tokens_read(fields: dict[str, int], context: int, read: int) -> None:
    assert cache(**fields).tokens_read(context) == read


@given(st.integers(1, 10**6), st.integers(1, 5000))
def test_a_window_never_reads_more_than_the_context(context: int, window: int) -> None:
    assert cache(window=window).tokens_read(context) == min(context, window)


@pytest.mark.parametrize(
    ("layout", "found", "hint"),
    [
        ({"tp": 0}, "at least 1", "--tp 1"),
        ({"tp": 8, "dp": 3}, "does not divide 8", "1, 2, 4, 8"),
        ({"tp": 8, "ep": 16}, "does not divide 8", "1, 2, 4, 8"),
        ({"pp": -1}, "at least 1", "--pp 1"),
    ],
)
def test_layouts_that_are_none(layout: dict[str, int], found: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        Layout(**layout)
    assert found in error.value.found
    assert hint in error.value.hint


def test_a_layout_says_what_it_is() -> None:
    assert str(Layout(tp=8, ep=8, dp=8)) == "TP8 + EP8 + DP attention 8"
    assert Layout(tp=4, pp=2).gpus == 8
    assert Layout(tp=8, dp=4).attention_tp == 2
    assert Layout(tp=8, ep=4).expert_tp == 2


@pytest.mark.parametrize(
    ("model", "work", "found"),
    [
        ("glm-5", {"layout": Layout(tp=6)}, "64 attention heads do not divide over 6"),
        ("qwen3-30b-a3b", {"layout": Layout(tp=5)}, "32 attention heads do not divide over 5"),
        ("glm-5", {"layout": Layout(tp=64, ep=64, pp=79)}, "79 pipeline stages for 78 layers"),
        ("kimi-k2", {"speculation": Speculation(draft_length=1, verify_width=2)}, "no multi-token-prediction layers"),
        ("glm-5", {"routing": Routing((1.0,) * 8, "h.json")}, "8 counts for 256 experts"),
        ("qwen3-30b-a3b", {"kv_dtype": "fp8_ds_mla"}, "latent caches"),
    ],
)
def test_models_that_a_layout_does_not_fit(model: str, work: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageError) as error:
        check_fit(read_model(model), Workload(**work))
    assert found in error.value.found


@pytest.mark.parametrize("batch", [0, -1, 10**8])
def test_absurd_batches(batch: int) -> None:
    with pytest.raises(UsageError):
        Workload(batch=batch)


@pytest.mark.parametrize("accepted", [0.5, 4.1, -1.0])
def test_a_step_yields_between_one_token_and_its_width(accepted: float) -> None:
    with pytest.raises(UsageError, match="between 1 and 4"):
        Speculation(draft_length=3, verify_width=4, tokens_per_step=accepted)
