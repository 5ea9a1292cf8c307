"""Floor, attainable, measured: what a benchmark on this card reached, beside the trace of a small decode."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import MODEL, kineto
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
        ({"us_per_call": {"attn.qkv": 0.5}}, "attn.qkv: 0.5 us a call, and its bytes alone take 1.31 us from memory"),
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
