"""What the commands print, save, and show again."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.conftest import Run

Sublight = Callable[..., Run]
LIMIT = ("limit", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-workstation")


def test_gap_without_arguments_is_the_bundled_campaign(sublight: Sublight) -> None:
    done = sublight("gap")
    assert (done.code, done.err) == (0, "")
    for words in (
        "96.5 ms",
        "6.64 ms",
        "14.5x",
        "9.44 ms",
        "3.4 % and 30x",
        "10.36 tok/s",
        "is not a measurement of the",
    ):
        assert words in done.out, words
    assert "weights that every rank holds whole 2.06 ms" in " ".join(done.out.split())


def test_gap_without_arguments_shows_the_same_model_with_a_trace(sublight: Sublight) -> None:
    """A slice of a real run: one TP8 rank of GLM-5-NVFP4 on an H200, 16.42 ms timed."""
    gap = json.loads(sublight("gap", "--json").out)["record"]["beside"]
    assert gap["trace"]["breakdown"]["end_ns"] - gap["trace"]["breakdown"]["start_ns"] == pytest.approx(
        17.29e6, rel=1e-3
    )
    assert gap["trace"]["unresolved"] == ""
    rows = {r["id"]: r for r in gap["rows"]}
    # Sparse attention first, by what it could give back; then the BF16 products; then idle between graph nodes.
    remedies = {r["id"]: r for r in gap["remedies"]}
    assert list(remedies)[:3] == ["attention", "gemm-bf16", "idle-launch"]
    assert remedies["attention"]["saved_s"] * 1e3 == pytest.approx(5.1, abs=0.1)
    assert remedies["gemm-bf16"]["exposed_s"] * 1e3 == pytest.approx(4.0, abs=0.1)
    assert remedies["idle-launch"]["saved_s"] * 1e3 == pytest.approx(1.9, abs=0.05)
    # The shared expert runs beside the routed ones: 2.5 ms of kernels, 0.25 ms of wall time.
    assert rows["moe.shared"]["summed_s"] * 1e3 == pytest.approx(2.51, abs=0.03)
    assert rows["moe.shared"]["exposed_s"] * 1e3 == pytest.approx(0.25, abs=0.02)
    assert gap["limit"]["totals"]["rows_s"] * 1e3 == pytest.approx(2.19, abs=0.01)
    assert "unknown" not in rows
    few = next(o for o in gap["trace"]["oddities"] if o["id"] == "few-blocks")
    assert few["title"].startswith("sm90::fwd::sparse_attn_fwd_kernel runs 1 block on 132 SMs")


def test_limit_prints_three_labelled_totals(sublight: Sublight) -> None:
    done = sublight(*LIMIT)
    assert (done.code, done.err) == (0, "")
    for words in ("6.64 ms", "5.19 ms", "9.44 ms", "3.07 ms", "naive, not a floor"):
        assert words in done.out, words
    assert re.search(r"routed experts +75 +1,592\.5", done.out)


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_text_keeps_to_the_width(sublight: Sublight, columns: int) -> None:
    done = sublight("gap", columns=columns)
    commands = [line for line in done.out.splitlines() if len(line) > columns]
    # A command that would break when copied may be longer; nothing else may.
    assert all(line.startswith("  ") for line in commands), commands
    assert "6.64 ms" in done.out


def test_no_escape_codes_without_a_terminal(sublight: Sublight) -> None:
    assert "\x1b" not in sublight("gap").out


def test_json_is_the_record_and_nothing_else(sublight: Sublight) -> None:
    done = sublight(*LIMIT, "--json")
    record = json.loads(done.out)
    assert record["schema"] == "sublight/limit"
    totals = record["record"]["totals"]
    assert round(totals["best_s"]["value"] * 1e3, 2) == 6.64
    assert done.err == ""


def test_saved_and_shown_again_is_the_same(sublight: Sublight, tmp_path: Path) -> None:
    printed = sublight(*LIMIT, "--save", "limit.json")
    assert sublight("show", "limit.json").out == printed.out
    assert sublight("show", "limit.json", "--json").out[:60] == sublight(*LIMIT, "--json").out[:60]
    assert [p.name for p in tmp_path.iterdir()] == ["limit.json"]
    gap = sublight("gap", "--save", "gap.json", "--html", "gap.html")
    assert sublight("show", "gap.json").out == gap.out
    page = (tmp_path / "gap.html").read_text()
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    assert "6.64 ms" in page
    assert "| routed experts |" in sublight("show", "gap.json", "--markdown").out


def test_a_saved_gap_as_measurement(sublight: Sublight) -> None:
    sublight("gap", "--save", "gap.json")
    asked = ("gap", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-workstation", "--measured", "gap.json")
    done = sublight(*asked, "--bandwidth", "1597GB/s")
    assert done.code == 0
    assert "96.5 ms" in done.out and "7.28 ms" in done.out


def test_measured_bandwidth_stands_beside_the_data_sheet(sublight: Sublight, tmp_path: Path) -> None:
    """A GB10 reads at 232 of 273 GB/s: 1.18 times the floor of the data sheet, and both are shown."""
    (tmp_path / "probe.json").write_text('{"read_gbs": 232}')
    plain = json.loads(sublight("limit", "gpt-oss-120b", "--gpus", "gb10", "--json").out)["record"]["totals"]
    done = sublight("limit", "gpt-oss-120b", "--gpus", "gb10", "--measured-gpu", "probe.json", "--json")
    measured = json.loads(done.out)["record"]
    assert measured["totals"]["memory_s"] / plain["memory_s"] == pytest.approx(273 / 232)
    text = sublight("limit", "gpt-oss-120b", "--gpus", "gb10", "--measured-gpu", "probe.json").out
    assert "232.0 GB/s (measured here: probe.json); catalogue (published) 273.0 GB/s" in " ".join(text.split())
    given = sublight("limit", "gpt-oss-120b", "--gpus", "gb10", "--bandwidth", "232GB/s", "--json")
    assert json.loads(given.out)["record"]["totals"]["memory_s"] == measured["totals"]["memory_s"]


def test_sweep(sublight: Sublight) -> None:
    done = sublight("limit", "qwen3-30b-a3b", "--gpus", "h200", "--sweep", "--json")
    points = json.loads(done.out)["record"]["points"]
    assert [p["batch"] for p in points] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert points[0]["experts_hit"] == 8
    assert points[-1]["experts_hit"] == pytest.approx(128, abs=0.01)
    assert all(a["rows_s"] <= b["rows_s"] for a, b in pairwise(points))


def test_a_measurement_that_nothing_can_reach(sublight: Sublight) -> None:
    done = sublight("gap", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-server", "--measured", "3.2ms")
    assert done.code == 0
    assert "Nothing runs faster" in " ".join(done.out.replace("▌", "").split())


def test_all_that_is_stated_of_a_card(sublight: Sublight) -> None:
    lines = sublight("limit", "--list", "H200").out.splitlines()
    assert lines[0] == "h200: NVIDIA H200 SXM 141 GB (sm_90)"
    assert "  memory bandwidth: 4,800 GB/s" in lines and "  bf16: 989 TFLOP/s" in lines
    figures = [line for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert sum("known as: " in line for line in lines) == sum("source: " in line for line in lines) == len(figures)
    assert sublight("limit", "--list", "glm-5-nvfp4").out.startswith("glm-5-nvfp4: GLM-5 NVFP4\n  source: ")
    refused = sublight("limit", "--list", "h2000")
    assert (refused.code, refused.out) == (2, "")
    assert "h200" in refused.err


def test_lists_as_json(sublight: Sublight) -> None:
    listed = json.loads(sublight("limit", "--list", "--json").out)
    assert "glm-5-nvfp4" in listed["models"] and "h200" in listed["GPUs"] and "nvlink5" in listed["links"]
    card = json.loads(sublight("limit", "--list", "h200", "--json").out)
    assert (card["name"], card["target"]) == ("h200", "sm_90")
    assert card["figures"]["memory_bandwidth_bytes_per_s"]["value"] == 4.8e12
    assert json.loads(sublight("limit", "--list", "glm-5-nvfp4", "--json").out)["title"] == "GLM-5 NVFP4"
    refused = sublight("limit", "--list", "--html", "page.html")
    assert (refused.code, refused.out) == (2, "") and "is no record" in refused.err


def test_lists_and_version(sublight: Sublight) -> None:
    listed = sublight("limit", "--list").out
    assert "  glm-5-nvfp4\n" in listed and "  rtx-pro-6000-server\n" in listed and "  nvlink5\n" in listed
    assert sublight("--version").out.startswith("sublight, version ")
    for command in ("limit", "gap", "show"):
        assert sublight(command, "--help").code == 0
        assert f"  {command} " in sublight("--help").out


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m sublight gap | head -1"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
