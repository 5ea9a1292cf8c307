"""The grouped kernels on the GPU that they were written for: many tokens, odd shapes, skew, dirty memory, graphs.

Skipped elsewhere. What can be checked without a GPU is checked beside this file: index arithmetic, plans, compilation.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from sublight.kernels.cuda.build import CAPABILITIES
from sublight.kernels.cuda.grouped import GroupedWorkspace, grouped_moe
from sublight.kernels.cuda.layout import DecodeWeights, pack_experts
from sublight.kernels.fused import FusedMoe
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.reference import Experts, moe_forward

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() not in CAPABILITIES,
    reason="runs on a GPU that the kernels are built for",
)
SM120_SHARED_BYTES = 101_376


class Layer:
    def __init__(self, experts: int, inter: int, hidden: int, top_k: int, tokens: int, **options: int) -> None:
        self.shape = (experts, inter, hidden, top_k)
        generator = torch.Generator("cuda").manual_seed(inter)

        def matrix(rows: int, columns: int, parts: int) -> Quantised:
            def draw(*size: int) -> Tensor:
                return torch.rand(experts, *size, device="cuda", generator=generator)

            codes = (draw(rows, columns // 2) * 256).to(torch.uint8)
            scales = (draw(rows, columns // 16) * 1.75 + 0.25).to(torch.float8_e4m3fn)
            return Quantised(NVFP4, codes, scales, GlobalScale((draw(parts) + 0.5) / (3.5 * columns**0.5)))

        w13, w2 = matrix(2 * inter, hidden, 2), matrix(hidden, inter, 1)
        self.oracle = Experts(w13, w2)
        self.weights: DecodeWeights = pack_experts(w13, w2)
        self.workspace = GroupedWorkspace(hidden, inter, experts, top_k, tokens, **options)

    def inputs(self, tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        experts, _, hidden, top_k = self.shape
        generator = torch.Generator().manual_seed(100 * tokens + seed)
        x = torch.randn(tokens, hidden, generator=generator).bfloat16()
        ids = torch.rand(tokens, experts, generator=generator).topk(top_k, 1).indices
        weights = torch.rand(tokens, top_k, generator=generator) + 0.1
        return x.cuda(), ids.int().cuda(), (weights / weights.sum(1, keepdim=True)).cuda()

    def run(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        out = torch.full_like(x, float("nan"))
        return grouped_moe(x, ids, weights, self.weights, self.workspace, out)

    def error(self, out: Tensor, x: Tensor, ids: Tensor, weights: Tensor) -> float:
        expected = moe_forward(x, ids, weights, self.oracle)
        return float((out.float() - expected).norm() / expected.norm())


@pytest.fixture(scope="module")
def layer() -> Iterator[Layer]:
    yield Layer(64, 512, 1024, 8, 4096)  # warpgroup products from 128 tokens on


@pytest.mark.parametrize("tokens", [1, 16, 17, 31, 32, 33, 64, 65, 128, 200, 256, 512, 777, 1024, 1025, 4096])
def test_many_numbers_of_tokens(layer: Layer, tokens: int) -> None:
    for seed in range(2):
        inputs = layer.inputs(tokens, seed)
        assert layer.error(layer.run(*inputs), *inputs) <= 3e-3


@pytest.mark.parametrize(
    "shape", [(8, 64, 64, 1), (8, 64, 192, 2), (16, 192, 2880, 4), (6, 320, 4160, 3), (40, 128, 8192, 10)]
)
@pytest.mark.parametrize("tokens", [3, 50, 300])
def test_widths_that_are_multiples_of_64(shape: tuple[int, int, int, int], tokens: int) -> None:
    layer = Layer(*shape, tokens)
    inputs = layer.inputs(tokens)
    assert layer.error(layer.run(*inputs), *inputs) <= 3e-3


@pytest.mark.parametrize("tokens", [64, 1024])
def test_within_the_shared_memory_of_sm120(tokens: int) -> None:
    layer = Layer(32, 256, 2048, 8, tokens, shared_limit=SM120_SHARED_BYTES)
    assert layer.workspace.plan(tokens).shared_bytes <= SM120_SHARED_BYTES
    inputs = layer.inputs(tokens)
    assert layer.error(layer.run(*inputs), *inputs) <= 3e-3


@pytest.mark.parametrize("tokens", [20, 129, 1024])
def test_all_tokens_at_the_same_experts(layer: Layer, tokens: int) -> None:
    x, ids, weights = layer.inputs(tokens)
    same = ids[:1].repeat(tokens, 1).contiguous()
    assert layer.error(layer.run(x, same, weights), x, same, weights) <= 3e-3


@pytest.mark.parametrize("tokens", [20, 300, 1025])
def test_pairs_of_other_ranks_are_skipped(layer: Layer, tokens: int) -> None:
    x, ids, weights = layer.inputs(tokens)
    ids[:, ::2] = -1
    ids[0, 1] = 64  # the first expert of the next rank
    assert layer.error(layer.run(x, ids, weights), x, ids, weights) <= 3e-3
    nobody = torch.full_like(ids, -1)
    assert layer.run(x, nobody, weights).count_nonzero() == 0


def test_sizes_may_alternate_on_one_workspace(layer: Layer) -> None:
    for tokens in (17, 1024, 40, 200, 1, 2000, 64, 17) * 3:
        inputs = layer.inputs(tokens)
        assert layer.error(layer.run(*inputs), *inputs) <= 3e-3


def test_what_was_in_the_buffers_does_not_matter(layer: Layer) -> None:
    inputs = layer.inputs(100)
    first = layer.run(*inputs)
    layer.workspace._h.fill_(float("nan"))
    layer.workspace._sums.fill_(float("nan"))
    assert layer.error(layer.run(*inputs), *inputs) <= 3e-3
    assert layer.error(first, *inputs) <= 3e-3


def test_a_graph_allocates_nothing_and_follows_its_inputs(layer: Layer) -> None:
    x, ids, weights = layer.inputs(100)
    out = layer.run(x, ids, weights)
    graph = torch.cuda.CUDAGraph()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    grouped_moe(x, ids, weights, layer.weights, layer.workspace, out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    with torch.cuda.graph(graph):
        for _ in range(3):  # launches of one graph follow each other closely
            grouped_moe(x, ids, weights, layer.weights, layer.workspace, out)
    for seed in range(10):
        for target, source in zip((x, ids, weights), layer.inputs(100, seed), strict=True):
            target.copy_(source)
        out.fill_(float("nan"))
        graph.replay()
        assert layer.error(out, x, ids, weights) <= 3e-3


def test_two_layers_on_two_streams() -> None:
    layers = [Layer(16, 256, 2048, 4, 64), Layer(16, 192, 2048, 4, 64)]
    inputs = [layer.inputs(64) for layer in layers]
    outs = [layer.run(*given) for layer, given in zip(layers, inputs, strict=True)]
    graph, second = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        second.wait_stream(torch.cuda.current_stream())
        for _ in range(8):
            grouped_moe(*inputs[0], layers[0].weights, layers[0].workspace, outs[0])
            with torch.cuda.stream(second):
                grouped_moe(*inputs[1], layers[1].weights, layers[1].workspace, outs[1])
        torch.cuda.current_stream().wait_stream(second)
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    for layer, given, out in zip(layers, inputs, outs, strict=True):
        assert layer.error(out, *given) <= 3e-3


def test_a_layer_for_many_tokens_serves_few(layer: Layer) -> None:
    prepared = FusedMoe(layer.oracle, tokens=1024, top_k=8, device="cuda", backend="grouped")
    for tokens in (1, 5, 16, 17, 100, 1024):
        inputs = layer.inputs(tokens)
        out = torch.full_like(inputs[0], float("nan"))
        prepared(*inputs, out)
        assert layer.error(out, *inputs) <= 3e-3
