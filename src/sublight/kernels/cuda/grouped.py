"""grouped_moe: a routed-expert layer for many tokens, NVFP4 weights as the decode kernel has them, bf16 in and out."""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.contract import require_tensor
from sublight.kernels.cuda.build import compile_kernel, target_of
from sublight.kernels.cuda.driver import SHARED_LIMIT, Kernel, device_attribute
from sublight.kernels.cuda.grouped_plan import BUCKETS, GroupedPlan, bucket, plan_grouped
from sublight.kernels.cuda.layout import DecodeWeights, w2_shape
from sublight.kernels.device import usable_device
from sublight.kernels.dispatch import require_gpu

_CALL = "grouped_moe"
_THREADS = 256  # of the kernels that order x and write the output
_VALUES = 8  # of either that a thread writes


class _Kernels(NamedTuple):
    threads: int
    order: Kernel | None
    up: Kernel
    down: Kernel
    out: Kernel


class GroupedWorkspace:
    """What launches of one layer shape share, made once: nothing is allocated afterwards.

    Launches that use one workspace have to follow each other (one stream, or streams that wait): intermediate values
    and sums pass through it.

    Args:
        hidden, inter, experts, top_k: the layer on this GPU.
        tokens: the most of a call. Calls of fewer run a kernel for fewer; more than one launch takes are split.
        device: a CUDA device.
        expert_ranks: ranks that the experts are dealt out to, which tells how full the groups are.
        shared_limit: bytes of shared memory a block may use, where less than the GPU's own limit is wanted.
        early_start: a launch may be set up while the kernel before it ends; it reads nothing of that before its end.

    Raises:
        KernelError: a device that torch cannot use, that is no GPU, or that the kernels are not built for, or a layer
            that they do not take.
    """

    def __init__(
        self,
        hidden: int,
        inter: int,
        experts: int,
        top_k: int,
        tokens: int,
        device: torch.device | str = "cuda",
        expert_ranks: int = 1,
        shared_limit: int | None = None,
        early_start: bool = True,
    ) -> None:
        self.device = usable_device("the grouped kernel", device)
        require_gpu("the grouped kernel", self.device.type)
        self.shape = (hidden, inter, experts, top_k)
        self.tokens = tokens
        self._ranks = expert_ranks
        self._early_start = early_start
        properties = torch.cuda.get_device_properties(self.device)
        self.target = target_of("the CUDA grouped kernel", (properties.major, properties.minor))
        self.grid = properties.multi_processor_count
        limit = device_attribute(SHARED_LIMIT, self.device.index)
        self.shared_limit = min(limit, shared_limit or limit)
        self._kernels: dict[int, _Kernels] = {}
        largest = self.plan(tokens)
        self._h = torch.empty(largest.pairs, inter, dtype=torch.bfloat16, device=self.device)
        self._sums = torch.empty(largest.max_tokens, hidden, dtype=torch.float32, device=self.device)
        # x with its columns in another order, for plans that want it so
        self._ordered = torch.empty(largest.max_tokens, hidden, dtype=torch.bfloat16, device=self.device)
        counters = max(self.plan(size).counters for size in BUCKETS if size <= largest.max_tokens)
        self._counters = torch.zeros(counters, dtype=torch.int32, device=self.device)

    def plan(self, tokens: int) -> GroupedPlan:
        return plan_grouped(*self.shape, tokens, self.shared_limit, self._ranks, self.target == "sm_90a")

    def kernels(self, tokens: int) -> _Kernels:
        """Compiled on the first call for its number of tokens; call it before capturing a graph."""
        size = bucket(tokens, self.shape[3])
        if size not in self._kernels:
            self._kernels[size] = _load(self.plan(tokens), self.target, self._early_start, self.device.index)
        return self._kernels[size]

    def launch(self, x: Tensor, ids: Tensor, weights: Tensor, experts: DecodeWeights, out: Tensor) -> None:
        """In pieces of as many tokens as one launch takes."""
        piece = bucket(x.shape[0], self.shape[3])
        for first in range(0, x.shape[0], piece):
            part = slice(first, first + piece)
            self._launch(x[part], ids[part], weights[part], experts, out[part])

    def _launch(self, x: Tensor, ids: Tensor, weights: Tensor, experts: DecodeWeights, out: Tensor) -> None:
        tokens = x.shape[0]
        kernels = self.kernels(tokens)
        stream = torch.cuda.current_stream(self.device).cuda_stream
        eights = tokens * self.shape[0] // _VALUES
        blocks = -(-eights // _THREADS)
        read = x if kernels.order is None else self._ordered
        up = (read, ids, weights, experts.w13, experts.scale13, experts.scale2, self._h, self._sums, self._counters)
        down = (ids, experts.w2, self._h, self._sums, self._counters)
        with torch.cuda.device(self.device):
            if kernels.order is not None:
                kernels.order.launch(blocks, _THREADS, stream, _arguments((x, self._ordered), eights))
            kernels.up.launch(self.grid, kernels.threads, stream, _arguments(up, tokens))
            kernels.down.launch(self.grid, kernels.threads, stream, _arguments(down, tokens))
            kernels.out.launch(blocks, _THREADS, stream, _arguments((self._sums, out, self._counters), eights))


def grouped_moe(
    x: Tensor,
    topk_ids: Tensor,
    topk_weights: Tensor,
    experts: DecodeWeights,
    workspace: GroupedWorkspace,
    out: Tensor | None = None,
) -> Tensor:
    """The layer's output, [tokens, hidden] in bf16: all of a token's experts, weighted and summed.

    Args:
        x: bf16 [tokens, hidden].
        topk_ids: int32 [tokens, top_k]. Pairs whose id is negative or not below the number of experts are skipped, as
            other ranks add theirs.
        topk_weights: fp32 [tokens, top_k].
        workspace: of this layer's shape and at least as many tokens.
        out: where to write; inside a graph, give one.

    Raises:
        KernelError: a tensor that is not as above; it is named.
    """
    for name, value, kind in (("experts", experts, DecodeWeights), ("workspace", workspace, GroupedWorkspace)):
        if not isinstance(value, kind):
            raise KernelError(f"{_CALL} with {name}", f"it is of type {type(value).__name__}", kind.__name__)
    hidden, inter, count, top_k = workspace.shape
    require_tensor(_CALL, "x", x, "bf16 [tokens, hidden]")
    tokens = x.shape[0] if x.dim() else 0
    if not 1 <= tokens <= workspace.tokens:
        raise KernelError(f"{_CALL} with x", f"its shape is {list(x.shape)}", f"1 to {workspace.tokens} tokens")
    if out is None:
        out = torch.empty_like(x)
    for name, tensor, dtype, shape in (
        ("x", x, torch.bfloat16, (tokens, hidden)),
        ("topk_ids", topk_ids, torch.int32, (tokens, top_k)),
        ("topk_weights", topk_weights, torch.float32, (tokens, top_k)),
        ("w13", experts.w13, torch.uint8, (count, inter // 16, hidden // 64, 1152)),
        ("w2", experts.w2, torch.uint8, (count, *w2_shape(hidden, inter))),
        ("scale13", experts.scale13, torch.float32, (count, 2)),
        ("scale2", experts.scale2, torch.float32, (count,)),
        ("out", out, torch.bfloat16, (tokens, hidden)),
    ):
        _expect(name, tensor, dtype, shape, workspace.device)
    workspace.launch(x, topk_ids, topk_weights, experts, out)
    return out


def _arguments(tensors: Sequence[Tensor], count: int) -> "list[ctypes._SimpleCData[Any]]":
    return [*(ctypes.c_void_p(t.data_ptr()) for t in tensors), ctypes.c_int(count)]


def _expect(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    asked = f"{_CALL} with {name}"
    require_tensor(_CALL, name, tensor, f"{dtype} {list(shape)}")
    if tensor.dtype != dtype:
        raise KernelError(asked, f"its type is {tensor.dtype}", f"{dtype}")
    if tuple(tensor.shape) != shape:
        raise KernelError(asked, f"its shape is {list(tensor.shape)}", f"{list(shape)}, as the workspace has it")
    if tensor.device != device:
        raise KernelError(asked, f"it is on {tensor.device}", f"a tensor on {device}")
    if not tensor.is_contiguous() or tensor.data_ptr() % 16:
        raise KernelError(asked, "it is not contiguous from a multiple of 16 bytes", f"{name}.contiguous()")


@cache
def _load(plan: GroupedPlan, target: str, early_start: bool, device: int) -> _Kernels:
    """Loaded kernels belong to one device. No block waits for another: the launches need not be cooperative."""
    cubin = compile_kernel("moe_grouped.cu", plan.defines(), target)

    def kernel(name: str, shared_bytes: int = 0) -> Kernel:
        return Kernel(cubin, name, shared_bytes, early_start, cooperative=False)

    with torch.cuda.device(device):
        order = kernel("grouped_order") if plan.wgmma else None
        up, down = kernel("grouped_up", plan.up_bytes), kernel("grouped_down", plan.down_bytes)
        return _Kernels(plan.threads, order, up, down, kernel("grouped_out"))
