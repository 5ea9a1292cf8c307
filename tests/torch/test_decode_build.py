"""Compilation: a key that forgets nothing, a cache that trusts nothing, and, where nvcc is, every target."""

import re
from pathlib import Path

import pytest

from sublight.errors import KernelError
from sublight.kernels import cuda
from sublight.kernels.cuda.build import TARGETS, compile_kernel
from sublight.kernels.cuda.plan import RouterPlan, plan_decode
from tests.torch.toolkit import nvcc

DEFINES = plan_decode(6144, 256, 8, 4, 132, 232_448).defines()


class Counting:
    """A compiler that says how often it was asked, and for what."""

    def __init__(self, name: str = "counting 1.0") -> None:
        self.name = self.identity = name
        self.asked: list[tuple[list[str], str]] = []

    def compile(self, source: Path, options: list[str], target: str) -> bytes:
        assert source.read_text().count("moe_decode(") == 1
        self.asked.append((options, target))
        return f"{self.name} {target} {len(self.asked)}".encode()


def test_the_second_time_nothing_is_compiled(tmp_path: Path) -> None:
    compiler = Counting()
    first = compile_kernel("moe_decode.cu", DEFINES, "sm_90a", compiler, tmp_path)
    assert compile_kernel("moe_decode.cu", DEFINES, "sm_90a", compiler, tmp_path) == first == b"counting 1.0 sm_90a 1"
    assert len(compiler.asked) == 1
    assert "-DHIDDEN=6144" in compiler.asked[0][0]


def test_every_part_of_the_key_counts(tmp_path: Path) -> None:
    compiler, newer = Counting(), Counting("counting 1.1")
    compile_kernel("moe_decode.cu", DEFINES, "sm_90a", compiler, tmp_path)
    compile_kernel("moe_decode.cu", DEFINES, "sm_120a", compiler, tmp_path)
    compile_kernel("moe_decode.cu", DEFINES | {"DEPTH": 5}, "sm_90a", compiler, tmp_path)
    compile_kernel("moe_decode.cu", DEFINES, "sm_90a", newer, tmp_path)
    assert (len(compiler.asked), len(newer.asked)) == (3, 1)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"x", b"counting 1.0 sm_90a 1"])
def test_a_damaged_cubin_is_compiled_again(tmp_path: Path, damage: bytes) -> None:
    compiler = Counting()
    compile_kernel("moe_decode.cu", DEFINES, "sm_90a", compiler, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(damage)
    assert compile_kernel("moe_decode.cu", DEFINES, "sm_90a", compiler, tmp_path) == b"counting 1.0 sm_90a 2"


def test_a_folder_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert compile_kernel("moe_decode.cu", DEFINES, "sm_90a", Counting(), blocked / "under") == b"counting 1.0 sm_90a 1"


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="there is no such target here"):
        compile_kernel("moe_decode.cu", DEFINES, "sm_90", Counting(), tmp_path)


def test_every_function_says_that_it_is_the_gpus() -> None:
    """NVRTC takes no function of the host's, and nvcc, which is what tests find, takes any."""
    source = (Path(cuda.__file__).parent / "moe_decode.cu").read_text()
    functions = re.findall(r"^(?:[\w\"]+ )+\w+\(", source, re.MULTILINE)
    assert len(functions) > 30
    assert [f for f in functions if not f.startswith(("DEV ", 'extern "C" __global__ '))] == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tokens", [1, 16])
def test_the_kernel_compiles_for_every_target(tmp_path: Path, target: str, tokens: int) -> None:
    limit = 101_376 if target == "sm_120a" else 232_448
    defines = plan_decode(6144, 256, 8, tokens, 132, limit).defines()
    cubin = compile_kernel("moe_decode.cu", defines, target, nvcc(), tmp_path)
    assert cubin.startswith(b"\x7fELF")
    assert b"moe_decode" in cubin


@pytest.mark.parametrize("target", TARGETS)
def test_router_and_shared_expert_compile_for_every_target(tmp_path: Path, target: str) -> None:
    limit = 101_376 if target == "sm_120a" else 232_448
    router = RouterPlan(sigmoid=True, experts=256, bias=True, groups=8, top_groups=4)
    defines = plan_decode(7168, 256, 8, 8, 132, limit, shared=1, router=router).defines()
    assert compile_kernel("moe_decode.cu", defines, target, nvcc(), tmp_path).startswith(b"\x7fELF")


def test_a_plan_that_miscounts_does_not_compile(tmp_path: Path) -> None:
    wrong = DEFINES | {"STREAM_BYTES": DEFINES["STREAM_BYTES"] + 16}
    with pytest.raises(KernelError, match="the final sum reuses the ring"):
        compile_kernel("moe_decode.cu", wrong, "sm_90a", nvcc(), tmp_path)
