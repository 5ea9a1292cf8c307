"""Our own kernels as candidates: one for every declaration of the catalogue that computes a layer of experts."""

from typing import TYPE_CHECKING

from sublight.bench.peers.base import Candidate
from sublight.errors import KernelError
from sublight.kernels.catalogue import Kernel, all_kernels
from sublight.kernels.problem import MoeProblem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.bench.judge import Layer
    from sublight.kernels.reference import Experts


def own_kernels() -> list[Candidate]:
    """By name."""
    return [candidate(kernel) for kernel in all_kernels() if kernel.op == MoeProblem.op]


def candidate(kernel: Kernel) -> Candidate:
    def refuses(problem: MoeProblem, device: "torch.device") -> str:
        if device.type != "cuda":
            return f"it runs on CUDA GPUs: {kernel.standing}"
        from sublight.kernels.device import limits_of

        limits = limits_of(device)
        if limits.target not in kernel.statuses:
            return f"it is not built for {limits.target}: {kernel.standing}"
        why = kernel.refusal(problem, limits.target)
        if why:
            return why
        try:
            kernel.configuration(problem, limits)
        except KernelError as error:
            return f"{error.asked}: {error.found}"
        return ""

    def prepare(problem: MoeProblem, experts: "Experts", device: "torch.device") -> "Layer":
        from sublight.kernels.fused import FusedMoe

        return FusedMoe(
            experts,
            tokens=problem.tokens,
            top_k=problem.top_k,
            expert_ranks=problem.expert_ranks,
            device=device,
            backend=kernel.name,
        )

    def words() -> str:
        import torch

        from sublight.kernels.device import limits_of

        target = limits_of(torch.device("cuda")).target
        return f"{title}, before this run on {target}: {kernel.statuses[target]}"

    title = f"sublight's {kernel.name}"
    limit = kernel.ranges.get("tokens")
    return Candidate(
        name=kernel.name,
        kind="kernel",
        title=title,
        refuses=refuses,
        prepare=prepare,
        token_limit=None if limit is None else limit[1],
        ran=words,
    )


def reference() -> Candidate:
    """The oracle, rounded once: what a rehearsal without a GPU times."""

    def prepare(problem: MoeProblem, experts: "Experts", device: "torch.device") -> "Layer":  # noqa: ARG001
        from sublight.kernels.reference import moe_forward

        def run(x: "Tensor", ids: "Tensor", weights: "Tensor", out: "Tensor") -> None:
            out.copy_(moe_forward(x, ids, weights, experts))

        return run

    return Candidate(
        name="reference",
        kind="reference",
        title="the fp32 oracle",
        refuses=lambda problem, device: "" if device.type == "cpu" else "it waits for the GPU in every call",  # noqa: ARG005
        prepare=prepare,
    )
