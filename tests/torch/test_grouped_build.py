"""The grouped kernels compile for every target, and for a plan that fits it."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sublight.errors import KernelError
from sublight.kernels.cuda import build
from sublight.kernels.cuda.build import TARGETS, compile_kernel
from sublight.kernels.cuda.grouped_plan import GroupedPlan, Phase, fitted, plan_grouped
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


def most_sums(tiles: int, phase: Phase) -> GroupedPlan:
    """The most tokens of a pass with one or two tiles of rows a warp."""
    plan = fitted(replace(plan_grouped(*QWEN3, 1024, 232_448), tiles=tiles, up=phase, down=phase), 232_448)
    assert plan is not None
    return plan


@pytest.mark.parametrize("plan", [most_sums(7, Phase(16, 1, 2)), most_sums(11, Phase(8, 2, 2))], ids=["two", "one"])
def test_warpgroup_products_run_beside_the_decoding(tmp_path: Path, plan: GroupedPlan) -> None:
    """Where registers do not suffice, the assembler says so and lets the products run one by one."""
    defines = [f"-D{name}={value}" for name, value in plan.defines().items()]
    source = Path(build.__file__).with_name("moe_grouped.cu")
    command = [
        nvcc().path,
        "-cubin",
        "-std=c++17",
        "-gencode",
        "arch=compute_90a,code=sm_90a",
        "-Xptxas",
        "-v",
        *defines,
    ]
    done = subprocess.run(
        [*command, str(source), "-o", str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    assert "Used 96 registers" in done.stderr
    assert "serialized" not in done.stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("UP_BYTES", "the plan counts the rings"),
        ("STATIC_BYTES", "the plan leaves room for the rest"),
        ("SORT_BYTES", "the plan counts what sorting takes"),
    ],
)
def test_a_plan_that_miscounts_does_not_compile(tmp_path: Path, name: str, message: str) -> None:
    defines = plan_grouped(*GLM5, 64, 232_448).defines()
    with pytest.raises(KernelError, match=message):
        compile_kernel("moe_grouped.cu", defines | {name: defines[name] - 1024}, "sm_90a", nvcc(), tmp_path)
