"""fused_moe: a routed-expert layer for a few tokens in one launch, NVFP4 weights, bf16 in and out."""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.contract import require_tensor
from sublight.kernels.cuda.build import compile_kernel, target_of
from sublight.kernels.cuda.driver import SHARED_LIMIT, Kernel, device_attribute
from sublight.kernels.cuda.layout import DecodeWeights, w2_shape
from sublight.kernels.cuda.plan import MAX_EXPERTS, MAX_TOKENS, WARPS, DecodePlan, RouterPlan, plan_decode
from sublight.kernels.device import usable_device
from sublight.kernels.dispatch import require_gpu
from sublight.kernels.routing import Router


@dataclass(frozen=True)
class DecodeRouter:
    """A router that the kernel runs itself.

    Attributes:
        router: how experts are chosen.
        experts: that there are logits of, over all ranks.
        bias: whether a correction takes part in choosing.
        first: number of the first expert of this rank.
    """

    router: Router
    experts: int
    bias: bool = False
    first: int = 0

    def plan(self) -> RouterPlan:
        one = self.router
        grouped = (one.groups, one.top_groups)
        return RouterPlan(one.scoring == "sigmoid", self.experts, self.bias, *grouped, one.renormalise)


class DecodeWorkspace:
    """What launches of one layer shape share, made once: nothing is allocated afterwards.

    Launches that use one workspace have to follow each other (one stream, or streams that wait), as engines' layers
    do: intermediate values pass through it, and each launch tells its own from the last one's by a running number.

    Args:
        hidden, inter, top_k: the layer.
        device: a CUDA device.
        shared_limit: bytes of shared memory a block may use, where less than the GPU's own limit is wanted.
        piece, team: as in the plan, where its default is not wanted.
        early_start: a launch may be set up while the kernel before it ends; it reads nothing before that end but the
            router's correction, which has to be there when it is launched.
        shared: experts of width `inter` that every token goes to.
        router: what the kernel chooses experts by; None where they are given.

    Raises:
        KernelError: a device that torch cannot use, that is no GPU, or that the kernel is not built for, or a layer
            that it does not take.
    """

    def __init__(
        self,
        hidden: int,
        inter: int,
        top_k: int,
        device: torch.device | str = "cuda",
        shared_limit: int | None = None,
        piece: int | None = None,
        team: int | None = None,
        early_start: bool = True,
        shared: int = 0,
        router: DecodeRouter | None = None,
    ) -> None:
        self.device = usable_device("the decode kernel", device)
        require_gpu("the decode kernel", self.device.type)
        self.shape = (hidden, inter, top_k)
        self.shared, self.router = shared, router
        self._wanted = (piece, team)
        self._early_start = early_start
        properties = torch.cuda.get_device_properties(self.device)
        self.target = target_of("the CUDA decode kernel", (properties.major, properties.minor))
        self.grid = properties.multi_processor_count
        limit = device_attribute(SHARED_LIMIT, self.device.index)
        self.shared_limit = min(limit, shared_limit or limit)
        self._kernels: dict[int, Kernel] = {}
        sizes = [size for size in (1, 2, 4, 8, 16) if _fits(size, top_k, shared)]
        plans = [self.plan(size) for size in sizes or (2,)]  # where none fits, the plan says why
        words = max(plan.exchange_words for plan in plans)
        # two halves in turn, all "not yet" at first; launches so far, times the grid
        self._exchange = torch.full((2, words), -1, dtype=torch.int32, device=self.device)
        self._arrivals = torch.zeros(1, dtype=torch.int64, device=self.device)

    def plan(self, tokens: int) -> DecodePlan:
        router = None if self.router is None else self.router.plan()
        return plan_decode(*self.shape, tokens, self.grid, self.shared_limit, *self._wanted, self.shared, router)

    def kernel(self, tokens: int) -> Kernel:
        """Compiled on the first call for its number of tokens; call it before capturing a graph."""
        if tokens not in self._kernels:
            self._kernels[tokens] = _load(self.plan(tokens), self.target, self._early_start, self.device.index)
        return self._kernels[tokens]

    def launch(self, x: Tensor, choice: Tensor, beside: Tensor | None, experts: DecodeWeights, out: Tensor) -> None:
        """`choice` and `beside`: expert numbers and weights, or logits and their correction."""
        tokens = x.shape[0]
        inputs = (x, choice, beside, experts.w13, experts.scale13, experts.w2, experts.scale2)
        tensors = (*inputs, self._exchange, self._arrivals, out)
        arguments: list[ctypes._SimpleCData[Any]] = [
            ctypes.c_void_p(t.data_ptr() if t is not None else 0) for t in tensors
        ]
        arguments += [ctypes.c_int(n) for n in (tokens, experts.experts, self._exchange.shape[1])]
        factor, first = (self.router.router.scaling_factor, self.router.first) if self.router else (1.0, 0)
        arguments += [ctypes.c_float(factor), ctypes.c_int(first), ctypes.c_int(choice.dtype == torch.bfloat16)]
        stream = torch.cuda.current_stream(self.device).cuda_stream
        kernel = self.kernel(tokens)
        with torch.cuda.device(self.device):
            kernel.launch(self.grid, WARPS * 32, stream, arguments)


