"""Eight-, four- and scale-only floats: E2M1, E4M3, E8M0. Values to codes and back.

Rounding is to nearest, ties to the even code, and what lies beyond the largest value becomes the largest: what the
hardware's `cvt.rn.satfinite` does. Two things are decided here that the formats leave open:

- E2M1 has no NaN and no infinity. NaN becomes +6, as the PTX instruction has it; a block that holds one is still seen,
  because its E4M3 scale is NaN.
- torch's own cast to E4M3 has saturated in some releases and given NaN in others, so values are clamped before it.
"""

import torch
from torch import Tensor

E2M1_MAX = 6.0
E4M3_MAX = 448.0
E8M0_BIAS = 127
E8M0_NAN = 255
# By code: the lower three bits are the magnitude, the fourth the sign.
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
# Midpoints between neighbouring magnitudes. A value on one goes to the even code: up past an odd one, else down.
_DOWN = (0.25, 1.25, 2.5, 5.0)
_UP = (0.75, 1.75, 3.5)


def to_e2m1(values: Tensor) -> Tensor:
    """Codes 0 to 15 (uint8), one a value, unpacked."""
    values = values.float()
    size = values.abs().nan_to_num(nan=E2M1_MAX)
    code = torch.zeros_like(values, dtype=torch.uint8)
    for midpoint in _DOWN:
        code += size > midpoint
    for midpoint in _UP:
        code += size >= midpoint
    negative = torch.signbit(values) & ~values.isnan()
    return code | (negative.to(torch.uint8) << 3)


def from_e2m1(codes: Tensor) -> Tensor:
    """fp32 values of codes 0 to 15."""
    table = torch.tensor(E2M1_VALUES, dtype=torch.float32, device=codes.device)
    return table[codes.long()]


def pack(codes: Tensor) -> Tensor:
    """Two codes a byte along the last dimension: the even place in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: Tensor) -> Tensor:
    """The codes of `pack`."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


def to_e4m3(values: Tensor) -> Tensor:
    """float8_e4m3fn; NaN stays NaN, everything else saturates at 448."""
    return values.float().clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def to_e8m0(exponents: Tensor) -> Tensor:
    """uint8 codes of 2**exponent, clamped to what the format holds."""
    return (exponents.to(torch.int32) + E8M0_BIAS).clamp(0, E8M0_NAN - 1).to(torch.uint8)


def from_e8m0(codes: Tensor) -> Tensor:
    """fp32 powers of two; code 255 is NaN. 2**-127 is a subnormal and exact."""
    bits = (codes.to(torch.int32) << 23).masked_fill(codes == 0, 1 << 22)
    return bits.view(torch.float32).masked_fill(codes == E8M0_NAN, float("nan"))
