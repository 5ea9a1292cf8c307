"""The oracle against loops in float64, which share no code with it."""

import numpy as np
import pytest
import torch

from sublight.errors import KernelError
from sublight.kernels.agreement import require_agreement
from sublight.kernels.numerics.formats import FP8_BLOCK, MXFP4, NVFP4
from sublight.kernels.numerics.gate_up import Order, reorder
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.problem import Activation
from sublight.kernels.reference import Experts, InputScales, exact_products, moe_forward, requantised
from tests.torch.layers import act, decoded, experts_of, layer_by_loops, normal, routing

FP32_ROUNDING = 2e-6
ACTIVATIONS: tuple[Activation, ...] = ("swiglu", "swiglu-oai", "geglu", "relu2")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("tokens", "top_k"), [(1, 1), (1, 4), (5, 2), (17, 4)])
def test_the_oracle_is_the_loops(activation: Activation, tokens: int, top_k: int) -> None:
    w13, w2 = experts_of(NVFP4, 6, 64, 48, gated=activation != "relu2")
    x, (ids, weights) = normal(tokens, 64, seed=9), routing(tokens, 6, top_k)
    out = moe_forward(x, ids, weights, Experts(w13, w2, activation))
    assert out.dtype == torch.float32
    require_agreement("the oracle", out, layer_by_loops(x, ids, weights, w13, w2, activation), FP32_ROUNDING)


@pytest.mark.parametrize("order", ["up-gate", "interleaved"])
def test_another_order_of_gate_and_up_changes_nothing(order: Order) -> None:
    w13, w2 = experts_of(NVFP4, 3, 64, 32)
    if order == "interleaved":  # has no place for two global scales
        assert w13.global_scale is not None
        w13 = Quantised(NVFP4, w13.codes, w13.scales, GlobalScale(w13.global_scale.stored[:, :1]))
    x, (ids, weights) = normal(4, 64), routing(4, 3, 2)
    turned = Experts(reorder(w13, "gate-up", order), w2, "swiglu", order)
    # The product sums in another order, so it is equal to rounding only.
    require_agreement(
        order, moe_forward(x, ids, weights, turned), moe_forward(x, ids, weights, Experts(w13, w2)), FP32_ROUNDING
    )


def test_gate_and_up_with_one_scale_for_both_are_not_the_same_layer() -> None:
    # What a kernel computes that keeps gate's global scale for up as well: up is five times larger here.
    w13, w2 = experts_of(NVFP4, 3, 64, 32)
    assert w13.global_scale is not None
    stored = w13.global_scale.stored
    assert float((stored[:, 1] / stored[:, 0]).min()) > 3
    x, (ids, weights) = normal(4, 64), routing(4, 3, 2)
    one = Experts(Quantised(NVFP4, w13.codes, w13.scales, GlobalScale(stored[:, :1])), w2)
    with pytest.raises(KernelError, match="relative error"):
        require_agreement(
            "one scale", moe_forward(x, ids, weights, one), moe_forward(x, ids, weights, Experts(w13, w2)), 0.5
        )


def test_ranks_of_experts_add_up_to_the_layer() -> None:
    w13, w2 = experts_of(NVFP4, 6, 64, 32)
    x, (ids, weights) = normal(7, 64), routing(7, 6, 3)
    whole = moe_forward(x, ids, weights, Experts(w13, w2))

    def part(first: int) -> Experts:
        def some(matrix: Quantised) -> Quantised:
            assert matrix.global_scale is not None
            mine = slice(first, first + 3)
            above = GlobalScale(matrix.global_scale.stored[mine])
            return Quantised(NVFP4, matrix.codes[mine], matrix.scales[mine], above)

        return Experts(some(w13), some(w2), first=first)

    ranks = sum(moe_forward(x, ids, weights, part(first)) for first in (0, 3))
    assert isinstance(ranks, torch.Tensor)
    require_agreement("two ranks", ranks, whole, FP32_ROUNDING)


def test_padded_pairs_are_skipped() -> None:
    w13, w2 = experts_of(NVFP4, 3, 64, 32)
    x, (ids, weights) = normal(4, 64), routing(4, 3, 2)
    ids[2] = -1
    out = moe_forward(x, ids, weights, Experts(w13, w2))
    assert out[2].tolist() == [0.0] * 64
    assert bool(out[[0, 1, 3]].ne(0).any(1).all())


def test_no_tokens_are_no_output() -> None:
    w13, w2 = experts_of(NVFP4, 2, 64, 32)
    ids, weights = routing(0, 2, 1)
    assert moe_forward(normal(0, 64), ids, weights, Experts(w13, w2)).shape == (0, 64)


def test_shared_expert_and_its_gate() -> None:
    w13, w2 = experts_of(NVFP4, 4, 64, 32)
    shared13, shared2 = experts_of(NVFP4, 1, 64, 48, seed=70)
    x, (ids, weights) = normal(5, 64), routing(5, 4, 2)
    gate = normal(64, seed=4)
    own = Experts(w13, w2)
    out = moe_forward(x, ids, weights, own, shared=Experts(shared13, shared2), shared_gate=gate)
    wanted = layer_by_loops(x, ids, weights, w13, w2, "swiglu")
    every = torch.zeros(5, 1, dtype=torch.int32)
    share = 1 / (1 + torch.exp(-(x.double() @ gate.double())))
    extra = layer_by_loops(x, every, torch.ones(5, 1), shared13, shared2, "swiglu")
    require_agreement("gated", out, wanted + share.unsqueeze(1) * extra, FP32_ROUNDING)
    plain = moe_forward(x, ids, weights, own, shared=Experts(shared13, shared2))
    require_agreement("plain", plain, wanted + extra, FP32_ROUNDING)


