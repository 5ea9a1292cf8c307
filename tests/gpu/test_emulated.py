"""The kernels for FP4 units where Triton emulates those units: on a Hopper, from 3.9 on."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("there is no Hopper here", allow_module_level=True)
if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
    pytest.skip("Triton before 3.9 does not compile NVFP4 for a Hopper", allow_module_level=True)

from tests.gpu.emulated import LAYERS, MASKED, findings  # noqa: E402 - it imports Triton


def test_what_the_units_would_be_given_gives_the_oracle() -> None:
    rows = list(findings("cuda"))
    assert len(rows) >= len(LAYERS) + len(MASKED)
    assert [row for row in rows if row["reason"]] == []
