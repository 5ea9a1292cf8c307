"""Router and shared expert inside the decode kernel's launch, on the GPU that it was written for. Skipped elsewhere."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sublight.kernels import FusedMoe
from sublight.kernels.cuda.decode import DecodeRouter, DecodeWorkspace, fused_moe, routed_moe
from sublight.kernels.cuda.layout import DecodeWeights, pack_experts
from sublight.kernels.numerics.quantised import Quantised
from sublight.kernels.reference import Experts, moe_forward
from sublight.kernels.routing import Router, route
from tests.torch.cuda_layers import needs_the_gpu, random_matrix, relative_error

pytestmark = needs_the_gpu
HIDDEN, INTER = 512, 64
ROUTERS = {
    # experts, router, correction
    "mixtral": (8, Router("softmax", 2), False),
    "gpt-oss": (32, Router("softmax", 4), False),
    "qwen1.5": (60, Router("softmax", 4, renormalise=False), False),
    "qwen3": (128, Router("softmax", 8), False),
    "deepseek-v2": (160, Router("softmax", 6, False, 16.0, groups=8, top_groups=3), False),
    "deepseek-v3": (256, Router("sigmoid", 8, True, 2.5, groups=8, top_groups=4), True),
    "glm-5": (256, Router("sigmoid", 8, True, 2.5), True),
    "kimi-k2": (384, Router("sigmoid", 8, True, 2.827), True),
    "qwen3-next": (512, Router("softmax", 10), False),
}


def experts_of(count: int, inter: int = INTER, seed: int = 0) -> Experts:
    first, second = (torch.Generator("cuda").manual_seed(seed + i) for i in range(2))
    return Experts(random_matrix(count, 2 * inter, HIDDEN, 2, first), random_matrix(count, HIDDEN, inter, 1, second))


def packed(experts: Experts, shared: Experts | None = None) -> DecodeWeights:
    assert isinstance(experts.w13, Quantised) and isinstance(experts.w2, Quantised)
    return pack_experts(experts.w13, experts.w2, None if shared is None else (shared.w13, shared.w2))


def inputs(tokens: int, experts: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, HIDDEN, generator=generator).bfloat16().cuda()
    logits = torch.randn(tokens, experts, generator=generator).cuda() * 2
    return x, logits, torch.randn(experts, generator=generator).cuda() * 0.2


@pytest.mark.parametrize("name", ROUTERS)
def test_every_published_router(name: str) -> None:
    count, router, corrects = ROUTERS[name]
    experts = experts_of(count)
    weights = packed(experts)
    workspace = DecodeWorkspace(HIDDEN, INTER, router.top_k, router=DecodeRouter(router, count, corrects))
    for tokens in (1, 4, 16):
        x, logits, bias = inputs(tokens, count)
        correction = bias if corrects else None
        for given in (logits, logits.bfloat16(), (logits * 0.1).bfloat16(), torch.zeros_like(logits)):
            expected = moe_forward(x, *route(given, router, correction), experts)
            assert relative_error(routed_moe(x, given, weights, workspace, correction), expected) <= 3e-3


def test_of_equal_scores_the_lower_number() -> None:
    """Two values of logits only: what is chosen is decided by numbers alone, inside groups and between them."""
    count, router, _ = ROUTERS["deepseek-v3"]
    experts = experts_of(count)
    for one, corrects in ((router, True), (router, False), (replace(router, groups=1, top_groups=1), False)):
        workspace = DecodeWorkspace(HIDDEN, INTER, router.top_k, router=DecodeRouter(one, count, corrects))
        for seed in range(5):
            x, logits, _ = inputs(16, count, seed)
            logits, bias = (logits > 1).float(), torch.zeros(count, device="cuda")
            correction = bias if corrects else None
            expected = moe_forward(x, *route(logits, one, correction), experts)
            assert relative_error(routed_moe(x, logits, packed(experts), workspace, correction), expected) <= 3e-3


@pytest.mark.parametrize("tokens", [1, 8])
def test_experts_of_other_ranks_are_skipped(tokens: int) -> None:
    count, router, _ = ROUTERS["glm-5"]
    experts = replace(experts_of(64), first=128)
    workspace = DecodeWorkspace(HIDDEN, INTER, router.top_k, router=DecodeRouter(router, count, True, first=128))
    for seed in range(3):
        x, logits, bias = inputs(tokens, count, seed)
        expected = moe_forward(x, *route(logits, router, bias), experts)
        out = routed_moe(x, logits, packed(experts), workspace, bias)
        assert (expected.norm() == 0 and not out.any()) or relative_error(out, expected) <= 3e-3


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("tokens", [1, 2, 4, 8, 9, 16])
def test_a_shared_expert(tokens: int, width: int) -> None:
    experts, shared = experts_of(64), experts_of(1, width * INTER, seed=7)
    workspace = DecodeWorkspace(HIDDEN, INTER, 4, shared=width)
    x, logits, _ = inputs(tokens, 64)
    for ids, weights in (
        route(logits, Router("softmax", 4)),
        route(torch.zeros_like(logits), Router("softmax", 4)),
        (torch.full((tokens, 4), -1, dtype=torch.int32, device="cuda"), torch.ones(tokens, 4, device="cuda")),
    ):
        expected = moe_forward(x, ids, weights, experts, shared=shared)
        assert relative_error(fused_moe(x, ids, weights, packed(experts, shared), workspace), expected) <= 3e-3


@pytest.mark.parametrize("tokens", [1, 4, 16])
def test_a_whole_layer_in_one_launch_in_a_graph(tokens: int) -> None:
    count, router, _ = ROUTERS["deepseek-v3"]
    experts, shared = experts_of(count), experts_of(1, seed=7)
    x, logits, bias = inputs(tokens, count)
    layer, reference = (
        FusedMoe(experts, tokens=tokens, top_k=8, router=router, correction_bias=bias, shared=shared, backend=backend)
        for backend in ("decode", "reference")
    )
    out = layer(x, logits=logits)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            layer(x, logits=logits, out=out)
    for seed in range(20):
        for target, source in zip((x, logits), inputs(tokens, count, seed), strict=False):
            target.copy_(source)
        out.fill_(float("nan"))
        graph.replay()
        assert relative_error(out, reference(x, logits=logits).float()) <= 4e-3  # the reference is rounded as well
