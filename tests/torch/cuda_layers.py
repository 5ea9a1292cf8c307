"""Layers of experts on the GPU that the CUDA kernels were written for, held against the oracle."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from sublight.kernels.cuda.build import CAPABILITIES
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.reference import Experts, moe_forward

needs_the_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() not in CAPABILITIES,
    reason="runs on a GPU that the kernels are built for",
)
SM120_SHARED_BYTES = 101_376
TOLERANCE = 3e-3
WIDTHS = [(8, 64, 64, 1), (8, 64, 192, 2), (16, 192, 2880, 4), (6, 320, 4160, 3), (40, 128, 8192, 10)]
"""Experts, intermediate, hidden, top-k: widths are multiples of 64 and of nothing more."""


def random_matrix(experts: int, rows: int, columns: int, parts: int, generator: torch.Generator) -> Quantised:
    """Codes uniform, block scales 0.25 to 2, global scales that keep activations near one and differ between parts."""

    def draw(*size: int) -> Tensor:
        return torch.rand(experts, *size, device="cuda", generator=generator)

    codes = (draw(rows, columns // 2) * 256).to(torch.uint8)
    scales = (draw(rows, columns // 16) * 1.75 + 0.25).to(torch.float8_e4m3fn)
    return Quantised(NVFP4, codes, scales, GlobalScale((draw(parts) + 0.5) / (3.5 * columns**0.5)))


def relative_error(out: Tensor, expected: Tensor) -> float:
    return float((out.float() - expected).norm() / expected.norm())


class Layer:
    """A layer, and the kernel that is tested.

    Args:
        shape: experts, intermediate, hidden, top-k.
        kernel: of x, experts' numbers, their weights, the packed layer, a workspace, and where to write.
    """

    def __init__(self, shape: tuple[int, int, int, int], kernel: Callable[..., Tensor], workspace: Any) -> None:
        self.shape, self.kernel, self.workspace = shape, kernel, workspace
        experts, inter, hidden, _ = shape
        generator = torch.Generator("cuda").manual_seed(inter)
        w13 = random_matrix(experts, 2 * inter, hidden, 2, generator)
        w2 = random_matrix(experts, hidden, inter, 1, generator)
        self.oracle, self.weights = Experts(w13, w2), pack_experts(w13, w2)

    def inputs(self, tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        experts, _, hidden, top_k = self.shape
        generator = torch.Generator().manual_seed(100 * tokens + seed)
        ids = torch.rand(tokens, experts, generator=generator).topk(top_k, 1).indices.int()
        weights = torch.rand(tokens, top_k, generator=generator)
        x = torch.randn(tokens, hidden, generator=generator)
        return x.bfloat16().cuda(), ids.cuda(), weights.cuda()

    def run(self, x: Tensor, ids: Tensor, weights: Tensor, out: Tensor | None = None) -> Tensor:
        out = torch.full_like(x, float("nan")) if out is None else out
        return self.kernel(x, ids, weights, self.weights, self.workspace, out)

    def check(self, x: Tensor, ids: Tensor, weights: Tensor, out: Tensor | None = None) -> None:
        """What was written to `out`, or what a run gives, agrees."""
        out = self.run(x, ids, weights) if out is None else out
        error = relative_error(out, moe_forward(x, ids, weights, self.oracle))
        assert error <= TOLERANCE, f"relative error {error:.2e}"


def check_pairs_of_other_ranks(layer: Layer, tokens: int) -> None:
    x, ids, weights = layer.inputs(tokens)
    ids[:, ::2] = -1
    ids[0, 1] = layer.shape[0]  # the first expert of the next rank
    layer.check(x, ids, weights)
    assert layer.run(x, torch.full_like(ids, -1), weights).count_nonzero() == 0


def check_graph(layer: Layer, tokens: int, launches: int = 1) -> None:
    """It allocates nothing, and follows its inputs."""
    x, ids, weights = layer.inputs(tokens)
    out = layer.run(x, ids, weights)
    graph = torch.cuda.CUDAGraph()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    layer.run(x, ids, weights, out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    with torch.cuda.graph(graph):
        for _ in range(launches):  # launches of one graph follow each other closely
            layer.run(x, ids, weights, out)
    for seed in range(20):
        for target, source in zip((x, ids, weights), layer.inputs(tokens, seed), strict=True):
            target.copy_(source)
        out.fill_(float("nan"))
        graph.replay()
        layer.check(x, ids, weights, out)


def check_two_streams_in_a_graph(layers: Sequence[Layer], tokens: int, replays: int) -> None:
    inputs = [layer.inputs(tokens) for layer in layers]
    outs = [layer.run(*given) for layer, given in zip(layers, inputs, strict=True)]
    calls = [partial(layer.run, *given, out) for layer, given, out in zip(layers, inputs, outs, strict=True)]
    graph = graph_on_two_streams(*calls)
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    for layer, given, out in zip(layers, inputs, outs, strict=True):
        layer.check(*given, out)


def graph_on_two_streams(first: Callable[[], object], second: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph with eight of each, side by side."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        for _ in range(8):
            first()
            with torch.cuda.stream(side):
                second()
        torch.cuda.current_stream().wait_stream(side)
    return graph
