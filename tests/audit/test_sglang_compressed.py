"""Checkpoints that compressed-tensors wrote, in SGLang: which of its schemes takes them, and where names lead then."""

import msgspec
import pytest

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import SGLANG, compressed, gemm, moe
from sublight.audit.ladder import Answer
from sublight.audit.source import operators
from sublight.audit.source.tree import Sources
from sublight.audit.source.values import Class, Instance
from sublight.audit.target import Shape, Target
from tests.audit.reading import edited
from tests.audit.test_sglang_moe import target
from tests.audit.wheels import sources

SCHEMES = "quantization/compressed_tensors/schemes"
CUTLASS = "flashinfer.fused_moe.cutlass_fused_moe"
MARLIN = "sglang.kernels.ops.moe.moe_wna16_marlin.moe_wna16_marlin_gemm"


def checkpoint(capability: tuple[int, int], expert_format: str = "NVFP4", **more: object) -> Target:
    shape = Shape(hidden=2048, width=128, experts=128, top_k=8)
    return target(capability, **{"method": "compressed-tensors", "expert_format": expert_format, "shape": shape} | more)


def ask(name: str, asked: Target, requirement: str = "sglang==0.5.23") -> Route:
    return moe.route(sources(requirement), name, asked)


def test_words_of_the_format_equal_their_text_under_every_name_they_are_imported_by() -> None:
    found = compressed.values()
    for place in ("compressed_tensors", "compressed_tensors.quantization"):
        strategy = found[f"{place}.QuantizationStrategy"]
        assert isinstance(strategy, Class)
        assert operators.equal(strategy.members["TENSOR_GROUP"], "tensor_group") is True
        assert operators.equal(strategy.members["TENSOR_GROUP"], "tensor") is False
    form = found["compressed_tensors.config.CompressionFormat"]
    assert form.members["nvfp4_pack_quantized"].value == "nvfp4-pack-quantized"


def test_a_record_has_the_fields_of_the_configuration_and_defaults_for_the_rest() -> None:
    make = compressed.calls()["compressed_tensors.quantization.QuantizationArgs.model_validate"]
    made = make([{"num_bits": 4, "type": "float"}], {})
    assert isinstance(made, Instance)
    assert (made.attributes["num_bits"], made.attributes["type"]) == (4, "float")
    assert (made.attributes["dynamic"], made.attributes["actorder"]) == (False, None)


@pytest.mark.wheels
@pytest.mark.parametrize(
    ("capability", "name", "answer", "destination"),
    [
        ((12, 0), "auto", Answer.PASS, CUTLASS),
        ((12, 0), "flashinfer_cutlass", Answer.PASS, CUTLASS),
        ((12, 0), "flashinfer_trtllm", Answer.PASS, "flashinfer.fused_moe.trtllm_fp4_block_scale_moe"),
        ((12, 0), "experimental_sgl_trtllm", Answer.FAIL, "flashinfer.fused_moe.trtllm_fp4_block_scale_moe"),
        ((12, 0), "triton", Answer.FAIL, CUTLASS),
        ((12, 0), "marlin", Answer.FAIL, CUTLASS),
        ((12, 0), "cutlass", Answer.FAIL, CUTLASS),
        ((9, 0), "auto", Answer.PASS, MARLIN),
        ((9, 0), "marlin", Answer.PASS, MARLIN),
        ((9, 0), "triton", Answer.FAIL, MARLIN),
        ((9, 0), "flashinfer_trtllm", Answer.FAIL, MARLIN),
    ],
)
def test_nvfp4_takes_one_of_three_kernels(
    capability: tuple[int, int], name: str, answer: Answer, destination: str
) -> None:
    found = ask(name, checkpoint(capability))
    assert (found.answer, found.destination) == (answer, destination)


@pytest.mark.wheels
def test_the_old_versions_have_one_kernel_for_it() -> None:
    found = {
        name: ask(name, checkpoint((12, 0)), "sglang==0.5.9") for name in ("auto", "cutlass", "flashinfer_cutedsl")
    }
    assert {each.destination.rpartition(".")[2] for each in found.values()} == {"cutlass_moe_fp4"}
    assert [each.answer for each in found.values()] == [Answer.PASS, Answer.PASS, Answer.FAIL]


@pytest.mark.wheels
@pytest.mark.parametrize(
    ("group", "name", "destination"),
    [
        ("INT4 group 32", "flashinfer_trtllm", "flashinfer.fused_moe.trtllm_mxint4_block_scale_moe"),
        ("INT4 group 128", "flashinfer_trtllm", MARLIN),
        ("INT4 group 32", "marlin", MARLIN),
        ("INT4 group 32", "triton", "sglang.kernels.ops.moe.fused_moe_triton_kernels.fused_moe_kernel_gptq_awq"),
    ],
)
def test_four_bit_integers_are_told_apart_by_their_groups(group: str, name: str, destination: str) -> None:
    asked = checkpoint((10, 0), group, shape=Shape(hidden=7168, width=256, experts=384, top_k=8))
    assert ask(name, asked).destination == destination


@pytest.mark.wheels
def test_weight_only_nvfp4_goes_to_marlin_on_every_card() -> None:
    asked = checkpoint((10, 0))
    weight_only = msgspec.structs.replace(asked, activation_format="BF16")
    assert ask("auto", weight_only).destination == MARLIN
    assert ask("triton", weight_only).answer is Answer.FAIL


@pytest.mark.wheels
@pytest.mark.parametrize(
    ("capability", "destination"),
    [((10, 0), "flashinfer.mm_fp4"), ((9, 0), "sglang.kernels.ops.gemm.gptq_marlin.gptq_marlin_gemm")],
)
def test_products_outside_the_experts(capability: tuple[int, int], destination: str) -> None:
    found = gemm.route(sources("sglang==0.5.23"), "auto", checkpoint(capability))
    assert (found.answer, found.destination) == (Answer.PASS, destination)


@pytest.mark.wheels
def test_experts_too_narrow_for_marlin_are_refused_with_the_line_that_says_so() -> None:
    found = ask("auto", checkpoint((9, 0), shape=Shape(hidden=2048, width=96, experts=128, top_k=8)))
    assert found.answer is Answer.FAIL
    assert "intermediate_size_per_partition % 64 == 0, got 96" in found.why


@pytest.mark.wheels
def test_a_scheme_that_is_edited_leads_elsewhere() -> None:
    read: Sources = edited(
        sources("sglang==0.5.23"),
        {f"{SCHEMES}/compressed_tensors_w4a4_nvfp4_moe.py": (
            "get_moe_runner_backend().is_flashinfer_trtllm()", "get_moe_runner_backend().is_triton()"
        )},
    )  # fmt: skip
    asked = checkpoint((12, 0))
    routes = {each.name: SGLANG.route(read, each, asked) for each in SGLANG.declared(read, "moe")
              if each.name in ("triton", "flashinfer_trtllm")}  # fmt: skip
    assert routes["triton"].destination == "flashinfer.fused_moe.trtllm_fp4_block_scale_moe"
    assert routes["flashinfer_trtllm"].destination == CUTLASS
    assert routes["flashinfer_trtllm"].answer is Answer.FAIL
