"""The masked grouped GEMM and its quantiser in Triton as the catalogue sees them: declarations, numbers, launches.

All were compiled for every target named here. The decoded product and the quantiser were run on an H200
(tests/gpu/test_masked.py), the native product never on a GPU that has the units for it. On a CPU, Triton's interpreter
runs the first two, and their results are the oracle's.

This module imports neither torch nor triton until something is launched.
"""

from collections.abc import Mapping
from typing import Any

from sublight.kernels.catalogue import COMPILED, Kernel, Limits
from sublight.kernels.masked_call import GemmCall
from sublight.kernels.problem import GroupedQuantiseProblem, Problem
from sublight.kernels.shared_memory import Tile, deepest_stages

_HERE = "sublight.kernels.masked_portable"
_RUN = {"sm_90": "run on NVIDIA H200"}
_TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")
_RESULTS = ("bfloat16", "float16", "float32")
_BLOCK_K = 128
_BLOCKS = 64

DECODED = Kernel(
    name="masked-triton",
    op="grouped_gemm_nt_masked",
    statuses=dict.fromkeys(_TARGETS, COMPILED) | _RUN,
    traits={"operands": ("nvfp4",), "out_dtype": _RESULTS, "signals": ("no",), "sm_limit": ("no",)},
    loader=f"{_HERE}:run_decoded",
    configure=f"{_HERE}:configure_decoded",
)
NATIVE = Kernel(
    name="masked-triton-fp4",
    op="grouped_gemm_nt_masked",
    statuses=dict.fromkeys(("sm_100", "sm_103", "sm_120", "sm_121"), COMPILED),
    traits={"operands": ("nvfp4", "mxfp4"), "out_dtype": _RESULTS, "signals": ("no",), "sm_limit": ("no",)},
    priority=1,
    loader=f"{_HERE}:run_native",
    configure=f"{_HERE}:configure_native",
)

QUANTISE = Kernel(
    name="quantise-triton",
    op="grouped_quantise",
    statuses=dict.fromkeys(_TARGETS, COMPILED) | _RUN,
    traits={"in_dtype": ("bfloat16", "float16"), "silu": ("yes", "no")},
    steps={"k": 16},
    loader=f"{_HERE}:run_quantise",
)


def configure_decoded(problem: Problem, limits: Limits) -> Mapping[str, int]:
    """Tiles no taller than the groups are: rows that do not count cost as much as those that do.

    Raises:
        KernelError: not one stage fits into a block's shared memory.
    """
    block_m = _block_m(problem)
    # Operands lie in shared memory as fp16.
    tile = Tile(block_m=block_m, block_n=64 if block_m == 64 else 128, block_k=_BLOCK_K, stages=3, bytes_per_value=2)
    return _numbers(tile, limits)


def configure_native(problem: Problem, limits: Limits) -> Mapping[str, int]:
    """The same with 128 rows of weights, which is how many the tensor core takes. Raises as above."""
    tile = Tile(block_m=_block_m(problem), block_n=128, block_k=_BLOCK_K, stages=3, bytes_per_value=0.5625)
    return _numbers(tile, limits)


def _block_m(problem: Problem) -> int:
    return next((rows for rows in (16, 32) if problem.dimensions()["m"] <= rows), 64)


def _numbers(tile: Tile, limits: Limits) -> Mapping[str, int]:
    return {
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "num_warps": 4,
        "num_stages": deepest_stages(tile, limits.shared_memory_bytes or 0),
    }


def run_decoded(call: GemmCall) -> None:
    """On the current stream, after decoding both operands to fp16."""
    import torch

    from sublight.kernels.masked_triton import decoded_product

    scales = (call.lhs_scale.view(torch.uint8), call.rhs_scale.view(torch.uint8))
    _launch(decoded_product, call, scales, {})


def run_native(call: GemmCall) -> None:
    """On the current stream, with codes and scales as they are."""
    import torch

    from sublight.kernels.masked_triton import native_product

    # Triton knows E4M3 scales by their type, and takes E8M0 as bytes.
    kind = torch.float8_e4m3fn if call.problem.operands == "nvfp4" else torch.uint8
    _launch(native_product, call, (call.lhs_scale.view(kind), call.rhs_scale.view(kind)), {"VEC": call.sf_vec_size})


def run_quantise(
    problem: GroupedQuantiseProblem,
    values: Any,
    mask: Any,
    global_scale: Any,
    configuration: Mapping[str, int],  # noqa: ARG001 - what every quantiser is called with
) -> tuple[Any, Any]:
    """Codes (m, k/2, l) and scales (32, 4, rm, 4, rk, l), on the current stream; zeros where no row counts."""
    import torch

    from sublight.kernels.quantise_triton import quantise_groups

    groups, m, k = problem.num_groups, problem.m, problem.k
    high, wide = -(-m // 128), -(-k // 64)
    codes = torch.zeros(groups, m, k // 2, dtype=torch.uint8, device=values.device)
    scales = torch.zeros(groups, high, wide, 32, 4, 4, dtype=torch.uint8, device=values.device)
    quantise_groups[(m, -(-k // (16 * _BLOCKS)), groups)](
        values, mask, global_scale, codes, scales, m, k, high, wide, SILU=problem.silu, BLOCKS=_BLOCKS, num_warps=4
    )
    return codes.permute(1, 2, 0), scales.view(torch.float8_e4m3fn).permute(3, 4, 1, 5, 2, 0)


def _launch(kernel: Any, call: GemmCall, scales: tuple[Any, Any], constants: Mapping[str, int]) -> None:
    problem, numbers = call.problem, call.configuration
    tiles = -(-problem.m // numbers["BLOCK_M"]) * -(-problem.n // numbers["BLOCK_N"])
    kernel[(tiles, problem.num_groups)](
        call.lhs,
        scales[0],
        call.rhs,
        scales[1],
        call.out,
        call.masked_m,
        call.masked_m if call.alpha is None else call.alpha,  # where there is none, a pointer that is not read
        problem.m,
        problem.n,
        problem.k,
        call.lhs_scale.shape[1],
        call.rhs_scale.shape[1],
        call.lhs_scale.shape[2],
        HAS_ALPHA=call.alpha is not None,
        **constants,
        **numbers,
    )
