"""The decode kernel as the catalogue sees it: up to 16 tokens, one launch for a whole layer, weights repacked once.

The kernel itself, its plan and its layout lie in `sublight.kernels.cuda`. This module imports no torch.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sublight.errors import KernelError
from sublight.kernels.catalogue import COMPILED, Kernel, Limits
from sublight.kernels.cuda.plan import MAX_TOKENS, bucket, plan_decode
from sublight.kernels.problem import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.kernels.problem import MoeProblem
    from sublight.kernels.reference import Experts
    from sublight.kernels.routing import Router

DECODE = Kernel(
    name="decode",
    op="fused_moe",
    statuses={"sm_90": "run on NVIDIA H200", "sm_100": COMPILED, "sm_120": COMPILED},
    traits={
        "weight_format": ("nvfp4",),
        "activation_format": ("bf16",),
        "activation": ("swiglu",),
        "routing": ("given", "softmax", "sigmoid"),
        "global_scale": ("expert", "projection"),
        "expert_bias": ("no",),
        "shared_expert": ("nvfp4",),
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
    width, shared_width = sizes["intermediate_size"], sizes.get("shared_width", 0)
    if shared_width % width:
        found = f"the routed experts' width, {width}, does not divide it"
        raise KernelError(f"the decode kernel with shared_width {shared_width}", found, "the shared expert by itself")
    plan = plan_decode(
        sizes["hidden_size"],
        width,
        sizes["top_k"],
        sizes["tokens"],
        limits.sm_count or 0,
        limits.shared_memory_bytes or 0,
        shared=shared_width // width,
    )
    return plan.defines()


def prepare(
    problem: "MoeProblem",
    experts: "Experts",
    device: "torch.device",
    configuration: Mapping[str, int],
    router: "Router | None" = None,
    correction_bias: "Tensor | None" = None,
    shared: "Experts | None" = None,
) -> "Callable[[Tensor, Tensor, Tensor | None, Tensor], None]":
    """The layer with its weights in the kernel's layout, compiled for every number of tokens up to the problem's. With
    a router, logits stand in the place of expert numbers, and nothing in that of weights.

    Raises:
        KernelError: rows of gate and up in another order, or expert numbers that are given and not counted from the
            rank's first one.
    """
    from sublight.kernels.cuda.decode import DecodeRouter, DecodeWorkspace, fused_moe, routed_moe
    from sublight.kernels.cuda.layout import pack_experts
    from sublight.kernels.numerics.quantised import Quantised

    for each in (experts, shared or experts):
        if each.order != "gate-up":
            raise KernelError("the decode kernel", f"rows of w13 are in the order {each.order!r}", "'gate-up'")
    if shared is not None and (shared.bias13 is not None or shared.bias2 is not None):
        raise KernelError("the decode kernel", "the shared expert has a bias", "the shared expert by itself")
    if experts.first and router is None:
        found = f"the first expert here has number {experts.first}"
        raise KernelError("the decode kernel", found, "ids counted from the rank's own first expert")
    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    beside = None if shared is None else (shared.w13, shared.w2)
    moved = pack_experts(experts.w13, experts.w2, beside).to(device)  # type: ignore[arg-type]  # NVFP4, as the problem says
    bias = None if correction_bias is None else correction_bias.to(device).float()
    everyone = problem.num_experts * problem.expert_ranks
    chooser = None if router is None else DecodeRouter(router, everyone, bias is not None, experts.first)
    sizes = (problem.hidden_size, problem.intermediate_size, problem.top_k)
    workspace = DecodeWorkspace(*sizes, device, shared=moved.shared, router=chooser)
    for size in {bucket(tokens) for tokens in range(1, configuration["MAX_M"] + 1)}:
        workspace.kernel(size)  # a later call with fewer tokens, inside a graph, may not stop to compile

    def run(x: "Tensor", choice: "Tensor", pair_weights: "Tensor | None", out: "Tensor") -> None:
        if chooser is not None:
            routed_moe(x, choice, moved, workspace, bias, out)
        else:
            assert pair_weights is not None  # given where nothing chooses
            fused_moe(x, choice, pair_weights, moved, workspace, out)

    return run
