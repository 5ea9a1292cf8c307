"""Floor, attainable, measured: what a benchmark on this card reached, beside the trace of a small decode."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import MODEL, STEP, kineto
from tests.cli.test_edited_bench import made

Sublight = Callable[..., Run]
ASK = ("gap", "./config.json", "--gpus", "1xh200", "--trace", "trace.json")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "trace.json").write_text(json.dumps(kineto()))
    return tmp_path


def bench(folder: Path, **fields: Any) -> None:
    (folder / "bench.json").write_text(json.dumps({"gpu": "h200", "source": "cold L2, 200 calls"} | fields))


def by_row(done: Run) -> dict[str, dict[str, Any]]:
    return {r["id"]: r for r in json.loads(done.out)["record"]["rows"]}


def test_times_a_call_become_times_a_step(sublight: Sublight, tmp_path: Path) -> None:
    """Two layers: qkv at 4 us a call is 8 us a step, between its floor and the 20 us measured."""
    bench(tmp_path, us_per_call={"attn.qkv": 4.0, "head": 3.5})
    done = sublight(*ASK, "--bench", "bench.json", "--json")
    assert (done.code, done.err) == (0, "")
    rows = by_row(done)
    assert rows["attn.qkv"]["attainable_s"] == pytest.approx(8e-6)
    assert rows["attn.qkv"]["floor_s"] == pytest.approx(2 * 3072 * 1024 * 2 / 4.8e12)
    assert rows["attn.qkv"]["exposed_s"] == pytest.approx(20e-6)
    assert rows["head"]["attainable_s"] == pytest.approx(3.5e-6)
    assert rows["attn.o"]["attainable_s"] is None
    page = sublight(*ASK, "--bench", "bench.json", "--width", "140").out
    assert "attainable ms" in page
    caption = " ".join(page.split())
    assert "attainable: bench.json: cold L2, 200 calls" in caption
    assert "in the sum a row without a time counts with its floor" in caption


def test_read_rates_of_the_card_stand_in(sublight: Sublight) -> None:
    """This card's read rates by size are in the catalogue: no row reaches less than its floor by them."""
    done = sublight(*ASK, "--json")
    rows = [r for r in by_row(done).values() if r["attainable_s"] is not None]
    assert len(rows) >= 6
    assert all(r["attainable_s"] >= r["floor_s"] for r in rows)
    assert "read rates measured on this card" in json.loads(done.out)["record"]["attainable_source"]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        # 6.3 MB of weights take 1.31 us from memory; 0.5 us is a read from cache.
        ({"us_per_call": {"attn.qkv": 0.5}}, "attn.qkv: 0.5 us a call, and its bytes alone would take 1.31 us"),
        ({"us_per_call": {"attn.qvk": 5.0}}, "attn.qkv"),
        ({"us_per_call": {"attn.qkv": -5.0}}, "attn.qkv: -5 us a call"),
        ({"us_per_call": {"attn.qkv": 5.0}, "gpu": "b200"}, "it was measured on b200, the step is one of h200"),
        ({}, "us_per_call"),
        ({"us_per_call": {}, "rows": {}}, "unknown field"),
    ],
)
def test_times_that_are_none(sublight: Sublight, tmp_path: Path, fields: dict[str, Any], found: str) -> None:
    bench(tmp_path, **fields)
    done = sublight(*ASK, "--bench", "bench.json")
    assert (done.code, done.out) == (2, "")
    assert found in " ".join(done.err.split())


SHEET_US = 3072 * 1024 * 2 / 4.8e12 * 1e6  # of one qkv, two of which a step makes


def below_the_table(page: str) -> str:
    return " ".join(page.partition("* marks an attainable time")[2].partition("Saved:")[0].split())


def test_a_time_under_a_floor_of_less_bandwidth_is_marked(sublight: Sublight, tmp_path: Path) -> None:
    """1.5 us a call are possible on the card of 4,800 GB/s, and under the floor of one of 2,000 GB/s."""
    bench(tmp_path, us_per_call={"attn.qkv": 1.5, "attn.o": 2.0})
    slow = (*ASK, "--bandwidth", "2000GB/s", "--bench", "bench.json")
    row = by_row(sublight(*slow, "--json"))["attn.qkv"]
    assert row["attainable_s"] == pytest.approx(3e-6)
    assert row["attainable_s"] < row["floor_s"]
    reason = (
        "under the floor, which stands on 2,000 GB/s (--bandwidth) where the data sheet says 4,800 GB/s: the memory is "
        "faster than that floor has it"
    )
    assert row["attainable_note"] == reason
    for width in ("80", "100"):
        page = sublight(*slow, "--width", width).out
        assert "* 0.003" in next(line for line in page.splitlines() if line.startswith("QKV projection"))
        # The sum has that time in it.
        assert "* 0." in next(line for line in page.splitlines() if line.startswith("step "))
        assert f"QKV projection: {reason}." in below_the_table(page)
    as_it_is = sublight(*ASK, "--bench", "bench.json")
    assert by_row(sublight(*ASK, "--bench", "bench.json", "--json"))["attn.qkv"]["attainable_note"] == ""
    assert "* " not in as_it_is.out.partition("row by row")[2].partition("attainable:")[0]
    # What the data sheet rules out is refused whatever the bandwidth, with the time of the data sheet.
    bench(tmp_path, us_per_call={"attn.qkv": 0.5})
    hot = sublight(*slow)
    assert (hot.code, hot.out) == (2, "")
    assert "attn.qkv: 0.5 us a call, and its bytes alone would take 1.31 us" in " ".join(hot.err.split())