def test_biases_follow_each_product() -> None:
    w13, w2 = experts_of(NVFP4, 2, 64, 32)
    bias13, bias2 = normal(2, 64, seed=1), normal(2, 64, seed=2)
    x = normal(1, 64)
    ids, weights = torch.tensor([[1]]), torch.tensor([[0.5]])
    out = moe_forward(x, ids, weights, Experts(w13, w2, "swiglu-oai", bias13=bias13, bias2=bias2))
    inner = act(decoded(w13, 1) @ x[0].double().numpy() + bias13[1].double().numpy(), "swiglu-oai")
    wanted = 0.5 * (decoded(w2, 1) @ inner + bias2[1].double().numpy())
    require_agreement("biases", out[0], torch.from_numpy(wanted), FP32_ROUNDING)


@pytest.mark.parametrize("form", [MXFP4, FP8_BLOCK], ids=["mxfp4", "fp8-block"])
def test_other_formats_are_their_dequantised_weights(form: object) -> None:
    w13, w2 = experts_of(form, 3, 256, 128)  # type: ignore[arg-type]
    x, (ids, weights) = normal(4, 256), routing(4, 3, 2)
    plain = Experts(w13.dequantise(), w2.dequantise())
    assert torch.equal(moe_forward(x, ids, weights, Experts(w13, w2)), moe_forward(x, ids, weights, plain))
    wanted = torch.zeros(4, 256, dtype=torch.float64)
    for token in range(4):
        for expert, weight in zip(ids[token].tolist(), weights[token].tolist(), strict=True):
            first = w13.dequantise()[expert].double().numpy() @ x[token].double().numpy()
            inner = torch.from_numpy(act(first, "swiglu"))
            wanted[token] += weight * (w2.dequantise()[expert].double() @ inner)
    require_agreement(w13.format.name, moe_forward(x, ids, weights, plain), wanted, FP32_ROUNDING)


def test_one_hot_input_reads_single_weights() -> None:
    # Probes that are exact: with x one-hot and w2 the identity, the output is one column of decoded weights, squared.
    w13, _ = experts_of(NVFP4, 2, 64, 64, gated=False)
    ids, weights = torch.full((3, 1), 1), torch.ones(3, 1)
    out = moe_forward(torch.eye(64)[:3], ids, weights, Experts(w13, torch.eye(64).expand(2, 64, 64), "relu2"))
    assert torch.equal(out, w13[1].dequantise()[:, :3].T.relu().square())


def test_quantised_activations_are_what_two_roundings_leave() -> None:
    w13, w2 = experts_of(NVFP4, 3, 64, 32)
    x = normal(5, 64).bfloat16()
    ids, weights = torch.full((5, 1), 2), torch.ones(5, 1)
    scales = InputScales(torch.tensor([600.0, 700.0, 800.0]), torch.tensor([5.0, 6.0, 7.0]))
    out = moe_forward(x, ids, weights, Experts(w13, w2), scales)
    read = requantised(x.float(), torch.tensor(800.0))
    product = torch.from_numpy(np.stack([decoded(w13, 2) @ row.double().numpy() for row in read])).bfloat16().float()
    inner = (product[:, :32].sigmoid() * product[:, :32] * product[:, 32:]).bfloat16().float()
    read = requantised(inner, torch.tensor(7.0))
    wanted = torch.from_numpy(np.stack([decoded(w2, 2) @ row.double().numpy() for row in read]))
    require_agreement("W4A4", out, wanted, 1e-3)
    exact = moe_forward(x, ids, weights, Experts(w13, w2))
    assert 0.05 < float((out - exact).norm() / exact.norm()) < 0.3  # what four bits of activations cost


def test_ids_and_weights_have_to_fit() -> None:
    w13, w2 = experts_of(NVFP4, 2, 64, 32)
    with pytest.raises(KernelError, match=r"ids \[3, 2\], weights \[3, 1\]"):
        moe_forward(normal(3, 64), torch.zeros(3, 2, dtype=torch.int32), torch.ones(3, 1), Experts(w13, w2))
    ids, weights = routing(3, 2, 1)
    for x, given, message in (
        (None, ids, "x: it is missing"),
        (normal(3, 64).numpy(), ids, "x: it is no tensor but of type ndarray"),
        (normal(3, 64), ids.tolist(), "ids: it is no tensor but of type list"),
    ):
        with pytest.raises(KernelError) as raised:
            moe_forward(x, given, weights, Experts(w13, w2))  # type: ignore[arg-type]
        hint = "x of [tokens, hidden], ids and weights of [tokens, top_k]"
        assert str(raised.value) == f"a layer of experts: {message}. Try: {hint}"
    with pytest.raises(KernelError, match="x has 32 channels, and the experts have 64"):
        moe_forward(normal(3, 32), ids, weights, Experts(w13, w2))


@pytest.mark.parametrize("legacy", [True, False])
def test_a_process_that_allows_tf32_keeps_its_setting(legacy: bool) -> None:
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    before = [backend.fp32_precision for backend in backends]
    try:
        if legacy:
            torch.set_float32_matmul_precision("high")
        else:
            torch.backends.cuda.matmul.fp32_precision = "tf32"
        w13, w2 = experts_of(NVFP4, 2, 64, 32)
        ids, weights = routing(2, 2, 1)
        with exact_products():
            assert [backend.fp32_precision for backend in backends] == ["ieee", "ieee"]
        moe_forward(normal(2, 64), ids, weights, Experts(w13, w2))
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        if legacy:
            torch.set_float32_matmul_precision("highest")
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision
