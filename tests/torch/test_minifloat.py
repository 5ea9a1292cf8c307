"""E2M1, E4M3 and E8M0 against ml_dtypes, value by value."""

import ml_dtypes
import numpy as np
import pytest
import torch

from sublight.kernels.numerics.minifloat import (
    E2M1_VALUES,
    from_e2m1,
    from_e8m0,
    pack,
    to_e2m1,
    to_e4m3,
    to_e8m0,
    unpack,
)

EVERY_BF16 = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
# All that bf16 cannot hold and rounding could get wrong: one step of fp32 to either side of every bf16 number.
BETWEEN = torch.cat(
    [
        torch.nextafter(EVERY_BF16.float(), torch.tensor(float("inf"))),
        torch.nextafter(EVERY_BF16.float(), torch.tensor(-float("inf"))),
    ]
)
VALUES = torch.cat([EVERY_BF16.float(), BETWEEN])
NUMBERS = VALUES[~VALUES.isnan()]


def test_e2m1_of_every_bf16_and_its_neighbours_in_fp32() -> None:
    wanted = NUMBERS.numpy().astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert np.array_equal(to_e2m1(NUMBERS).numpy(), wanted)


def test_e4m3_of_every_bf16_and_its_neighbours_in_fp32() -> None:
    # ml_dtypes gives NaN beyond 464, where hardware saturates.
    clamped = NUMBERS.clamp(-448, 448).numpy()
    wanted = clamped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert np.array_equal(to_e4m3(NUMBERS).view(torch.uint8).numpy(), wanted)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0.25, 0),
        (0.75, 2),
        (1.25, 2),
        (1.75, 4),
        (2.5, 4),
        (3.5, 6),
        (5.0, 6),
        (6.1, 7),
        (1e30, 7),
        (-0.2, 8),
        (-9, 15),
    ],
)
def test_ties_go_to_the_even_code_and_large_values_saturate(value: float, code: int) -> None:
    assert to_e2m1(torch.tensor([value])).item() == code


def test_nan_becomes_six_in_e2m1_and_stays_nan_in_e4m3() -> None:
    nan = torch.tensor([float("nan"), -float("nan")])
    assert to_e2m1(nan).tolist() == [7, 7]
    assert bool(to_e4m3(nan).float().isnan().all())


def test_every_code_decodes_as_ml_dtypes_says_and_comes_back() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    values = from_e2m1(codes)
    assert np.array_equal(values.numpy(), codes.numpy().view(ml_dtypes.float4_e2m1fn).astype(np.float32))
    assert torch.signbit(values).tolist() == [False] * 8 + [True] * 8
    assert torch.equal(to_e2m1(values), codes)
    assert tuple(values.tolist()) == E2M1_VALUES
    eights = torch.arange(256, dtype=torch.uint8)
    sound = eights[(eights & 127) != 127].view(torch.float8_e4m3fn)
    assert torch.equal(to_e4m3(sound.float()).view(torch.uint8), sound.view(torch.uint8))


def test_e8m0_is_every_power_of_two_and_255_is_nan() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    wanted = codes.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert np.array_equal(from_e8m0(codes).numpy(), wanted, equal_nan=True)
    assert from_e8m0(codes[:1]).item() == 2.0**-127
    assert to_e8m0(torch.tensor([-400, -127, 0, 127, 128])).tolist() == [0, 0, 127, 254, 254]


def test_the_even_place_is_the_low_nibble() -> None:
    assert pack(torch.tensor([1, 2, 15, 0], dtype=torch.uint8)).tolist() == [0x21, 0x0F]
    assert unpack(torch.tensor([0x21, 0x0F], dtype=torch.uint8)).tolist() == [1, 2, 15, 0]
