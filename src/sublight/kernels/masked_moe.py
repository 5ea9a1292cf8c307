"""A layer of experts out of masked grouped GEMMs, with the argument list of SGLang's masked CuTe DSL layer.

The two quantisers have FlashInfer 0.6.3's names and meaning. A global scale here is what values are multiplied by
(2688/amax): FlashInfer's `a_global_sf`, SGLang's `input_global_scale`. The alphas divide it out again, together with
the weights' own scale: alpha = weight_scale_2 / input_global_scale.

Nothing in this module imports torch.
"""

from typing import TYPE_CHECKING, Any

from sublight.errors import KernelError
from sublight.kernels.contract import TensorSpec, check, require_parts
from sublight.kernels.dispatch import dispatch
from sublight.kernels.masked import grouped_gemm_nt_masked
from sublight.kernels.problem import GroupedQuantiseProblem

if TYPE_CHECKING:
    from torch import Tensor

_HALVES = ("bfloat16", "float16")


def scaled_fp4_grouped_quantize(
    a: "Tensor", mask: "Tensor", a_global_sf: "Tensor", *, backend: str | None = None
) -> "tuple[Tensor, Tensor]":
    """Activations to NVFP4, group by group, as the masked GEMM reads them.

    Args:
        a: [l, m, k], bf16 or fp16, k a multiple of 16.
        mask: [l] int32, rows of each group that count.
        a_global_sf: [l] fp32, 2688/amax.
        backend: a kernel by name; "reference" is plain torch. Left out, the catalogue's kernel for this GPU is taken.

    Returns:
        Codes (m, k/2, l) of memory (l, m, k/2), and scales (32, 4, rm, 4, rk, l) of memory (l, rm, rk, 32, 4, 4).

    Raises:
        KernelError: tensors that do not fit, or no kernel.
    """
    return _quantised("scaled_fp4_grouped_quantize", a, mask, a_global_sf, backend, silu=False)


def silu_and_mul_scaled_nvfp4_experts_quantize(
    a: "Tensor", mask: "Tensor", a_global_sf: "Tensor", *, backend: str | None = None
) -> "tuple[Tensor, Tensor]":
    """The same of silu(gate) * up, which is rounded to the type of `a` before it is quantised.

    Args:
        a: [l, m, 2 * k]: gate in the first half, up in the second.
    """
    return _quantised("silu_and_mul_scaled_nvfp4_experts_quantize", a, mask, a_global_sf, backend, silu=True)


def moe_masked(
    hidden_states: "tuple[Tensor, Tensor | None]",
    input_global_scale: "Tensor | None",
    w1: "Tensor",
    w1_blockscale: "Tensor",
    w1_alpha: "Tensor",
    w2: "Tensor",
    a2_global_scale: "Tensor",
    w2_blockscale: "Tensor",
    w2_alpha: "Tensor",
    masked_m: "Tensor",
    down_sm_count: int | None = None,
    down_signals: "Tensor | None" = None,
    down_start_event: Any = None,
    *,
    backend: str | None = None,
) -> "Tensor":
    """bf16 [l, m, k]: both products of every expert over the tokens that were sent to it.

    Args:
        hidden_states: ([l, m, k] bf16, None), or what `scaled_fp4_grouped_quantize` returns.
        input_global_scale: [l] fp32; None only where hidden_states are quantised.
        w1: [l, 2 * n, k/2] codes, gate before up. w2: [l, k, n/2].
        w1_blockscale, w2_blockscale: E4M3 in whole tiles, in either form that the masked GEMM takes.
        w1_alpha, w2_alpha, a2_global_scale: [l] fp32.
        masked_m: [l] int32.
        down_sm_count, down_signals, down_start_event: of the second product; the event is recorded before it.

    Raises:
        KernelError: a tensor that does not fit; it and its dimension are named.
    """
    hint = "(bf16 [l, m, k], None), or what scaled_fp4_grouped_quantize returns"
    values, scales = require_parts("moe_masked", "hidden_states", hidden_states, hint)
    if down_start_event is not None and not callable(getattr(down_start_event, "record", None)):
        found = f"it is of type {type(down_start_event).__name__}, which cannot be recorded"
        raise KernelError("moe_masked: down_start_event", found, "torch.cuda.Event(), or None")
    sizes = _check_layer((values, scales), input_global_scale, w1, w1_alpha, w2, a2_global_scale, w2_alpha, masked_m)
    if scales is None:
        assert input_global_scale is not None
        lhs = scaled_fp4_grouped_quantize(values, masked_m, input_global_scale, backend=backend)
    else:
        lhs = (values, scales)
    gate_up = _product(lhs, w1, w1_blockscale, w1_alpha, masked_m, sizes["n"] * 2, backend)
    inner = silu_and_mul_scaled_nvfp4_experts_quantize(gate_up, masked_m, a2_global_scale, backend=backend)
    if down_start_event is not None:
        down_start_event.record()
    return _product(inner, w2, w2_blockscale, w2_alpha, masked_m, sizes["k"], backend, down_sm_count, down_signals)


