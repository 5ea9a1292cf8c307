"""Choosing a kernel: reasons for and against, exact targets, shared memory."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sublight.errors import KernelError, UnknownNameError
from sublight.facts.gpu import get_gpu
from sublight.facts.model import read_model
from sublight.facts.workload import Layout
from sublight.kernels.catalogue import COMPILED, Kernel, Limits, all_kernels, kernel_named
from sublight.kernels.heuristics import choose, choose_for
from sublight.kernels.problem import GroupedGemmProblem, MoeProblem, Problem
from sublight.kernels.shared_memory import Tile, deepest_stages, shared_memory_remark

H200, SERVER, GB10 = get_gpu("h200"), get_gpu("rtx-pro-6000-server"), get_gpu("gb10")
TRAITS = {
    "weight_format": ("nvfp4",),
    "activation_format": ("bf16",),
    "activation": ("swiglu",),
    "routing": ("given",),
    "global_scale": ("expert", "projection"),
    "expert_bias": ("no",),
}
DECODE = Kernel(
    name="decode",
    op="fused_moe",
    statuses={"sm_90": "run on NVIDIA H200", "sm_120": COMPILED},
    traits=TRAITS,
    steps={"hidden_size": 64, "intermediate_size": 64},
    ranges={"tokens": (1, 16)},
    priority=1,
    loader="posixpath:join",
)
GROUPED = msgspec.structs.replace(DECODE, name="grouped", ranges={"tokens": (1, 1 << 20)}, priority=0)
PORTABLE = msgspec.structs.replace(
    GROUPED, name="portable", priority=9, statuses={"sm_90": COMPILED, "sm_120": COMPILED}
)
ALL = (PORTABLE, GROUPED, DECODE)


def layer(tokens: int, **change: Any) -> MoeProblem:
    return msgspec.structs.replace(MoeProblem.of(read_model("glm-5-nvfp4"), Layout(tp=8), tokens), **change)


def test_what_was_run_comes_before_what_was_compiled_and_then_priority() -> None:
    choice = choose(layer(4), H200, ALL)
    assert choice.kernel.name == "decode" and choice.status == "run on NVIDIA H200"
    assert choice.reason == (
        "decode (run on NVIDIA H200 for sm_90) before grouped (priority 0 against 1), portable (only compiled)"
    )
    assert choice.refused == {}


def test_a_range_of_tokens_ends() -> None:
    choice = choose(layer(17), H200, ALL)
    assert choice.kernel.name == "grouped"
    assert choice.refused == {"decode": "tokens 17 is outside 1 to 16"}
    assert choose(layer(16), H200, ALL).kernel.name == "decode"


def test_another_target_of_blackwell_is_another_target() -> None:
    # Kernels for sm_100 started on a B300 (sm_103) and hung, and on sm_120 gave NaN: neither follows from the other.
    for_b200 = msgspec.structs.replace(DECODE, statuses={"sm_100": "run on NVIDIA B200"})
    assert choose(layer(1), get_gpu("b200"), [for_b200]).status == "run on NVIDIA B200"
    for card, target in (("b300", "sm_103"), ("rtx-5090", "sm_120"), ("gb10", "sm_121"), ("h200", "sm_90")):
        with pytest.raises(KernelError, match=f"on {target}: none fits: decode: is built for sm_100"):
            choose(layer(1), get_gpu(card), [for_b200])
    assert choose(layer(4), SERVER, ALL).status == COMPILED
    with pytest.raises(KernelError) as error:
        choose(layer(4), GB10, ALL)
    assert error.value.asked.endswith("on sm_121")
    assert "portable: is built for sm_120, sm_90; grouped: is built for sm_120, sm_90" in error.value.found


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"intermediate_size": 240}, "intermediate_size 240 is no multiple of 64"),
        ({"activation": "swiglu-oai"}, "activation is 'swiglu-oai', it does swiglu"),
        ({"weight_format": "mxfp4", "global_scale": "none"}, "weight_format is 'mxfp4', it does nvfp4"),
        ({"expert_bias": True}, "expert_bias is 'yes', it does no"),
        ({"routing": "sigmoid"}, "routing is 'sigmoid', it does given"),
    ],
)
def test_every_refusal_names_its_dimension(change: dict[str, Any], why: str) -> None:
    with pytest.raises(KernelError, match=f"none fits: decode: {why}"):
        choose(layer(4, **change), H200, [DECODE])


def test_a_trait_that_a_kernel_says_nothing_of_is_refused() -> None:
    silent = msgspec.structs.replace(DECODE, traits={k: v for k, v in TRAITS.items() if k != "expert_bias"})
    with pytest.raises(KernelError, match="expert_bias is 'no', it does not say which"):
        choose(layer(4), H200, [silent])


def test_a_kernel_computes_one_operation() -> None:
    product = GroupedGemmProblem(m=4, n=8, k=32, num_groups=2, operands="nvfp4", out_dtype="bfloat16")
    with pytest.raises(KernelError, match=r"2 products \[4, 32\] x \[8, 32\] of nvfp4.*decode: computes fused_moe"):
        choose(product, H200, [DECODE])
    with pytest.raises(KernelError, match="there is no kernel for any"):
        choose(product, H200, [])


def ring(problem: Problem, limits: Limits) -> dict[str, int]:
    tile = Tile(block_m=16, block_n=64, block_k=512, stages=8, bytes_per_value=0.5625, held=0)
    held = 2 * problem.dimensions()["tokens"] * problem.dimensions()["hidden_size"]
    return {"stages": deepest_stages(tile, limits.shared_memory_bytes or 0, held)}


def test_a_configuration_follows_the_shared_memory_of_the_card() -> None:
    own = msgspec.structs.replace(DECODE, configure=f"{__name__}:ring")
    assert choose(layer(1), H200, [own]).configuration == {"stages": 8}
    assert choose(layer(1), SERVER, [own]).configuration == {"stages": 3}  # (101376 - 12288) // 23040
    with pytest.raises(KernelError, match="one stage takes 23040 B of 3072 B"):
        choose(layer(8), SERVER, [own])
    with pytest.raises(KernelError, match="configuring decode: sm_count of sm_90 is not known"):
        choose_for(layer(1), Limits(target="sm_90", shared_memory_bytes=232448), [own])


def test_unknown_kernels_are_named_with_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match="reference"):
        kernel_named("referense")


DEFAULT = Tile(block_m=128, block_n=256, block_k=128, stages=4, bytes_per_value=1)


def test_147456_bytes_wanted_101376_there() -> None:
    assert DEFAULT.shared_memory_bytes == (4 - 1) * (128 + 256) * 128 == 147456
    limits = {gpu.name: int(gpu.shared_memory_per_block_bytes.known) for gpu in (H200, SERVER, GB10)}
    assert limits == {"h200": 232448, "rtx-pro-6000-server": 101376, "gb10": 101376}
    assert DEFAULT.fits(232448) and not DEFAULT.fits(101376)
    assert deepest_stages(DEFAULT, 101376) == 3
    assert msgspec.structs.replace(DEFAULT, stages=3).shared_memory_bytes == 98304
    assert shared_memory_remark("triton MoE default for M > 32", DEFAULT, 101376) == (
        "triton MoE default for M > 32: 147456 B > 101376 B a block, it will not launch. "
        "Largest that fits: num_stages=3 -> 98304 B"
    )
    assert shared_memory_remark("default", DEFAULT, 232448) == "default: 147456 B of 232448 B a block"
    decode = msgspec.structs.replace(DEFAULT, block_m=16, block_n=32, block_k=64)
    assert decode.fits(101376)


def test_a_tile_that_fits_at_no_depth_is_refused() -> None:
    with pytest.raises(KernelError, match="one stage takes 98304 B of 49152 B"):
        deepest_stages(msgspec.structs.replace(DEFAULT, bytes_per_value=2), 49152)


# Modules that are of no use without torch. All others are what a machine without it can ask.
NEEDS_TORCH = {
    "activations",
    "agreement",
    "cuda.build",
    "cuda.decode",
    "cuda.driver",
    "cuda.grouped",
    "cuda.layout",
    "device",
    "fused_triton",
    "fused_triton_layer",
    "fused_triton_operands",
    "masked_reference",
    "masked_triton",
    "quantise_triton",
    "reference",
    "routing",
}


def test_everything_that_asks_imports_no_torch() -> None:
    import sublight.kernels

    folder = Path(sublight.kernels.__file__).parent
    names = {".".join(p.relative_to(folder).with_suffix("").parts) for p in folder.rglob("*.py")}
    asking = sorted(n for n in names - NEEDS_TORCH if not n.startswith("numerics") and not n.endswith("__init__"))
    assert {
        "problem",
        "catalogue",
        "heuristics",
        "contract",
        "masked",
        "masked_moe",
        "fused",
        "decode",
        "dispatch",
    } <= set(asking)
    code = (
        "import sys\nsys.modules['torch'] = None\n"  # as if it were not installed
        + "".join(f"import sublight.kernels.{name}\n" for name in asking)
        + "assert not {'triton', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_decode_kernel_is_chosen_where_it_was_run() -> None:
    assert "decode" in [kernel.name for kernel in all_kernels()]
    choice = choose(layer(4), H200)
    assert choice.kernel.name == "decode"
    assert choice.configuration["HIDDEN"] == 6144 and choice.configuration["INTER"] == 256
    assert choice.configuration["GRID"] == 132 and choice.configuration["MAX_M"] == 4
    for tokens, card, why in (
        (17, H200, "tokens 17 is outside 1 to 16"),
        (4, GB10, "is built for sm_100, sm_120, sm_90"),
        (4, get_gpu("b300"), "is built for sm_100, sm_120, sm_90"),
        (4, get_gpu("a100-80gb-sxm"), "is built for sm_100, sm_120, sm_90"),
    ):
        assert choose(layer(tokens), card).refused["decode"] == why
    why = choose(layer(16, top_k=17), H200).refused["decode"]
    assert why.startswith("the decode kernel with top_k 17: 16 tokens would be 272 pairs")
