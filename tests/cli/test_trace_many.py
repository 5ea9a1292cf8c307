"""More than one trace, or a part of one: compared, as ranks of a run, and cut; each added up by hand."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import FLASH, MODEL, NVJET, STEP, STEP_US, Launch, kineto, length_us

Sublight = Callable[..., Run]

OTHER = "void flashinfer::BatchDecodeWithPagedKVCacheKernel<__nv_bfloat16>(int)"
# The same step with another attention, which takes 26 instead of 20 us in each of the two layers.
SLOWER: list[Launch] = [
    (OTHER, grid, 26.0, gap) if name == FLASH else (name, grid, us, gap) for name, grid, us, gap in STEP
]
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LATE_US = 8.0


def of_rank(rank: int) -> dict[str, Any]:
    """Two products and two all-reduces. Rank 1 takes longer for the first product, and rank 0 waits for it."""
    late = LATE_US if rank == 1 else 0.0
    launches: list[Launch] = [
        (NVJET, [48, 1, 1], 10.0 + late, 1.0),
        (REDUCE, [4, 1, 1], 15.0 + LATE_US - late, 1.0),
        (NVJET, [16, 1, 1], 5.0, 1.0),
        (REDUCE, [4, 1, 1], 15.0, 1.0),
    ]
    distributed = {"backend": "nccl", "rank": rank, "world_size": 2}
    return kineto(steps=8, launches=launches) | {"distributedInfo": distributed}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "before.json").write_text(json.dumps(kineto(steps=10)))
    (tmp_path / "after.json").write_text(json.dumps(kineto(steps=10, launches=SLOWER)))
    (tmp_path / "ranks").mkdir()
    for rank in (0, 1):
        (tmp_path / "ranks" / f"run-rank-{rank}.json").write_text(json.dumps(of_rank(rank)))
    return tmp_path


def record(done: Run) -> dict[str, Any]:
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)["record"]
    return found


def refused(done: Run) -> list[str]:
    """What was asked, found, and is to be tried."""
    assert (done.code, done.out) == (2, "")
    asked, found, hint = done.err.splitlines()
    assert asked.startswith("sublight: ") and found.startswith("  found: ") and hint.startswith("  try:   ")
    return [asked[10:], found[9:], hint[9:]]


def test_two_traces_differ_by_what_their_steps_differ(sublight: Sublight, folder: Path) -> None:
    found = record(sublight("trace", "before.json", "after.json", "--model", "./config.json", "--json"))
    step = found["step"]
    assert (step["a"]["median_ns"], step["b"]["median_ns"]) == (STEP_US * 1e3, length_us(SLOWER) * 1e3)
    assert step["b"]["median_ns"] - step["a"]["median_ns"] == 2 * 6000
    sides = {part["name"]: (part["a"]["median_ns"], part["b"]["median_ns"]) for part in found["parts"]}
    assert sides["attn.core"] == (40_000, 52_000)
    assert sides["mlp.dense"] == (39_000, 39_000)
    verdicts = {part["name"]: part["verdict"] for part in found["parts"]}
    assert (verdicts["attn.core"], verdicts["mlp.dense"]) == ("beyond the spread", "within the spread")
    (replaced,) = found["replaced"]
    kernels = [[k["name"] for backend in replaced[side] for k in backend["kernels"]] for side in "ab"]
    assert (replaced["row"], kernels) == ("attn.core", [[FLASH], [OTHER]])


def test_two_traces_on_a_terminal(sublight: Sublight, folder: Path) -> None:
    done = sublight("trace", "before.json", "after.json", "--model", "./config.json", "--save", "both.json")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "┃ 194 us ┃ 206 us ┃ +0.012 ms" in lines
    assert any(line.startswith("attention 0.040 0.052 +0.012") for line in lines)
    assert any(line.startswith("dense MLP 0.039 0.039 0.000") for line in lines)
    assert sublight("show", "both.json").out == done.out
    back = sublight("trace", "after.json", "before.json", "--model", "./config.json").out
    assert "-0.012 ms" in back


@pytest.mark.parametrize(
    "arguments",
    [("ranks",), ("ranks/*.json",), ("--ranks", "ranks/run-rank-1.json", "ranks/run-rank-0.json")],
)
def test_the_rank_that_others_wait_for(sublight: Sublight, folder: Path, arguments: Sequence[str]) -> None:
    found = record(sublight("trace", *arguments, "--json"))
    # Once a step rank 1 comes 8 us late; each of the two messages takes 15 us once both are there.
    assert [(r["rank"], r["waiting_ns"], r["late_ns"], r["transfer_ns"]) for r in found["ranks"]] == [
        (0, 8000, 0, 30_000),
        (1, 0, 8000, 30_000),
    ]
    usual = [step for step in found["steps"] if not step["flags"]]
    assert [r["last"] for r in found["ranks"]] == [0, len(usual)] and len(usual) >= 7
    assert (found["compared"], found["together"]) == (2 * len(usual), len(usual))
    assert (found["missing"], found["uncertainty_ns"]) == ([], 0)


def test_ranks_on_a_terminal(sublight: Sublight, folder: Path) -> None:
    done = sublight("trace", "ranks", "--save", "skew.json")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert any(line.startswith("┃ rank 1 ┃") for line in lines) and any("8.00 us a step" in line for line in lines)
    assert sublight("show", "skew.json").out == done.out


def test_a_file_that_is_no_trace_is_left_out_by_name(sublight: Sublight, folder: Path) -> None:
    (folder / "ranks" / "notes.json").write_text("{}")
    done = sublight("trace", "ranks", "--json")
    assert done.code == 0 and done.err.startswith("left out: ranks/notes.json: ") and len(done.err.splitlines()) == 1
    assert [r["rank"] for r in json.loads(done.out)["record"]["ranks"]] == [0, 1]


def test_a_missing_rank_is_named(sublight: Sublight, folder: Path) -> None:
    for rank in (0, 1):
        whole = of_rank(rank)
        whole["distributedInfo"]["world_size"] = 4
        (folder / "ranks" / f"run-rank-{rank}.json").write_text(json.dumps(whole))
    assert record(sublight("trace", "ranks", "--json"))["missing"] == [2, 3]
    assert "ranks without a trace: 2, 3" in sublight("trace", "ranks").out


def test_files_that_meet_in_no_collective_are_no_ranks_of_one_run(sublight: Sublight, folder: Path) -> None:
    asked, found, hint = refused(sublight("trace", "--ranks", "before.json", "after.json", "--save", "skew.json"))
    assert asked == "comparing the ranks of one run"
    assert found == "none of the 2 traces has a collective: they are of ranks that work alone"
    assert hint == "the traces of one run, of each rank; two traces without --ranks"
    assert not (folder / "skew.json").exists()
    (folder / "ranks" / "run-rank-1.json").write_text(json.dumps(kineto(steps=10)))
    _, found, _ = refused(sublight("trace", "ranks"))
    assert found == (
        "no collective of a step is in the traces of two ranks: rank 0 has 16 collectives (ranks/run-rank-0.json), "
        "rank 1 has no collectives (ranks/run-rank-1.json)"
    )


def test_a_rank_that_could_not_be_compared_has_no_zeros(sublight: Sublight, folder: Path) -> None:
    alone = kineto(steps=10) | {"distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 3}}
    (folder / "ranks" / "run-rank-2.json").write_text(json.dumps(alone))
    lines = [" ".join(line.split()) for line in sublight("trace", "ranks").out.splitlines()]
    assert any(line.startswith("2 not known not known not known 0") for line in lines), lines
    assert any(line.startswith("0 0.008 0.030 0 0.000") for line in lines)


@pytest.mark.parametrize("name", ["one.json", "one.json.gz"])
def test_a_slice_is_a_trace_of_that_step(sublight: Sublight, folder: Path, name: str) -> None:
    done = sublight("trace", "before.json", "--slice", "3", "-o", name)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{name}: step 3, {len(STEP)} kernels\n"
    whole = record(sublight("trace", "before.json", "--step", "3", "--model", "./config.json", "--json"))
    part = record(sublight("trace", name, "--model", "./config.json", "--json"))
    assert part["source"]["gpu_events"] == len(STEP)
    assert part["breakdown"]["rows"] == whole["breakdown"]["rows"]
    assert part["events"] == whole["events"]
    # The next step is not in the file, but where it began is.
    walls = [r["breakdown"]["end_ns"] - r["breakdown"]["start_ns"] for r in (whole, part)]
    assert walls == [STEP_US * 1e3] * 2


def test_the_same_trace_twice_is_no_comparison(sublight: Sublight, folder: Path) -> None:
    (folder / "link.json").symlink_to("before.json")
    for other in ("before.json", "link.json"):
        asked, found, hint = refused(sublight("trace", "before.json", other))
        assert (asked, found) == ("comparing two traces", f"both are {other}") and "before and after" in hint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("before.json", "--slice", "99", "-o", "x.json"),
         ["--slice 99", "whole steps in the trace: 9", "--slice 0 to 8"]),
        (("before.json", "--slice", "-1", "-o", "x.json"),
         ["--slice -1", "whole steps in the trace: 9", "--slice 0 to 8"]),
        (("before.json", "--slice", "1", "-o", "before.json"),
         ["-o before.json", "that is the file which is read", "the name of another file"]),
        (("before.json", "--slice", "1"),
         ["--slice and -o", "one was given without the other", "--slice 3 -o step.json"]),
        (("before.json", "-o", "x.json"),
         ["--slice and -o", "one was given without the other", "--slice 3 -o step.json"]),
        (("before.json", "after.json", "--slice", "1", "-o", "x.json"), ["--slice", "2 files were given", "one file"]),
        (("before.json", "--slice", "1", "-o", "x.json", "--html", "x.html"),
         ["--html with --slice", "it has no use there", "the same without --html"]),
        (("before.json", "after.json", "--step", "2"),
         ["--step with two traces", "it has no use there", "the same without --step"]),
        (("ranks", "--model", "./config.json"),
         ["--model with the ranks of one run", "it has no use there", "the same without --model"]),
        (("--ranks", "ranks/run-rank-1.json"),
         ["comparing the ranks of one run", "there is rank 1 only", "the folder with the traces of all ranks"]),
        (("--ranks", "ranks/run-rank-0.json", "ranks/run-rank-0.json"),
         ["comparing the ranks of one run", "there is rank 0 only", "the folder with the traces of all ranks"]),
        (("before.json", "after.json", "before.json"),
         ["several traces", "3 files were given", "two to compare them, or --ranks"]),
        (("before.json", "none.json"),
         ["reading the trace none.json", "No such file or directory", "a path that exists and can be read"]),
        (("none-*.json",), ["reading the ranks none-*.json", "no file fits the pattern", "a pattern in quotes"]),
    ],
)  # fmt: skip
def test_bad_input_is_refused(sublight: Sublight, folder: Path, arguments: Sequence[str], said: list[str]) -> None:
    before = (folder / "before.json").read_bytes()
    assert refused(sublight("trace", *arguments)) == said
    assert (folder / "before.json").read_bytes() == before
    assert not list(folder.glob("x.*"))
