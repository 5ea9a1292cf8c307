"""A trace beside the floor of something else: another card, batch, phase, layout or model."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import LAYER, MODEL, STEP, Launch, kineto

Sublight = Callable[..., Run]
ASK = ("gap", "./config.json", "--trace", "trace.json", "--gpus")
CACHE = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(__nv_bfloat16 const*)"
NORM = "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)"
DOUBT = "The trace may be of another step than the floor, and then neither ratio nor gap holds: "


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    write(tmp_path, kineto())
    return tmp_path


def write(folder: Path, trace: dict[str, Any]) -> None:
    (folder / "trace.json").write_text(json.dumps(trace))


def on(card: str) -> dict[str, Any]:
    trace = kineto()
    trace["deviceProperties"][0]["name"] = card
    return trace


def writing(tokens: int, name: str = CACHE) -> list[Launch]:
    """A step whose layers each have one more kernel, of a block a token."""
    layer: list[Launch] = [*LAYER[:2], (name, [tokens, 1, 1], 1.0, 1.0), *LAYER[2:]]
    return [*layer, *layer, *STEP[-2:]]


def words(text: str) -> str:
    return " ".join(re.sub("[▌┃]", "", text).split())


def doubts(done: Run) -> list[str]:
    assert (done.code, done.err) == (0, "")
    found: list[str] = json.loads(done.out)["record"]["doubts"]
    return found


@pytest.mark.parametrize(
    ("traced", "asked", "named"),
    [
        ("NVIDIA H200", "rtx-pro-6000-server", "(h200)"),
        ("NVIDIA B200", "h200", "(b200)"),
        ("NVIDIA A100", "h200", "(a100-40gb or a100-80gb-pcie or a100-80gb-sxm)"),
    ],
)
def test_a_trace_of_another_card_is_no_gap(
    sublight: Sublight, tmp_path: Path, traced: str, asked: str, named: str
) -> None:
    write(tmp_path, on(traced))
    done = sublight(*ASK, asked, "--save", "gap.json")
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 3
    assert f"--trace trace.json beside the floor of {asked}" in done.err
    assert f"it was recorded on {traced} {named}, the floor is one of " in done.err
    assert f"or a trace from {asked}" in done.err
    assert not (tmp_path / "gap.json").exists()


@pytest.mark.parametrize(("traced", "asked"), [("NVIDIA A100", "a100-80gb-sxm"), ("", "h200"), ("Some Card", "h200")])
def test_a_card_that_may_be_the_asked_one_is_taken(sublight: Sublight, tmp_path: Path, traced: str, asked: str) -> None:
    write(tmp_path, on(traced))
    assert doubts(sublight(*ASK, asked, "--json")) == []


@pytest.mark.parametrize("name", [CACHE, NORM])
def test_a_trace_of_another_batch_is_said_beside_the_ratio(sublight: Sublight, tmp_path: Path, name: str) -> None:
    write(tmp_path, kineto(launches=writing(16, name)))
    said = (
        "16 tokens a step are traced, the floor is one of 1: another --batch, or a captured graph that is larger than "
        "the batch"
    )
    done = sublight(*ASK, "h200", "--save", "gap.json", "--html", "gap.html")
    assert words(done.out).index(DOUBT + said) < done.out.index("What to do next")
    assert "no gap: see the warning" in words(done.out)
    assert json.loads((tmp_path / "gap.json").read_text())["record"]["doubts"] == [said]
    assert DOUBT + said in html.unescape((tmp_path / "gap.html").read_text())
    assert DOUBT + said in sublight(*ASK, "h200", "--markdown").out
    assert sublight("show", "gap.json").out == done.out
    assert doubts(sublight(*ASK, "h200", "--batch", "16", "--json")) == []
    assert doubts(sublight(*ASK, "h200", "--batch", "32", "--json")) == [
        "16 tokens a step are traced, the floor is one of 32: another --batch"
    ]


def test_a_trace_of_prefill_is_no_decode_step(sublight: Sublight, tmp_path: Path) -> None:
    wide: list[Launch] = [(name, [grid[0] * 1024, 1, 1], us, gap) for name, grid, us, gap in STEP]
    trace = kineto(launches=wide)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e["cat"] == "kernel"]
    for number, event in enumerate(trace["traceEvents"], 1):
        event["args"] = {**event["args"], "correlation": number, "graph node id": 0}
    write(tmp_path, trace)
    said = ["what was traced is prefill, and the floor is one of a decode step"]
    assert doubts(sublight(*ASK, "h200", "--json")) == said


def test_a_model_of_other_layers_is_said_once_and_above_the_list(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL | {"num_hidden_layers": 3}))
    done = sublight(*ASK, "h200")
    said = "attention runs 2 times in the step, and the model has it in 3 layers"
    assert words(done.out).count(said) == 1
    assert words(done.out).index(said) < done.out.index("What to do next")
    assert "kernels of no row: name the model and the layout that were traced" in words(done.out)
    assert "no gap: see the warning" in words(done.out)


def test_products_of_other_ranks_do_not_fit(sublight: Sublight, tmp_path: Path) -> None:
    """The trace is of one of two ranks: taken for the whole model, QKV and gate with up have too many columns."""
    whole = MODEL | {"num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 4096}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    said = (
        "in 2 of 3 stretches between attentions, kernels and products are left that do not fit each other: the model "
        "was cut over other ranks (--tp, --ep, --dp), or it is another"
    )
    trace = ("trace", "trace.json", "--model", "./config.json")
    assert f"GEMMs could not all be told apart: {said}." in words(sublight(*trace).out)
    assert json.loads(sublight(*trace, "--tp", "2", "--json").out)["record"]["unresolved"] == ""
    assert doubts(sublight(*ASK, "2xh200", "--json")) == []
    (doubt,) = doubts(sublight(*ASK, "h200", "--json"))
    assert doubt.startswith("it does not look like ") and doubt.endswith(said)
