"""GPU code in files: targets from the code objects themselves, coverage for one exact card."""

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from sublight.audit.code import Coverage, coverage, exactly, runs_on
from sublight.audit.probe import objects
from sublight.audit.replies import CodeObject
from tests.audit.elves import cubin, library
from tests.audit.wheels import installed


def inspected(folder: Path) -> dict[str, dict]:
    return {os.path.relpath(o["path"], folder): o for o in objects.describe([str(folder)])[str(folder)]["objects"]}


def read(folder: Path) -> tuple[CodeObject, ...]:
    return tuple(
        CodeObject(o["path"], 0, 0, o["kind"], tuple((tuple(codes), n) for codes, n in o["units"]), tuple(o["needed"]))
        for o in inspected(folder).values()
    )


def test_targets_of_a_library_and_what_it_needs(tmp_path: Path) -> None:
    units = [["sm_80", "sm_90a", "compute_90"], ["sm_80", "sm_90a", "compute_90"], ["sm_100f", "sm_120f"]]
    (tmp_path / "ops.abi3.so").write_bytes(library(units, ["libnvrtc.so.12", "libc.so.6"]))
    found = inspected(tmp_path)["ops.abi3.so"]
    assert found["kind"] == "library"
    assert found["error"] == ""
    assert found["needed"] == ["libnvrtc.so.12", "libc.so.6"]
    assert found["units"] == [[["compute_90", "sm_80", "sm_90a"], 2], [["sm_100f", "sm_120f"], 1]]


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100f", "sm_103a", "sm_120", "sm_121a"])
def test_target_of_a_cubin(tmp_path: Path, target: str) -> None:
    (tmp_path / "x.cubin").write_bytes(cubin(target))
    assert inspected(tmp_path)["x.cubin"]["units"] == [[[target], 1]]


def test_flags_of_a_cubin_leave_the_suffix_open(tmp_path: Path) -> None:
    whole = cubin("sm_100a")
    (tmp_path / "x.cubin").write_bytes(whole.replace(b"-arch", b"-mute"))
    assert inspected(tmp_path)["x.cubin"]["units"] == [[["sm_100?"], 1]]


def test_names_of_files_and_folders_are_no_evidence(tmp_path: Path) -> None:
    """A folder called sm100 with code for Ampere, and a file called after a card that it was not built for."""
    for name in ("sm100", "sm120"):
        (tmp_path / name).mkdir()
    (tmp_path / "sm100" / "common_ops.so").write_bytes(library([["sm_80"]]))
    (tmp_path / "sm120" / "moe_sm120.cubin").write_bytes(cubin("sm_90a"))
    found = coverage(read(tmp_path), (12, 0))
    assert found.targets == {"sm_80": 1, "sm_90a": 1}
    assert (found.units, found.exact, found.runs) == (2, 0, 0)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF" + b"\xff" * 200, b"no code at all", os.urandom(5000)])
def test_broken_files_are_said_and_do_not_stop_the_rest(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.so").write_bytes(content)
    (tmp_path / "b.so").write_bytes(library([["sm_120a"]]))
    found = inspected(tmp_path)
    assert found["a.so"]["error"]
    assert found["b.so"]["units"] == [[["sm_120a"], 1]]


def test_a_truncated_library_keeps_what_was_whole(tmp_path: Path) -> None:
    whole = library([["sm_90a"]] * 3)
    (tmp_path / "a.so").write_bytes(whole[: len(whole) // 2])
    assert inspected(tmp_path)["a.so"]["units"] == [] or inspected(tmp_path)["a.so"]["error"]


def test_thin_coverage_is_counted() -> None:
    """1,636 objects for the family, 60 for the very card: it runs, and 3.5 % of it was built for it."""
    pool = [
        CodeObject("family", 0, 0, "cubin", ((("sm_100f",), 1636),)),
        CodeObject("own", 0, 0, "cubin", ((("sm_103a",), 60),)),
    ]
    on_b300 = coverage(pool, (10, 3))
    assert (on_b300.units, on_b300.exact, on_b300.runs) == (1696, 60, 1696)
    assert on_b300.share == pytest.approx(0.0354, abs=1e-4)
    assert (
        on_b300.counted("sm_103")
        == "60 of 1,696 units are built for sm_103 (3.5 %); code of 1,636 others runs there too"
    )
    assert coverage(pool, (10, 0)).runs == 1636
    assert coverage(pool, (12, 0)) == Coverage(units=1696, targets={"sm_100f": 1636, "sm_103a": 60})


@pytest.mark.parametrize(
    ("code", "capability", "runs", "exact"),
    [
        ("sm_120", (12, 0), True, True),
        ("sm_120a", (12, 0), True, True),
        ("sm_120a", (12, 1), False, False),
        ("sm_120", (12, 1), True, False),
        ("sm_120f", (12, 1), True, False),
        ("sm_121", (12, 0), False, False),
        ("sm_100f", (10, 3), True, False),
        ("sm_100a", (10, 3), False, False),
        ("sm_100f", (12, 0), False, False),
        ("sm_90a", (10, 0), False, False),
        ("compute_90", (12, 0), True, False),
        ("compute_90a", (12, 0), False, False),
        ("compute_100f", (10, 3), True, False),
        ("sm_100?", (10, 3), False, False),
        ("nonsense", (9, 0), False, False),
    ],
)
def test_what_runs_where(code: str, capability: tuple[int, int], runs: bool, exact: bool) -> None:
    assert runs_on(code, capability) is runs
    assert exactly(code, capability) is exact


@pytest.mark.wheels
def test_a_released_library() -> None:
    """vLLM 0.20.2's MoE library: counts that `cuobjdump --list-elf` and `--list-ptx` give for the same file."""
    folder = installed("vllm==0.20.2") / "vllm"
    (found,) = objects.describe([str(folder / "_moe_C.abi3.so")]).popitem()[1]["objects"]
    counted: Counter[str] = Counter()
    for codes, count in found["units"]:
        counted.update(dict.fromkeys(codes, count))
    assert counted["sm_120"] == 13
    assert counted["sm_100f"] == 3
    assert counted["compute_80"] == 15
    assert sum(count for _, count in found["units"]) == 38
    assert "libcudart.so.13" in found["needed"]


def test_against_nvcc(tmp_path: Path) -> None:
    """What the compiler was told is what is read, where there is one that knows these targets."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(float* a) { a[threadIdx.x] *= 2.f; }\n')
    argv = [nvcc, "-fatbin", "-gencode", "arch=compute_90,code=compute_90", "-gencode", "arch=compute_90a,code=sm_90a"]
    argv += ["-gencode", "arch=compute_120f,code=sm_120f", "k.cu", "-o", "k.fatbin"]
    if subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("this nvcc does not know sm_120f")
    assert inspected(tmp_path)["k.fatbin"]["units"] == [[["compute_90", "sm_120f", "sm_90a"], 1]]
