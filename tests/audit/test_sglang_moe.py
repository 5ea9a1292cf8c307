"""Where SGLang's experts' backends lead, read from released wheels; and the same answers when the source is edited."""

import re
from collections.abc import Callable

import pytest

from sublight.audit.engines.base import Route
from sublight.audit.engines.sglang import SGLANG, moe
from sublight.audit.ladder import Answer
from sublight.audit.question import ask as ask_for
from sublight.audit.question import card
from sublight.audit.source.tree import Sources
from sublight.audit.target import Shape, Target
from sublight.facts.workload import Layout
from tests.audit.wheels import ENGINE_PACKAGES, Disk, installed, sources

pytestmark = pytest.mark.wheels

METHOD = "sglang/srt/layers/quantization/modelopt_quant.py"
CUTLASS = "sglang/srt/layers/moe/cutlass_moe.py"
UTILS = "sglang/srt/layers/moe/utils.py"
ARGUMENTS = "sglang/srt/server_args.py"


def target(capability: tuple[int, int], a2a: str = "none", **more: object) -> Target:
    known = {"method": "modelopt", "expert_format": "NVFP4", "model_type": "qwen3_moe"} | more
    layout = known.pop("layout", Layout(tp=8))
    shape = known.pop("shape", Shape(hidden=2048, width=96, experts=128, top_k=8))
    return Target(
        model="a mixture of experts",
        architecture=str(known.pop("architecture", "Qwen3MoeForCausalLM")),
        activation_format="NVFP4",
        shape=shape,  # type: ignore[arg-type]
        gpu="a card",
        compute_capability=capability,
        gpus=8,
        layout=layout,  # type: ignore[arg-type]
        a2a=a2a,
        **known,  # type: ignore[arg-type]
    )


def ask(read: Sources, name: str, asked: Target) -> Route:
    return moe.route(read, name, asked)


class Edited(Disk):
    """An installed engine of which some files read otherwise."""

    def __init__(self, edits: dict[str, Callable[[str], str | None]]) -> None:
        self.edits = edits

    def read(self, path: str) -> bytes | None:
        data = super().read(path)
        for shown, edit in self.edits.items():
            if data is not None and path.endswith(f"/{shown}"):
                text = edit(data.decode())
                return None if text is None else text.encode()
        return data


def edited(requirement: str, edits: dict[str, Callable[[str], str | None]]) -> Sources:
    folder = installed(requirement)
    roots = {name: str(folder) for name in ENGINE_PACKAGES if (folder / name).is_dir()}
    return Sources(Edited(edits), roots)


@pytest.mark.parametrize(
    ("requirement", "where"),
    [("sglang==0.5.8.post1", f"{METHOD}:1717"), ("sglang==0.5.9", f"{METHOD}:1801")],
    ids=["0.5.8.post1", "0.5.9"],
)
def test_cutedsl_without_all_to_all_runs_cutlass(requirement: str, where: str) -> None:
    found = ask(sources(requirement), "flashinfer_cutedsl", target((12, 0)))
    assert found.answer is Answer.FAIL
    assert found.destination == "sglang.srt.layers.moe.cutlass_moe.cutlass_moe_fp4"
    assert where in [proof.where for proof in found.proofs]
    assert "no branch" in found.why
    assert "sgl_kernel.cutlass_fp4_group_mm" in [need.symbol for need in found.needs]
    instead = found.instead[0]
    assert (instead.options, instead.route.beside) == ("--moe-a2a-backend deepep", "--deepep-mode low_latency")


