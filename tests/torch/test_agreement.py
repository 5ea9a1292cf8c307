"""The judge: kernels that are wrong in one place, at one size, or with dirty buffers are caught."""

from typing import Any

import pytest
import torch

from sublight.errors import KernelError
from sublight.kernels.agreement import check_padding, compare, require_agreement, sweep, sweep_tokens
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import Quantised
from sublight.kernels.numerics.swizzle import swizzle, unswizzle
from tests.torch.layers import normal

TOLERANCE = NVFP4.kernel_error


@pytest.mark.parametrize(
    ("actual", "tolerance", "message"),
    [
        (None, 0.1, "comparing two results: actual: it is missing. Try: two tensors of one shape"),
        ([1.0], 0.1, "comparing two results: actual: it is no tensor but of type list. Try: two tensors of one shape"),
        (
            torch.ones(2, 2, device="meta"),
            0.1,
            "comparing two results: they are on meta and cpu. Try: results on one device",
        ),
        (torch.ones(2, 2), float("nan"), "comparing two results: the tolerance is nan. Try: a number of at least 0"),
        (torch.ones(2, 2), None, "comparing two results: the tolerance is None. Try: a number of at least 0"),
        (torch.ones(2, 3), 0.1, "comparing two results: they are [2, 3] and [2, 2]. Try: results of one shape"),
    ],
)
def test_what_cannot_be_compared_is_said(actual: Any, tolerance: Any, message: str) -> None:
    with pytest.raises(KernelError) as raised:
        compare(actual, torch.ones(2, 2), tolerance)
    assert str(raised.value) == message


def test_rounding_to_bf16_agrees() -> None:
    expected = normal(64, 512)
    found = compare(expected.bfloat16(), expected, TOLERANCE)
    assert found.agrees and found.reason == ""
    assert found.relative_error is not None and 1.6e-3 < found.relative_error < 1.8e-3


def test_one_wrong_row_among_many_is_named() -> None:
    expected = normal(4000, 16)
    expected[7] *= 1e-2  # small enough to vanish in the norm of the whole
    actual = expected.clone()
    actual[7] = 0
    found = compare(actual, expected, TOLERANCE)
    assert found.relative_error is not None and found.relative_error < TOLERANCE
    assert not found.agrees
    assert [region.name for region in found.regions] == ["row 7"]
    assert found.regions[0].relative_error == 1.0
    assert "worst in row 7 (1)" in found.reason


def test_regions_by_expert() -> None:
    expected = normal(8, 32)
    actual = expected.clone()
    actual[4:] *= 1.1
    found = compare(actual, expected, TOLERANCE, {"expert 0": torch.arange(4), "expert 1": torch.arange(8) >= 4})
    assert [region.name for region in found.regions] == ["expert 1"]
    assert found.regions[0].relative_error == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_never_passes(value: float) -> None:
    expected = normal(4, 8)
    actual = expected.clone()
    actual[2, 3] = value
    found = compare(actual, expected, 1e9)
    assert not found.agrees and found.relative_error is None and found.not_finite == 1
    assert found.reason == "1 of 32 values are NaN or infinite; worst in row 2 (inf)"
    with pytest.raises(KernelError, match="the oracle itself is not finite"):
        compare(expected, actual, 1e9)


def test_zeros_are_called_zeros() -> None:
    with pytest.raises(KernelError, match=r"output all zero; relative error 1, allowed 0\.003"):
        require_agreement("a kernel", torch.zeros(4, 8), normal(4, 8), TOLERANCE)
    assert compare(torch.zeros(2, 2), torch.zeros(2, 2), TOLERANCE).agrees
    assert not compare(torch.full((2, 2), 1e-30), torch.zeros(2, 2), TOLERANCE).agrees


def test_shapes_have_to_be_the_same() -> None:
    with pytest.raises(KernelError, match=r"\[4, 8\] and \[4, 9\]"):
        compare(torch.zeros(4, 8), torch.zeros(4, 9), TOLERANCE)


def test_the_sweep_goes_between_powers_of_two() -> None:
    tokens = sweep_tokens()
    assert tokens[:9] == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    assert tokens[-4:] == [1536, 2048, 3072, 4096]
    assert sweep_tokens(1) == [1] and sweep_tokens(3) == [1, 2, 3]


def test_zeros_at_3072_alone_are_found() -> None:
    def product(m: int) -> tuple[torch.Tensor, torch.Tensor]:
        expected = torch.ones(m, 2)
        wrong = m % 1536 == 0 and m > 2048 and m & (m - 1)
        return (torch.zeros(m, 2) if wrong else expected.clone()), expected

    found = sweep(product, sweep_tokens(), TOLERANCE)
    assert [m for m, agreement in found.items() if not agreement.agrees] == [3072]
    assert found[3072].reason.startswith("output all zero")
    powers = sweep(product, [2**k for k in range(13)], TOLERANCE)
    assert all(agreement.agrees for agreement in powers.values())


ROWS = 64


def test_a_kernel_that_reads_the_padding_is_caught_with_dirty_buffers_only() -> None:
    columns = 3696
    groups = columns // 16
    assert groups == 231 and groups % 4 == 3  # one padded column
    weight = NVFP4.quantise(normal(ROWS, columns))
    x = normal(4, columns, seed=1)
    expected = x @ weight.dequantise().T
    swizzled = swizzle(weight.scales)
    above = weight.global_scale
    unscaled = Quantised(NVFP4, weight.codes, torch.ones_like(weight.scales.float()).to(weight.scales.dtype), above)

    def product(scales: torch.Tensor) -> torch.Tensor:
        spread = scales.float().repeat_interleave(16, -1)
        return x @ (unscaled.dequantise() * spread).T

    def sound(memory: torch.Tensor) -> torch.Tensor:
        return product(unswizzle(memory, ROWS, groups))

    def reads_the_padding(memory: torch.Tensor) -> torch.Tensor:
        # Its loop runs over whole tiles of four scales, with old values where activations have ended.
        last = unswizzle(memory, ROWS, groups + 1)[:, -1:].float()
        return sound(memory) + torch.ones(4, 1) @ last.T

    good = check_padding(sound, swizzled, ROWS, groups, expected, TOLERANCE)
    assert list(good) == ["clean", "stale 0x7f", "stale 0x7e", "stale 0x38", "stale 0xff"]
    assert all(agreement.agrees for agreement in good.values())
    bad = check_padding(reads_the_padding, swizzled, ROWS, groups, expected, TOLERANCE)
    assert bad["clean"].agrees  # fresh zeroed memory hides it
    assert not any(agreement.agrees for name, agreement in bad.items() if name != "clean")
    assert bad["stale 0x7f"].not_finite == 4 * ROWS
    assert (bad["stale 0x7e"].relative_error or 0) > 1


def test_a_shape_without_padding_proves_nothing_and_says_so() -> None:
    scales = torch.ones(128, 924, dtype=torch.uint8)
    found = check_padding(lambda memory: memory.float(), swizzle(scales), 128, 924, swizzle(scales).float(), TOLERANCE)
    assert list(found) == ["clean"]
