"""The pairs of all-to-all and runner that SGLang registers, by its own decorators, and what becomes of other pairs."""

import pytest

from sublight.audit.engines.sglang import moe
from sublight.audit.ladder import Answer
from sublight.audit.question import ask, card
from sublight.audit.source import declarations
from sublight.audit.source.tree import Sources
from sublight.facts.workload import Layout
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

FOLDERS = ("sglang.srt.layers.moe", "sglang.srt.layers.moe.moe_runner", "sglang.srt.lora.trtllm_lora_temp",
           "sglang.srt.lora.marlin_lora_temp")  # fmt: skip
ALONE = {
    "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutlass", "flashinfer_mxfp4", "flashinfer_cutedsl",
    "hpc_ops", "humming", "marlin", "triton", "experimental_sgl_marlin", "experimental_sgl_trtllm",
}  # fmt: skip
FUSED = {
    "sglang==0.5.9": {("none", name) for name in ("flashinfer_trtllm", "marlin", "triton")},
    "sglang==0.5.23": {("none", name) for name in ALONE}
    | {("flashinfer", f"flashinfer_{name}") for name in ("trtllm", "trtllm_routed", "cutlass", "cutedsl")}
    | {("deepep", "flashinfer_cutedsl"), ("flashinfer_megamoe", "flashinfer_megamoe")},
}


def pairs(read: Sources, decorator: str) -> set[tuple[str, str]]:
    modules = [read.module(name) for folder in FOLDERS for name in (folder, *read.submodules(folder))]
    return {
        (arguments[0], arguments[1])
        for module in modules
        if module is not None and decorator in module.text
        for arguments, _ in declarations.decorated(module, decorator)
        if len(arguments) == 2
    }


@pytest.mark.parametrize("requirement", FUSED)
def test_fused_pairs(requirement: str) -> None:
    assert pairs(sources(requirement), "register_fused_func") == FUSED[requirement]


def test_runners_that_take_what_was_permuted() -> None:
    found = pairs(sources("sglang==0.5.23"), "register_pre_permute")
    assert {runner for _, runner in found} >= {"aiter", "ascend", "deep_gemm", "humming", "triton", "triton_kernel"}
    forms = {form for form, runner in found if runner == "deep_gemm"}
    assert forms == {"standard", "flashinfer", "deepep_ll", "deepep_normal", "deepep_v2"}


@pytest.mark.parametrize("a2a", ["none", "flashinfer", "deepep"])
@pytest.mark.parametrize("name", ["flashinfer_cutedsl", "flashinfer_trtllm", "flashinfer_trtllm_routed"])
def test_a_pair_that_nobody_registered_is_refused_and_one_that_is_leads_to_a_kernel(name: str, a2a: str) -> None:
    dp = 1 if a2a == "none" else 8
    asked = ask("glm-5-nvfp4", card("8xb200", None), Layout(tp=8, ep=8, dp=dp), a2a=a2a).target
    found = moe.route(sources("sglang==0.5.23"), name, asked)
    registered = (a2a, name) in FUSED["sglang==0.5.23"]
    assert found.answer is (Answer.PASS if registered else Answer.FAIL)
    if not registered:
        assert f"requires a fused func for a2a backend {a2a}, but none is registered" in found.why
