"""What SGLang's released wheels declare, pin, and read from the environment."""

import pytest

from sublight.audit.engines.sglang import SGLANG, moe
from sublight.audit.engines.sglang.arguments import launch
from sublight.audit.ladder import Answer
from tests.audit.reading import edited, without
from tests.audit.test_sglang_moe import target
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

UTILS = "sglang/srt/layers/moe/utils.py"


@pytest.mark.parametrize(
    ("requirement", "enum", "choices", "members", "accepted", "only_enum", "only_choices"),
    [
        ("sglang==0.5.8.post1", f"{UTILS}:52", "sglang/srt/server_args.py:173", 10, 9, ["marlin"], []),
        ("sglang==0.5.9", f"{UTILS}:59", "sglang/srt/server_args.py:177", 10, 9, ["marlin"], []),
        ("sglang==0.5.16", f"{UTILS}:92", "sglang/srt/server_args.py:252", 16, 15, ["ascend"], []),
        ("sglang==0.5.23", f"{UTILS}:195", "sglang/srt/arg_groups/choices.py:137", 22, 22, ["ascend"], ["megamoe"]),
    ],
    ids=lambda value: str(value).removeprefix("sglang==") if str(value).startswith("sglang==") else "",
)
def test_experts_backends(
    requirement: str,
    enum: str,
    choices: str,
    members: int,
    accepted: int,
    only_enum: list[str],
    only_choices: list[str],
) -> None:
    found = SGLANG.declared(sources(requirement), "moe")
    assert sum(each.in_enum is True for each in found) == members
    assert sum(each.selectable is True for each in found) == accepted
    assert [each.name for each in found if each.selectable is False] == only_enum
    assert [each.name for each in found if each.in_enum is False] == only_choices
    first = found[0]
    assert (first.name, first.flag) == ("auto", "--moe-runner-backend auto")
    assert [proof.where for proof in first.proofs] == [choices, enum]
    assert "triton_kernel" in [each.name for each in found]


@pytest.mark.parametrize(
    ("requirement", "area", "accepted", "own"),
    [
        ("sglang==0.5.9", "fp4-gemm", 4, 4),
        ("sglang==0.5.23", "fp4-gemm", 6, 6),
        ("sglang==0.5.9", "attention", 17, 17),
        ("sglang==0.5.23", "attention", 25, 23),
    ],
)
def test_other_areas(requirement: str, area: str, accepted: int, own: int) -> None:
    found = SGLANG.declared(sources(requirement), area)
    assert sum(each.selectable is True for each in found) == accepted
    assert sum(each.in_enum is True for each in found) == own


def test_without_a_list_of_choices_selectable_is_not_known() -> None:
    read = without(sources("sglang==0.5.9"), "srt/server_args.py")
    found = SGLANG.declared(read, "moe")
    assert {each.selectable for each in found} == {None}
    assert len(found) == 10


def test_a_member_more_is_a_name_more() -> None:
    change = {UTILS: ('    CUTLASS = "cutlass"\n', '    CUTLASS = "cutlass"\n    FRESH = "fresh"\n')}
    found = {each.name: each for each in SGLANG.declared(edited(sources("sglang==0.5.9"), change), "moe")}
    assert (found["fresh"].selectable, found["fresh"].in_enum) == (False, True)
    assert found["fresh"].note.startswith("only in the engine's own enumeration")


def test_pins_of_059() -> None:
    found = {(pin.distribution, pin.specifier): pin for pin in SGLANG.pins(sources("sglang==0.5.9"))}
    flashinfer = found["flashinfer-python", ">=0.6.3"]
    assert ("sgl-kernel", ">=0.3.21") in found
    places = [pin for pin in SGLANG.pins(sources("sglang==0.5.9")) if pin.distribution == "flashinfer-python"]
    start = next(pin for pin in places if "entrypoints" in pin.proof.where)
    assert "server_args.attention_backend == 'flashinfer'" in start.when
    assert flashinfer.specifier == ">=0.6.3"


def test_variables_that_are_read() -> None:
    found = SGLANG.known_variables(sources("sglang==0.5.9"))
    assert found is not None
    assert {"SGLANG_MOE_NVFP4_DISPATCH", "SGLANG_CUTEDSL_MOE_SCALAR_INPUT_SCALE", "SGLANG_USE_AITER"} <= found
    assert "SGLANG_NO_SUCH_THING" not in found


def test_trtllm_mha_is_refused_off_sm100_with_its_line() -> None:
    read = sources("sglang==0.5.9")
    names = {each.name: each for each in SGLANG.declared(read, "attention")}
    refused = SGLANG.route(read, names["trtllm_mha"], target((12, 0)))
    assert refused.answer is Answer.FAIL
    assert "sglang/srt/server_args.py:1899" in [proof.where for proof in refused.proofs]
    assert SGLANG.route(read, names["triton"], target((12, 0))).answer is Answer.PASS


@pytest.mark.parametrize(
    ("requirement", "capability", "name", "backend"),
    [
        ("sglang==0.5.9", (12, 0), "flashinfer_cudnn", "cudnn"),
        ("sglang==0.5.23", (10, 0), "auto", "cute-dsl"),
        ("sglang==0.5.23", (12, 0), "auto", "cutlass"),
    ],
)
def test_fp4_products(requirement: str, capability: tuple[int, int], name: str, backend: str) -> None:
    read = sources(requirement)
    names = {each.name: each for each in SGLANG.declared(read, "fp4-gemm")}
    found = SGLANG.route(read, names[name], target(capability))
    assert (found.answer, found.destination) == (Answer.PASS, "flashinfer.mm_fp4")
    assert f'backend="{backend}"' in found.why


@pytest.mark.parametrize(
    ("architecture", "model_type", "capability", "made"),
    [
        ("Qwen3MoeForCausalLM", "qwen3_moe", (9, 0), "FlashAttentionBackend"),
        ("Qwen3MoeForCausalLM", "qwen3_moe", (10, 0), "TRTLLMHAAttnBackend"),
        ("Qwen3MoeForCausalLM", "qwen3_moe", (12, 0), "FlashInferAttnBackend"),
        ("DeepseekV3ForCausalLM", "deepseek_v3", (10, 0), "TRTLLMMLABackend"),
        ("DeepseekV3ForCausalLM", "deepseek_v3", (12, 0), "TritonAttnBackend"),
        ("GlmMoeDsaForCausalLM", "glm_moe_dsa", (10, 0), "NativeSparseAttnBackend"),
    ],
)
def test_attention_that_059_chooses(architecture: str, model_type: str, capability: tuple[int, int], made: str) -> None:
    asked = target(capability, architecture=architecture, model_type=model_type)
    found = SGLANG.auto(sources("sglang==0.5.9"), "attention", asked)
    assert (found.answer, found.destination.rpartition(".")[2]) == (Answer.PASS, made)


def test_pairs_that_059_registers() -> None:
    walk = launch(sources("sglang==0.5.9"), target((12, 0)), moe.OPTIONS).walk
    pool = walk.name("sglang.srt.layers.moe.moe_runner.base.FusedOpPool._fused_funcs")
    assert set(pool) == {("none", "flashinfer_trtllm"), ("none", "marlin"), ("none", "triton")}