def fused_moe(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    experts: DecodeWeights,
    workspace: DecodeWorkspace,
    out: Tensor | None = None,
) -> Tensor:
    """The layer's output, [tokens, hidden] in bf16: all of a token's experts, weighted and summed.

    Args:
        x: bf16 [tokens, hidden], 1 to 16 tokens.
        topk_ids: int32 [tokens, top_k]. The ids of a token differ, as routers make them; pairs whose id is negative or
            not below the number of experts are skipped, as other ranks add theirs.
        topk_weights: fp32 [tokens, top_k].
        workspace: of this layer's shape.
        out: where to write; inside a graph, give one.

    Raises:
        KernelError: a tensor that is not as above; it is named.
    """
    tokens = _check_layer(x, experts, workspace)
    if workspace.router is not None:
        raise KernelError("fused_moe with this workspace", "it has a router of its own", "routed_moe(x, logits, ...)")
    chosen = (tokens, workspace.shape[2])
    _expect("topk_ids", topk_ids, (torch.int32,), chosen, workspace.device)
    _expect("topk_weights", topk_weights, (torch.float32,), chosen, workspace.device)
    return _launch(x, topk_ids, topk_weights, experts, workspace, out)


def routed_moe(
    x: Tensor,
    logits: Tensor,
    experts: DecodeWeights,
    workspace: DecodeWorkspace,
    correction_bias: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The same from router logits, which the kernel turns into experts and weights as `sublight.kernels.routing.route`
    does: in fp32, of equal scores the lower number first.

    Args:
        logits: fp32 or bf16 [tokens, experts of all ranks].
        workspace: of this layer's shape, with a router.
        correction_bias: fp32 [experts of all ranks], where the router has one.

    Raises:
        KernelError: a tensor that is not as above; it is named.
    """
    tokens = _check_layer(x, experts, workspace)
    router = workspace.router
    if router is None:
        raise KernelError("routed_moe with this workspace", "it has no router", "DecodeWorkspace(router=...)")
    if (correction_bias is not None) != router.bias:
        found = "it is missing" if router.bias else "the workspace's router has none"
        raise KernelError("routed_moe with correction_bias", found, "DecodeRouter(bias=...) as the model has it")
    kinds = (torch.float32, torch.bfloat16)
    _expect("logits", logits, kinds, (tokens, router.experts), workspace.device, aligned=False)
    if correction_bias is not None:
        _expect("correction_bias", correction_bias, kinds[:1], (router.experts,), workspace.device, aligned=False)
    return _launch(x, logits, correction_bias, experts, workspace, out)


def _check_layer(x: Tensor, experts: DecodeWeights, workspace: DecodeWorkspace) -> int:
    """The number of tokens."""
    for name, value, kind in (("experts", experts, DecodeWeights), ("workspace", workspace, DecodeWorkspace)):
        if not isinstance(value, kind):
            raise KernelError(f"fused_moe with {name}", f"it is of type {type(value).__name__}", kind.__name__)
    hidden, inter, _ = workspace.shape
    require_tensor("fused_moe", "x", x, "bf16 [tokens, hidden]")
    tokens = x.shape[0] if x.dim() else 0
    if not 1 <= tokens <= MAX_TOKENS:
        raise KernelError("fused_moe with x", f"its shape is {list(x.shape)}", f"1 to {MAX_TOKENS} tokens")
    if experts.experts > MAX_EXPERTS:
        raise KernelError("fused_moe", f"{experts.experts} experts on one GPU", f"{MAX_EXPERTS} experts at most")
    if experts.shared != workspace.shared:
        found = f"{experts.shared} of them are shared, and the workspace is for {workspace.shared}"
        raise KernelError("fused_moe with experts", found, f"DecodeWorkspace(shared={experts.shared})")
    count, device = experts.experts + experts.shared, workspace.device
    _expect("x", x, (torch.bfloat16,), (tokens, hidden), device)
    _expect("w13", experts.w13, (torch.uint8,), (count, inter // 16, hidden // 64, 1152), device)
    _expect("w2", experts.w2, (torch.uint8,), (count, *w2_shape(hidden, inter)), device)
    _expect("scale13", experts.scale13, (torch.float32,), (count, 2), device)
    _expect("scale2", experts.scale2, (torch.float32,), (count,), device)
    return tokens


def _launch(
    x: Tensor,
    choice: Tensor,
    beside: Tensor | None,
    experts: DecodeWeights,
    workspace: DecodeWorkspace,
    out: Tensor | None,
) -> Tensor:
    out = torch.empty_like(x) if out is None else out
    _expect("out", out, (torch.bfloat16,), tuple(x.shape), workspace.device)
    workspace.launch(x, choice, beside, experts, out)
    return out


def _expect(
    name: str,
    tensor: Tensor,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int, ...],
    device: torch.device,
    aligned: bool = True,
) -> None:
    asked = f"fused_moe with {name}"
    wanted = " or ".join(map(str, dtypes))
    require_tensor("fused_moe", name, tensor, f"{wanted} {list(shape)}")
    if tensor.dtype not in dtypes:
        raise KernelError(asked, f"its type is {tensor.dtype}", wanted)
    if tuple(tensor.shape) != shape:
        raise KernelError(asked, f"its shape is {list(tensor.shape)}", f"{list(shape)}, as the workspace has it")
    if tensor.device != device:
        raise KernelError(asked, f"it is on {tensor.device}", f"a tensor on {device}")
    if not tensor.is_contiguous() or (aligned and tensor.data_ptr() % 16):
        raise KernelError(asked, "it is not contiguous from a multiple of 16 bytes", f"{name}.contiguous()")


def _fits(size: int, top_k: Any, shared: int) -> bool:
    return isinstance(top_k, int) and size * (top_k + shared) <= 254 and (size > 1 or top_k <= 32)


@cache
def _load(plan: DecodePlan, target: str, early_start: bool, device: int) -> Kernel:
    """A loaded kernel belongs to one device."""
    cubin = compile_kernel("moe_decode.cu", plan.defines(), target)
    with torch.cuda.device(device):
        return Kernel(cubin, "moe_decode", plan.stream_bytes, early_start)
