"""The CUDA toolkit of this machine, for tests that compile."""

import shutil

import pytest

from sublight.kernels.cuda.build import Nvcc


def nvcc() -> Nvcc:
    path = shutil.which("nvcc")
    if path is None:
        pytest.skip("no nvcc here")
    return Nvcc(path, "of this test")
