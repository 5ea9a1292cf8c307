"""Scales that calibration left missing or unusable."""

import math

import pytest
import torch

from sublight.errors import KernelError
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.scales import require_sound, stack_scales, unsound

# One expert each: sound, sound, absent, zero, infinite, denormal, sound, not a number.
CALIBRATED = [0.012, 0.011, None, 0.0, math.inf, 1e-42, 0.010, math.nan]
SCALES = {n: None if value is None else torch.tensor(value) for n, value in enumerate(CALIBRATED)}
WRONG = {2: "missing", 3: "zero", 4: "inf", 5: "denormal", 7: "nan"}


def test_every_unusable_scale_is_named_with_its_expert() -> None:
    assert unsound(CALIBRATED) == WRONG
    with pytest.raises(KernelError) as error:
        stack_scales("input_scale", SCALES, 8)
    assert error.value.found == ", ".join(f"expert {n} {problem}" for n, problem in WRONG.items())
    assert "W4A16" in error.value.hint


def test_scales_of_sound_experts_are_stacked() -> None:
    stacked = stack_scales("input_scale", {0: torch.tensor([0.5]), 1: torch.tensor(0.25)}, 2)
    assert stacked.tolist() == [0.5, 0.25]
    require_sound("input_scale", stacked)


def test_a_weight_only_checkpoint_has_no_activation_scales() -> None:
    with pytest.raises(KernelError, match="weight-only: it has none"):
        stack_scales("input_scale", {}, 8)


def test_what_an_unusable_activation_scale_does_to_its_values() -> None:
    # Why they are refused: the quantiser multiplies by the reciprocal.
    from sublight.kernels.numerics.quantised import GlobalScale

    values = torch.ones(1, 16)
    decoded = {
        problem: NVFP4.quantise(values, GlobalScale(torch.tensor([scale]))).dequantise()
        for problem, scale in (("sound", 1 / 2688), ("zero", 0.0), ("inf", math.inf), ("nan", math.nan))
    }
    assert decoded["sound"].tolist() == [pytest.approx([1.0] * 16)]
    assert not any(bool(decoded[problem].eq(1).any()) for problem in ("zero", "inf", "nan"))