def test_seven_of_nine_names_of_059_end_in_the_same_function() -> None:
    read = sources("sglang==0.5.9")
    names = [each for each in SGLANG.declared(read, "moe") if each.selectable]
    assert len(names) == 9
    routes = {each.name: SGLANG.route(read, each, target((12, 0))) for each in names}
    same = {name for name, route in routes.items() if route.destination.endswith(".cutlass_moe_fp4")}
    assert same == {"auto", "deep_gemm", "triton", "triton_kernel", "flashinfer_mxfp4", "flashinfer_cutedsl", "cutlass"}
    assert {name for name in same if routes[name].answer is Answer.PASS} == {"auto", "cutlass"}
    assert routes["flashinfer_cutlass"].destination == "flashinfer.fused_moe.cutlass_fused_moe"
    assert routes["flashinfer_trtllm"].destination == "flashinfer.fused_moe.trtllm_fp4_block_scale_moe"


def test_059_with_deepep_reaches_the_masked_kernel() -> None:
    found = ask(sources("sglang==0.5.9"), "flashinfer_cutedsl", target((10, 0), "deepep"))
    assert found.beside == "--deepep-mode low_latency"
    assert found.proofs[-1].where == "sglang/srt/layers/moe/ep_moe/layer.py:232"
    assert found.answer is Answer.PASS
    assert found.destination == "sglang.srt.layers.moe.flashinfer_cutedsl_moe.flashinfer_cutedsl_moe_masked"
    needed = [need.symbol for need in found.needs]
    assert "flashinfer.cute_dsl.blockscaled_gemm.grouped_gemm_nt_masked" in needed


def test_059_refuses_cutedsl_with_flashinfers_all_to_all() -> None:
    found = ask(sources("sglang==0.5.9"), "flashinfer_cutedsl", target((10, 0), "flashinfer"))
    assert found.answer is Answer.FAIL
    assert f"{ARGUMENTS}:2214" in [proof.where for proof in found.proofs]
    assert "flashinfer_cutlass" in found.why


@pytest.mark.parametrize("requirement", ["sglang==0.5.8.post1", "sglang==0.5.9"])
def test_nvfp4_off_blackwell_is_refused(requirement: str) -> None:
    found = ask(sources(requirement), "flashinfer_cutlass", target((9, 0)))
    assert found.answer is Answer.FAIL
    assert "Blackwell" in found.why
    assert [gate.answer for gate in found.gates if "is_blackwell_supported" in gate.text] == [Answer.FAIL]


@pytest.mark.parametrize(
    ("capability", "name", "destination"),
    [
        ((10, 0), "flashinfer_cutedsl", "flashinfer.CuteDslMoEWrapper"),
        ((10, 0), "flashinfer_trtllm", "flashinfer.fused_moe.trtllm_fp4_block_scale_moe"),
        ((10, 0), "flashinfer_trtllm_routed", "flashinfer.fused_moe.trtllm_fp4_block_scale_routed_moe"),
        ((10, 0), "flashinfer_cutlass", "flashinfer.fused_moe.cutlass_fused_moe"),
        ((12, 0), "auto", "flashinfer.fused_moe.cutlass_fused_moe"),
        ((9, 0), "auto", "sglang.kernels.ops.moe.moe_wna16_marlin.moe_wna16_marlin_gemm"),
        ((10, 0), "marlin", "sglang.kernels.ops.moe.moe_wna16_marlin.moe_wna16_marlin_gemm"),
    ],
)
def test_names_of_0523_that_lead_to_their_kernel(capability: tuple[int, int], name: str, destination: str) -> None:
    found = ask(sources("sglang==0.5.23"), name, target(capability))
    assert (found.answer, found.destination) == (Answer.PASS, destination)


def test_0523_refuses_cutlass_for_nvfp4_with_its_line() -> None:
    found = ask(sources("sglang==0.5.23"), "cutlass", target((10, 0)))
    assert found.answer is Answer.FAIL
    assert found.proofs[-1].where == f"{METHOD}:3145"
    assert found.proofs[-1].text.startswith("NotImplementedError")
    assert found.hint == "Use --moe-runner-backend flashinfer_cutlass instead"


def test_0523_auto_is_rewritten_on_sm120() -> None:
    found = ask(sources("sglang==0.5.23"), "auto", target((12, 0)))
    assert "rewritten to flashinfer_cutlass" in found.why


