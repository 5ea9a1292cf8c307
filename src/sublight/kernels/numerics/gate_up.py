"""The first matrix of a gated expert holds two projections, and people disagree about where.

| order | rows | who |
|---|---|---|
| "gate-up" | all of gate, then all of up | checkpoints with one matrix each, SGLang, vLLM, Marlin, the masked GEMM |
| "up-gate" | all of up, then all of gate | FlashInfer's CUTLASS and TensorRT-LLM kernels |
| "interleaved" | gate 0, up 0, gate 1, up 1, ... | gpt-oss checkpoints |

With the wrong one, output has the right shape and size and is wrong everywhere, because silu(gate) * up is not
symmetric. The order here is always said.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.numerics.quantised import GlobalScale, Quantised

Order = Literal["gate-up", "up-gate", "interleaved"]


def rows_of(width: int, order: Order) -> Tensor:
    """For each row in `order`, its place in "gate-up"."""
    gate, up = torch.arange(width), torch.arange(width, 2 * width)
    match order:
        case "gate-up":
            return torch.cat((gate, up))
        case "up-gate":
            return torch.cat((up, gate))
        case "interleaved":
            return torch.stack((gate, up), dim=1).flatten()
    raise KernelError("rows of gate and up", f"{order!r} is no order of them", "one of " + ", ".join(get_args(Order)))


def reorder(w13: Quantised, given: Order, wanted: Order) -> Quantised:
    """The same matrix with its rows in another order; scales and global scales go with their rows.

    Raises:
        KernelError: an odd number of rows, single rows of a format in which several share a scale, or gate and up with
            different global scales asked for interleaved, which has no place to keep two.
    """
    rows = w13.shape[-2]
    if rows % 2:
        raise KernelError("a matrix of gate and up", f"it has {rows} rows, an odd number", "as many of gate as of up")
    to_canonical = torch.argsort(rows_of(rows // 2, given))
    take = to_canonical[rows_of(rows // 2, wanted)]
    return w13.with_rows(take, _above(w13.global_scale, given, wanted))


def _above(above: GlobalScale | None, given: Order, wanted: Order) -> GlobalScale | None:
    if above is None or above.stored.shape[-1] == 1 or given == wanted:
        return above
    if "interleaved" in (given, wanted):
        found = "gate and up have global scales of their own, and interleaved rows have no halves"
        raise KernelError(f"rows of gate and up as {wanted!r}", found, "'gate-up' or 'up-gate'")
    return GlobalScale(above.stored.flip(-1), above.is_divisor)


def split(w13: Tensor, order: Order) -> tuple[Tensor, Tensor]:
    """Gate and up of dequantised rows or of a product's columns: [..., 2 * width] to two of [..., width]."""
    width = w13.shape[-1] // 2
    halves = (w13[..., :width], w13[..., width:])
    match order:
        case "gate-up":
            return halves
        case "up-gate":
            return halves[1], halves[0]
        case "interleaved":
            return w13[..., 0::2], w13[..., 1::2]
    raise KernelError("gate and up", f"{order!r} is no order of them", "one of " + ", ".join(get_args(Order)))
