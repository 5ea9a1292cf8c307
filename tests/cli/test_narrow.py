"""On a narrow terminal numbers may be left out, by name; what is said in words wraps."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sublight.bench.record.comm import CommBench
from sublight.records import decode
from tests.cli.conftest import Run
from tests.cli.test_edited_bench import made

Sublight = Callable[..., Run]
ROOT = Path(__file__).parents[2]
MEASURED = sorted((ROOT / "docs" / "measured").glob("*.json"))
SHOWN = [path for path in MEASURED if re.search(r'"schema": ?"sublight/', path.read_text()[:200])]
WORDS = {"remark", "what", "rows", "by", "how sure", "verdict", "why", "bound by", "operation", "candidate", "backend"}
WIDTHS = ("80", "100")


def left_out(page: str) -> set[str]:
    """Titles of columns there was no room for, of all tables."""
    joined = re.sub(r"\n(?=\S)", " ", page)
    found = re.findall(r"No room at this width for: ([^\n]+?)(?= [a-z]+:|\n|$)", joined)
    return {title.strip() for text in found for title in text.split(",")}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", SHOWN, ids=[path.stem for path in SHOWN])
def test_a_record_keeps_its_words(sublight: Sublight, path: Path, width: str) -> None:
    done = sublight("show", str(path), "--width", width)
    assert done.code == 0, done.err
    assert left_out(done.out) & WORDS == set()
    assert max(map(len, done.out.splitlines())) <= int(width)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_gap_keeps_its_words(sublight: Sublight, width: str) -> None:
    done = sublight("gap", "--width", width)
    assert done.code == 0, done.err
    assert "No room at this width for" in done.out
    assert left_out(done.out) & WORDS == set()
    assert "how sure" in done.out


@pytest.mark.parametrize("width", WIDTHS)
def test_why_a_collective_has_no_time_is_there(sublight: Sublight, tmp_path: Path, width: str) -> None:
    data = json.loads(made("comm"))
    reason = "torch offers no symmetric memory between these processes, for they are not of one host"
    data["record"]["messages"][0]["ways"].append({"name": "symmetric memory, two-shot", "reason": reason})
    data["record"]["messages"][0]["rows"] = {"comm.mlp": 78, "comm.attention": 78}
    data["record"]["messages"][0]["ways"][0]["measurement"]["timing"]["settled"] = False
    (tmp_path / "c.json").write_text(json.dumps(data))
    assert isinstance(decode((tmp_path / "c.json").read_bytes(), {"bench-comm": CommBench}), CommBench)
    out = sublight("show", "c.json", "--width", width).out
    table = out.partition("Messages of the step")[2]
    assert "all-reduce of 12,288 B, 156 calls a step: all-reduce after MLP/MoE, all-reduce after attention" in (
        " ".join(table.split())
    )
    column = next(line for line in table.splitlines() if "remark" in line).index("remark")
    said = " ".join(line[column:].strip() for line in table.splitlines() if line.startswith("  "))
    assert "when time was up" in said
    assert reason in " ".join(said.split())