@pytest.mark.parametrize(
    ("a2a", "name", "destination"),
    [
        ("flashinfer", "flashinfer_cutlass", "flashinfer.fused_moe.cutlass_fused_moe"),
        ("flashinfer", "flashinfer_trtllm", "flashinfer.fused_moe.trtllm_fp4_block_scale_routed_moe"),
        ("deepep", "flashinfer_cutedsl", "sglang.srt.layers.moe.flashinfer_cutedsl_moe.flashinfer_cutedsl_moe_masked"),
    ],
)
def test_0523_with_data_parallel_attention(a2a: str, name: str, destination: str) -> None:
    shape = Shape(hidden=2048, width=768, experts=16, top_k=8)
    found = ask(sources("sglang==0.5.23"), name, target((10, 0), a2a, layout=Layout(tp=8, dp=8, ep=8), shape=shape))
    assert (found.answer, found.destination) == (Answer.PASS, destination)


@pytest.mark.parametrize(
    ("requirement", "name", "answer", "destination", "why"),
    [
        ("sglang==0.5.9", "deep_gemm", Answer.PASS, "grouped_gemm_nt_f8f8bf16_masked", "runs"),
        ("sglang==0.5.9", "flashinfer_mxfp4", Answer.FAIL, "", "Fp8MoEMethod.runner is set for other names only"),
        ("sglang==0.5.23", "flashinfer_cutlass", Answer.FAIL, "fused_moe_kernel", "Triton"),
        ("sglang==0.5.23", "cutlass", Answer.PASS, "cutlass_fused_experts_fp8", "sgl_kernel"),
        ("sglang==0.5.23", "hpc_ops", Answer.PASS, "fuse_moe_blockwise", "hpc"),
        ("sglang==0.5.23", "megamoe", Answer.PASS, "fp8_mega_moe", "sets all-to-all none to megamoe"),
    ],
)
def test_fp8_blocks_on_hopper(requirement: str, name: str, answer: Answer, destination: str, why: str) -> None:
    asked = target(
        (9, 0), method="fp8", expert_format="FP8 block", shape=Shape(hidden=2048, width=384, experts=128, top_k=8)
    )
    found = ask(sources(requirement), name, asked)
    assert (found.answer, found.destination.rpartition(".")[2]) == (answer, destination)
    assert why in found.why


@pytest.mark.parametrize(
    ("requirement", "capability", "name", "destination"),
    [
        ("sglang==0.5.9", (10, 0), "auto", "flashinfer.trtllm_fp4_block_scale_moe"),
        ("sglang==0.5.23", (9, 0), "flashinfer_mxfp4", "flashinfer.fused_moe.cutlass_fused_moe"),
        ("sglang==0.5.23", (9, 0), "auto", "triton_kernel_fused_experts_with_bias"),
    ],
)
def test_mxfp4_of_gpt_oss(requirement: str, capability: tuple[int, int], name: str, destination: str) -> None:
    asked = target(
        capability, method="mxfp4", expert_format="MXFP4", model_type="gpt_oss", architecture="GptOssForCausalLM"
    )
    found = ask(sources(requirement), name, asked)
    assert found.answer is Answer.PASS
    assert found.destination.endswith(destination)


# -- the same source, edited: verdict and lines follow ------------------------------------------------------------


def test_renaming_the_fallback_renames_the_destination() -> None:
    rename = {path: lambda text: text.replace("cutlass_moe_fp4", "quick_moe_fp4") for path in (METHOD, CUTLASS)}
    found = ask(edited("sglang==0.5.9", rename), "flashinfer_cutedsl", target((12, 0)))
    assert found.destination == "sglang.srt.layers.moe.cutlass_moe.quick_moe_fp4"
    assert found.answer is Answer.FAIL


