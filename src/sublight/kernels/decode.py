"""The decode kernel as the catalogue sees it: up to 16 tokens, one launch for a whole layer, weights repacked once.

The kernel itself, its plan and its layout lie in `sublight.kernels.cuda`. This module imports no torch.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sublight.errors import KernelError
from sublight.kernels.catalogue import Kernel, Limits
from sublight.kernels.cuda.plan import MAX_TOKENS, bucket, plan_decode
from sublight.kernels.problem import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.kernels.problem import MoeProblem
    from sublight.kernels.reference import Experts

DECODE = Kernel(
    name="decode",
    op="fused_moe",
    statuses={"sm_90": "run on NVIDIA H200"},
    traits={
        "weight_format": ("nvfp4",),
        "activation_format": ("bf16",),
        "activation": ("swiglu",),
        "routing": ("given",),
        "global_scale": ("expert", "projection"),
        "expert_bias": ("no",),
    },
    steps={"hidden_size": 64, "intermediate_size": 64},
    ranges={"tokens": (1, MAX_TOKENS)},
    priority=10,
    loader="sublight.kernels.decode:prepare",
    configure="sublight.kernels.decode:configure",
)


def configure(problem: Problem, limits: Limits) -> Mapping[str, int]:
    """What the kernel is compiled with for the most tokens of the problem. Raises KernelError where it cannot fit."""
    sizes = problem.dimensions()
    plan = plan_decode(
        sizes["hidden_size"],
        sizes["intermediate_size"],
        sizes["top_k"],
        sizes["tokens"],
        limits.sm_count or 0,
        limits.shared_memory_bytes or 0,
    )
    return plan.defines()


def prepare(
    problem: "MoeProblem", experts: "Experts", device: "torch.device", configuration: Mapping[str, int]
) -> "Callable[[Tensor, Tensor, Tensor, Tensor], None]":
    """The layer with its weights in the kernel's layout, compiled for every number of tokens up to the problem's.

    Raises:
        KernelError: rows of gate and up in another order, or experts that are not numbered from the rank's first one.
    """
    from sublight.kernels.cuda.decode import DecodeWorkspace, fused_moe
    from sublight.kernels.cuda.layout import pack_experts
    from sublight.kernels.numerics.quantised import Quantised

    if experts.order != "gate-up":
        raise KernelError("the decode kernel", f"rows of w13 are in the order {experts.order!r}", "'gate-up'")
    if experts.first:
        found = f"the first expert here has number {experts.first}"
        raise KernelError("the decode kernel", found, "ids counted from the rank's own first expert")
    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    weights = pack_experts(experts.w13, experts.w2)
    moved = type(weights)(*(t.to(device) for t in (weights.w13, weights.w2, weights.scale13, weights.scale2)))
    workspace = DecodeWorkspace(problem.hidden_size, problem.intermediate_size, problem.top_k, device)
    for size in {bucket(tokens) for tokens in range(1, configuration["MAX_M"] + 1)}:
        workspace.kernel(size)  # a later call with fewer tokens, inside a graph, may not stop to compile

    def run(x: "Tensor", ids: "Tensor", pair_weights: "Tensor", out: "Tensor") -> None:
        fused_moe(x, ids, pair_weights, moved, workspace, out)

    return run
