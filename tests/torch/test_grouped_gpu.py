"""The grouped kernels on the GPU that they were written for: many tokens, odd shapes, skew, dirty memory, graphs.

Skipped elsewhere. What can be checked without a GPU is checked beside this file: index arithmetic, plans, compilation.
"""

import pytest
import torch
from torch import Tensor

from sublight.kernels.cuda.grouped import GroupedWorkspace, grouped_moe
from sublight.kernels.fused import FusedMoe
from tests.torch.cuda_layers import (
    SM120_SHARED_BYTES,
    WIDTHS,
    Layer,
    check_graph,
    check_pairs_of_other_ranks,
    check_two_streams_in_a_graph,
    needs_the_gpu,
)

pytestmark = needs_the_gpu


class GroupedLayer(Layer):
    def __init__(self, experts: int, inter: int, hidden: int, top_k: int, tokens: int, **options: int) -> None:
        workspace = GroupedWorkspace(hidden, inter, experts, top_k, tokens, **options)
        super().__init__((experts, inter, hidden, top_k), grouped_moe, workspace)

    def inputs(self, tokens: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """A token's weights add up to one here."""
        experts, _, hidden, top_k = self.shape
        generator = torch.Generator().manual_seed(100 * tokens + seed)
        x = torch.randn(tokens, hidden, generator=generator).bfloat16()
        ids = torch.rand(tokens, experts, generator=generator).topk(top_k, 1).indices
        weights = torch.rand(tokens, top_k, generator=generator) + 0.1
        return x.cuda(), ids.int().cuda(), (weights / weights.sum(1, keepdim=True)).cuda()


@pytest.fixture(scope="module")
def layer() -> Layer:
    return GroupedLayer(64, 512, 1024, 8, 4096)  # warpgroup products from 128 tokens on


@pytest.mark.parametrize("tokens", [1, 16, 17, 31, 32, 33, 64, 65, 128, 200, 256, 512, 777, 1024, 1025, 4096])
def test_many_numbers_of_tokens(layer: Layer, tokens: int) -> None:
    for seed in range(2):
        layer.check(*layer.inputs(tokens, seed))


@pytest.mark.parametrize("shape", WIDTHS)
@pytest.mark.parametrize("tokens", [3, 50, 300])
def test_widths_that_are_multiples_of_64(shape: tuple[int, int, int, int], tokens: int) -> None:
    layer = GroupedLayer(*shape, tokens)
    layer.check(*layer.inputs(tokens))


@pytest.mark.parametrize("tokens", [64, 1024])
def test_within_the_shared_memory_of_sm120(tokens: int) -> None:
    layer = GroupedLayer(32, 256, 2048, 8, tokens, shared_limit=SM120_SHARED_BYTES)
    assert layer.workspace.plan(tokens).shared_bytes <= SM120_SHARED_BYTES
    layer.check(*layer.inputs(tokens))


@pytest.mark.parametrize("tokens", [20, 129, 1024])
def test_all_tokens_at_the_same_experts(layer: Layer, tokens: int) -> None:
    x, ids, weights = layer.inputs(tokens)
    layer.check(x, ids[:1].repeat(tokens, 1).contiguous(), weights)


@pytest.mark.parametrize("tokens", [20, 300, 1025])
def test_pairs_of_other_ranks_are_skipped(layer: Layer, tokens: int) -> None:
    check_pairs_of_other_ranks(layer, tokens)


def test_sizes_may_alternate_on_one_workspace(layer: Layer) -> None:
    for tokens in (17, 1024, 40, 200, 1, 2000, 64, 17) * 3:
        layer.check(*layer.inputs(tokens))


def test_what_was_in_the_buffers_does_not_matter(layer: Layer) -> None:
    inputs = layer.inputs(100)
    first = layer.run(*inputs)
    layer.workspace._h.fill_(float("nan"))
    layer.workspace._sums.fill_(float("nan"))
    layer.check(*inputs)
    layer.check(*inputs, first)


def test_a_graph_allocates_nothing_and_follows_its_inputs(layer: Layer) -> None:
    check_graph(layer, 100, launches=3)


def test_two_layers_on_two_streams() -> None:
    layers = [GroupedLayer(16, 256, 2048, 4, 64), GroupedLayer(16, 192, 2048, 4, 64)]
    check_two_streams_in_a_graph(layers, tokens=64, replays=20)


def test_a_layer_for_many_tokens_serves_few(layer: Layer) -> None:
    prepared = FusedMoe(layer.oracle, tokens=1024, top_k=8, device="cuda", backend="grouped")
    for tokens in (1, 5, 16, 17, 100, 1024):
        inputs = layer.inputs(tokens)
        out = torch.full_like(inputs[0], float("nan"))
        prepared(*inputs, out)
        layer.check(*inputs, out)
