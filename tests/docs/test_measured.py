"""What the pages say of measurements is what the records say, and the records load."""

import json
import re
from pathlib import Path

import pytest

from sublight.audit.proven import TRIALS
from sublight.bench.join import BENCH_TYPES, joined
from sublight.bench.record.kernels import KernelBench, Result, Shape
from sublight.facts.gpu import get_gpu, parse_gpus
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Workload
from sublight.gap.attainable import Attainable, merged
from sublight.limits.decode import decode_limit
from sublight.records import load
from sublight.report.views.bench import kernels_document
from sublight.trials.moe import MoeTrial

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "measured"
KERNELS = {
    "GLM-5 TP8": "glm-5-tp8",
    "GLM-5 EP8": "glm-5-ep8",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "DeepSeek-V3.1": "deepseek-v3.1",
}
PAGES = ("README.md", "src/sublight/kernels/cuda/README.md")
SHORT = {"sglang-marlin": "S", "vllm-marlin": "V", "humming": "H", "torch-grouped-mm": "T"}
KINDS = ("us", "best peer, us", "ratio", "of copy", "of read")


def record(layer: str) -> KernelBench:
    found = load(MEASURED / f"2026-11-30-h200-kernels-{KERNELS[layer]}.json", BENCH_TYPES)
    assert isinstance(found, KernelBench)
    return found


def seconds(result: Result) -> float:
    return result.measurement.seconds if result.measurement is not None else float("inf")


def expected(shape: Shape, kind: str) -> str:
    ours = min(seconds(r) for r in shape.results if r.kind == "kernel")
    peer = min((r for r in shape.results if r.kind == "peer"), key=seconds)
    return {
        "us": us(ours),
        "best peer, us": f"{us(seconds(peer))} {SHORT[peer.name]}",
        "ratio": f"{seconds(peer) / ours:.2f}x",
        "of copy": f"{shape.copy_s / ours:.0%}".replace("%", " %"),
        "of read": f"{shape.floor_s / ours:.0%}".replace("%", " %"),
    }[kind]


def us(value: float) -> str:
    return f"{value * 1e6:.1f}" if value < 1e-4 else f"{value * 1e6:.0f}"


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_kernels_are_the_records(page: str) -> None:
    """Lines `| layer | kind | figures... |`: a figure is the record's at its column's tokens."""
    tokens: list[str] = []
    compared = 0
    for line in (ROOT / page).read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if "M=1" in cells:
            tokens = [c.removeprefix("M=") for c in cells[2:]]
        if len(cells) < 3 or cells[0] not in KERNELS or cells[1] not in KINDS:
            continue
        shapes = {str(s.tokens): s for s in record(cells[0]).shapes}
        for asked, figure in zip(tokens, cells[2:], strict=True):
            compared += 1
            assert figure == (expected(shapes[asked], cells[1]) if asked in shapes else "-"), (page, line, asked)
    assert compared >= 4 * 7


@pytest.mark.parametrize("layer", list(KERNELS))
def test_records_hold_agreement_and_times_of_memory(layer: str) -> None:
    bench = record(layer)
    assert not bench.absent
    assert bench.environment.card == "h200"
    for shape in bench.shapes:
        for result in shape.results:
            taken = result.measurement
            if taken is None:
                assert result.reason == "it takes 16 tokens at most"
                continue
            assert taken.cold and (not taken.warning or taken.warning.startswith("spread "))
            assert taken.agreed.relative_error <= (1.5e-2 if result.kind == "peer" else 3e-3)
            assert taken.agreed.modes == ("eager", "graph")
    assert kernels_document(bench).title.startswith(f"Kernels of the experts of {bench.model}")


def test_every_record_is_in_the_list_and_every_benchmark_loads() -> None:
    listed = (MEASURED / "README.md").read_text()
    loaded = 0
    for path in sorted(MEASURED.glob("*.json")):
        assert f"`{path.name}`" in listed
        if re.search(r'"schema": ?"sublight/bench-', path.read_text()[:200]):
            assert not load(path, BENCH_TYPES).is_rehearsal  # type: ignore[attr-defined]  # a record of a benchmark
            loaded += 1
    assert loaded >= 8


def test_an_adapter_that_is_said_to_agree_did() -> None:
    """The words of a trial name what a record shows agreeing."""
    trials = [t for t in (TRIALS.load(name) for name in TRIALS.names()) if isinstance(t, MoeTrial)]
    assert len(trials) == 3
    every = load(MEASURED / "2026-11-30-h200-kernels-glm-5-tp8-all-peers.json", BENCH_TYPES)
    assert isinstance(every, KernelBench)
    ran = every.ran
    for trial in trials:
        version = trial.agreed_with.removesuffix(" on an H200")
        assert version and version in ran[trial.candidate]


def test_what_the_records_give_a_step_is_what_the_page_says() -> None:
    """docs/measuring.md, "Joining": milliseconds of the floor and of the records, and the rows without a time."""
    _, gpu = parse_gpus("8xh200")
    workload = Workload(layout=Layout(tp=8))
    limit = decode_limit(read_model("glm-5-nvfp4"), gpu, workload, interconnect_for(gpu, None))
    names = ("ops-glm-5-tp8", "kernels-glm-5-tp8")
    parts = [joined(load(MEASURED / f"2026-11-30-h200-{name}.json", BENCH_TYPES), limit, name) for name in names]  # type: ignore[arg-type]  # records of benchmarks
    both = merged({p.source: Attainable(p.rows, p.source, p.missing) for p in parts})
    floors = {r.id: r.time_s for r in limit.rows if r.stage == "main"}
    total = sum(both.rows.get(row, floor) for row, floor in floors.items())
    page = (ROOT / "docs" / "measuring.md").read_text()
    ids = {"q_a + kv_a": "attn.qkv_a", "o_proj": "attn.o", "routed experts": "moe.experts"}
    for title, row in ids.items():
        assert f"{title:<37}{floors[row] * 1e3:>9.3f}{both.rows[row] * 1e3:>15.3f}\n" in page
    assert f"{'step':<37}{sum(floors.values()) * 1e3:>9.3f}{total * 1e3:>15.3f}\n" in page
    assert set(both.missing) == {"indexer.scores", "attn.core"}
    assert all(f"{row} (" in page for row in both.missing)


def test_the_prediction_follows_from_the_record_and_the_catalogue() -> None:
    run = json.loads((MEASURED / "2026-11-30-h200-moe-decode-99kb.json").read_text())
    figure = get_gpu("rtx-pro-6000-server").measured_bandwidth_bytes_per_s
    assert figure is not None
    alone = [row["bytes"] / figure.value * 1e6 for row in run["rows"]]
    over = [row["us"] - row["bytes"] / run["copy_gb_per_s"] * 1e-3 for row in run["rows"]]
    lines = (ROOT / PAGES[1]).read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("| RTX PRO 6000 Server, predicted"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[at : at + 4]]
    assert cells[0][1:] == [f"M={row['tokens']}" for row in run["rows"]]
    assert cells[2][1:] == [f"{value:.1f}" for value in alone]
    assert cells[3][1:] == [f"{value + more:.1f}" for value, more in zip(alone, over, strict=True)]
