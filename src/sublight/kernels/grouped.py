"""The grouped kernels as the catalogue sees them: any number of tokens on tensor cores, and the decode kernel for few.

Both read one copy of the weights. The kernels, their plans and the layout lie in `sublight.kernels.cuda`. This module
imports no torch.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import TYPE_CHECKING

from sublight.errors import KernelError
from sublight.kernels.catalogue import COMPILED, Kernel, Limits
from sublight.kernels.cuda.grouped_plan import BUCKETS, MAX_EXPERTS, GroupedPlan, plan_grouped
from sublight.kernels.cuda.plan import MAX_TOKENS, bucket, plan_decode
from sublight.kernels.problem import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.kernels.problem import MoeProblem
    from sublight.kernels.reference import Experts

_BELOW_DECODE, _ABOVE_DECODE = 5, 15
_ONE_TILE = 8  # tokens of one pass over columns in the decode kernel's second product
_LEAST_ITEMS = 5.0  # of gate and up, a multiprocessor

GROUPED = Kernel(
    name="grouped",
    op="fused_moe",
    statuses={"sm_90": "run on NVIDIA H200", "sm_100": COMPILED, "sm_120": COMPILED},
    traits={
        "weight_format": ("nvfp4",),
        "activation_format": ("bf16",),
        "activation": ("swiglu",),
        "routing": ("given",),
        "global_scale": ("expert", "projection"),
        "expert_bias": ("no",),
    },
    steps={"hidden_size": 64, "intermediate_size": 64},
    ranges={"tokens": (1, 1 << 20), "num_experts": (1, MAX_EXPERTS)},
    prefer="sublight.kernels.grouped:priority",
    loader="sublight.kernels.grouped:prepare",
    configure="sublight.kernels.grouped:configure",
)


def configure(problem: Problem, limits: Limits) -> Mapping[str, int]:
    """What the kernels are compiled with for the most tokens of a launch. Raises KernelError where they cannot fit."""
    return _plan(problem, limits).defines()


def priority(problem: Problem, limits: Limits) -> int:
    """Above the decode kernel for as many tokens as that takes and is slower at."""
    sizes = problem.dimensions()
    few = few_tokens(_plan(problem, limits), limits.sm_count or 1, sizes["expert_ranks"])
    return _ABOVE_DECODE if few < sizes["tokens"] <= MAX_TOKENS else _BELOW_DECODE


def few_tokens(plan: GroupedPlan, grid: int, expert_ranks: int = 1) -> int:
    """Tokens up to which the decode kernel is the faster one, where it takes the layer: 8 to 16.

    Above eight tokens it multiplies every block of the second product by two tiles of columns, most of them zeros. The
    grouped kernels do not, but their items are large: where a multiprocessor has few of them, some have one more than
    others, and the rest waits. So they are faster from nine tokens on where each multiprocessor has several items of
    gate and up; `cuda/README.md` has what was measured.
    """
    everyone = plan.experts * expert_ranks
    items = ceil(plan.inter / (16 * plan.up.units))
    for tokens in range(_ONE_TILE + 1, MAX_TOKENS + 1):
        hit = plan.experts * (1 - (1 - 1 / everyone) ** (tokens * plan.top_k))
        if hit * items / grid >= _LEAST_ITEMS:
            return tokens - 1
    return MAX_TOKENS


def _plan(problem: Problem, limits: Limits) -> GroupedPlan:
    sizes = problem.dimensions()
    return plan_grouped(
        sizes["hidden_size"],
        sizes["intermediate_size"],
        sizes["num_experts"],
        sizes["top_k"],
        sizes["tokens"],
        limits.shared_memory_bytes or 0,
        sizes["expert_ranks"],
        limits.target == "sm_90",
    )


def prepare(
    problem: "MoeProblem", experts: "Experts", device: "torch.device", configuration: Mapping[str, int]
) -> "Callable[[Tensor, Tensor, Tensor, Tensor], None]":
    """The layer with its weights in the decode kernel's layout, compiled for all numbers of tokens up to the problem's.

    Calls of few tokens run the decode kernel where it takes the layer and is faster; the weights are the same.

    Raises:
        KernelError: rows of gate and up in another order, or experts that are not numbered from the rank's first one.
    """
    from sublight.kernels.cuda.decode import DecodeWorkspace, fused_moe
    from sublight.kernels.cuda.grouped import GroupedWorkspace, grouped_moe
    from sublight.kernels.cuda.layout import pack_experts
    from sublight.kernels.numerics.quantised import Quantised

    if experts.order != "gate-up":
        raise KernelError("the grouped kernel", f"rows of w13 are in the order {experts.order!r}", "'gate-up'")
    if experts.first:
        found = f"the first expert here has number {experts.first}"
        raise KernelError("the grouped kernel", found, "ids counted from the rank's own first expert")
    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    weights = pack_experts(experts.w13, experts.w2)
    moved = type(weights)(*(t.to(device) for t in (weights.w13, weights.w2, weights.scale13, weights.scale2)))
    hidden, inter, top_k = problem.hidden_size, problem.intermediate_size, problem.top_k
    grouped = GroupedWorkspace(hidden, inter, problem.num_experts, top_k, problem.tokens, device, problem.expert_ranks)
    faster = few_tokens(grouped.plan(min(problem.tokens, MAX_TOKENS)), grouped.grid, problem.expert_ranks)
    few = min(problem.tokens, faster, most_for_decode(hidden, inter, top_k, grouped.grid, grouped.shared_limit))
    decode = DecodeWorkspace(hidden, inter, top_k, device) if few else None
    # a later call with fewer tokens, inside a graph, may not stop to compile
    for size in BUCKETS:
        if size <= configuration["MAX_M"]:
            grouped.kernels(size)
    if decode is not None:
        for size in {bucket(tokens) for tokens in range(1, few + 1)}:
            decode.kernel(size)

    def run(x: "Tensor", ids: "Tensor", pair_weights: "Tensor", out: "Tensor") -> None:
        if decode is not None and x.shape[0] <= few:
            fused_moe(x, ids, pair_weights, moved, decode, out)
        else:
            grouped_moe(x, ids, pair_weights, moved, grouped, out)

    return run


def most_for_decode(hidden: int, inter: int, top_k: int, grid: int, shared_limit: int) -> int:
    """Tokens up to which the decode kernel takes this layer, 0 where it takes none."""
    for tokens in (MAX_TOKENS, 8, 4, 2, 1):
        try:
            plan_decode(hidden, inter, top_k, tokens, grid, shared_limit)
        except KernelError:
            continue
        return tokens
    return 0
