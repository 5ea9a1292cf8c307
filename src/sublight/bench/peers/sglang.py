"""SGLang's Marlin layer of experts, NVFP4 weights and bf16 activations, as its own quantisation method prepares it."""

import inspect
from collections.abc import Callable
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
    return missing("sglang", "SGLang") or needs_nvfp4_swiglu(problem, device)


def _prepare(problem: MoeProblem, experts: "Experts", device: "torch.device") -> "Layer":
    import torch

    from sublight.kernels.numerics.quantised import Quantised

    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    try:
        from sglang.srt.layers.moe.fused_moe_triton.fused_marlin_moe import (  # type: ignore[import-not-found]
            fused_marlin_moe,
        )
        from sglang.srt.layers.quantization.marlin_utils_fp4 import (  # type: ignore[import-not-found]
            prepare_moe_nvfp4_layer_for_marlin,
        )

        module = torch.nn.Module()
        module.num_experts = problem.num_experts  # type: ignore[assignment]
        module.intermediate_size_per_partition = problem.intermediate_size  # type: ignore[assignment]
        module.params_dtype = torch.bfloat16  # type: ignore[assignment]
        module.moe_runner_config = SimpleNamespace(is_gated=True)  # type: ignore[assignment]
        for name, matrix in (("w13", experts.w13), ("w2", experts.w2)):
            assert matrix.global_scale is not None
            stored = {
                f"{name}_weight": matrix.codes,
                f"{name}_weight_scale": matrix.scales,
                f"{name}_weight_scale_2": matrix.global_scale.multiplier.reshape(-1),
            }
            for key, value in stored.items():
                module.register_parameter(key, torch.nn.Parameter(value.to(device).clone(), requires_grad=False))
        prepare_moe_nvfp4_layer_for_marlin(module, group_size=16)
    except Exception as error:
        raise load_failed("SGLang's Marlin", error) from error
    # Only the number of its rows is read: routing is given.
    logits = torch.empty(problem.tokens, problem.num_experts, dtype=torch.float32, device=device)

    def layer(x: "Tensor", ids: "Tensor", weights: "Tensor", **options: bool) -> "Tensor":
        result: Tensor = fused_marlin_moe(
            hidden_states=x,
            w1=module.w13_weight,
            w2=module.w2_weight,
            w1_scale=module.w13_weight_scale,
            w2_scale=module.w2_weight_scale,
            gating_output=logits[: x.shape[0]],
            topk_weights=weights,
            topk_ids=ids,
            w1_global_scale=module.w13_weight_scale_2,
            w2_global_scale=module.w2_weight_scale_2,
            workspace=module.workspace,
            num_bits=4,
            **options,
        )
        return result

    def whole(x: "Tensor", ids: "Tensor", weights: "Tensor", out: "Tensor") -> None:
        out.copy_(layer(x, ids, weights))

    topk_sum = _topk_sum()
    if topk_sum is None:
        return whole

    def summed(x: "Tensor", ids: "Tensor", weights: "Tensor", out: "Tensor") -> None:
        topk_sum(layer(x, ids, weights, no_combine=True), out)

    return summed


def _topk_sum() -> "Callable[[Tensor, Tensor], object] | None":
    """SGLang's fastest sum of weighted parts, straight into the output; None where it has none, or it does not fit.

    Its layer sums NVFP4 parts with an older and slower kernel, and into a tensor of its own that would be copied: the
    parts without their sum are taken where they can be had, so that the peer is timed at its best.
    """
    try:
        from sglang.kernels.ops.moe.moe_topk_sum import moe_topk_sum  # type: ignore[import-not-found]
        from sglang.srt.layers.moe.fused_moe_triton.fused_marlin_moe import fused_marlin_moe
    except ImportError:
        return None
    parameters = inspect.signature(fused_marlin_moe).parameters
    return moe_topk_sum if "no_combine" in parameters else None


def _ran() -> str:
    add = "its sum into a tensor of its own" if _topk_sum() is None else "its moe_topk_sum"
    return f"Marlin of {named('sglang')}: align, product, silu, product, {add}"


MARLIN = Candidate(
    name="sglang-marlin",
    kind="peer",
    title="SGLang's Marlin (align, product, silu, product, sum)",
    refuses=_refuses,
    prepare=_prepare,
    tolerance=PEER_TOLERANCE,
    ran=_ran,
)
