"""The decode kernel on the GPU that it was written for: every number of tokens, odd shapes, skew, company.

Skipped elsewhere. What can be checked without a GPU is checked beside this file: layout, decoding, plans, compilation.
"""

import pytest
import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.cuda.decode import DecodeWorkspace, fused_moe
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


def layer_of(experts: int, inter: int, hidden: int, top_k: int, **options: int) -> Layer:
    return Layer((experts, inter, hidden, top_k), fused_moe, DecodeWorkspace(hidden, inter, top_k, **options))


@pytest.fixture(scope="module")
def layer() -> Layer:
    return layer_of(64, 256, 1024, 8)


@pytest.mark.parametrize("tokens", range(1, 17))
def test_every_number_of_tokens(layer: Layer, tokens: int) -> None:
    for seed in range(3):
        layer.check(*layer.inputs(tokens, seed))


@pytest.mark.parametrize("shape", WIDTHS)
@pytest.mark.parametrize("tokens", [1, 3, 8, 13])
def test_widths_that_are_multiples_of_64(shape: tuple[int, int, int, int], tokens: int) -> None:
    layer = layer_of(*shape)
    layer.check(*layer.inputs(tokens))


@pytest.mark.parametrize("tokens", [1, 4, 8, 16])
def test_within_the_shared_memory_of_sm120(tokens: int) -> None:
    layer = layer_of(32, 256, 6144, 8, shared_limit=SM120_SHARED_BYTES)
    assert layer.workspace.plan(tokens).shared_bytes <= SM120_SHARED_BYTES
    layer.check(*layer.inputs(tokens))


@pytest.mark.parametrize("tokens", [2, 8, 9, 16])
def test_all_tokens_at_the_same_experts(layer: Layer, tokens: int) -> None:
    x, ids, weights = layer.inputs(tokens)
    layer.check(x, ids[:1].repeat(tokens, 1).contiguous(), weights)


@pytest.mark.parametrize("tokens", [1, 4, 16])
def test_pairs_of_other_ranks_are_skipped(layer: Layer, tokens: int) -> None:
    check_pairs_of_other_ranks(layer, tokens)


def test_sizes_may_alternate_on_one_workspace(layer: Layer) -> None:
    for tokens in (1, 16, 2, 8, 1, 4, 16, 1, 3) * 4:
        layer.check(*layer.inputs(tokens))


def test_a_graph_allocates_nothing_and_follows_its_inputs(layer: Layer) -> None:
    check_graph(layer, 4)


def test_two_layers_on_two_streams_in_a_graph() -> None:
    check_two_streams_in_a_graph([layer_of(16, 256, 2048, 4), layer_of(16, 192, 2048, 4)], tokens=4, replays=500)


def test_two_layers_on_two_streams_at_once() -> None:
    """Each launch needs every multiprocessor, and none may take a part of them and wait for the rest."""
    layers = [layer_of(16, 256, 2048, 4), layer_of(16, 192, 2048, 4)]
    inputs = [layer.inputs(8) for layer in layers]
    outs = [layer.run(*given) for layer, given in zip(layers, inputs, strict=True)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    for out in outs:
        out.fill_(float("nan"))
    torch.cuda.synchronize()
    for _ in range(300):
        for layer, given, out, stream in zip(layers, inputs, outs, streams, strict=True):
            with torch.cuda.stream(stream):
                layer.run(*given, out)
    torch.cuda.synchronize()
    for layer, given, out in zip(layers, inputs, outs, strict=True):
        layer.check(*given, out)


def test_a_graph_with_the_shared_expert_on_a_second_stream(layer: Layer) -> None:
    """As engines do it: both read the layer's input, and their sum is the next layer's input."""
    tokens, hidden = 4, 1024
    x, ids, weights = layer.inputs(tokens)
    first = torch.randn(2 * hidden, hidden, device="cuda", dtype=torch.bfloat16) / hidden**0.5
    second = torch.randn(hidden, hidden, device="cuda", dtype=torch.bfloat16) / hidden**0.5
    routed = [torch.empty_like(x) for _ in range(8)]
    start, side = x.clone(), torch.cuda.Stream()

    def shared(x: Tensor) -> Tensor:
        gate, up = (x @ first.T).chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up) @ second.T

    def layers(x: Tensor) -> list[Tensor]:
        seen = [x]
        for out in routed:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                beside = shared(seen[-1])
            layer.run(seen[-1], ids, weights, out)
            torch.cuda.current_stream().wait_stream(side)
            mixed = beside + out
            seen.append(mixed / mixed.float().square().mean(-1, keepdim=True).sqrt().bfloat16())
        return seen

    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        layers(start)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        seen = layers(start)
    for seed in range(10):
        fresh = layer.inputs(tokens, seed)
        for target, source in zip((start, ids, weights), fresh, strict=True):
            target.copy_(source)
        for _ in range(50):
            graph.replay()
        torch.cuda.synchronize()
        for given, out in zip(seen, routed, strict=False):
            layer.check(given, ids, weights, out)


def test_a_launch_waits_while_another_kernel_holds_half_of_the_gpu(layer: Layer) -> None:
    """Blocks that wait for each other would hang for ever if only half of them found room."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from tests.torch.hold import hold

    x, ids, weights = layer.inputs(8)
    wanted = layer.run(x, ids, weights)
    out, busy = torch.full_like(x, float("nan")), torch.cuda.Stream()
    half = torch.cuda.get_device_properties(0).multi_processor_count // 2
    began, ended, done = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    hold[(half,)](20_000_000)  # compiled here, so that it starts at once below
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        began.record()
        hold[(half,)](20_000_000)
        ended.record()
    layer.run(x, ids, weights, out)
    done.record()
    assert not ended.query()  # it was launched while the other one ran
    torch.cuda.synchronize()
    layer.check(x, ids, weights, out)
    assert (out - wanted).abs().max() <= 2**-6 * wanted.abs().max()
    assert began.elapsed_time(done) >= 20.0


def test_beside_kernels_that_hold_part_of_the_gpu(layer: Layer) -> None:
    """Small products on another stream hold some multiprocessors at all times; the launch waits until it fits."""
    busy = torch.cuda.Stream()
    a = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16)
    x, ids, weights = layer.inputs(8)
    outs = [torch.full_like(x, float("nan")) for _ in range(50)]
    torch.cuda.synchronize()
    for out in outs:
        with torch.cuda.stream(busy):
            for _ in range(4):
                torch.mm(a, a)  # 64 tiles of 128 x 128: half of 132 multiprocessors
        layer.run(x, ids, weights, out)
    torch.cuda.synchronize()
    for out in outs:
        layer.check(x, ids, weights, out)


def test_wrong_tensors_are_named(layer: Layer) -> None:
    x, ids, weights = layer.inputs(4)
    for wrong in (
        (x.half(), ids, weights),
        (x, ids.long(), weights),
        (x, ids, weights.half()),
        (x[:, :64], ids, weights),
    ):
        with pytest.raises(KernelError, match=r"fused_moe with (x|topk_ids|topk_weights)"):
            fused_moe(*wrong, layer.weights, layer.workspace)
    with pytest.raises(KernelError, match="1 to 16 tokens"):
        layer.run(*layer.inputs(17))
