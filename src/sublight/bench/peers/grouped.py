"""The layer in bf16 through torch's grouped product: 3.6 times the bytes of NVFP4, and what users come from."""

from typing import TYPE_CHECKING

from sublight.bench.peers.base import PEER_TOLERANCE, Candidate
from sublight.kernels.problem import MoeProblem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sublight.bench.judge import Layer
    from sublight.kernels.reference import Experts


def _refuses(problem: MoeProblem, device: "torch.device") -> str:
    import torch

    if not hasattr(torch, "_grouped_mm"):
        return f"torch {torch.__version__} has no grouped product"
    if device.type == "cuda" and torch.cuda.get_device_capability(device)[0] < 8:
        return "torch's grouped product needs compute capability 8 or more"
    if problem.expert_ranks > 1:
        return "its adapter takes no experts of other ranks"
    if problem.expert_bias:
        return "its adapter adds no bias"
    return ""


def _prepare(problem: MoeProblem, experts: "Experts", device: "torch.device") -> "Layer":
    import torch

    from sublight.kernels.activations import activate

    w13, w2 = (_in_bf16(matrix, device) for matrix in (experts.w13, experts.w2))
    numbers = torch.arange(problem.num_experts + 1, device=device)

    def run(x: "Tensor", ids: "Tensor", weights: "Tensor", out: "Tensor") -> None:
        expert, order = ids.flatten().sort(stable=True)
        ends = torch.searchsorted(expert, numbers[1:].to(expert.dtype), right=False).to(torch.int32)
        token = order // ids.shape[1]
        product = torch._grouped_mm(x[token], w13, offs=ends)
        inner = activate(product, experts.activation, experts.order)
        rows = torch._grouped_mm(inner, w2, offs=ends).float() * weights.flatten()[order].unsqueeze(-1)
        out.copy_(torch.zeros(x.shape, dtype=torch.float32, device=x.device).index_add_(0, token, rows))

    return run


def _in_bf16(matrix: object, device: "torch.device") -> "Tensor":
    """[experts, columns, rows], each expert's memory in rows, as the grouped product wants its right operand."""
    import torch

    from sublight.kernels.numerics.quantised import Quantised

    assert isinstance(matrix, (Quantised, torch.Tensor))
    plain = torch.empty(matrix.shape, dtype=torch.bfloat16, device=device)
    for expert in range(matrix.shape[0]):
        one = matrix[expert]
        plain[expert] = one.dequantise() if isinstance(one, Quantised) else one
    return plain.transpose(1, 2)


GROUPED_MM = Candidate(
    name="torch-grouped-mm",
    kind="peer",
    title="bf16 weights through torch._grouped_mm, sorted and summed by torch",
    refuses=_refuses,
    prepare=_prepare,
    tolerance=PEER_TOLERANCE,
    weight_format="bf16",
)
