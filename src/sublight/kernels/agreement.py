"""Whether two results agree: how far apart, where the most, and never where something is not a number.

A kernel can be wrong at one number of tokens out of ten, in one expert, in the rows after the last full tile, or only
where memory was used before. So the distance is taken of the whole and of every region by itself, the sweep of token
counts goes beyond powers of two, and buffers are made dirty on purpose.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels.contract import require_tensor
from sublight.kernels.numerics.swizzle import dirty_padding

# A region holds fewer values than the whole, so its own distance scatters more about the same mean.
_REGION_SLACK = 2.0
# NaN, the largest finite E4M3, one, and all bits set: what stale memory can hold in the place of a scale.
STALE_BYTES = (0x7F, 0x7E, 0x38, 0xFF)


@dataclass(frozen=True)
class Region:
    """One part of a result that is more than the tolerance away."""

    name: str
    relative_error: float


@dataclass(frozen=True)
class Agreement:
    """What a comparison found.

    Attributes:
        relative_error: Frobenius norm of the difference over that of the expected values; None where either side has
            values that are not finite.
        tolerance: what was allowed.
        not_finite: values of the result that are NaN or infinite.
        regions: those beyond their tolerance, worst first.
        reason: "" where the two agree, otherwise why not, in words.
    """

    relative_error: float | None
    tolerance: float
    not_finite: int
    regions: tuple[Region, ...]
    reason: str

    @property
    def agrees(self) -> bool:
        return not self.reason


def compare(
    actual: Tensor, expected: Tensor, tolerance: float, regions: Mapping[str, Tensor] | None = None
) -> Agreement:
    """How far `actual` is from `expected`.

    Args:
        tolerance: on the relative error of the whole; the format of the weights says it (`BlockFormat.kernel_error`).
        regions: name -> a mask or an index of the first dimension (tokens of one expert, rows of the last tile). Each
            is compared by itself, at twice the tolerance. Left out, the regions are the rows.

    Raises:
        KernelError: no tensors, other shapes or devices, a tolerance that is no number of at least 0 (to NaN everything
            would agree), or an expectation that is not finite: then there is nothing to compare with.
    """
    for name, tensor in (("actual", actual), ("expected", expected)):
        require_tensor("comparing two results", name, tensor, "two tensors of one shape")
    allowed: Any = tolerance
    if not isinstance(allowed, int | float) or not allowed >= 0:
        raise KernelError("comparing two results", f"the tolerance is {allowed!r}", "a number of at least 0")
    if actual.device != expected.device:
        found = f"they are on {actual.device} and {expected.device}"
        raise KernelError("comparing two results", found, "results on one device")
    if actual.shape != expected.shape:
        found = f"they are {list(actual.shape)} and {list(expected.shape)}"
        raise KernelError("comparing two results", found, "results of one shape")
    wanted = expected.double()
    if not bool(wanted.isfinite().all()):
        raise KernelError("comparing with the oracle", "the oracle itself is not finite", "inputs of moderate size")
    got = actual.double()
    not_finite = int((~got.isfinite()).sum())
    if not_finite:
        share = f"{not_finite} of {got.numel()} values are NaN or infinite"
        bad = _parts(~got.isfinite(), regions)
        named = tuple(Region(name, float("inf")) for name, part in bad if bool(part.any()))
        return Agreement(None, tolerance, not_finite, named, share + _where(named))
    error = _relative(got, wanted)
    apart = [
        Region(name, distance)
        for (name, a), (_, b) in zip(_parts(got, regions), _parts(wanted, regions), strict=True)
        if (distance := _relative(a, b)) > tolerance * _REGION_SLACK
    ]
    apart.sort(key=lambda region: -region.relative_error)
    reason = ""
    if error > tolerance or apart:
        reason = f"relative error {error:.3g}, allowed {tolerance:.3g}{_where(tuple(apart))}"
        if got.numel() and not bool(got.any()):
            reason = f"output all zero; {reason}"
    return Agreement(error, tolerance, 0, tuple(apart), reason)


def require_agreement(
    what: str, actual: Tensor, expected: Tensor, tolerance: float, regions: Mapping[str, Tensor] | None = None
) -> Agreement:
    """`compare`, raising KernelError where the two do not agree."""
    agreement = compare(actual, expected, tolerance, regions)
    if not agreement.agrees:
        raise KernelError(f"agreement of {what} with the oracle", agreement.reason, "another kernel: this one is wrong")
    return agreement


def sweep_tokens(most: int = 4096) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... : powers of two and three times each, up to `most`.

    A kernel was right at 1536, 2048 and 4096 rows and gave zeros at 3072 (flashinfer#3398).
    """
    powers = [2**k for k in range(most.bit_length())]
    return sorted({m for power in powers for m in (power, 3 * power) if m <= most})


def sweep(run: Callable[[int], tuple[Tensor, Tensor]], tokens: Sequence[int], tolerance: float) -> dict[int, Agreement]:
    """Every token count with its agreement; `run` returns (actual, expected)."""
    return {m: compare(*run(m), tolerance) for m in tokens}


def check_padding(
    run: Callable[[Tensor], Tensor], swizzled: Tensor, rows: int, scales: int, expected: Tensor, tolerance: float
) -> dict[str, Agreement]:
    """A kernel with clean padding and with each kind of stale byte in it: nothing but the padding changes.

    Args:
        run: the kernel, given swizzled scales.
        swizzled: with zeros in its padding.

    Returns:
        "clean" and "stale 0x7f" and so on, each with its agreement. Where there is no padding, "clean" alone: such a
        shape proves nothing.
    """
    found = {"clean": compare(run(swizzled), expected, tolerance)}
    for byte in STALE_BYTES:
        dirty = dirty_padding(swizzled, rows, scales, byte)
        if not torch.equal(dirty.view(torch.uint8), swizzled.view(torch.uint8)):
            found[f"stale {byte:#04x}"] = compare(run(dirty), expected, tolerance)
    return found


def _relative(actual: Tensor, expected: Tensor) -> float:
    distance, size = float((actual - expected).norm()), float(expected.norm())
    if size == 0:
        return 0.0 if distance == 0 else float("inf")
    return distance / size


def _parts(values: Tensor, regions: Mapping[str, Tensor] | None) -> list[tuple[str, Tensor]]:
    if regions is not None:
        return [(name, values[index]) for name, index in regions.items()]
    if values.dim() < 2:
        return []
    return [(f"row {number}", row) for number, row in enumerate(values)]


def _where(regions: tuple[Region, ...]) -> str:
    """The first few by name."""
    if not regions:
        return ""
    shown = ", ".join(f"{r.name} ({r.relative_error:.3g})" for r in regions[:4])
    more = f" and {len(regions) - 4} more" if len(regions) > 4 else ""
    return f"; worst in {shown}{more}"
