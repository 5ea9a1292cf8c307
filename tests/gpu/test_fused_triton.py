"""The portable layer on a GPU against the oracle: every number of tokens, skew, company of graphs and streams."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from sublight.kernels import FusedMoe
from sublight.kernels.agreement import require_agreement
from sublight.kernels.numerics.formats import FP8_BLOCK, MXFP4, NVFP4, BlockFormat
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.reference import Experts, InputScales, moe_forward
from tests.torch.cuda_layers import graph_on_two_streams

pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA GPU here", allow_module_level=True)

# experts, width, hidden, top-k, as one GPU has them
SHAPES = {"glm-5-tp8": (256, 256, 6144, 8), "qwen3-30b-a3b": (128, 768, 2048, 8), "small": (6, 192, 320, 3)}
TOKENS = [1, 2, 3, 5, 8, 16, 17, 64, 128, 1024, 1500]


def matrix(experts: int, rows: int, columns: int, parts: int) -> Quantised:
    """Codes uniform, block scales 0.25 to 2, global scales that keep activations near one and differ between parts."""
    codes = torch.empty(experts, rows, columns // 2, dtype=torch.uint8, device="cuda").random_(0, 256)
    scales = (torch.rand(experts, rows, columns // 16, device="cuda") * 1.75 + 0.25).to(torch.float8_e4m3fn)
    above = (torch.rand(experts, parts, device="cuda") + 0.5) / (3.5 * columns**0.5)
    return Quantised(NVFP4, codes, scales, GlobalScale(above))


def nvfp4_experts(experts: int, width: int, hidden: int) -> Experts:
    return Experts(matrix(experts, 2 * width, hidden, 2), matrix(experts, hidden, width, 1))


def inputs(tokens: int, experts: int, hidden: int, top_k: int) -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.rand(tokens, experts, device="cuda").topk(top_k, 1).indices.int()
    weights = torch.rand(tokens, top_k, device="cuda") + 0.1
    return torch.randn(tokens, hidden, device="cuda").bfloat16(), ids, weights / weights.sum(1, keepdim=True)


def check(layer: FusedMoe, experts: Experts, given: tuple[Tensor, Tensor, Tensor], tolerance: float) -> None:
    out = torch.full_like(given[0], float("nan"))
    layer(*given, out)
    wanted = moe_forward(*given, experts, experts.input_scales)
    require_agreement(f"{given[0].shape[0]} tokens", out, wanted, tolerance)


@pytest.fixture(scope="module", params=SHAPES)
def prepared(request: pytest.FixtureRequest) -> tuple[FusedMoe, Experts, tuple[int, ...]]:
    torch.manual_seed(0)
    shape = SHAPES[request.param]
    experts = nvfp4_experts(*shape[:3])
    return FusedMoe(experts, tokens=1500, top_k=shape[3], backend="fused-triton"), experts, shape


@pytest.mark.parametrize("tokens", TOKENS)
def test_every_number_of_tokens(prepared: tuple[FusedMoe, Experts, tuple[int, ...]], tokens: int) -> None:
    layer, experts, (count, _, hidden, top_k) = prepared
    check(layer, experts, inputs(tokens, count, hidden, top_k), NVFP4.kernel_error)


@pytest.mark.parametrize("tokens", [1, 16, 300])
def test_skewed_and_empty_routings(prepared: tuple[FusedMoe, Experts, tuple[int, ...]], tokens: int) -> None:
    layer, experts, (count, _, hidden, top_k) = prepared
    x, ids, weights = inputs(tokens, count, hidden, top_k)
    check(layer, experts, (x, ids[:1].repeat(tokens, 1).contiguous(), weights), NVFP4.kernel_error)
    ids[:, ::2] = -1
    ids[0, 1] = count  # the first expert of the next rank
    check(layer, experts, (x, ids, weights), NVFP4.kernel_error)
    assert layer(x, torch.full_like(ids, -1), weights).count_nonzero() == 0


@pytest.mark.parametrize("form", [NVFP4, MXFP4, FP8_BLOCK, None], ids=lambda form: form.name if form else "bf16")
@pytest.mark.parametrize("activation", ["swiglu", "swiglu-oai", "geglu", "relu2"])
def test_formats_and_activations(form: BlockFormat | None, activation: str) -> None:
    torch.manual_seed(1)
    count, width, hidden = (8, 256, 384) if form is FP8_BLOCK else (8, 192, 320)  # tiles of 128 x 128 are not cut
    rows = width * (1 if activation == "relu2" else 2)
    w13 = torch.randn(count, rows, hidden, device="cuda") / hidden**0.5
    w2 = torch.randn(count, hidden, width, device="cuda") / width**0.5
    gate_up, down = (w.bfloat16() if form is None else form.quantise(w) for w in (w13, w2))
    biased = activation == "swiglu-oai"
    experts = Experts(
        gate_up,
        down,
        activation,  # type: ignore[arg-type]
        bias13=torch.randn(count, rows, device="cuda") if biased else None,
        bias2=torch.randn(count, hidden, device="cuda") if biased else None,
    )
    layer = FusedMoe(experts, tokens=40, top_k=3, backend="fused-triton")
    for tokens in (1, 40):
        check(layer, experts, inputs(tokens, count, hidden, 3), NVFP4.kernel_error)


def test_block_scales_that_leave_no_room_for_decoding_in_pairs() -> None:
    torch.manual_seed(4)
    w13 = torch.randn(8, 384, 320, device="cuda") / 320**0.5
    w2 = torch.randn(8, 320, 192, device="cuda") / 192**0.5
    down = MXFP4.quantise(w2 * 2**16)
    assert int(down.scales.max()) - 127 > 8  # times 2**119 it would be infinite
    experts = Experts(MXFP4.quantise(w13), down)
    layer = FusedMoe(experts, tokens=40, top_k=3, backend="fused-triton")
    for tokens in (1, 40):
        check(layer, experts, inputs(tokens, 8, 320, 3), NVFP4.kernel_error)


def with_scales(experts: Experts, count: int) -> Experts:
    first = torch.linspace(400, 700, count, device="cuda")
    return replace(experts, input_scales=InputScales(first, first / 2))


@pytest.mark.parametrize("name", SHAPES)
def test_quantised_activations(name: str) -> None:
    torch.manual_seed(2)
    count, width, hidden, top_k = SHAPES[name]
    experts = with_scales(nvfp4_experts(count, width, hidden), count)
    layer = FusedMoe(experts, tokens=128, top_k=top_k, backend="fused-triton")
    for tokens in (1, 3, 16, 128):
        # Where sums in another order round to another bf16, a four-bit activation can fall to the next step.
        check(layer, experts, inputs(tokens, count, hidden, top_k), 1e-2)


def test_a_graph_allocates_nothing_and_follows_its_inputs() -> None:
    torch.manual_seed(3)
    count, width, hidden, top_k = 16, 256, 1024, 4
    experts = nvfp4_experts(count, width, hidden)
    layer = FusedMoe(experts, tokens=64, top_k=top_k, backend="fused-triton")
    given = inputs(20, count, hidden, top_k)
    out = torch.empty_like(given[0])
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        layer(*given, out)
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        layer(*given, out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        layer(*given, out)
    first = None
    for _ in range(5):
        for target, source in zip(given, inputs(20, count, hidden, top_k), strict=True):
            target.copy_(source)
        out.fill_(float("nan"))
        graph.replay()
        require_agreement("replay", out, moe_forward(*given, experts), NVFP4.kernel_error)
        first = out.clone()
        graph.replay()
        assert torch.equal(first, out)  # the same bits


def test_two_layers_on_two_streams_in_a_graph() -> None:
    torch.manual_seed(4)
    layers = []
    for width in (256, 192):
        experts = nvfp4_experts(16, width, 2048)
        given = inputs(8, 16, 2048, 4)
        layers.append((FusedMoe(experts, tokens=8, top_k=4, backend="fused-triton"), experts, given))
    outs = [layer(*given) for layer, _, given in layers]
    torch.cuda.synchronize()
    calls = [partial(layer, *given, out) for (layer, _, given), out in zip(layers, outs, strict=True)]
    graph = graph_on_two_streams(*calls)
    for _ in range(20):
        graph.replay()
    for (_, experts, given), out in zip(layers, outs, strict=True):
        require_agreement("one of two", out, moe_forward(*given, experts), NVFP4.kernel_error)
