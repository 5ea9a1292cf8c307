"""The masked grouped GEMM and its two quantisers in plain torch, on any device: what kernels are held against."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import silu

from sublight.errors import KernelError
from sublight.kernels.masked_call import GemmCall
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.minifloat import from_e2m1, from_e8m0, unpack
from sublight.kernels.numerics.quantised import GlobalScale
from sublight.kernels.numerics.scales import require_sound
from sublight.kernels.numerics.swizzle import from_masked, to_masked
from sublight.kernels.problem import GroupedQuantiseProblem
from sublight.kernels.reference import exact_products


def grouped_gemm(call: GemmCall) -> None:
    """Writes `call.out`, rows below each group's mask; fp32 products of decoded values, rounded once at the end.

    Raises:
        KernelError: a mask outside the rows there are, or completion signals: those are for a consumer that runs
            beside the kernel, and here nothing runs beside it.
    """
    if call.signals is not None:
        hint = "a kernel that has them, or none"
        raise KernelError("grouped_gemm_nt_masked: dst_signals", "the reference has no completion signals", hint)
    masks = rows_of(call.masked_m, call.problem.m)
    with exact_products():
        for group, rows in enumerate(masks):
            if rows == 0:
                continue
            lhs = _decoded(call, call.lhs, call.lhs_scale, group)[:rows]
            product = lhs @ _decoded(call, call.rhs, call.rhs_scale, group).T
            if call.alpha is not None:
                product = product * call.alpha[group].float()
            call.out[group, :rows] = _rounded(product, call.out.dtype)


def rows_of(mask: Tensor, most: int) -> list[int]:
    """Rows of each group that count. Raises KernelError for a number that no group can have."""
    rows: list[int] = mask.tolist()
    for group, count in enumerate(rows):
        if not 0 <= count <= most:
            raise KernelError(f"masked_m of group {group}", f"it is {count}, of {most} rows", f"0 to {most}")
    return rows


def _decoded(call: GemmCall, codes: Tensor, scales: Tensor, group: int) -> Tensor:
    """fp32 [rows, k] of one group."""
    one = codes[group]
    values = from_e2m1(unpack(one)) if call.ab_dtype == "float4_e2m1fn" else one.float()
    view = scales[group : group + 1].permute(3, 4, 1, 5, 2, 0)
    linear = from_masked(view, values.shape[0], values.shape[1] // call.sf_vec_size)[0]
    factors = from_e8m0(linear.view(torch.uint8)) if scales.dtype == torch.float8_e8m0fnu else linear.float()
    return values * factors.repeat_interleave(call.sf_vec_size, dim=-1)


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """To the output's type; eight-bit ones saturate, as the hardware's conversion does."""
    if dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        largest = torch.finfo(dtype).max
        values = values.clamp(-largest, largest)
    return values.to(dtype)


def quantise_groups(values: Tensor, mask: Tensor, global_scale: Tensor) -> tuple[Tensor, Tensor]:
    """[l, m, k] to NVFP4 codes (m, k/2, l) and scales (32, 4, rm, 4, rk, l), each group under its own global scale.

    Rows from the mask on become zeros with zero scales, and so does the padding of the scales. FlashInfer leaves what
    was in memory there.

    Raises:
        KernelError: a global scale that is zero, denormal or not finite, whatever its group has to do in this call: the
            next prompt may reach it.
    """
    require_sound("the global scale of activations", global_scale)
    rows = rows_of(mask, values.shape[1])
    kept = torch.arange(values.shape[1], device=values.device) < torch.tensor(rows, device=values.device).unsqueeze(1)
    clean = values.float().masked_fill(~kept.unsqueeze(-1), 0.0)
    above = GlobalScale(global_scale.reshape(-1, 1), is_divisor=True)
    matrix = NVFP4.quantise_activations(clean, above)
    return matrix.codes.permute(1, 2, 0), to_masked(matrix.scales)


def quantise(
    problem: GroupedQuantiseProblem,
    values: Tensor,
    mask: Tensor,
    global_scale: Tensor,
    configuration: Mapping[str, int],  # noqa: ARG001 - what every quantiser is called with
) -> tuple[Tensor, Tensor]:
    """`quantise_groups` of the input, or of what the activation makes of it."""
    return quantise_groups(silu_and_multiply(values) if problem.silu else values, mask, global_scale)


def silu_and_multiply(gate_up: Tensor) -> Tensor:
    """silu of the first half times the second, in fp32, rounded to the type of the input."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (silu(gate) * up).to(gate_up.dtype)
