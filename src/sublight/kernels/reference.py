"""The oracle: a layer of experts in fp32 from dequantised weights, slow and plain.

Every kernel is held against it. It reads the same codes and scales as the kernel, so that what differs is the
kernel's own arithmetic and nothing of the quantisation. Weights are dequantised an expert at a time: a whole layer in
fp32 would not fit beside the layer.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.activations import activate
from sublight.kernels.contract import require_tensor
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.gate_up import Order
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.problem import Activation, MoeProblem
from sublight.kernels.routing import Router, route


@dataclass(frozen=True, eq=False)
class Experts:
    """The experts of one rank, or one shared expert as a stack of one.

    Attributes:
        w13: [experts, up_rows, hidden], quantised or plain.
        w2: [experts, hidden, intermediate].
        activation, order: between them, and how gate and up lie in w13.
        bias13, bias2: [experts, up_rows] and [experts, hidden], in fp32 or bf16.
        first: number of the first expert held here, where experts are dealt out over ranks.
        input_scales: of the activations, where a prepared layer quantises them as well (W4A4).
    """

    w13: Quantised | Tensor
    w2: Quantised | Tensor
    activation: Activation = "swiglu"
    order: Order = "gate-up"
    bias13: Tensor | None = None
    bias2: Tensor | None = None
    first: int = 0
    input_scales: "InputScales | None" = None

    @property
    def count(self) -> int:
        return self.w13.shape[0]


@dataclass(frozen=True, eq=False)
class InputScales:
    """Quantised activations (W4A4) as FlashInfer and SGLang mean them.

    The input is quantised to NVFP4 under its expert's global scale, the first product is rounded to `between`, what
    the activation makes of it is rounded to `between` again and quantised under the second scale. The two roundings
    are part of the definition: without them every hundredth value or so falls on the other side of a tie, and a
    four-bit step is large.

    Attributes:
        first, second: fp32 [experts], 2688/amax of the two inputs: values are multiplied by it, results divided.
    """

    first: Tensor
    second: Tensor
    between: torch.dtype = torch.bfloat16


def moe_forward(
    x: Tensor,
    ids: Tensor,
    weights: Tensor,
    experts: Experts,
    input_scales: InputScales | None = None,
    shared: Experts | None = None,
    shared_gate: Tensor | None = None,
) -> Tensor:
    """The layer's output in fp32, [tokens, hidden].

    Args:
        x: [tokens, hidden].
        ids, weights: [tokens, top_k], from `route` or an engine's router. Numbers of experts that are not held here
            are skipped, as other ranks add theirs; so are negative ones, which engines use for padding.
        input_scales: quantise activations as well; None reads them as they are (W4A16).
        shared: an expert that every token passes through, in full precision of its activations.
        shared_gate: [hidden]; weighs the shared expert with sigmoid(x . gate), as Qwen3-Next does.
    """
    for name, tensor in (("x", x), ("ids", ids), ("weights", weights)):
        require_tensor("a layer of experts", name, tensor, "x of [tokens, hidden], ids and weights of [tokens, top_k]")
    if x.dim() != 2 or ids.dim() != 2 or ids.shape != weights.shape or ids.shape[0] != x.shape[0]:
        found = f"x is {list(x.shape)}, ids {list(ids.shape)}, weights {list(weights.shape)}"
        raise KernelError("a layer of experts", found, "ids and weights of [tokens, top_k]")
    hidden = experts.w2.shape[-2]
    if x.shape[1] != hidden:
        found = f"x has {x.shape[1]} channels, and the experts have {hidden}"
        raise KernelError("a layer of experts", found, f"x of [tokens, {hidden}]")
    values = x.float()
    out = torch.zeros_like(values)
    with exact_products():
        for number in torch.unique(ids).tolist():
            own = number - experts.first
            if not 0 <= own < experts.count:
                continue
            token, place = (ids == number).nonzero(as_tuple=True)
            result = expert_forward(values[token], experts, own, input_scales)
            out.index_add_(0, token, result * weights[token, place].float().unsqueeze(-1))
        if shared is not None:
            result = expert_forward(values, shared, 0)
            gate = 1.0 if shared_gate is None else torch.sigmoid(values @ shared_gate.float()).unsqueeze(-1)
            out += result * gate
    return out


def prepare(
    problem: MoeProblem,  # noqa: ARG001 - what every layer is prepared with; so below
    experts: Experts,
    device: torch.device,
    configuration: Mapping[str, int],  # noqa: ARG001
    router: Router | None = None,
    correction_bias: Tensor | None = None,
    shared: Experts | None = None,
) -> Callable[[Tensor, Tensor, Tensor | None, Tensor], None]:
    """The oracle as a prepared layer: (x, ids, weights, out), rounded once at the end. With a router, logits stand in
    the place of ids, and nothing in that of weights.

    Raises:
        KernelError: weights on another device; the oracle keeps no copy of its own.
    """
    held = experts.w13.codes.device if isinstance(experts.w13, Quantised) else experts.w13.device
    if held != device:
        raise KernelError("the reference layer", f"its weights are on {held}, and calls on {device}", "one device")

    def run(x: Tensor, choice: Tensor, weights: Tensor | None, out: Tensor) -> None:
        if router is not None:
            choice, weights = route(choice, router, correction_bias)
        assert weights is not None  # given where nothing chooses
        out.copy_(moe_forward(x, choice, weights, experts, experts.input_scales, shared))

    return run


def expert_forward(x: Tensor, experts: Experts, number: int, input_scales: InputScales | None = None) -> Tensor:
    """fp32 [tokens, hidden]: one expert over the tokens sent to it."""
    if input_scales is not None:
        x = requantised(x, input_scales.first[number])
    product = x @ _plain(experts.w13, number).T
    if experts.bias13 is not None:
        product = product + experts.bias13[number].float()
    if input_scales is not None:
        product = product.to(input_scales.between).float()
    inner = activate(product, experts.activation, experts.order)
    if input_scales is not None:
        inner = requantised(inner.to(input_scales.between), input_scales.second[number])
    result = inner @ _plain(experts.w2, number).T
    return result if experts.bias2 is None else result + experts.bias2[number].float()


def requantised(values: Tensor, global_scale: Tensor) -> Tensor:
    """Values as NVFP4 holds them under a global scale of 2688/amax, in fp32."""
    above = GlobalScale(global_scale.reshape(1), is_divisor=True)
    return NVFP4.quantise_activations(values, above).dequantise()


def _plain(matrices: Quantised | Tensor, number: int) -> Tensor:
    one = matrices[number]
    return one.dequantise() if isinstance(one, Quantised) else one.float()


@contextmanager
def exact_products() -> Iterator[None]:
    """fp32 products in fp32: a process that allows TF32 would make the oracle as coarse as what it judges.

    Set per backend, because torch refuses to read its one setting for all where an engine has set them so.
    """
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision
