"""A prepared layer: the kernel is chosen once, and what does not fit is named before it is computed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from sublight.errors import KernelError, UnknownNameError
from sublight.kernels import FusedMoe
from sublight.kernels.agreement import require_agreement
from sublight.kernels.catalogue import Kernel, Limits
from sublight.kernels.fused import problem_of
from sublight.kernels.numerics.formats import MXFP4, NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.reference import Experts, InputScales, moe_forward
from tests.torch.layers import experts_of, layer_by_loops, normal, routing

W13, W2 = experts_of(NVFP4, 4, 64, 64)
EXPERTS = Experts(W13, W2)


def test_the_reference_is_the_oracle_rounded() -> None:
    layer = FusedMoe(EXPERTS, tokens=8, top_k=2, backend="reference")
    assert layer.reason == "reference (asked for by name)"
    x, (ids, weights) = normal(5, 64).bfloat16(), routing(5, 4, 2)
    out = torch.full((5, 64), 9.0).bfloat16()
    assert layer(x, ids, weights, out) is out
    require_agreement("it", out, layer_by_loops(x.float(), ids, weights, W13, W2, "swiglu"), NVFP4.kernel_error)
    assert torch.equal(layer(x, ids, weights), out)
    assert layer(x[:0], ids[:0], weights[:0]).shape == (0, 64)


def test_input_scales_make_it_four_bits_on_both_sides() -> None:
    scales = InputScales(torch.full((4,), 500.0), torch.linspace(3, 6, 4))
    experts = replace(EXPERTS, input_scales=scales)
    layer = FusedMoe(experts, tokens=8, top_k=2, backend="reference")
    assert layer.problem.activation_format == "nvfp4"
    x, (ids, weights) = normal(5, 64).bfloat16(), routing(5, 4, 2)
    wanted = moe_forward(x, ids, weights, EXPERTS, scales)
    require_agreement("W4A4", layer(x, ids, weights), wanted, NVFP4.kernel_error)
    plain = moe_forward(x, ids, weights, EXPERTS)
    assert 0.05 < float((wanted - plain).norm() / plain.norm()) < 0.2  # what four bits of activations cost
    for first, second, found in (
        (torch.full((3,), 500.0), scales.second, "first: it is 3, where num_experts = 4"),
        (scales.first, torch.tensor([1.0, 0.0, 1.0, 1.0]), "the second input scale of every expert: expert 1 zero"),
        (scales.first.half(), scales.second, "first: its type is float16"),
    ):
        with pytest.raises(KernelError, match=found):
            FusedMoe(replace(EXPERTS, input_scales=InputScales(first, second)), tokens=8, top_k=2, backend="reference")


def test_the_problem_follows_from_the_weights() -> None:
    problem = problem_of(EXPERTS, 8, 2, expert_ranks=4)
    assert problem.dimensions() == {
        "tokens": 8,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_experts": 4,
        "top_k": 2,
        "expert_ranks": 4,
        "up_rows": 128,
    }
    assert problem.traits() == {
        "weight_format": "nvfp4",
        "activation_format": "bf16",
        "activation": "swiglu",
        "routing": "given",
        "global_scale": "projection",
        "expert_bias": "no",
    }
    plain = Experts(torch.zeros(2, 24, 8).bfloat16(), torch.zeros(2, 8, 12).bfloat16(), bias2=torch.zeros(2, 8))
    with pytest.raises(KernelError, match="w13_bias: it is missing"):
        problem_of(plain, 1, 1)


@pytest.mark.parametrize(
    ("experts", "found"),
    [
        (Experts(W13, experts_of(NVFP4, 4, 64, 32)[1]), r"dimension 1 \(up_rows\) of w13: it is 128.* makes it 64"),
        (Experts(W13, experts_of(NVFP4, 3, 64, 64)[1]), r"dimension 0 \(num_experts\) of w13: it is 4"),
        (Experts(W13, experts_of(MXFP4, 4, 64, 64)[1]), "w13 is nvfp4 and w2 mxfp4"),
        (Experts(W13, W2, "relu2"), "relu2 has one projection only"),
        (Experts(W13.dequantise(), W2.dequantise()), "w13: its type is float32"),
    ],
)
def test_weights_that_do_not_fit_together(experts: Experts, found: str) -> None:
    with pytest.raises(KernelError, match=found):
        FusedMoe(experts, tokens=1, top_k=1, backend="reference")


GLOBAL = "Try: amax / 2688 of the matrix, or 2688 / amax as a divisor"
STACK = "Try: a stack of matrices, plain or Quantised: [experts, rows, columns]"


def with_global(matrix: Quantised, stored: torch.Tensor) -> Quantised:
    return replace(matrix, global_scale=GlobalScale(stored))


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        (None, "a layer of experts: experts: they are of type NoneType. Try: Experts(w13, w2)"),
        (Experts(None, W2), f"a layer of experts: w13: it is missing. {STACK}"),  # type: ignore[arg-type]
        (Experts(W13, [1]), f"a layer of experts: w2: it is no tensor but of type list. {STACK}"),  # type: ignore[arg-type]
        (
            Experts(torch.zeros(128, 64).bfloat16(), torch.zeros(64, 64).bfloat16()),
            f"a layer of experts: w13: its shape is [128, 64]. {STACK}",
        ),
        (Experts(W13[0], W2), f"a layer of experts: w13: its shape is [128, 64]. {STACK}"),
        (
            Experts(W13, with_global(W2, torch.ones(4))),
            "a layer of experts: w2_global: its shape is [4]. Try: [experts, parts], such as one of [experts, 1]",
        ),
        (
            Experts(W13, W2, order="up_gate"),  # type: ignore[arg-type]
            "a layer of experts: order: 'up_gate' is not known. Try: one of gate-up, up-gate, interleaved",
        ),
        (
            Experts(W13, W2, first=99),  # no id could ever be one of theirs, and the sum would be zero
            "a layer of experts: first: experts 99 to 102 of 4 over all ranks. "
            "Try: expert_ranks, or a first of at most 0",
        ),
        (Experts(W13, W2, first=-1), "a layer of experts: first: it is -1. Try: the number of the rank's first expert"),
        (
            Experts(W13, with_global(W2, torch.tensor([[1.0], [0.0], [1.0], [float("inf")]]))),
            f"a layer of experts: the global scale of w2 of every expert: expert 1 zero, expert 3 inf. {GLOBAL}",
        ),
        (
            Experts(with_global(W13, torch.tensor([[1.0, 1.0]] * 3 + [[1.0, float("nan")]])), W2),
            f"a layer of experts: the global scale of part 2 of 2 of w13 of every expert: expert 3 nan. {GLOBAL}",
        ),
        (
            Experts(W13, with_global(W2, torch.full((4, 1), -1.0))),
            "a layer of experts: the global scale of w2 of every expert: "
            f"expert 0 negative, expert 1 negative, expert 2 negative, expert 3 negative. {GLOBAL}",
        ),
        (
            Experts(
                *(
                    replace(
                        m,
                        codes=m.codes.to("meta"),
                        scales=m.scales.to("meta"),
                        global_scale=GlobalScale(torch.ones(4, 1, device="meta")),
                    )
                    for m in (W13, W2)
                )
            ),
            "a layer of experts: w13: it is on meta, where nothing has values. Try: weights on a real device",
        ),
    ],
)
def test_weights_that_no_layer_can_have(experts: Any, message: str) -> None:
    with pytest.raises(KernelError) as raised:
        FusedMoe(experts, tokens=1, top_k=1, backend="reference")
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 1.5}, "an expert layer with this tokens: it is 1.5. Try: a tokens from 0 to 2,147,483,647"),
        ({"tokens": True}, "an expert layer with this tokens: it is True. Try: a tokens from 0 to 2,147,483,647"),
        ({"tokens": None}, "an expert layer with this tokens: it is None. Try: a tokens from 0 to 2,147,483,647"),
        ({"top_k": "2"}, "an expert layer with this top_k: it is '2'. Try: a top_k from 1 to 2,147,483,647"),
        ({"expert_ranks": 0}, "an expert layer with this expert_ranks: it is 0. Try: a expert_ranks from 1 to"),
        ({"device": "foo"}, "a layer of experts: device: torch cannot use 'foo' here: Expected one of cpu, cuda"),
        ({"device": "cuda:4096"}, "a layer of experts: device: torch cannot use 'cuda:4096' here: "),
        ({"device": 1.5}, "a layer of experts: device: torch cannot use 1.5 here: "),
        ({"backend": 3}, "a layer of experts: backend: it is 3, which is no name. Try: None, or one of decode, "),
    ],
)
def test_arguments_that_no_layer_can_have(change: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as raised:
        FusedMoe(EXPERTS, **{"tokens": 1, "top_k": 1, "backend": "reference"} | change)
    assert str(raised.value).startswith(message)


def test_one_global_scale_an_expert_is_told_from_one_a_projection() -> None:
    one = torch.full((4, 1), 0.5)
    problem = problem_of(Experts(with_global(W13, one), with_global(W2, one)), 8, 2)
    assert problem.global_scale == "expert"
    assert problem_of(Experts(W13.dequantise().bfloat16(), W2.dequantise().bfloat16()), 8, 2).global_scale == "none"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"x": normal(3, 32).bfloat16()}, r"dimension 1 \(hidden_size\) of x: it is 32, where hidden_size = 64 of the"),
        ({"x": normal(3, 64)}, "x: its type is float32"),
        ({"ids": torch.zeros(3, 1, dtype=torch.int32)}, r"dimension 1 \(top_k\) of ids: it is 1"),
        ({"ids": torch.zeros(3, 2)}, "ids: its type is float32"),
        ({"weights": torch.ones(2, 2)}, r"dimension 0 \(tokens\) of weights: it is 2, where tokens = 3 of x"),
        ({"out": torch.zeros(4, 64).bfloat16()}, r"dimension 0 \(tokens\) of out: it is 4"),
        ({"x": normal(64, 3).bfloat16().T}, "x: its strides are"),
        ({"x": None}, "x: it is missing"),
        ({"x": normal(3, 64).numpy()}, "x: it is no tensor but of type ndarray"),
        ({"ids": [[0, 1]] * 3}, "ids: it is no tensor but of type list"),
        ({"weights": torch.ones(3, 2, device="meta")}, "weights: it is on meta, and x on cpu"),
    ],
)
def test_what_does_not_fit_in_a_call(change: dict[str, Any], found: str) -> None:
    layer = FusedMoe(EXPERTS, tokens=3, top_k=2, backend="reference")
    ids, weights = routing(3, 4, 2)
    with pytest.raises(KernelError, match=found):
        layer(**{"x": normal(3, 64).bfloat16(), "ids": ids, "weights": weights} | change)
    ids, weights = routing(4, 4, 2)
    with pytest.raises(KernelError, match=r"it is 4, and the layer was prepared for 3.*FusedMoe\(tokens=4\)"):
        layer(normal(4, 64).bfloat16(), ids, weights)


def test_the_reference_keeps_no_copy_of_the_weights_elsewhere() -> None:
    with pytest.raises(KernelError, match="its weights are on cpu, and calls on meta"):
        FusedMoe(EXPERTS, tokens=1, top_k=1, device="meta", backend="reference")


def test_a_cpu_needs_the_reference_named() -> None:
    with pytest.raises(KernelError, match=r"a layer of experts: its tensors are on cpu.*backend='reference'"):
        FusedMoe(EXPERTS, tokens=1, top_k=1)
    with pytest.raises(UnknownNameError, match="kernel 'marlin'"):
        FusedMoe(EXPERTS, tokens=1, top_k=1, backend="marlin")


def prepare(
    problem: Any, experts: Experts, device: torch.device, configuration: Mapping[str, int]
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]:
    """A kernel in the way the catalogue loads one, computing on whatever device there is."""

    def run(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(moe_forward(x, ids, weights, experts) * configuration["twice"])

    return run


def twice(problem: Any, limits: Limits) -> dict[str, int]:
    assert limits.sm_count == 132
    return {"twice": 2}


def test_the_kernel_that_was_chosen_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from sublight.kernels import device, dispatch, heuristics
    from sublight.kernels.decode import DECODE

    own = Kernel(
        name="own",
        op="fused_moe",
        statuses={"sm_90": "run on a laptop"},
        traits=DECODE.traits,
        loader=f"{__name__}:prepare",
        configure=f"{__name__}:twice",
    )
    monkeypatch.setattr(dispatch, "require_gpu", lambda call, kind: None)
    monkeypatch.setattr(
        device, "limits_of", lambda where: Limits(target="sm_90", shared_memory_bytes=232448, sm_count=132)
    )
    monkeypatch.setattr(heuristics, "all_kernels", lambda: [own])
    layer = FusedMoe(EXPERTS, tokens=8, top_k=2)
    assert layer.reason == "own (run on a laptop for sm_90) is the only one that fits"
    x, (ids, weights) = normal(5, 64).bfloat16(), routing(5, 4, 2)
    wanted = 2 * moe_forward(x, ids, weights, EXPERTS)
    require_agreement("own", layer(x, ids, weights), wanted, NVFP4.kernel_error)
    with pytest.raises(KernelError, match="none fits: own: activation is 'geglu', it does swiglu"):
        FusedMoe(Experts(W13, W2, "geglu"), tokens=8, top_k=2)