def test_lines_move_with_the_source() -> None:
    found = ask(edited("sglang==0.5.9", {METHOD: lambda t: "#\n" * 7 + t}), "flashinfer_cutedsl", target((12, 0)))
    assert f"{METHOD}:{1801 + 7}" in [proof.where for proof in found.proofs]


def _with_new_backend(text: str) -> str:
    branch = (
        "        if get_moe_runner_backend().is_brand_new():\n"
        "            from brandnew.fused_moe import brand_new_fused_moe\n\n"
        "            return brand_new_fused_moe(x)\n\n"
        "        if self.enable_flashinfer_cutlass_moe:\n            from sglang.srt.layers.moe.token_dispatcher"
    )
    return text.replace(
        "        if self.enable_flashinfer_cutlass_moe:\n            from sglang.srt.layers.moe.token_dispatcher",
        branch,
        1,
    )


def test_a_backend_that_is_added_is_declared_and_followed() -> None:
    member = '    CUTLASS = "cutlass"\n    BRAND_NEW = "brand_new"\n\n    def is_brand_new(self):\n'
    member += "        return self == MoeRunnerBackend.BRAND_NEW\n"
    read = edited(
        "sglang==0.5.9",
        {
            METHOD: _with_new_backend,
            UTILS: lambda text: text.replace('    CUTLASS = "cutlass"\n', member, 1),
            ARGUMENTS: lambda text: text.replace(
                "MOE_RUNNER_BACKEND_CHOICES = [\n", 'MOE_RUNNER_BACKEND_CHOICES = [\n    "brand_new",\n', 1
            ),
        },
    )
    added = next(each for each in SGLANG.declared(read, "moe") if each.name == "brand_new")
    assert (added.selectable, added.in_enum) == (True, True)
    found = SGLANG.route(read, added, target((12, 0)))
    assert (found.answer, found.destination) == (Answer.PASS, "brandnew.fused_moe.brand_new_fused_moe")
    assert [(need.symbol, need.how) for need in found.needs] == [("brandnew.fused_moe.brand_new_fused_moe", "lazy")]


def test_without_the_fallback_nothing_runs() -> None:
    def cut(text: str) -> str:
        start = text.index("        from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4\n")
        return text[:start] + text[text.index("    def apply_without_routing_weights(") :]

    found = ask(edited("sglang==0.5.9", {METHOD: cut}), "flashinfer_cutedsl", target((12, 0)))
    assert found.answer is Answer.FAIL
    assert found.why.startswith("accepted, but nothing runs")
    assert found.destination == ""


@pytest.mark.parametrize(
    ("path", "edit"),
    [
        (ARGUMENTS, lambda _: None),
        (ARGUMENTS, lambda text: "def broken(:\n" + text),
        (METHOD, lambda _: None),
        (METHOD, lambda text: "match = = 1\n" + text),
        (UTILS, lambda text: re.sub(r"def initialize_moe_config", "def start_moe_config", text)),
    ],
    ids=["no arguments", "newer syntax", "no method", "newer syntax in the method", "another name"],
)
def test_what_cannot_be_followed_is_not_known_and_says_why(path: str, edit: Callable[[str], str | None]) -> None:
    found = ask(edited("sglang==0.5.9", {path: edit}), "flashinfer_cutedsl", target((12, 0)))
    assert found.answer is Answer.NOT_KNOWN
    assert found.why


def whole(model: str, gpu: str, a2a: str = "none", **layout: int) -> Target:
    """The target of a model of the catalogue on a card of it."""
    return ask_for(model, card(gpu, None), Layout(**layout), a2a=a2a).target


