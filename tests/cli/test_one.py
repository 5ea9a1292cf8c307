"""Texts about one of a kind: "1 token", never "1 tokens"; of what is counted, whoever is asked with one of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sublight.bench.record.comm import CommBench
from sublight.bench.record.ops import OpsBench
from sublight.records import decode, encode
from tests.cli.conftest import Run
from tests.cli.decode import MODEL, kineto
from tests.cli.test_edited_bench import made

Sublight = Callable[..., Run]
# "1 tokens", but neither "0.1 s" nor "TP1 is" nor a verb.
MANY = re.compile(
    r"(?<![\w.,:\[-])1 (?:more |other |data |[a-z]+-)?(?!is\b|has\b|takes\b|does\b|runs\b|us\b|s\b)[A-Za-z]+s\b"
)
LIMIT = ("limit", "./config.json")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "one.json").write_text(json.dumps(MODEL | {"num_hidden_layers": 1}))
    (tmp_path / "trace.json").write_text(json.dumps(kineto()))
    (tmp_path / "step.json").write_text(json.dumps(kineto(1)))
    (tmp_path / "ops.json").write_bytes(made("ops"))
    (tmp_path / "comm.json").write_bytes(made("comm"))
    (tmp_path / "counts.json").write_text("[1.0]")
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((*LIMIT, "--gpus", "1xh200", "--tp", "2"), "the layout takes 2 GPUs, 1 is given"),
        ((*LIMIT, "--gpus", "2xh200", "--tp", "1"), "the layout takes 1 GPU, 2 are given"),
        ((*LIMIT, "--gpus", "1xh200", "--pp", "2"), "1 GPU in --pp 2 stages"),
        (("limit", "./one.json", "--gpus", "2xh200", "--pp", "2"), "2 pipeline stages for 1 layer"),
        (("limit", "qwen3-30b-a3b", "--gpus", "1xh200", "--experts", "counts.json"), "it has 1 count for 128 experts"),
        (("limit", "./one.json", "--gpus", "1xh200", "--markdown"), "1 layer: 1,024 tokens of"),
        (("limit", "./one.json", "--gpus", "1xh200", "--context", "1", "--markdown"), "1 layer: 1 token of"),
        (("show", "comm.json"), "1 call a step"),
        (("trace", "step.json"), ""),
        (("trace", "step.json", "trace.json"), "(1 decode step)"),
        (("gap", "glm-5-nvfp4", "--gpus", "8xh200", "--draft", "1", "--accepted", "1", "--measured", "9ms"), ""),
    ],
)
def test_one_of_a_kind(sublight: Sublight, tmp_path: Path, asked: tuple[str, ...], said: str) -> None:
    if asked[0] == "show":
        record = decode(made("comm"), {"bench-comm": CommBench})
        (message,) = record.messages
        once = msgspec.structs.replace(message, rows={"comm.mlp": 1})
        (tmp_path / "comm.json").write_bytes(encode(msgspec.structs.replace(record, messages=(once,))))
    done = sublight(*asked, "--width", "200") if asked[0] == "show" else sublight(*asked)
    text = " ".join((done.out + done.err).split())
    assert said in text
    assert MANY.findall(text) == []


@pytest.mark.parametrize(
    ("name", "layout", "said"),
    [
        ("ops.json", ("--batch", "2"), "it is of 1 token a step, this is of 2"),
        ("small.json", (), "2 processes took part, the step has 8 ranks"),
    ],
)
def test_a_benchmark_of_one_token(
    sublight: Sublight, tmp_path: Path, name: str, layout: tuple[str, ...], said: str
) -> None:
    assert decode(made("ops"), {"bench-ops": OpsBench}).tokens == 1
    two = msgspec.structs.replace(decode(made("comm"), {"bench-comm": CommBench}), processes=2)
    (tmp_path / "small.json").write_bytes(encode(two))
    done = sublight("gap", "glm-5-nvfp4", "--gpus", "8xh200", "--trace", "trace.json", "--bench", name, *layout)
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert MANY.findall(done.err) == []
