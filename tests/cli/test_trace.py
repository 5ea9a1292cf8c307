"""Traces from outside: a small decode written by hand, added up by hand."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import BETWEEN_US, MODEL, STEP, STEP_US, kineto

Sublight = Callable[..., Run]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "trace.json").write_text(json.dumps(kineto()))
    return tmp_path


def rows(done: Run) -> dict[str, dict[str, Any]]:
    return {r["name"]: r for r in json.loads(done.out)["record"]["breakdown"]["rows"]}


def test_a_step_to_the_nanosecond(sublight: Sublight, files: Path) -> None:
    done = sublight("trace", "trace.json", "--model", "./config.json", "--json")
    assert (done.code, done.err) == (0, "")
    breakdown = json.loads(done.out)["record"]["breakdown"]
    assert breakdown["end_ns"] - breakdown["start_ns"] == round(STEP_US * 1000)
    found = rows(done)
    expected_us = {
        "attn.qkv": 2 * 10.0, "attn.core": 2 * 20.0, "attn.o": 2 * 5.0, "mlp.dense": 2 * (12.0 + 1.5 + 6.0),
        "norms": 5 * 2.0, "head": 8.0,
    }  # fmt: skip
    assert {name: row["exposed_ns"] for name, row in found.items()} == {n: us * 1000 for n, us in expected_us.items()}
    idle = {i["kind"]: i["ns"] for i in breakdown["idle"]}
    assert idle["launch gap"] == (len(STEP) - 1) * 1000
    assert sum(idle.values()) == (len(STEP) - 1) * 1000 + BETWEEN_US * 1000


def test_kernels_sum_to_more_than_busy_only_where_they_overlap(sublight: Sublight, files: Path) -> None:
    assert "more than busy" not in sublight("trace", "trace.json", "--markdown").out
    data = kineto()
    for event in data["traceEvents"]:
        if event["cat"] == "kernel" and event["name"].startswith("void vllm::act_and_mul"):
            event["ts"] -= 6.0
            event["tid"] = event["args"]["stream"] = 8
    (files / "trace.json").write_text(json.dumps(data))
    assert "more than busy, as streams overlap" in sublight("trace", "trace.json", "--markdown").out


def test_annotations_do_not_matter(sublight: Sublight, files: Path) -> None:
    with_marks = rows(sublight("trace", "trace.json", "--model", "./config.json", "--json"))
    (files / "bare.json").write_text(json.dumps(kineto(marks=False)))
    assert rows(sublight("trace", "bare.json", "--model", "./config.json", "--json")) == with_marks


def test_compressed_and_from_standard_input(sublight: Sublight, files: Path) -> None:
    plain = rows(sublight("trace", "trace.json", "--json"))
    (files / "named.txt").write_bytes(gzip.compress(json.dumps(kineto()).encode()))
    assert rows(sublight("trace", "named.txt", "--json")) == plain


def test_without_a_model_products_stay_unknown(sublight: Sublight, files: Path) -> None:
    found = rows(sublight("trace", "trace.json", "--json"))
    assert found["unknown"]["exposed_ns"] == (2 * (10 + 5 + 12 + 6) + 8) * 1000
    assert "Without --model" in sublight("trace", "trace.json").out


def test_any_single_step(sublight: Sublight, files: Path) -> None:
    chosen = json.loads(sublight("trace", "trace.json", "--step", "2", "--json").out)["record"]["chosen"]
    assert chosen == 2
    done = sublight("trace", "trace.json", "--step", "99")
    assert done.code == 2 and "no step 99" in done.err


def test_gap_with_a_trace_joins_floor_and_measured(sublight: Sublight, files: Path) -> None:
    done = sublight("gap", "./config.json", "--gpus", "h200", "--trace", "trace.json", "--json")
    assert (done.code, done.err) == (0, "")
    gap = json.loads(done.out)["record"]
    assert gap["measured_s"]["value"] == pytest.approx(STEP_US * 1e-6)
    by_id = {r["id"]: r for r in gap["rows"]}
    # Two o_proj of 1024 x 1024 in BF16 from memory at 4.8 TB/s.
    floor = 2 * 1024 * 1024 * 2 / 4.8e12
    assert by_id["attn.o"]["floor_s"] == pytest.approx(floor)
    assert by_id["attn.o"]["saved_s"] == pytest.approx(10e-6 - floor)
    remedies = {r["id"]: r for r in gap["remedies"]}
    assert gap["remedies"][0]["id"] == "idle-step"
    assert remedies["gemm-bf16"]["exposed_s"] == pytest.approx((20 + 10 + 8) * 1e-6)
    saved = [r["saved_s"] for r in gap["remedies"]]
    assert saved == sorted(saved, reverse=True)
    text = sublight("gap", "./config.json", "--gpus", "h200", "--trace", "trace.json").out
    assert "What to do next" in text and "idle between steps" in text


def test_a_timed_step_beside_the_traced_one(sublight: Sublight, files: Path) -> None:
    done = sublight("gap", "./config.json", "--gpus", "h200", "--trace", "trace.json", "--measured", "150us")
    assert "Timed: 0.15 ms a step" in " ".join(done.out.replace("▌", "").split())


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("empty.json", b"", "empty"),
        ("no.json", b'{"hello": 1}', "trace"),
        ("text.txt", b"not a trace at all", "trace"),
        ("report.nsys-rep", b"\x00\x01binary", "nsys export"),
    ],
)
def test_files_that_are_no_trace(sublight: Sublight, files: Path, name: str, content: bytes, word: str) -> None:
    (files / name).write_bytes(content)
    done = sublight("trace", name)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 3 and word in done.err.lower()


def test_a_trace_without_steps_says_why(sublight: Sublight, files: Path) -> None:
    cpu = kineto()
    cpu["traceEvents"] = [e for e in cpu["traceEvents"] if e["cat"] != "kernel"]
    (files / "cpu.json").write_text(json.dumps(cpu))
    done = sublight("trace", "cpu.json")
    assert done.code == 2 and "Traceback" not in done.err and "GPU" in done.err
    assert sublight("trace", "none.json").code == 2


def test_one_pass_alone_is_shown_as_such(sublight: Sublight, files: Path) -> None:
    (files / "one.json").write_text(json.dumps(kineto(steps=1)))
    done = sublight("trace", "one.json")
    assert done.code == 0 and "one pass only" in done.out


def test_a_truncated_trace_is_used_as_far_as_it_goes(sublight: Sublight, files: Path) -> None:
    text = json.dumps(kineto(steps=8), indent=1)
    (files / "cut.json").write_text(text[: int(len(text) * 0.8)])
    done = sublight("trace", "cut.json")
    assert done.code == 0
    assert "damaged" in done.out


def test_saved_and_shown_again(sublight: Sublight, files: Path) -> None:
    printed = sublight("trace", "trace.json", "--save", "t.json", "--html", "t.html")
    assert sublight("show", "t.json", "--html", "again.html").out == printed.out
    assert (files / "again.html").read_bytes() == (files / "t.html").read_bytes()
    assert "FlashAttnFwdSm90" in (files / "t.html").read_text()


def test_the_timeline_is_printed_for_a_trace_and_drawn_for_a_gap(sublight: Sublight, files: Path) -> None:
    title = f"The step on the GPU: {len(STEP)} events"
    printed = sublight("trace", "trace.json", "--model", "./config.json").out
    lines = printed[printed.index(title) :].split("\n\n")[0].splitlines()
    assert len(lines) <= 10 and any(line.startswith("busy 65.5 %") for line in lines)  # 127 of 194 us
    gap = ("gap", "./config.json", "--gpus", "h200", "--trace", "trace.json")
    done = sublight(*gap, "--html", "gap.html", "--save", "gap.json")
    assert title not in done.out and title in (files / "gap.html").read_text()
    assert title in sublight(*gap, "--markdown").out
    assert sublight("show", "gap.json", "--html", "again.html").out == done.out
    assert (files / "again.html").read_bytes() == (files / "gap.html").read_bytes()


@pytest.mark.parametrize(
    "moment", [[-1, 5, 0, 0, 0], [0, -5, 0, 0, 0], [0, 5, 9, 0, 0], [0, 5, 0, -1, 0], [0, 5, 0, 0, 99]]
)
def test_a_record_with_impossible_events_is_refused(sublight: Sublight, files: Path, moment: list[int]) -> None:
    saved = json.loads(sublight("trace", "trace.json", "--json").out)
    saved["record"]["events"]["moments"].append(moment)
    (files / "bad.json").write_text(json.dumps(saved))
    done = sublight("show", "bad.json")
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 3 and "Traceback" not in done.err


@pytest.mark.parametrize("option", ["--tp", "--ep", "--dp"])
def test_a_degree_of_nothing_is_refused_without_a_model_too(sublight: Sublight, files: Path, option: str) -> None:
    run = sublight("trace", "trace.json", option, "0")
    assert run.code == 2
    assert "a parallel degree is at least 1" in run.err