def test_the_scatter_of_a_clock_is_said(sublight: Sublight, tmp_path: Path) -> None:
    bench(tmp_path, us_per_call={"attn.qkv": SHEET_US * 0.99})
    row = by_row(sublight(*ASK, "--bench", "bench.json", "--json"))["attn.qkv"]
    assert row["attainable_s"] < row["floor_s"]
    assert row["attainable_note"] == "under the floor by no more than a clock scatters"


def test_two_files_that_time_one_row_are_refused(sublight: Sublight, tmp_path: Path) -> None:
    bench(tmp_path, us_per_call={"attn.qkv": 4.0, "head": 3.5})
    (tmp_path / "more.json").write_text(json.dumps({"us_per_call": {"attn.qkv": 5.0, "attn.o": 2.0}}))
    done = sublight(*ASK, "--bench", "bench.json", "--bench", "more.json", "--save", "gap.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "sublight: --bench bench.json and --bench more.json",
        "  found: both time attn.qkv, and only one time of a row can be attainable",
        "  try:   one file for a row",
    ]
    assert not (tmp_path / "gap.json").exists()
    (tmp_path / "more.json").write_text(json.dumps({"us_per_call": {"attn.o": 2.0}}))
    rows = by_row(sublight(*ASK, "--bench", "bench.json", "--bench", "more.json", "--json"))
    assert (rows["attn.qkv"]["attainable_s"], rows["attn.o"]["attainable_s"]) == pytest.approx((8e-6, 4e-6))


def test_a_time_over_the_measured_one_is_marked(sublight: Sublight, tmp_path: Path) -> None:
    """qkv takes 20 us a step in the trace: 14 us a call would be 28."""
    bench(tmp_path, us_per_call={"attn.qkv": 14.0, "head": 3.5})
    asked = (*ASK, "--bench", "bench.json", "--save", "gap.json")
    page = sublight(*asked).out
    lines = {line.split("  ")[0]: line for line in page.splitlines()}
    assert "* 0.028" in lines["QKV projection"]
    assert "*" not in lines["lm_head"] + lines["step"]
    told = below_the_table(page)
    assert "QKV projection: over the measured time: the step did better than the benchmark, which makes each" in told
    assert "by itself with nothing in the cache" in told
    # A record of before the notes says at least that much.
    saved = (tmp_path / "gap.json").read_text()
    data = json.loads(saved)
    for row in data["record"]["rows"]:
        del row["attainable_note"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert "QKV projection: over the measured time: the step did better." in below_the_table(
        sublight("show", "old.json").out
    )


def test_a_prediction_over_the_measured_time_is_marked(sublight: Sublight, tmp_path: Path) -> None:
    quick = [(name, grid, 0.5 if "rms_norm" in name else us, gap) for name, grid, us, gap in STEP]
    (tmp_path / "trace.json").write_text(json.dumps(kineto(launches=quick)))
    done = sublight(*ASK)
    assert "norms: over the measured time: the step did better than predicted" in below_the_table(done.out)
    assert "to beat a prediction is legal" in done.out


@pytest.mark.parametrize("again", ["bench.json", "./bench.json", "link.json"])
def test_a_file_given_twice_is_refused(sublight: Sublight, tmp_path: Path, again: str) -> None:
    bench(tmp_path, us_per_call={"attn.qkv": 4.0})
    (tmp_path / "link.json").symlink_to("bench.json")
    done = sublight(*ASK, "--bench", "bench.json", "--bench", again)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("found:") == 1
    assert f"--bench {again.removeprefix('./')}" in done.err
    assert "the same file is given twice" in done.err


def test_nothing_to_set_it_beside(sublight: Sublight, tmp_path: Path) -> None:
    bench(tmp_path, us_per_call={"attn.qkv": 4.0})
    done = sublight("gap", "./config.json", "--gpus", "1xh200", "--measured", "1ms", "--bench", "bench.json")
    assert done.code == 2
    assert "--bench without --trace" in done.err


@pytest.mark.parametrize("name", ["record.json", "bench.json"])
def test_a_file_that_ends_too_early(sublight: Sublight, tmp_path: Path, name: str) -> None:
    whole = made("comm") if name == "record.json" else b'{"gpu": "h200", "us_per_call": {"attn.o": 22.9}}'
    (tmp_path / name).write_bytes(whole[: len(whole) * 2 // 3])
    done = sublight(*ASK, "--bench", name)
    assert (done.code, done.out) == (2, "")
    assert f"--bench {name}" in done.err and "this is no JSON (Input data was truncated)" in done.err
