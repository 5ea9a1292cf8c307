"""Which kernel of the catalogue a card gets, by name: every size of batch, every format, and what is said of it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sublight.errors import KernelError
from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.facts.workload import Layout
from sublight.kernels.catalogue import COMPILED, kernel_named
from sublight.kernels.cuda.build import CAPABILITIES, TARGETS, compile_kernel, target_of
from sublight.kernels.cuda.grouped_plan import plan_grouped
from sublight.kernels.cuda.plan import plan_decode
from sublight.kernels.grouped import few_tokens
from sublight.kernels.heuristics import choose
from sublight.kernels.problem import MoeProblem
from tests.torch.toolkit import nvcc

TOKENS = (1, 8, 64, 1024, 4096)
OURS = ["decode", "decode", "grouped", "grouped", "grouped"]
PORTABLE = ["fused-triton"] * 5
SM120_SHARED_BYTES = 101_376


def glm(tokens: int, **change: Any) -> MoeProblem:
    return msgspec.structs.replace(MoeProblem.of(read_model("glm-5-nvfp4"), Layout(tp=8), tokens), **change)


def chosen(card: str, **change: Any) -> list[str]:
    return [choose(glm(tokens, **change), get_gpu(card)).kernel.name for tokens in TOKENS]


@pytest.mark.parametrize(
    ("card", "names"),
    [
        ("h200", OURS),
        ("rtx-pro-6000-server", OURS),
        ("b200", OURS),
        ("b300", PORTABLE),  # sm_103 and sm_121 are targets of their own, and nothing is built for them
        ("gb10", PORTABLE),
        ("a100-80gb-sxm", PORTABLE),
    ],
)
def test_nvfp4_weights_and_bf16_activations(card: str, names: list[str]) -> None:
    assert chosen(card) == names


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("h200", "fused-triton"),
        ("rtx-pro-6000-server", "fused-triton-fp4"),
        ("b200", "fused-triton-fp4"),
        ("a100-80gb-sxm", "fused-triton"),
    ],
)
def test_four_bit_activations_are_another_problem(card: str, name: str) -> None:
    assert chosen(card, activation_format="nvfp4") == [name] * 5


@pytest.mark.parametrize("card", ["h200", "rtx-pro-6000-server", "b200", "a100-80gb-sxm"])
@pytest.mark.parametrize("form", ["mxfp4", "fp8-block", "bf16"])
def test_other_formats_have_the_portable_kernel(card: str, form: str) -> None:
    assert chosen(card, weight_format=form, global_scale="none") == PORTABLE
    assert chosen(card, expert_bias=True) == PORTABLE


def test_what_was_never_run_on_a_card_is_chosen_there_and_says_so() -> None:
    for card, target in (("rtx-pro-6000-server", "sm_120"), ("b200", "sm_100")):
        choice = choose(glm(8), get_gpu(card))
        assert choice.status == COMPILED
        assert choice.reason == (
            f"decode (compiled, not run for {target}) before grouped (priority 5 against 10), "
            "fused-triton (priority 0 against 10)"
        )
        assert choose(glm(64), get_gpu(card)).reason == (
            f"grouped (compiled, not run for {target}) before fused-triton (priority 0 against 5)"
        )
    assert choose(glm(8), get_gpu("h200")).status == choose(glm(64), get_gpu("h200")).status == "run on NVIDIA H200"


LAYERS = {
    # hidden, width, experts, top-k; tokens up to which decode was the faster one on an H200, of those measured
    "qwen3-30b-a3b": (2048, 768, 128, 8, 8, 12),
    "qwen3-next": (2048, 512, 512, 10, 8, 12),
    "qwen3-235b": (4096, 1536, 128, 8, 8, 12),
    "deepseek-v3": (7168, 2048, 256, 8, 8, 12),
    "glm-5-tp8": (6144, 256, 256, 8, 16, 17),
    "glm-5-ep8": (6144, 2048, 32, 1, 16, 17),
    "qwen3-235b-tp4": (4096, 384, 128, 8, 16, 17),
    "mixtral-tp4": (4096, 3584, 8, 2, 16, 17),
}


@pytest.mark.parametrize("name", LAYERS)
def test_between_nine_and_sixteen_tokens_the_faster_kernel_is_chosen(name: str) -> None:
    hidden, width, experts, top_k, decode, grouped = LAYERS[name]
    few = few_tokens(plan_grouped(hidden, width, experts, top_k, 16, 232_448), 132)
    assert decode <= few < grouped
    names = {}
    sizes: dict[str, Any] = {"hidden_size": hidden, "intermediate_size": width, "num_experts": experts, "top_k": top_k}
    for tokens in (1, 8, few, few + 1):
        choice = choose(MoeProblem(tokens=tokens, **sizes), get_gpu("h200"))
        names[tokens] = choice.kernel.name
    assert names == {1: "decode", 8: "decode", few: "decode", few + 1: "grouped"}
    if few < 16:
        assert choice.reason.startswith("grouped (run on NVIDIA H200 for sm_90) before decode (priority 10 against 15)")


def test_a_router_inside_keeps_the_decode_kernel() -> None:
    sizes: dict[str, Any] = {"hidden_size": 2048, "intermediate_size": 768, "num_experts": 128, "top_k": 8}
    problem = MoeProblem(tokens=16, **sizes, routing="softmax")
    assert choose(problem, get_gpu("h200")).kernel.name == "decode"


def test_experts_of_other_ranks_are_hit_elsewhere() -> None:
    plan = plan_grouped(2048, 768, 128, 8, 16, 232_448)
    assert few_tokens(plan, 132) < 12
    assert few_tokens(plan, 132, 8) == 16  # an eighth of the pairs is here, on 15 experts


def test_a_declared_target_is_one_that_sources_compile_for_and_a_workspace_takes() -> None:
    assert set(CAPABILITIES.values()) == set(TARGETS)
    for name in ("decode", "grouped"):
        assert {f"{target}a" for target in kernel_named(name).statuses} == set(TARGETS)
    assert [target_of("a kernel", each) for each in ((9, 0), (10, 0), (12, 0))] == ["sm_90a", "sm_100a", "sm_120a"]
    for capability in ((10, 3), (12, 1), (8, 9), (10, 1), (11, 0)):
        with pytest.raises(KernelError) as error:
            target_of("a kernel", capability)
        assert error.value.found == f"this GPU is sm_{capability[0]}{capability[1]}, which it is not built for"
        assert str(error.value).endswith("a GPU that is exactly one of sm_90, sm_100, sm_120")


@pytest.mark.parametrize(("tokens", "kernel"), [(1, "decode"), (8, "decode"), (16, "decode"), (64, "grouped")])
def test_what_an_rtx_pro_6000_gets_fits_it_and_compiles_for_it(tmp_path: Path, tokens: int, kernel: str) -> None:
    card = get_gpu("rtx-pro-6000-server")
    choice = choose(glm(tokens), card)
    assert choice.kernel.name == kernel
    assert card.shared_memory_per_block_bytes.known == SM120_SHARED_BYTES
    count = int(card.sm_count.known)
    if kernel == "decode":
        plan: Any = plan_decode(6144, 256, 8, tokens, count, SM120_SHARED_BYTES)
    else:
        plan = plan_grouped(6144, 256, 256, 8, tokens, SM120_SHARED_BYTES, hopper=False)
    assert choice.configuration == plan.defines()
    assert plan.shared_bytes <= SM120_SHARED_BYTES
    cubin = compile_kernel(f"moe_{kernel}.cu", choice.configuration, "sm_120a", nvcc(), tmp_path)
    assert cubin.startswith(b"\x7fELF")
