"""Records that were changed after they were written: one error, whether they are shown or measured by."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

Sublight = Callable[..., Run]
STEP = ("glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-server")
Edit = Callable[[Any], object]


def at(*path: str | int, value: object) -> Edit:
    """Set one value inside a record; a callable value changes the old one."""

    def edit(record: Any) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value(record[path[-1]]) if callable(value) else value

    return edit


def again(*path: str) -> Edit:
    """List the first entry of a list twice."""

    def edit(record: Any) -> None:
        for key in path:
            record = record[key]
        record.append(record[0])

    return edit


def changed(folder: Path, name: str, edit: Edit) -> None:
    saved = json.loads((folder / name).read_text())
    edit(saved["record"])
    (folder / name).write_text(json.dumps(saved))


def refused(done: Run, *words: str) -> None:
    assert (done.code, done.out) == (2, ""), done.out + done.err
    assert len(done.err.splitlines()) == 3 and "Traceback" not in done.err, done.err
    for word in words:
        assert word in done.err, done.err


UNKNOWN = {"value": None, "evidence": "not known", "note": "nobody looked"}
GAP: list[tuple[Edit, str]] = [
    (at("measured_s", "value", value=0.0), "its measured step is not above zero"),
    (at("measured_s", value=UNKNOWN), "its measured step is not above zero"),
    (at("measured_s", "value", value=-0.03), "measured_s.value is -0.03, below zero"),
    (at("standing", value="below memory"), "said to stand 'below memory', and its numbers say 'above'"),
    (at("limit", "totals", "best_s", "value", value=0.0), "its total best_s is 0 s, and its parts make 0.00727"),
    (at("limit", "totals", "nccl_s", "value", value=lambda old: old * 2), "its total nccl_s"),
    (at("limit", "totals", "rows_s", value=lambda old: old * 1.001), "its total rows_s"),
    (at("limit", "totals", "memory_s", value=lambda old: old * 0.999), "its total memory_s"),
    (at("limit", "totals", "strict_s", value=lambda old: old * 0.5), "its total strict_s"),
    (at("limit", "totals", "naive_s", value=0.0), "its floor is 0"),
    (at("limit", "totals", "naive_s", value=lambda old: old * 3), "its total naive_s"),
    (at("limit", "gpu", "bandwidth_bytes_per_s", "value", value=lambda old: old / 2), "its total naive_s"),
    (at("limit", "gpu", "bandwidth_bytes_per_s", "value", value=-1e12), "bandwidth_bytes_per_s.value is -1e+12, below"),
    (at("limit", "gpu", "bandwidth_bytes_per_s", value=UNKNOWN), "the bandwidth of its card is not known"),
    (at("limit", "gpu", "count", value=4), "it counts 4 GPUs, and its layout takes 8"),
    (at("limit", "model", "parameters", value=-1), "parameters is -1, below zero"),
    (at("limit", "rows", 3, "cost", "calls", value=-78), "calls is -78, below zero"),
    (at("limit", "rows", 3, "cost", "bytes", "weights", value=-1.0), "weights is -1, below zero"),
    (at("limit", "rows", 3, "time_s", value=-1e-3), "time_s is -0.001, below zero"),
    (at("limit", "rows", 3, "time_s", value=1e-3), "row attn.q_b is not the larger of its memory and its arithmetic"),
    (at("limit", "rows", 3, "id", value="attn.q_c"), "'attn.q_c' is no row of a step"),
    (at("limit", "collectives", 1, "calls", value=80), "its total best_s"),
    (at("limit", "terms", 1, "seconds", value=lambda old: old * 2), "do not sum to the floor"),
    (at("limit", "workload", "batch", value=0), "a batch of 0"),
    (at("claimed_floor", "share_of_measured", value=0.5), "what it says of the claimed floor does not follow"),
    (at("claimed_floor", "claimed_s", value=0.0), "its claimed floor cannot be read"),
    (at("claimed_parts", 0, "rest_s", value=1e-3), "what it says of the claimed part 'bf16=9ms' does not follow"),
    (again("limit", "rows"), "row embedding (main) is there twice"),
    (again("limit", "collectives"), "collective comm.embedding of 12288 bytes is there twice"),
    (again("published"), "is there twice"),
    (again("steps"), "is there twice"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "told"), GAP, ids=[str(n) for n in range(len(GAP))])
def test_a_gap_that_was_changed(sublight: Sublight, tmp_path: Path, edit: Edit, told: str) -> None:
    claims = ("--claimed-floor", "5ms", "--claimed-part", "bf16=9ms")
    assert sublight("gap", *STEP, "--measured", "30ms", *claims, "--save", "rec.json").code == 0
    changed(tmp_path, "rec.json", edit)
    refused(sublight("show", "rec.json"), told)
    refused(sublight("gap", *STEP, "--measured", "rec.json", "--save", "new.json"), told)
    assert not (tmp_path / "new.json").exists()


def test_a_limit_or_sweep_that_was_changed(sublight: Sublight, tmp_path: Path) -> None:
    sublight("limit", *STEP, "--save", "limit.json")
    changed(tmp_path, "limit.json", at("totals", "rows_s", value=1e-3))
    refused(sublight("show", "limit.json"), "its total rows_s is 0.001 s")
    sublight("limit", *STEP, "--sweep", "--save", "sweep.json")
    saved = (tmp_path / "sweep.json").read_text()
    assert sublight("show", "sweep.json").code == 0
    edits: list[tuple[Edit, str]] = [
        (at("points", value=[]), "its batch sizes are []"),
        (again("points"), "its batch sizes are [1, 2,"),
        (at("points", 0, "rows_s", value=1e-3), "its first batch size is not the one of the limit in it"),
        (at("points", 2, "memory_s", value=-1e-3), "memory_s is -0.001, below zero"),
        (at("points", 2, "bound", value={"attn.x": "memory"}), "has rows that no step has"),
        (at("first", "totals", "memory_s", value=1.0), "its total memory_s"),
    ]
    for edit, told in edits:
        (tmp_path / "sweep.json").write_text(saved)
        changed(tmp_path, "sweep.json", edit)
        refused(sublight("show", "sweep.json"), told)


def test_a_gap_with_a_trace_that_was_changed(sublight: Sublight, tmp_path: Path) -> None:
    """The bundled case holds a gap beside it, and that one a trace."""
    sublight("gap", "--save", "gap.json")
    saved = (tmp_path / "gap.json").read_text()
    assert sublight("show", "gap.json").code == 0
    edits: list[tuple[Edit, str]] = [
        (at("beside", "trace", "chosen", value=99), "step 99 is taken apart"),
        (at("beside", "trace", "breakdown", "rows", 0, "exposed_ns", value=1), "rows, overlaps and idle sum to"),
        (at("beside", "trace", "kernels", 0, "summed_ns", value=-1), "summed_ns is -1, below zero"),
        (again("beside", "rows"), "measured row embedding is there twice"),
        (again("beside", "remedies"), "remedy attention is there twice"),
        (at("beside", "measured_s", "value", value=0.0), "its measured step is not above zero"),
    ]
    for edit, told in edits:
        (tmp_path / "gap.json").write_text(saved)
        changed(tmp_path, "gap.json", edit)
        refused(sublight("show", "gap.json"), told)


@pytest.mark.parametrize("version", [-1, 0])
def test_versions_count_from_one(sublight: Sublight, tmp_path: Path, version: int) -> None:
    sublight("limit", *STEP, "--save", "limit.json")
    saved = json.loads((tmp_path / "limit.json").read_text()) | {"version": version}
    (tmp_path / "limit.json").write_text(json.dumps(saved))
    refused(sublight("show", "limit.json"), f"it has version {version}; versions count from 1")


def test_a_campaign_leaves_out_a_record_that_was_changed(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    for measured in ("30ms", "25ms"):
        sublight("gap", *STEP, "--measured", measured, "--campaign", "c")
    changed(tmp_path / "c", "gap-002.json", at("measured_s", "value", value=0.0))
    found = json.loads(sublight("report", "c", "--json", "--save", "findings.json").out)["record"]
    assert [mark["file"] for mark in found["marks"]] == ["gap-001.json"]
    assert found["left_out"] == [
        "gap-002.json: its measured step is not above zero; it was changed after it was written"
    ]
    changed(tmp_path, "findings.json", at("marks", 0, "ratio", value=1.0))
    refused(sublight("show", "findings.json"), "the step measured in gap-001.json does not follow from its numbers")


def test_records_that_were_not_changed_are_shown(sublight: Sublight) -> None:
    """Layouts whose totals are put together in other ways: none known, none sent, drafted, pipelined."""
    for options in (
        ("qwen3-30b-a3b", "--gpus", "h200"),
        ("gpt-oss-120b", "--gpus", "gb10"),
        ("glm-5-nvfp4", "--gpus", "8xb200", "--draft", "1", "--accepted", "1.7", "--batch", "16"),
        ("glm-5-fp8", "--gpus", "16xh200", "--pp", "2", "--ep", "8", "--dp", "8", "--batch", "64"),
        ("mixtral-8x7b", "--gpus", "3xmi300x", "--tp", "1", "--pp", "3"),
        ("qwen3-next-80b-a3b", "--gpus", "4xl40s", "--allreduce-us", "12"),
    ):
        done = sublight("gap", *options, "--measured", "40ms", "--save", "x.json")
        assert done.code == 0, done.err
        assert sublight("show", "x.json").out == done.out
