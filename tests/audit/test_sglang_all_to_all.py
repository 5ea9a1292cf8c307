"""SGLang's experts with an all-to-all: what each leads to, also past the layer, in the model's own block."""

import re

import pytest

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import moe
from sublight.audit.ladder import Answer
from sublight.audit.question import ask as ask_for
from sublight.audit.question import card
from sublight.audit.target import Target
from sublight.facts.workload import Layout
from tests.audit.reading import edited
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

MEGA = "deep_gemm.fp8_fp4_mega_moe"


def whole(model: str, gpu: str, a2a: str, dp: int = 1) -> Target:
    return ask_for(model, card(f"8x{gpu}", None), Layout(tp=8, ep=8, dp=dp), a2a=a2a).target


def ask(name: str, asked: Target, requirement: str = "sglang==0.5.23") -> Route:
    return moe.route(sources(requirement), name, asked)


@pytest.mark.parametrize(
    ("model", "gpu", "name", "answer", "destination"),
    [
        ("glm-5-nvfp4", "b200", "auto", Answer.PASS, MEGA),
        ("glm-5-nvfp4", "b200", "megamoe", Answer.PASS, MEGA),
        ("glm-5-nvfp4", "b200", "triton", Answer.FAIL, MEGA),
        ("qwen3-235b-a22b-fp8", "h200", "auto", Answer.PASS, "deep_gemm.fp8_mega_moe"),
        ("deepseek-v3", "h200", "auto", Answer.PASS, "deep_gemm.fp8_mega_moe"),
        # FP8 blocks have no such kernel on SM100: the block falls back to its layer.
        ("deepseek-v3", "b200", "megamoe", Answer.FAIL,
         "sglang.kernels.ops.moe.fused_moe_triton_kernels.fused_moe_kernel"),
    ],
)  # fmt: skip
def test_the_block_calls_a_kernel_past_the_layer(
    model: str, gpu: str, name: str, answer: Answer, destination: str
) -> None:
    found = ask(name, whole(model, gpu, "megamoe", dp=8))
    assert (found.answer, found.destination) == (answer, destination)


def test_a_block_that_has_no_way_back_refuses_with_its_line() -> None:
    found = ask("auto", whole("qwen3-235b-a22b-fp8", "b200", "megamoe", dp=8))
    assert found.answer is Answer.FAIL
    assert found.why.startswith("refused when the layer is called: moe_a2a_backend=megamoe needs MegaMoE expert")
    assert re.fullmatch(r"sglang/srt/models/qwen3_moe\.py:\d+", found.proofs[-1].where)


def test_without_the_models_module_the_block_is_not_known() -> None:
    change = {"models/qwen3_moe.py": ("class Qwen3MoeForCausalLM", "class Elsewhere")}
    read = edited(sources("sglang==0.5.23"), change)
    found = moe.route(read, "auto", whole("qwen3-235b-a22b-fp8", "h200", "megamoe", dp=8))
    assert found.answer is Answer.NOT_KNOWN
    assert found.why.endswith("no module of sglang.srt.models defines Qwen3MoeForCausalLM")


def test_a_block_that_no_longer_asks_for_the_kernel_calls_its_layer() -> None:
    change = {"models/qwen3_moe.py": (
        "            return self._forward_mega_moe(hidden_states, forward_batch)\n",
        "            return self.forward_normal(hidden_states)\n",
    )}  # fmt: skip
    read = edited(sources("sglang==0.5.23"), change)
    found = moe.route(read, "auto", whole("qwen3-235b-a22b-fp8", "h200", "megamoe", dp=8))
    assert found.destination != "deep_gemm.fp8_mega_moe"


@pytest.mark.parametrize(
    ("requirement", "model", "gpu", "a2a", "name", "answer", "told"),
    [
        ("sglang==0.5.9", "deepseek-v3", "h200", "deepep", "auto", Answer.PASS, "grouped_gemm_nt_f8f8bf16_masked"),
        ("sglang==0.5.9", "deepseek-v3", "h200", "deepep", "triton", Answer.FAIL, "deepep_ll to triton is not"),
        ("sglang==0.5.9", "deepseek-v3", "h200", "deepep", "cutlass", Answer.FAIL,
         "DeepEPLLDispatchOutput has no attribute topk_output"),
        ("sglang==0.5.9", "glm-5-nvfp4", "b200", "deepep", "cutlass", Answer.FAIL, "forward_deepgemm_masked is"),
        ("sglang==0.5.16", "deepseek-v3", "h200", "deepep", "auto", Answer.PASS, "grouped_gemm_nt_f8f8bf16_masked"),
        ("sglang==0.5.23", "deepseek-v3", "b200", "deepep_v2", "auto", Answer.PASS, "rewritten to deep_gemm"),
        ("sglang==0.5.23", "deepseek-v3", "b200", "nixl", "deep_gemm", Answer.FAIL, "Normal mode is not supported"),
        ("sglang==0.5.23", "glm-5-nvfp4", "b200", "ascend_tp", "auto", Answer.PASS, "sets all-to-all ascend_tp"),
    ],
)  # fmt: skip
def test_other_all_to_alls(
    requirement: str, model: str, gpu: str, a2a: str, name: str, answer: Answer, told: str
) -> None:
    found = ask(name, whole(model, gpu, a2a), requirement)
    assert found.answer is answer
    assert told in found.why


def test_the_mode_that_an_all_to_all_has_is_what_to_try() -> None:
    found = ask("deep_gemm", whole("deepseek-v3", "h200", "nixl"), "sglang==0.5.16")
    assert found.answer is Answer.FAIL
    (instead,) = found.instead
    assert (instead.options, instead.route.answer) == ("--deepep-mode low_latency", Answer.PASS)
    assert instead.route.destination.endswith(".grouped_gemm_nt_f8f8bf16_masked")
