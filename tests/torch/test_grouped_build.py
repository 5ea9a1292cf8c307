"""The grouped kernels compile for every target, and for a plan that fits it."""

from pathlib import Path

import pytest

from sublight.errors import KernelError
from sublight.kernels.cuda.build import TARGETS, compile_kernel
from sublight.kernels.cuda.grouped_plan import plan_grouped
from tests.torch.toolkit import nvcc

GLM5 = (6144, 256, 256, 8)
QWEN3 = (2048, 768, 128, 8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("layer", "tokens"), [(GLM5, 64), (QWEN3, 1024)], ids=["64", "1024"])
def test_the_kernels_compile_for_every_target(
    tmp_path: Path, target: str, layer: tuple[int, int, int, int], tokens: int
) -> None:
    limit = 101_376 if target == "sm_120a" else 232_448
    plan = plan_grouped(*layer, tokens, limit, hopper=target == "sm_90a")
    assert plan.wgmma == (target == "sm_90a" and tokens == 1024)
    cubin = compile_kernel("moe_grouped.cu", plan.defines(), target, nvcc(), tmp_path)
    assert cubin.startswith(b"\x7fELF")
    for kernel in (b"grouped_up", b"grouped_down", b"grouped_out"):
        assert kernel in cubin


@pytest.mark.parametrize(
    ("name", "message"),
    [("UP_BYTES", "the plan counts the rings"), ("STATIC_BYTES", "the plan leaves room for the rest")],
)
def test_a_plan_that_miscounts_does_not_compile(tmp_path: Path, name: str, message: str) -> None:
    defines = plan_grouped(*GLM5, 64, 232_448).defines()
    with pytest.raises(KernelError, match=message):
        compile_kernel("moe_grouped.cu", defines | {name: defines[name] - 1024}, "sm_90a", nvcc(), tmp_path)
