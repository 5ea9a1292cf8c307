"""`sublight bench` from outside: what it needs, a rehearsal on a CPU, and its records shown and joined."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.models import write_tiny
from tests.cli.conftest import Run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
Sublight = Callable[..., Run]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    write_tiny(tmp_path)
    return tmp_path


def no_gpu() -> bool:
    import torch

    return not torch.cuda.is_available()


def test_without_a_subcommand_it_says_what_each_needs(sublight: Sublight) -> None:
    done = sublight("bench")
    assert (done.code, done.err) == (0, "")
    for word in ("bench kernels MODEL", "bench ops MODEL", "bench comm MODEL", "NVIDIA GPU", "--device cpu"):
        assert word in done.out


@pytest.mark.parametrize("which", ["kernels", "ops", "comm"])
def test_a_machine_without_a_gpu(sublight: Sublight, which: str) -> None:
    if not no_gpu():
        pytest.skip("this one has a GPU")
    done = sublight("bench", which, "./tiny", "--tp", "2")
    assert (done.code, done.out) == (2, "")
    assert "sees no CUDA GPU" in done.err
    assert "a machine with an NVIDIA GPU and a CUDA build of torch, or --device cpu" in " ".join(done.err.split())


def test_a_sweep_goes_beyond_powers_of_two() -> None:
    from sublight.cli.bench import _sweep

    assert [m for m in _sweep(4096) if m > 64] == [96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]
    assert _sweep(4096)[:64] == tuple(range(1, 65))
    assert _sweep(3) == (1, 2, 3)


def test_kernels_rehearsed_saved_and_shown(sublight: Sublight, tmp_path: Path) -> None:
    asked = ("--device", "cpu", "--tokens", "1,3", "--peers", "reference,torch-grouped-mm,humming", "--budget", "0.05")
    done = sublight("bench", "kernels", "./tiny", *asked, "--save", "k.json", "--html", "k.html", "--width", "140")
    assert (done.code, done.err) == (0, "")
    assert "A rehearsal on a CPU" in done.out
    assert "humming: humming-kernels is not installed here" in done.out
    assert "limit: one read of 222 kB" in done.out
    record = json.loads((tmp_path / "k.json").read_text())
    assert record["schema"] == "sublight/bench-kernels"
    shapes = record["record"]["shapes"]
    assert [s["tokens"] for s in shapes] == [1, 3]
    taken = {r["name"]: r["measurement"] for r in shapes[0]["results"]}
    assert taken["reference"]["clock"] == "wall clock"
    assert taken["reference"]["agreed"]["relative_error"] < 3e-3 < taken["torch-grouped-mm"]["agreed"]["relative_error"]
    again = sublight("show", "k.json", "--width", "140")
    assert again.out == done.out
    page = (tmp_path / "k.html").read_text()
    assert "<svg" in page
    assert "limit: one read" in page


def test_what_nobody_ran_says_so(sublight: Sublight, tmp_path: Path) -> None:
    asked = ("--device", "cpu", "--tokens", "1", "--peers", "reference,decode,fused-triton-fp4", "--budget", "0.05")
    done = sublight("bench", "kernels", "./tiny", *asked, "--save", "k.json", "--width", "80")
    assert (done.code, done.err) == (0, "")
    listed = " ".join(done.out.partition("Not taking part")[2].split())
    assert "decode: it runs on CUDA GPUs: run on NVIDIA H200 (sm_90); compiled, not run (sm_100, sm_120)" in listed
    assert "fused-triton-fp4: it runs on CUDA GPUs: compiled, not run (sm_100" in listed
    # On such a target the record names the status beside the candidate that took part, and every page shows it.
    data = json.loads((tmp_path / "k.json").read_text())
    data["record"]["ran"]["decode"] = "sublight's decode, before this run on sm_120: compiled, not run"
    (tmp_path / "k.json").write_text(json.dumps(data))
    assert (
        "decode: sublight's decode, before this run on sm_120: compiled, not run"
        in (sublight("show", "k.json", "--width", "100").out.partition("Who took part")[2])
    )


def test_ops_rehearsed_and_never_joined(sublight: Sublight, tmp_path: Path) -> None:
    done = sublight("bench", "ops", "./tiny", "--device", "cpu", "--save", "ops.json", "--markdown")
    assert (done.code, done.err) == (0, "")
    assert "| lm_head |" in done.out
    rows = {r["id"]: r for r in json.loads((tmp_path / "ops.json").read_text())["record"]["rows"]}
    assert rows["moe.experts"]["parts"][0]["reason"] == "`sublight bench kernels` times it"
    assert rows["head"]["parts"][0]["what"] == "[1, 256] x [1024, 256] BF16"
    assert sublight("show", "ops.json", "--markdown").out == done.out
    trace(tmp_path)
    joined = sublight("gap", "./tiny", "--gpus", "1xh200", "--trace", "trace.json", "--bench", "ops.json")
    assert (joined.code, joined.out) == (2, "")
    assert "it is a rehearsal on a CPU, whose times stand for no GPU's" in " ".join(joined.err.split())


def trace(folder: Path) -> None:
    from tests.cli.decode import kineto

    (folder / "trace.json").write_text(json.dumps(kineto()))


def test_a_record_of_a_gpu_joins(sublight: Sublight, tmp_path: Path) -> None:
    """A made record of the card of the step: two rows of a small dense decode, beside what was measured of them."""
    from tests.cli.decode import MODEL

    model = tmp_path / "dense"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(MODEL))
    trace(tmp_path)
    (tmp_path / "ops.json").write_bytes(made_ops({"attn.qkv": (4e-6, 2), "head": (3.5e-6, 1)}))
    asked = ("gap", "./dense", "--gpus", "1xh200", "--trace", "trace.json", "--bench", "ops.json", "--json")
    done = sublight(*asked)
    assert (done.code, done.err) == (0, "")
    record: dict[str, Any] = json.loads(done.out)["record"]
    rows = {r["id"]: r for r in record["rows"]}
    assert rows["attn.qkv"]["attainable_s"] == pytest.approx(8e-6)
    assert rows["head"]["attainable_s"] == pytest.approx(3.5e-6)
    assert rows["attn.o"]["attainable_s"] is None
    assert record["attainable_source"].startswith("ops.json: measured on NVIDIA H200")
    small = {"gpu": "h200", "source": "by hand", "us_per_call": {"attn.o": 2.0}}
    (tmp_path / "small.json").write_text(json.dumps(small))
    both = json.loads(sublight(*asked, "--bench", "small.json").out)["record"]
    assert {r["id"] for r in both["rows"] if r["attainable_s"] is not None} == {"attn.qkv", "head", "attn.o"}
    assert both["attainable_source"].endswith("small.json: by hand")
    # A row that one record could not time is without a time only as long as no other has it.
    (tmp_path / "hot.json").write_bytes(made_ops({"attn.qkv": (4e-6, 2), "attn.o": (1e-9, 2)}))
    hot = ("gap", "./dense", "--gpus", "1xh200", "--trace", "trace.json", "--bench", "hot.json")
    alone = json.loads(sublight(*hot, "--json").out)["record"]["attainable_source"]
    assert alone.endswith("; without a time: attn.o (below its floor: read from a cache)")
    timed = json.loads(sublight(*hot, "--bench", "small.json", "--json").out)["record"]["attainable_source"]
    assert "without a time" not in timed


def test_launches_timed_one_by_one_are_said_to_be_such(sublight: Sublight, tmp_path: Path) -> None:
    """QKV takes 10 us a call in the trace, and 14 us where each launch was timed by itself."""
    from tests.cli.decode import MODEL

    (tmp_path / "dense").mkdir()
    (tmp_path / "dense" / "config.json").write_text(json.dumps(MODEL))
    trace(tmp_path)
    data = json.loads(made_ops({"attn.qkv": (14e-6, 2)}))
    (part,) = data["record"]["rows"][0]["parts"]
    part["measurement"]["clock"] = "CUDA events"
    part["measurement"]["agreed"]["modes"] = ["eager", "graph"]
    (tmp_path / "ops.json").write_text(json.dumps(data))
    asked = ("gap", "./dense", "--gpus", "1xh200", "--trace", "trace.json", "--bench", "ops.json", "--json")
    record = json.loads(sublight(*asked).out)["record"]
    assert record["attainable_source"].endswith(", launched one by one")
    assert {r["id"]: r["attainable_note"] for r in record["rows"]}["attn.qkv"] == (
        "over the measured time: the step did better than the benchmark, which launched each kernel by itself and "
        "timed that with CUDA events (--eager); its record without --eager replays a graph"
    )


def made_ops(times: dict[str, tuple[float, int]]) -> bytes:
    from sublight.bench.record.ops import OpRow, OpsBench, Part
    from sublight.records import encode
    from tests.bench.test_join import CEILINGS
    from tests.bench.test_records import WHERE, measurement

    rows = tuple(
        OpRow(
            id=id_,
            parts=(Part(what="x", library="cuBLAS", count=count, bytes=1e6, measurement=measurement(seconds)),),
        )
        for id_, (seconds, count) in times.items()
    )
    bench = OpsBench(
        environment=WHERE,
        seed=0,
        model="dense",
        layout="TP1",
        tokens=1,
        context=1024,
        kv_dtype="bf16",
        ceilings=CEILINGS,
        rows=rows,
    )
    return encode(bench)


def test_comm_rehearsed(sublight: Sublight) -> None:
    done = sublight("bench", "comm", "./tiny", "--tp", "2", "--device", "cpu", "--width", "140")
    assert (done.code, done.err) == (0, "")
    assert "gloo" in done.out and "symmetric memory is of GPUs" in done.out
    assert "all-reduce after embedding" in done.out


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("kernels", "./tiny", "--tokens", "one"), "'one' is not a positive number with a unit"),
        (("kernels", "./tiny", "--tokens", "0"), "[0]"),
        (("kernels", "./tiny", "--peers", "huming"), "humming"),
        (("kernels", "./tiny", "--tp", "3"), "does not divide over 3 ranks"),
        (("kernels", "./tiny", "--time-limit", "0"), "seconds above zero"),
        (("kernels", "./nowhere"), "nowhere"),
        (("ops", "./tiny", "--tp", "0"), "a parallel degree is at least 1"),
        (("ops", "./tiny", "--kv-dtype", "fp7"), "KV cache format 'fp7'"),
        (("ops", "./tiny", "--device", "tpu"), "'tpu' is not one of"),
        (("comm", "./tiny", "--device", "cpu"), "1 of them send nothing to each other"),
        (("comm", "./tiny", "--tp", "2", "--processes", "65", "--device", "cpu"), "--processes from 2 to 64"),
        (("comm", "./tiny", "--tp", "2", "--processes", "3", "--device", "cpu"), "3 processes, and TP2 has 2 ranks"),
        (("kernels", "glm-5-nvfp5"), "glm-5-nvfp4"),
        (("kernels", ""), "nothing is given"),
    ],
)
def test_bad_input(sublight: Sublight, arguments: tuple[str, ...], found: str) -> None:
    done = sublight("bench", *arguments)
    assert (done.code, done.out) == (2, "")
    assert found in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_name_that_is_listed_is_listed_once(sublight: Sublight) -> None:
    done = sublight("bench", "kernels", "./tiny", "--device", "cpu", "--peers", "nosuch")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("reference") == 1, done.err