def _product(
    lhs: "tuple[Tensor, Tensor]",
    weight: "Tensor",
    blockscale: "Tensor",
    alpha: "Tensor",
    masked_m: "Tensor",
    columns: int,
    backend: str | None,
    sm_count: int | None = None,
    signals: "Tensor | None" = None,
) -> "Tensor":
    """bf16 [l, m, columns]; rows that do not count are zero."""
    import torch

    groups, rows = lhs[0].shape[2], lhs[0].shape[0]
    out = torch.zeros(groups, rows, columns, dtype=torch.bfloat16, device=weight.device)
    grouped_gemm_nt_masked(
        lhs,
        (weight.permute(1, 2, 0), blockscale),
        out.permute(1, 2, 0),
        masked_m,
        ab_dtype="float4_e2m1fn",
        sf_dtype="float8_e4m3fn",
        c_dtype="bfloat16",
        sf_vec_size=16,
        alpha=alpha.reshape(1, 1, groups),
        alpha_dtype="float32",
        sm_count=sm_count,
        dst_signals=signals,
        backend=backend,
    )
    return out


def _quantised(
    call: str, a: "Tensor", mask: "Tensor", a_global_sf: "Tensor", backend: str | None, *, silu: bool
) -> "tuple[Tensor, Tensor]":
    sizes = check(
        call,
        [
            TensorSpec("a", ("l", "m", "2*k" if silu else "k"), _HALVES, (0, 1, 2)),
            TensorSpec("mask", ("l",), ("int32",), (0,)),
            TensorSpec("a_global_sf", ("l",), ("float32",), (0,)),
        ],
        {"a": a, "mask": mask, "a_global_sf": a_global_sf},
    )
    if sizes["k"] % 16:
        raise KernelError(f"{call}: dimension k", f"{sizes['k']} is no multiple of 16", "whole groups of 16 values")
    problem = GroupedQuantiseProblem(
        m=sizes["m"], k=sizes["k"], num_groups=sizes["l"], in_dtype=str(a.dtype).removeprefix("torch."), silu=silu
    )
    kernel = dispatch(call, problem, a.device, backend)
    result: tuple[Tensor, Tensor] = kernel.run(problem, a, mask, a_global_sf, kernel.configuration)
    return result


def _check_layer(
    hidden_states: "tuple[Tensor, Tensor | None]",
    input_global_scale: "Tensor | None",
    w1: "Tensor",
    w1_alpha: "Tensor",
    w2: "Tensor",
    a2_global_scale: "Tensor",
    w2_alpha: "Tensor",
    masked_m: "Tensor",
) -> dict[str, int]:
    values, scales = hidden_states
    fp32 = ("float32",)
    if scales is None:
        hidden = TensorSpec("hidden_states", ("l", "m", "k"), ("bfloat16",), (0, 1, 2))
    else:
        hidden = TensorSpec("hidden_states", ("m", "k/2", "l"), ("uint8", "float4_e2m1fn_x2"), (2, 0, 1))
    return check(
        "moe_masked",
        [
            hidden,
            TensorSpec("input_global_scale", ("l",), fp32, (0,), optional=scales is not None),
            TensorSpec("w2", ("l", "k", "n/2"), ("uint8",), (0, 1, 2)),
            TensorSpec("w1", ("l", "2*n", "k/2"), ("uint8",), (0, 1, 2)),
            TensorSpec("w1_alpha", ("l",), fp32, (0,)),
            TensorSpec("a2_global_scale", ("l",), fp32, (0,)),
            TensorSpec("w2_alpha", ("l",), fp32, (0,)),
            TensorSpec("masked_m", ("l",), ("int32",), (0,)),
        ],
        {
            "hidden_states": values,
            "input_global_scale": input_global_scale,
            "w1": w1,
            "w2": w2,
            "w1_alpha": w1_alpha,
            "a2_global_scale": a2_global_scale,
            "w2_alpha": w2_alpha,
            "masked_m": masked_m,
        },
    )