@pytest.mark.parametrize(
    ("asked", "destination"),
    [
        (whole("deepseek-v3", "b200", tp=8), "flashinfer.fused_moe.trtllm_fp8_block_scale_moe"),
        (whole("deepseek-v3", "b200", tp=8, ep=8), "flashinfer.fused_moe.trtllm_fp8_block_scale_moe"),
        (whole("glm-5-fp8", "b200", tp=8), "flashinfer.fused_moe.trtllm_fp8_block_scale_moe"),
        (whole("qwen3.5-397b-a17b-nvfp4", "b200", tp=8), "flashinfer.fused_moe.trtllm_fp4_block_scale_moe"),
    ],
    ids=["deepseek-v3", "deepseek-v3-ep", "glm-5-fp8", "qwen3.5-nvfp4"],
)
def test_auto_on_blackwell_is_what_the_resolution_of_the_arguments_sets(asked: Target, destination: str) -> None:
    found = ask(sources("sglang==0.5.23"), "auto", asked)
    assert (found.answer, found.destination) == (Answer.PASS, destination)
    assert found.why.startswith("rewritten to flashinfer_trtllm, ")
    assert [gate for gate in found.gates if gate.answer is Answer.FAIL] == []


def test_auto_of_an_unquantised_hybrid_on_hopper() -> None:
    found = ask(sources("sglang==0.5.23"), "auto", whole("qwen3-next-80b-a3b", "h200", tp=8))
    assert (found.answer, found.why) == (Answer.PASS, "fused_moe_kernel (Triton) runs")


@pytest.mark.parametrize(
    "asked",
    [
        whole("deepseek-v3", "b200", tp=8, ep=8),
        whole("deepseek-v3", "b200", "deepep", tp=8, dp=8, ep=8),
        whole("qwen3-235b-a22b-fp8", "b200", tp=8, ep=8),
    ],
    ids=["ep", "deepep", "qwen3"],
)
def test_fp8_cutlass_is_refused_with_expert_parallelism(asked: Target) -> None:
    found = ask(sources("sglang==0.5.23"), "cutlass", asked)
    assert found.answer is Answer.FAIL
    assert "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1" in found.why
    assert found.proofs[-1].where == "sglang/srt/arg_groups/moe_hook.py:161"


@pytest.mark.parametrize(
    ("requirement", "end"),
    [
        ("sglang==0.5.16", "sglang.jit_kernel.moe_wna16_marlin.moe_wna16_marlin_gemm"),
        ("sglang==0.5.23", "sglang.kernels.ops.moe.moe_wna16_marlin.moe_wna16_marlin_gemm"),
    ],
    ids=["0.5.16", "0.5.23"],
)
def test_marlin_takes_gpt_oss_whose_configuration_says_silu(requirement: str, end: str) -> None:
    found = ask(sources(requirement), "marlin", whole("gpt-oss-120b", "h200", tp=2))
    assert (found.answer, found.destination) == (Answer.PASS, end)


@pytest.mark.parametrize(
    ("gpu", "name", "hint"),
    [
        ("h200", "lora_marlin", "auto, which leads to moe_wna16_marlin_gemm here; flashinfer_cutlass, which the"),
        ("h200", "lora_triton", "auto, which leads to moe_wna16_marlin_gemm here; lora_marlin, which the engine"),
        ("b200", "lora_marlin", "Use --moe-runner-backend flashinfer_cutlass instead"),
    ],
)
def test_the_engines_advice_is_followed_before_it_is_given(gpu: str, name: str, hint: str) -> None:
    found = ask(sources("sglang==0.5.23"), name, whole("glm-5-nvfp4", gpu, tp=8))
    assert found.answer is Answer.FAIL
    assert found.hint.startswith(hint)


@pytest.mark.parametrize("name", ["aiter", "marlin", "cutlass", "humming"])
def test_names_that_a_bf16_checkpoint_swallows(name: str) -> None:
    """AMD's library among them: a test that holds for BF16 mentions it, and does not hold because of it."""
    found = ask(sources("sglang==0.5.23"), name, whole("qwen3-30b-a3b", "h200"))
    assert found.answer is Answer.FAIL
    assert f"no branch on the way to it asks for {name}" in found.why
    assert found.destination.endswith(".fused_moe_kernel")
