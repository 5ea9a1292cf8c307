"""What happens between the two products of an expert."""

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from sublight.errors import KernelError
from sublight.kernels.numerics.gate_up import Order, split
from sublight.kernels.problem import Activation

OAI_ALPHA, OAI_LIMIT = 1.702, 7.0


def activate(product: Tensor, activation: Activation, order: Order = "gate-up") -> Tensor:
    """[..., up_rows] to [..., intermediate_size], in the type of `product`.

    "swiglu-oai" clamps gate from above and up on both sides to 7, and multiplies gate * sigmoid(1.702 * gate) with
    up + 1.
    """
    if activation == "relu2":
        return product.relu().square()
    gate, up = split(product, order)
    match activation:
        case "swiglu":
            return silu(gate) * up
        case "geglu":
            return gelu(gate, approximate="tanh") * up
        case "swiglu-oai":
            gate, up = gate.clamp(max=OAI_LIMIT), up.clamp(-OAI_LIMIT, OAI_LIMIT)
            return gate * torch.sigmoid(OAI_ALPHA * gate) * (up + 1)
    raise KernelError(f"activation {activation!r}", "it is not known", "swiglu, swiglu-oai, geglu or relu2")
