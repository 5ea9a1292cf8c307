"""Kernels for layers of experts in four-bit formats, their numbers, and the oracle they are held against.

Importing this package imports no torch, so that a machine without it can ask what there would be to run.
"""

from sublight.kernels.fused import FusedMoe
from sublight.kernels.masked import grouped_gemm_nt_masked
from sublight.kernels.masked_moe import (
    moe_masked,
    scaled_fp4_grouped_quantize,
    silu_and_mul_scaled_nvfp4_experts_quantize,
)
from sublight.kernels.problem import GroupedGemmProblem, MoeProblem

__all__ = [
    "FusedMoe",
    "GroupedGemmProblem",
    "MoeProblem",
    "grouped_gemm_nt_masked",
    "moe_masked",
    "scaled_fp4_grouped_quantize",
    "silu_and_mul_scaled_nvfp4_experts_quantize",
]
