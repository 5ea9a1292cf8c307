"""A campaign from outside: gaps saved into a folder, notes, what later records close, and the findings page."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Run

Sublight = Callable[..., Run]
GAP = ("gap", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-workstation")


def words(text: str) -> str:
    return " ".join(text.replace("▌", "").split())


def test_a_campaign_from_first_gap_to_findings(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    first = sublight(*GAP, "--measured", "97ms", "--campaign", "c")
    assert first.code == 0
    assert "saved as c/gap-001.json" in first.err
    noted = sublight("note", "c", "flashinfer_cutedsl changes nothing under plain TP", "--negative")
    assert noted.out == "note-001.json\n"
    assert sublight("note", "c", "P2P is on, 0.4 us", "--closes", "p2p").out == "note-002.json\n"
    second = sublight(*GAP, "--measured", "21ms", "--allreduce-us", "12", "--bandwidth", "1700GB/s", "--campaign", "c")
    assert "saved as c/gap-002.json" in second.err
    assert sorted(p.name for p in (tmp_path / "c").iterdir()) == [
        "gap-001.json", "gap-002.json", "note-001.json", "note-002.json",
    ]  # fmt: skip

    found = json.loads(sublight("report", "c", "--json").out)["record"]
    assert [round(m["measured_s"] * 1e3) for m in found["marks"]] == [97, 21]
    closed = {c["step"]: (c["file"], c["evidence"]) for c in found["closed"]}
    assert closed["p2p"] == ("note-002.json", "P2P is on, 0.4 us")
    assert closed["all-reduce"] == ("gap-002.json", "12.0 us a call were measured")
    assert "trace" in {s["id"] for s in found["open"]}
    text = words(sublight("report", "c").out)
    assert "What did not help" in text and "flashinfer_cutedsl changes nothing" in text
    assert "since the first" in text and "4.62x" in text


def test_only_the_same_work_is_faster_or_answers(sublight: Sublight, tmp_path: Path) -> None:
    """A step at another context is no gain, and what was measured on another card answers nothing here."""
    (tmp_path / "c").mkdir()
    b200 = ("gap", "glm-5-nvfp4", "--gpus", "8xb200", "--measured", "9ms", "--allreduce-us", "12")
    sublight(*GAP, "--measured", "97ms", "--campaign", "c")
    sublight(*b200, "--campaign", "c")
    found = json.loads(sublight("report", "c", "--json").out)["record"]
    assert [m["comparable"] for m in found["marks"]] == [False, True]
    assert "all-reduce" not in {c["step"] for c in found["closed"]}
    assert "since the first" not in words(sublight("report", "c").out)
    sublight(*GAP, "--measured", "60ms", "--context", "32k", "--campaign", "c")
    sublight(*GAP, "--measured", "48.5ms", "--ep", "8", "--campaign", "c")
    found = json.loads(sublight("report", "c", "--json").out)["record"]
    assert [m["comparable"] for m in found["marks"]] == [True, False, False, True]
    text = words(sublight("report", "c").out)
    assert "since the first" in text and "2.00x" in text and "it was 97.0 ms" in text


def test_steps_of_two_models_are_told_apart(sublight: Sublight, tmp_path: Path) -> None:
    """What answers a question about one model leaves that of the other open, and neither is the course of the other."""
    (tmp_path / "c").mkdir()
    qwen = ("gap", "qwen3-30b-a3b", "--gpus", "2xh200")
    sublight(*GAP, "--measured", "97ms", "--campaign", "c")
    sublight(*qwen, "--measured", "5ms", "--campaign", "c")
    sublight(*GAP, "--measured", "90ms", "--allreduce-us", "12", "--campaign", "c")
    sublight(*qwen, "--measured", "4ms", "--campaign", "c")
    found = json.loads(sublight("report", "c", "--json").out)["record"]
    glm, small = "glm-5-nvfp4 on 8x rtx-pro-6000-workstation", "qwen3-30b-a3b on 2x h200"
    assert [mark["of"] for mark in found["marks"]] == [glm, small, glm, small]
    assert {(c["step"], c["of"]) for c in found["closed"]} == {("all-reduce", glm)}
    still = {(s["id"], s["of"]) for s in found["open"]}
    assert {("trace", glm), ("trace", small)} <= still
    text = words(sublight("report", "c", "--markdown").out)
    assert f"| newest step of {small} | newest step of {glm} | since the first of {small} |" in text
    assert "| **4.00 ms** | **90.0 ms** | **1.25x** |" in text and "step now" not in text
    assert f"{glm}: record a profiler trace of a few decode steps: would explain" in text
    assert f"{small}: record a profiler trace of a few decode steps: would explain" in text
    assert "Closed by a note with --closes trace." in text


def test_a_note_closes_what_some_gap_named(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    early = sublight("note", "c", "P2P is on", "--closes", "p2p")
    assert (early.code, early.out) == (2, "") and "no gap in c has named a next step" in early.err
    sublight(*GAP, "--measured", "97ms", "--campaign", "c")
    wrong = sublight("note", "c", "P2P is on", "--closes", "p2p", "--closes", "foo")
    assert (wrong.code, wrong.out) == (2, "")
    assert "next step that a gap of this campaign named 'foo'" in wrong.err and "p2p" in wrong.err
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["gap-001.json"]


def test_a_later_gap_shows_closed_steps_with_their_evidence(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sublight(*GAP, "--measured", "97ms", "--campaign", "c")
    sublight("note", "c", "P2P is on, 0.4 us", "--closes", "p2p")
    again = words(sublight(*GAP, "--measured", "97ms", "--campaign", "c").out)
    assert "closed: check that GPUs reach each other's memory" in again
    assert "closed: P2P is on, 0.4 us (note-001.json)" in again


def test_the_newest_measurement_of_a_campaign_is_used(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sublight(*GAP, "--measured", "97ms", "--campaign", "c")
    done = sublight(*GAP, "--campaign", "c")
    assert done.code == 0 and "97.0 ms" in done.out


def test_files_that_are_no_record_are_named_and_left_out(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sublight(*GAP, "--measured", "97ms", "--campaign", "c")
    (tmp_path / "c" / "trace.json").write_text('{"traceEvents": []}')
    (tmp_path / "c" / "cut.json").write_text("{")
    found = json.loads(sublight("report", "c", "--json").out)["record"]
    assert [reason.split(":")[0] for reason in found["left_out"]] == ["cut.json", "trace.json"]


def test_the_bundled_example_belongs_to_no_campaign(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    done = sublight("gap", "--campaign", "c")
    assert (done.code, done.out) == (2, "")
    assert "no model was named" in done.err and "--campaign c" in done.err
    assert list((tmp_path / "c").iterdir()) == []


def test_folders_that_are_no_campaign(sublight: Sublight, tmp_path: Path) -> None:
    for arguments in (("report", "none"), ("note", "none", "x"), (*GAP, "--measured", "9ms", "--campaign", "none")):
        done = sublight(*arguments)
        assert (done.code, done.out) == (2, "")
        assert "no such folder" in done.err
    (tmp_path / "one.json").write_text("{}")
    done = sublight("report", "one.json")
    assert done.code == 2 and "found: it is a file" in done.err and "`sublight show one.json`" in done.err
    (tmp_path / "empty").mkdir()
    done = sublight("report", "empty")
    assert done.code == 2 and "holds no record" in done.err
    assert sublight("note", "empty", " ").code == 2
    assert list((tmp_path / "empty").iterdir()) == []
