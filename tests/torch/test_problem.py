"""MoeProblem: what is a layer, what is none, and which dimension is to blame."""

from typing import Any

import pytest

from sublight.errors import KernelError
from sublight.facts.catalogue.models import model_names
from sublight.facts.model import read_model
from sublight.facts.workload import Layout
from sublight.kernels.problem import MoeProblem

BASE: dict[str, Any] = {"tokens": 4, "hidden_size": 6144, "intermediate_size": 256, "num_experts": 256, "top_k": 8}


@pytest.mark.parametrize(
    ("change", "asked", "found"),
    [
        ({"tokens": -1}, "tokens", "it is -1"),
        ({"top_k": 0}, "top_k", "it is 0"),
        ({"top_k": 257}, "top_k", "257 of 256 experts"),
        ({"hidden_size": 2**31}, "hidden_size", "it is 2147483648"),
        ({"intermediate_size": 232}, "intermediate_size", r"232 cuts through a group of 16 .* \(14.5 groups\)"),
        (
            {"intermediate_size": 720, "weight_format": "mxfp4", "global_scale": "none"},
            "intermediate_size",
            r"720 cuts through a group of 32 .* \(22.5 groups\)",
        ),
        ({"weight_format": "nvfp5"}, "weight_format", "'nvfp5' is not known"),
        ({"activation": "silu"}, "activation", "'silu' is not known"),
        ({"weight_format": "mxfp4"}, "global_scale", "mxfp4 has none"),
        (
            {"weight_format": "mxfp4", "global_scale": "none", "activation_format": "nvfp4"},
            "activation_format",
            "nvfp4 beside mxfp4 weights",
        ),
        ({"activation": "relu2", "global_scale": "projection"}, "global_scale", "relu2 has one projection only"),
    ],
)
def test_the_dimension_to_blame_is_named(change: dict[str, Any], asked: str, found: str) -> None:
    with pytest.raises(KernelError, match=f"an expert layer with this {asked}: {found}"):
        MoeProblem(**BASE | change)


@pytest.mark.parametrize(
    ("model", "layout", "wanted"),
    [
        ("glm-5-nvfp4", Layout(tp=8), (6144, 256, 256, 8, 1)),
        ("glm-5-nvfp4", Layout(tp=8, ep=8), (6144, 2048, 32, 8, 8)),
        ("glm-5-nvfp4", Layout(tp=8, ep=2), (6144, 512, 128, 8, 2)),
        ("deepseek-v3.1-nvfp4", Layout(), (7168, 2048, 256, 8, 1)),
        ("nemotron-3-nano-30b-a3b-nvfp4", Layout(tp=4), (2688, 464, 128, 6, 1)),
    ],
)
def test_the_shape_that_one_rank_sees(model: str, layout: Layout, wanted: tuple[int, ...]) -> None:
    p = MoeProblem.of(read_model(model), layout, tokens=4)
    assert (p.hidden_size, p.intermediate_size, p.num_experts, p.top_k, p.expert_ranks) == wanted
    assert (p.tokens, p.weight_format, p.activation_format, p.global_scale) == (4, "nvfp4", "bf16", "expert")


def test_what_families_compute() -> None:
    layers = {
        name: MoeProblem.of(read_model(name), Layout(), tokens=1)
        for name in ("gpt-oss-120b", "nemotron-3-nano-30b-a3b-nvfp4", "gemma-4-26b-a4b", "qwen3-30b-a3b", "deepseek-v3")
    }
    assert [(p.activation, p.weight_format, p.expert_bias, p.up_rows) for p in layers.values()] == [
        ("swiglu-oai", "mxfp4", True, 5760),
        ("relu2", "nvfp4", False, 1856),
        ("geglu", "bf16", False, 1408),
        ("swiglu", "bf16", False, 1536),
        ("swiglu", "fp8-block", False, 4096),
    ]


def test_a_cut_through_a_group_is_refused() -> None:
    with pytest.raises(KernelError, match="232 cuts through a group of 16"):
        MoeProblem.of(read_model("nemotron-3-nano-30b-a3b-nvfp4"), Layout(tp=8), tokens=1)
    with pytest.raises(KernelError, match="720 cuts through a group of 32"):
        MoeProblem.of(read_model("gpt-oss-120b"), Layout(tp=4), tokens=1)
    with pytest.raises(KernelError, match="intermediate_size 2048 does not divide over 3 ranks"):
        MoeProblem.of(read_model("glm-5-nvfp4"), Layout(tp=3), tokens=1)


def test_a_weight_only_checkpoint_has_no_quantised_activations() -> None:
    model = read_model("qwen3.6-35b-a3b-nvfp4")
    assert MoeProblem.of(model, Layout(), tokens=1).activation_format == "bf16"
    with pytest.raises(KernelError, match="the checkpoint is weight-only"):
        MoeProblem.of(model, Layout(), tokens=1, activation_format="nvfp4")
    assert MoeProblem.of(read_model("glm-5-nvfp4"), Layout(), 1, "nvfp4").activation_format == "nvfp4"


def test_every_model_of_the_catalogue_is_a_problem_or_says_why_not() -> None:
    refused = {}
    for name in model_names():
        try:
            problem = MoeProblem.of(read_model(name), Layout(), tokens=1)
        except KernelError as error:
            refused[name] = error.found
        else:
            moe = read_model(name).moe
            assert moe is not None
            assert (problem.num_experts, problem.top_k, problem.intermediate_size) == (
                moe.experts,
                moe.top_k,
                moe.width,
            )
    reasons = {
        name: found for name, found in refused.items() if "'int4-g" not in found and "activation of" not in found
    }
    assert reasons == {}
    assert {"kimi-k2.5", "llama-4-maverick"} <= set(refused) and "glm-5-nvfp4" not in refused


def test_what_is_not_known_is_not_guessed() -> None:
    with pytest.raises(KernelError, match="activation of family 'llama4_text' is not known here"):
        MoeProblem.of(read_model("llama-4-maverick"), Layout(), tokens=1)


def test_in_words() -> None:
    problem = MoeProblem.of(read_model("glm-5-nvfp4"), Layout(tp=8, ep=8), tokens=4)
    assert str(problem) == (
        "4 tokens, top 8 of 32 of 256 experts, 6144 -> 2048 swiglu, nvfp4 weights, bf16 activations"
    )
    assert problem.pairs == 32
