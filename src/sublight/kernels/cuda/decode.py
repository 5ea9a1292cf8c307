"""fused_moe: a routed-expert layer for a few tokens in one launch, NVFP4 weights, bf16 in and out."""

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.contract import require_tensor
from sublight.kernels.cuda.build import compile_kernel
from sublight.kernels.cuda.driver import SHARED_LIMIT, Kernel, device_attribute
from sublight.kernels.cuda.layout import DecodeWeights, w2_shape
from sublight.kernels.cuda.plan import MAX_EXPERTS, MAX_TOKENS, WARPS, DecodePlan, plan_decode
from sublight.kernels.device import usable_device
from sublight.kernels.dispatch import require_gpu

_TARGETS = {(9, 0): "sm_90a"}
"""Exact capabilities that this kernel has been run on."""


class DecodeWorkspace:
    """What launches of one layer shape share, made once: nothing is allocated afterwards.

    Launches that use one workspace have to follow each other (one stream, or streams that wait), as engines' layers
    do: intermediate values pass through it, and each launch tells its own from the last one's by a running number.

    Args:
        hidden, inter, top_k: the layer.
        device: a CUDA device.
        shared_limit: bytes of shared memory a block may use, where less than the GPU's own limit is wanted.
        piece, team: as in the plan, where its default is not wanted.
        early_start: a launch may be set up while the kernel before it ends; it reads nothing before that end.

    Raises:
        KernelError: a device that torch cannot use, that is no GPU, or that the kernel has never been run on, or a
            layer that it does not take.
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
    ) -> None:
        self.device = usable_device("the decode kernel", device)
        require_gpu("the decode kernel", self.device.type)
        self.shape = (hidden, inter, top_k)
        self._wanted = (piece, team)
        self._early_start = early_start
        properties = torch.cuda.get_device_properties(self.device)
        self.target = _target((properties.major, properties.minor))
        self.grid = properties.multi_processor_count
        limit = device_attribute(SHARED_LIMIT, self.device.index)
        self.shared_limit = min(limit, shared_limit or limit)
        self._kernels: dict[int, Kernel] = {}
        sizes = [size for size in (1, 2, 4, 8, 16) if _fits(size, top_k)]
        plans = [self.plan(size) for size in sizes or (2,)]  # where none fits, the plan says why
        words = max(plan.exchange_words for plan in plans)
        # two halves in turn, all "not yet" at first; launches so far, times the grid
        self._exchange = torch.full((2, words), -1, dtype=torch.int32, device=self.device)
        self._arrivals = torch.zeros(1, dtype=torch.int64, device=self.device)

    def plan(self, tokens: int) -> DecodePlan:
        return plan_decode(*self.shape, tokens, self.grid, self.shared_limit, *self._wanted)

    def kernel(self, tokens: int) -> Kernel:
        """Compiled on the first call for its number of tokens; call it before capturing a graph."""
        if tokens not in self._kernels:
            self._kernels[tokens] = _load(self.plan(tokens), self.target, self._early_start, self.device.index)
        return self._kernels[tokens]

    def launch(self, x: Tensor, ids: Tensor, weights: Tensor, experts: DecodeWeights, out: Tensor) -> None:
        tokens = x.shape[0]
        inputs = (x, ids, weights, experts.w13, experts.scale13, experts.w2, experts.scale2)
        tensors = (*inputs, self._exchange, self._arrivals, out)
        counts = (tokens, experts.experts, self._exchange.shape[1])
        arguments: list[ctypes._SimpleCData[Any]] = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        arguments += [ctypes.c_int(n) for n in counts]
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
    for name, value, kind in (("experts", experts, DecodeWeights), ("workspace", workspace, DecodeWorkspace)):
        if not isinstance(value, kind):
            raise KernelError(f"fused_moe with {name}", f"it is of type {type(value).__name__}", kind.__name__)
    hidden, inter, top_k = workspace.shape
    require_tensor("fused_moe", "x", x, "bf16 [tokens, hidden]")
    tokens = x.shape[0] if x.dim() else 0
    if not 1 <= tokens <= MAX_TOKENS:
        raise KernelError("fused_moe with x", f"its shape is {list(x.shape)}", f"1 to {MAX_TOKENS} tokens")
    if experts.experts > MAX_EXPERTS:
        raise KernelError("fused_moe", f"{experts.experts} experts on one GPU", f"{MAX_EXPERTS} experts at most")
    _expect("x", x, torch.bfloat16, (tokens, hidden), workspace.device)
    _expect("topk_ids", topk_ids, torch.int32, (tokens, top_k), workspace.device)
    _expect("topk_weights", topk_weights, torch.float32, (tokens, top_k), workspace.device)
    _expect("w13", experts.w13, torch.uint8, (experts.experts, inter // 16, hidden // 64, 1152), workspace.device)
    _expect("w2", experts.w2, torch.uint8, (experts.experts, *w2_shape(hidden, inter)), workspace.device)
    _expect("scale13", experts.scale13, torch.float32, (experts.experts, 2), workspace.device)
    _expect("scale2", experts.scale2, torch.float32, (experts.experts,), workspace.device)
    if out is None:
        out = torch.empty_like(x)
    _expect("out", out, torch.bfloat16, (tokens, hidden), workspace.device)
    workspace.launch(x, topk_ids, topk_weights, experts, out)
    return out


def _expect(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    asked = f"fused_moe with {name}"
    require_tensor("fused_moe", name, tensor, f"{dtype} {list(shape)}")
    if tensor.dtype != dtype:
        raise KernelError(asked, f"its type is {tensor.dtype}", f"{dtype}")
    if tuple(tensor.shape) != shape:
        raise KernelError(asked, f"its shape is {list(tensor.shape)}", f"{list(shape)}, as the workspace has it")
    if tensor.device != device:
        raise KernelError(asked, f"it is on {tensor.device}", f"a tensor on {device}")
    if not tensor.is_contiguous() or tensor.data_ptr() % 16:
        raise KernelError(asked, "it is not contiguous from a multiple of 16 bytes", f"{name}.contiguous()")


def _target(capability: tuple[int, int]) -> str:
    if capability not in _TARGETS:
        found = f"this GPU is sm_{capability[0]}{capability[1]}, where it has never been run"
        raise KernelError("the CUDA decode kernel", found, "a GPU of " + " or ".join(_TARGETS.values()))
    return _TARGETS[capability]


def _fits(size: int, top_k: Any) -> bool:
    return isinstance(top_k, int) and size * top_k <= 254 and (size > 1 or top_k <= 32)


@cache
def _load(plan: DecodePlan, target: str, early_start: bool, device: int) -> Kernel:
    """A loaded kernel belongs to one device."""
    cubin = compile_kernel("moe_decode.cu", plan.defines(), target)
    with torch.cuda.device(device):
        return Kernel(cubin, "moe_decode", plan.stream_bytes, early_start)
