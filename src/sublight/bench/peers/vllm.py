"""vLLM's Marlin layer of experts, NVFP4 weights and bf16 activations, as its own method prepares it."""

from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING

from sublight.bench.peers.base import PEER_TOLERANCE, Candidate, load_failed, missing, needs_nvfp4_swiglu
from sublight.bench.peers.small import named
from sublight.kernels.problem import MoeProblem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.bench.judge import Layer
    from sublight.kernels.reference import Experts


def _refuses(problem: MoeProblem, device: "torch.device") -> str:
    return missing("vllm", "vLLM") or needs_nvfp4_swiglu(problem, device)


def _prepare(problem: MoeProblem, experts: "Experts", device: "torch.device") -> "Layer":  # noqa: ARG001
    import torch

    from sublight.kernels.numerics.quantised import Quantised

    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    try:
        import vllm._custom_ops as ops  # type: ignore[import-not-found]
        from vllm.model_executor.layers.quantization.utils.marlin_utils_fp4 import (  # type: ignore[import-not-found]
            prepare_nvfp4_moe_layer_for_marlin,
        )
        from vllm.scalar_type import scalar_types  # type: ignore[import-not-found]

        shape = SimpleNamespace(
            num_experts=problem.num_experts,
            hidden_size=problem.hidden_size,
            intermediate_size_per_partition=problem.intermediate_size,
            params_dtype=torch.bfloat16,
        )
        assert experts.w13.global_scale is not None and experts.w2.global_scale is not None
        w13, scale13, above13, w2, scale2, above2 = prepare_nvfp4_moe_layer_for_marlin(
            shape,
            experts.w13.codes,
            experts.w13.scales,
            experts.w13.global_scale.multiplier.reshape(-1),
            experts.w2.codes,
            experts.w2.scales,
            experts.w2.global_scale.multiplier.reshape(-1),
            is_act_and_mul=True,
        )
    except Exception as error:
        raise load_failed("vLLM's Marlin", error) from error

    fused_marlin_moe = _layer()
    workspace = getattr(shape, "workspace", None)

    def add_up(parts: "Tensor", result: "Tensor", *_: object) -> "Tensor":
        ops.moe_sum(parts, result)
        return result

    def run(x: "Tensor", ids: "Tensor", weights: "Tensor", out: "Tensor") -> None:
        fused_marlin_moe(
            hidden_states=x,
            w1=w13,
            w2=w2,
            bias1=None,
            bias2=None,
            w1_scale=scale13,
            w2_scale=scale2,
            topk_weights=weights,
            topk_ids=ids,
            quant_type_id=scalar_types.float4_e2m1f.id,
            global_scale1=above13,
            global_scale2=above2,
            moe_sum=add_up,
            workspace=workspace,
            output=out,
        )

    return run


def _layer() -> "Callable[..., Tensor]":
    """The layer, which moved between versions. Raises BenchError."""
    found = None
    for module in ("experts.marlin_moe", "fused_marlin_moe"):
        try:
            found = import_module(f"vllm.model_executor.layers.fused_moe.{module}")
            break
        except ModuleNotFoundError as error:
            missing_module = error
    if found is None:
        raise load_failed("vLLM's Marlin", missing_module)
    layer: Callable[..., Tensor] = found.fused_marlin_moe
    return layer


MARLIN = Candidate(
    name="vllm-marlin",
    kind="peer",
    title="vLLM's Marlin (align, product, silu, product, sum)",
    refuses=_refuses,
    prepare=_prepare,
    tolerance=PEER_TOLERANCE,
    ran=lambda: f"Marlin of {named('vllm')} (align, product, silu, product, sum)",
)
