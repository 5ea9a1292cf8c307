"""What the benchmarks of expert layers hold a result to before they time it."""

import runpy
from math import inf, nan
from pathlib import Path

import pytest
import torch

MOE_TIMING = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "moe_timing.py"))


@pytest.mark.parametrize(
    ("values", "error", "why"),
    [
        ([3.0, 4.0], 0.0, ""),
        ([3.0, 4.01], 0.002, ""),
        ([3.0, 4.5], 0.1, "relative error 1.0e-01 is over 3e-03; not timed"),
        ([3.0, nan], inf, "relative error inf is over 3e-03; not timed"),
    ],
)
def test_what_is_wrong_or_no_number_is_not_timed(values: list[float], error: float, why: str) -> None:
    found = max(0.0, MOE_TIMING["relative_error"](torch.tensor(values), torch.tensor([3.0, 4.0])))
    assert found == pytest.approx(error, rel=1e-4)
    assert MOE_TIMING["disagreement"](found) == why
