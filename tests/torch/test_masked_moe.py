"""The layer out of masked products, and its quantisers: against the oracle, with SGLang's argument list."""

import inspect
from typing import Any

import pytest
import torch

from sublight.errors import KernelError
from sublight.kernels import moe_masked, scaled_fp4_grouped_quantize, silu_and_mul_scaled_nvfp4_experts_quantize
from sublight.kernels.agreement import require_agreement
from sublight.kernels.numerics.checkpoints import stack_experts
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.minifloat import from_e2m1, unpack
from sublight.kernels.numerics.quantised import Quantised
from sublight.kernels.numerics.swizzle import from_masked, swizzle, to_masked
from sublight.kernels.reference import Experts, InputScales, expert_forward
from tests.torch.layers import normal

EXPERTS, ROWS, HIDDEN, WIDTH = 4, 6, 128, 64
MASK = torch.tensor([6, 0, 3, 1], dtype=torch.int32)


def decoded(pair: tuple[torch.Tensor, torch.Tensor], divisor: torch.Tensor) -> torch.Tensor:
    """[l, m, k] of what a quantiser returned."""
    codes, scales = pair
    values = from_e2m1(unpack(codes.permute(2, 0, 1)))
    linear = from_masked(scales, values.shape[1], values.shape[2] // 16).float()
    return values * linear.repeat_interleave(16, -1) / divisor.reshape(-1, 1, 1)


def divisors(values: torch.Tensor) -> torch.Tensor:
    return 2688 / values.float().abs().amax(dim=(1, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_quantiser_keeps_what_counts_and_clears_the_rest(dtype: torch.dtype) -> None:
    a = normal(EXPERTS, ROWS, HIDDEN).to(dtype)
    scale = divisors(a)
    pair = scaled_fp4_grouped_quantize(a, MASK, scale, backend="reference")
    assert pair[0].shape == (ROWS, HIDDEN // 2, EXPERTS) and pair[0].permute(2, 0, 1).is_contiguous()
    assert pair[1].shape == (32, 4, 1, 4, 2, EXPERTS) and pair[1].dtype == torch.float8_e4m3fn
    assert pair[1].permute(5, 2, 4, 0, 1, 3).is_contiguous()
    values = decoded(pair, scale)
    for expert, rows in enumerate(MASK.tolist()):
        assert not bool(values[expert, rows:].any())
        if rows:
            error = (values[expert, :rows] - a[expert, :rows].float()).abs().reshape(rows, -1, 16)
            size = a[expert, :rows].float().abs().reshape(rows, -1, 16).amax(-1, keepdim=True)
            assert bool((error <= size * NVFP4.value_error * 1.0001).all())
    tiles = pair[1].permute(5, 2, 4, 0, 1, 3).reshape(EXPERTS, 128, 8)
    assert int((tiles.view(torch.uint8) != 0).sum()) == int(MASK.sum()) * HIDDEN // 16


def test_stale_rows_of_the_input_do_not_matter() -> None:
    a = normal(EXPERTS, ROWS, HIDDEN).bfloat16()
    scale = divisors(a)
    wanted = scaled_fp4_grouped_quantize(a, MASK, scale, backend="reference")
    a[1], a[2, 3:] = float("nan"), float("inf")
    got = scaled_fp4_grouped_quantize(a, MASK, scale, backend="reference")
    assert torch.equal(got[0], wanted[0])
    assert torch.equal(got[1].view(torch.uint8), wanted[1].view(torch.uint8))


def test_silu_times_up_is_rounded_before_it_is_quantised() -> None:
    a = normal(EXPERTS, ROWS, 2 * WIDTH).bfloat16()
    gate, up = a.float()[..., :WIDTH], a.float()[..., WIDTH:]
    inner = (gate / (1 + torch.exp(-gate)) * up).bfloat16()
    scale = divisors(inner)
    got = silu_and_mul_scaled_nvfp4_experts_quantize(a, MASK, scale, backend="reference")
    wanted = scaled_fp4_grouped_quantize(inner, MASK, scale, backend="reference")
    different = (got[0] != wanted[0]).float().mean()  # exp is not the same function twice
    assert different < 0.002
    assert torch.equal(got[1].view(torch.uint8), wanted[1].view(torch.uint8))


class Layer:
    """Weights as SGLang hands them over, and the same layer as the oracle takes it."""

    def __init__(self) -> None:
        self.w13 = stack_experts(
            [NVFP4.quantise(normal(2 * WIDTH, HIDDEN, seed=e, size=(e + 1) / 12)) for e in range(EXPERTS)]
        )
        self.w2 = stack_experts(
            [NVFP4.quantise(normal(HIDDEN, WIDTH, seed=e + 9, size=(5 - e) / 12)) for e in range(EXPERTS)]
        )
        self.x = normal(EXPERTS, ROWS, HIDDEN, seed=20).bfloat16()
        self.first = divisors(self.x) * torch.tensor([1.0, 0.5, 0.7, 1.0])
        self.second = torch.tensor([20.0, 30.0, 10.0, 15.0])

    def arguments(self, **change: Any) -> dict[str, Any]:
        base = {
            "hidden_states": (self.x, None),
            "input_global_scale": self.first,
            "w1": self.w13.codes,
            "w1_blockscale": swizzle(self.w13.scales),
            "w1_alpha": self._alpha(self.w13, self.first),
            "w2": self.w2.codes,
            "a2_global_scale": self.second,
            "w2_blockscale": swizzle(self.w2.scales),
            "w2_alpha": self._alpha(self.w2, self.second),
            "masked_m": MASK,
            "backend": "reference",
        }
        return base | change

    @staticmethod
    def _alpha(matrix: Quantised, divisor: torch.Tensor) -> torch.Tensor:
        assert matrix.global_scale is not None
        return matrix.global_scale.stored[:, 0] / divisor

    def oracle(self) -> torch.Tensor:
        experts, scales = Experts(self.w13, self.w2), InputScales(self.first, self.second)
        out = torch.zeros(EXPERTS, ROWS, HIDDEN)
        for expert, rows in enumerate(MASK.tolist()):
            out[expert, :rows] = expert_forward(self.x[expert, :rows].float(), experts, expert, scales)
        return out


def test_the_layer_is_the_oracle() -> None:
    layer = Layer()
    out = moe_masked(**layer.arguments())
    assert out.shape == (EXPERTS, ROWS, HIDDEN) and out.dtype == torch.bfloat16
    require_agreement("the layer", out, layer.oracle(), NVFP4.kernel_error)
    assert not bool(out[1].any()) and not bool(out[2, 3:].any())


def test_hidden_states_that_are_quantised_already() -> None:
    layer = Layer()
    quantised = scaled_fp4_grouped_quantize(layer.x, MASK, layer.first, backend="reference")
    out = moe_masked(**layer.arguments(hidden_states=quantised, input_global_scale=None))
    assert torch.equal(out, moe_masked(**layer.arguments()))


def test_the_event_is_recorded_between_the_products() -> None:
    class Event:
        count = 0

        def record(self) -> None:
            self.count += 1

    event = Event()
    moe_masked(**Layer().arguments(down_start_event=event, down_sm_count=40))
    assert event.count == 1


def test_the_argument_list_is_sglangs() -> None:
    names = list(inspect.signature(moe_masked).parameters)
    assert names == [
        "hidden_states",
        "input_global_scale",
        "w1",
        "w1_blockscale",
        "w1_alpha",
        "w2",
        "a2_global_scale",
        "w2_blockscale",
        "w2_alpha",
        "masked_m",
        "down_sm_count",
        "down_signals",
        "down_start_event",
        "backend",
    ]


@pytest.mark.parametrize(
    ("name", "wrong", "found"),
    [
        ("w1", lambda t: t[:, :-2], r"dimension 1 \(2\*n\) of w1: it is 126, where n = 64 of w2 makes it 128"),
        ("w2", lambda t: t[:, :-1], r"dimension 1 \(k\) of w2: it is 127, where k = 128 of hidden_states"),
        ("w1_alpha", lambda t: t[:3], r"dimension 0 \(l\) of w1_alpha: it is 3, where l = 4 of hidden_states"),
        ("a2_global_scale", lambda t: t.half(), "a2_global_scale: its type is float16"),
        ("w1_blockscale", lambda t: t[:, :, :4], r"dimension 2 \(8\) of rhs scales: it is 4"),
        ("input_global_scale", lambda t: None, "input_global_scale: it is missing"),
        ("masked_m", lambda t: t + 1, "masked_m of group 0: it is 7, of 6 rows"),
    ],
)
def test_what_does_not_fit_is_named(name: str, wrong: Any, found: str) -> None:
    arguments = Layer().arguments()
    with pytest.raises(KernelError, match=found):
        moe_masked(**arguments | {name: wrong(arguments[name])})


def test_scales_that_calibration_left_unusable_are_named_before_a_prompt_reaches_them() -> None:
    layer = Layer()
    for value, problem in ((0.0, "zero"), (float("inf"), "inf"), (1e-42, "denormal"), (float("nan"), "nan")):
        for name in ("input_global_scale", "a2_global_scale"):
            scale = layer.arguments()[name].clone()
            scale[1] = value  # an expert that no token of this call was sent to
            with pytest.raises(KernelError, match=f"global scale of activations of every expert: expert 1 {problem}"):
                moe_masked(**layer.arguments(**{name: scale}))


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize(
    ("groups", "m", "k", "named"), [(0, 4, 32, "num_groups"), (2, 0, 32, "m"), (2, 4, 0, "k")], ids=["l", "m", "k"]
)
def test_quantising_nothing_is_refused(silu: bool, groups: int, m: int, k: int, named: str) -> None:
    function = silu_and_mul_scaled_nvfp4_experts_quantize if silu else scaled_fp4_grouped_quantize
    a = torch.zeros(groups, m, 2 * k if silu else k).bfloat16()
    mask = torch.zeros(groups, dtype=torch.int32)
    with pytest.raises(KernelError) as raised:
        function(a, mask, torch.ones(groups), backend="reference")
    assert str(raised.value) == f"a grouped quantisation with this {named}: it is 0. Try: 1 to 2,147,483,647"


def test_scales_of_nothing_have_no_tiles() -> None:
    none = torch.zeros(2, 0, 4, dtype=torch.uint8)
    assert tuple(to_masked(none).shape) == (32, 4, 0, 4, 1, 2)
    assert from_masked(to_masked(none), 0, 4).shape == none.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"hidden_states": torch.zeros(2, 6, 128).bfloat16()},
            "moe_masked: hidden_states: it is no pair but of type Tensor. "
            "Try: (bf16 [l, m, k], None), or what scaled_fp4_grouped_quantize returns",
        ),
        (
            {"hidden_states": (None, None)},
            "moe_masked: hidden_states: it is missing. Try: hidden_states [l, m, k] bfloat16",
        ),
        ({"w1_alpha": [1.0]}, "moe_masked: w1_alpha: it is no tensor but of type list. Try: w1_alpha [l] float32"),
        ({"w1": MASK.to("meta")}, "moe_masked: w1: its type is int32. Try: w1 [l, 2*n, k/2] uint8"),
        (
            {"w1_blockscale": torch.zeros(4, 128, 8, dtype=torch.uint8, device="meta")},
            "grouped_gemm_nt_masked: rhs scales: it is on meta, and lhs on cpu. Try: all tensors on one device",
        ),
        (
            {"w2_blockscale": None},
            "grouped_gemm_nt_masked: rhs scales: it is missing. Try: float8_e4m3fn scales in whole tiles",
        ),
        (
            {"down_start_event": 1},
            "moe_masked: down_start_event: it is of type int, which cannot be recorded. "
            "Try: torch.cuda.Event(), or None",
        ),
        (
            {"backend": 1},
            "scaled_fp4_grouped_quantize: backend: it is 1, which is no name. Try: None, or one of "
            "quantise-triton, reference",
        ),
    ],
)
def test_what_is_no_such_argument_at_all_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError) as raised:
        moe_masked(**Layer().arguments(**change))
    assert str(raised.value) == message


def test_tensors_on_a_cpu_need_the_reference_named() -> None:
    a, scale = normal(2, 3, 32).bfloat16(), torch.ones(2)
    mask = torch.tensor([3, 3], dtype=torch.int32)
    for function in (scaled_fp4_grouped_quantize, silu_and_mul_scaled_nvfp4_experts_quantize):
        with pytest.raises(KernelError, match=f"{function.__name__}: its tensors are on cpu.*backend='reference'"):
            function(a, mask, scale)
    with pytest.raises(KernelError, match="its tensors are on cpu"):
        moe_masked(**Layer().arguments(backend=None))
    with pytest.raises(KernelError, match="dimension k: 24 is no multiple of 16"):
        scaled_fp4_grouped_quantize(a[..., :24].contiguous(), mask, scale, backend="reference")
