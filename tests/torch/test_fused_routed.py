"""A prepared layer that chooses its experts itself, or has a shared expert inside, through the reference."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from sublight.errors import KernelError
from sublight.kernels import FusedMoe
from sublight.kernels.agreement import require_agreement
from sublight.kernels.catalogue import Limits
from sublight.kernels.fused import problem_of
from sublight.kernels.heuristics import choose_for
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts
from sublight.kernels.routing import Router, route
from tests.torch.layers import experts_of, layer_by_loops, normal, routing

W13, W2 = experts_of(NVFP4, 8, 64, 64)
EXPERTS = Experts(W13, W2)
SHARED13, SHARED2 = experts_of(NVFP4, 1, 64, 128, seed=50)
SHARED = Experts(SHARED13, SHARED2)
ROUTER = Router("sigmoid", 2, True, 2.5)
BIAS = normal(8, seed=9, size=0.1)
X, LOGITS = normal(5, 64).bfloat16(), normal(5, 8, seed=3)


def test_router_and_shared_expert_are_those_of_the_oracle() -> None:
    layer = FusedMoe(
        EXPERTS, tokens=8, top_k=2, router=ROUTER, correction_bias=BIAS, shared=SHARED, backend="reference"
    )
    routed = layer_by_loops(X.float(), *route(LOGITS, ROUTER, BIAS), W13, W2, "swiglu")
    everyone = (torch.zeros(5, 1, dtype=torch.int32), torch.ones(5, 1))
    expected = routed + layer_by_loops(X.float(), *everyone, SHARED13, SHARED2, "swiglu")
    out = layer(X, logits=LOGITS)
    require_agreement("it", out, expected, NVFP4.kernel_error)
    assert torch.equal(layer(X, logits=LOGITS, out=torch.empty_like(X)), out)
    halves = FusedMoe(EXPERTS, tokens=8, top_k=2, shared=SHARED, backend="reference")
    assert torch.equal(halves(X, *route(LOGITS, ROUTER, BIAS)), out)


def test_the_problem_names_both() -> None:
    problem = problem_of(EXPERTS, 4, 2, 1, ROUTER, SHARED)
    assert problem.dimensions()["shared_width"] == 128
    assert problem.traits()["routing"] == "sigmoid" and problem.traits()["shared_expert"] == "nvfp4"
    assert str(problem).endswith("bf16 activations, sigmoid routing, a shared expert of 128 in nvfp4")
    assert "shared_width" not in problem_of(EXPERTS, 4, 2).dimensions()


def test_the_decode_kernel_takes_a_shared_expert_of_whole_widths() -> None:
    limits = Limits(target="sm_90", shared_memory_bytes=232_448, sm_count=132)
    sizes: dict[str, Any] = {"tokens": 4, "hidden_size": 6144, "intermediate_size": 256, "num_experts": 256, "top_k": 8}
    fused = {"routing": "sigmoid", "global_scale": "projection"}
    choice = choose_for(MoeProblem(**sizes, **fused, shared_width=512), limits)
    assert choice.kernel.name == "decode" and choice.configuration["SHARED"] == 2
    with pytest.raises(KernelError, match="shared_width 384: the routed experts' width, 256, does not divide it"):
        choose_for(MoeProblem(**sizes, **fused, shared_width=384), limits)
    with pytest.raises(KernelError, match="decode: shared_expert is 'bf16', it does nvfp4"):
        choose_for(MoeProblem(**sizes, **fused, shared_width=512, shared_format="bf16"), limits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 3}, "a layer of experts with a top_k of 3: its router chooses 2. Try: top_k=2"),
        ({"router": None}, "a layer of experts: correction_bias: the layer has no router. Try: FusedMoe(router=...)"),
        ({"correction_bias": BIAS[:7]}, r"dimension 0 (experts) of correction_bias: it is 7"),
        ({"shared": EXPERTS}, "number of the shared expert: it is 8. Try: 1"),
        ({"shared": replace(SHARED, activation="swiglu-oai")}, "activation of the shared expert: it is swiglu-oai"),
        ({"shared": Experts(*experts_of(NVFP4, 1, 128, 64))}, "hidden size of the shared expert: it is 128. Try: 64"),
    ],
)
def test_what_does_not_go_together_is_named(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"tokens": 8, "top_k": 2, "router": ROUTER, "correction_bias": BIAS, "shared": SHARED}
    with pytest.raises(KernelError) as raised:
        FusedMoe(EXPERTS, backend="reference", **given | change)
    assert message in str(raised.value)


def test_a_call_brings_logits_or_experts_and_never_both() -> None:
    chosen = routing(5, 8, 2)
    own = FusedMoe(EXPERTS, tokens=8, top_k=2, router=ROUTER, backend="reference")
    given = FusedMoe(EXPERTS, tokens=8, top_k=2, backend="reference")
    with pytest.raises(KernelError, match=r"ids: the layer's router chooses experts\. Try: logits"):
        own(X, *chosen, logits=LOGITS)
    with pytest.raises(KernelError, match="logits: it is missing"):
        own(X)
    with pytest.raises(KernelError, match=r"logits: the layer has no router\. Try: ids and weights"):
        given(X, *chosen, logits=LOGITS)
    with pytest.raises(KernelError, match=r"dimension 1 \(experts\) of logits: it is 7"):
        own(X, logits=LOGITS[:, :7].contiguous())
    with pytest.raises(KernelError, match="logits: its type is float16"):
        own(X, logits=LOGITS.half())
