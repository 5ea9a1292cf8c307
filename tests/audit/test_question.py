"""From names to the target: formats, architectures, shapes of a rank, and which card is judged for."""

import json
from pathlib import Path

import pytest

from sublight.audit.engines.vllm.formats import activation_of
from sublight.audit.question import ask, card
from sublight.audit.replies import Card, Cards
from sublight.audit.target import Shape, Target
from sublight.errors import SublightError, UsageError
from sublight.facts.catalogue.models import catalogue_model, model_names
from sublight.facts.workload import Layout


def target(model: str, gpu: str = "rtx-pro-6000-server", **layout: int) -> Target:
    return ask(model, card(gpu, None), Layout(**layout)).target


def test_the_first_question() -> None:
    found = target("glm-5-nvfp4", tp=8)
    assert (found.sm, found.method, found.expert_format, found.activation_format) == (
        "sm_120",
        "modelopt",
        "NVFP4",
        "NVFP4",
    )
    assert (found.architecture, found.model_type) == ("GlmMoeDsaForCausalLM", "glm_moe_dsa")
    assert found.shape == Shape(hidden=6144, width=256, experts=256, top_k=8)
    assert (found.gpus, found.a2a, found.activation) == (8, "none", "silu")


@pytest.mark.parametrize(
    ("model", "weights", "activations", "activation"),
    [
        ("qwen3.6-35b-a3b-nvfp4", "NVFP4", "BF16", "silu"),
        ("gpt-oss-120b", "MXFP4", "BF16", "silu"),
        ("deepseek-v3", "FP8 block", "FP8", "silu"),
        ("qwen3-30b-a3b", "BF16", "BF16", "silu"),
        ("nemotron-3-nano-30b-a3b-nvfp4", "NVFP4", "NVFP4", "relu2"),
        ("gemma-4-26b-a4b", "BF16", "BF16", "gelu_pytorch_tanh"),
    ],
)
def test_formats_of_experts(model: str, weights: str, activations: str, activation: str) -> None:
    found = target(model, "b200")
    assert (found.expert_format, found.activation_format, found.activation) == (weights, activations, activation)


def test_a_clamped_activation_keeps_its_name_and_the_clamp_stands_beside_it() -> None:
    assert (target("gpt-oss-120b").activation, target("gpt-oss-120b").swiglu_limit) == ("silu", 7.0)
    assert target("qwen3-30b-a3b").swiglu_limit is None


def test_vllm_calls_the_clamped_activation_of_gpt_oss_by_a_name_of_its_own() -> None:
    assert activation_of(target("gpt-oss-120b")) == "swigluoai"
    assert activation_of(target("glm-5-nvfp4")) == "silu"


def test_expert_parallel_ranks_hold_fewer_whole_experts() -> None:
    assert target("glm-5-nvfp4", tp=8, ep=8).shape == Shape(hidden=6144, width=2048, experts=32, top_k=8)


@pytest.mark.parametrize("name", model_names())
def test_every_model_names_its_architecture(name: str) -> None:
    (architecture,) = catalogue_model(name).config["architectures"]
    assert architecture.endswith(("ForCausalLM", "ForConditionalGeneration"))
    assert target(name, "b200").architecture == architecture


def test_a_configuration_without_architectures(tmp_path: Path) -> None:
    config = dict(catalogue_model("qwen3-30b-a3b").config)
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert target(str(tmp_path)).architecture == ""
    assert target(str(tmp_path / "config.json")).expert_format == "BF16"


def test_the_machines_own_card() -> None:
    own = Card("NVIDIA RTX PRO 6000 Blackwell Server Edition", 12, 0)
    judged = card(None, Cards(driver=(own,) * 8))
    assert (judged.gpu.name, judged.count) == ("rtx-pro-6000-server", 8)


@pytest.mark.parametrize(
    ("cards", "found"),
    [
        (None, "nobody could be asked"),
        (Cards(smi_error="nvidia-smi is not there"), "nvidia-smi is not there"),
        (
            Cards(driver=(Card("NVIDIA H200", 9, 0), Card("NVIDIA B200", 10, 0))),
            "several kinds: NVIDIA B200, NVIDIA H200",
        ),
        (Cards(driver=(Card("NVIDIA H200", 10, 0),)), "the driver says compute capability 10.0, the catalogue sm_90"),
        (Cards(driver=(Card("NVIDIA Imaginary", 99, 0),)), "no such name is known"),
        (Cards(driver=(Card("NVIDIA RTX PRO 6000", 12, 0),)), "3 cards go by that name"),
    ],
)
def test_a_card_that_is_not_known_is_asked_for(cards: Cards | None, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        card(None, cards)
    assert found in caught.value.found or found in str(caught.value)
    assert "--gpu" in caught.value.hint


@pytest.mark.parametrize("gpu", ["mi300x", "h2000", "8x"])
def test_cards_that_cannot_be_judged_for(gpu: str) -> None:
    with pytest.raises(SublightError):
        target("glm-5-nvfp4", gpu)
