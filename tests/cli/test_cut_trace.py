"""A trace that ends early is named as cut, whatever holds it: no other cause is told, and what is shown says so."""

import gzip
import importlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import kineto
from tests.cli.test_bad_input import refused

Sublight = Callable[..., Run]
KINDS = ["json", "gz", "zst"]


def _packed(text: bytes, kind: str) -> bytes:
    if kind == "zst":
        return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(text))
    return gzip.compress(text, mtime=0) if kind == "gz" else text


def _calls_before_kernels() -> bytes:
    """What Kineto writes first is what the CPU did: a file cut there has calls, and no kernel."""
    trace = kineto(steps=8)
    trace["traceEvents"].sort(key=lambda event: event.get("cat") == "kernel")
    return json.dumps(trace, indent=1).encode()


def _cut_before_kernels(kind: str) -> bytes:
    text = _calls_before_kernels()
    whole = _packed(text, kind)
    if kind == "json":
        return text[: text.index(b'"kernel"') - 200]
    # One stream cut by bytes: an own, flushed stream ends where the text does, and then misses its end.
    text = text[: text.index(b'"kernel"') - 200]
    if kind == "gz":
        stream = zlib.compressobj(wbits=31)
        return stream.compress(text) + stream.flush(zlib.Z_SYNC_FLUSH)
    zstandard = importlib.import_module("zstandard")
    assert whole
    stream = zstandard.ZstdCompressor().compressobj()
    return bytes(stream.compress(text) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_before_any_step_is_the_error(sublight: Sublight, tmp_path: Path, kind: str) -> None:
    (tmp_path / f"cut.{kind}").write_bytes(_cut_before_kernels(kind))
    (tmp_path / "whole.json").write_text(json.dumps(kineto(steps=8)))
    for arguments in ((), ("--slice", "0", "-o", "out.json")):
        done = sublight("trace", f"cut.{kind}", *arguments)
        refused(done, "the file is cut: its text ends")
        assert "permission" not in done.err and "cap-add" not in done.err
    done = sublight("trace", f"cut.{kind}", "whole.json")
    assert done.code == 2 and "found: the file is cut: its text ends" in done.err
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_before_a_cut_are_shown_with_a_warning(sublight: Sublight, tmp_path: Path, kind: str) -> None:
    text = json.dumps(kineto(steps=8), indent=1).encode()
    text = text[: int(len(text) * 0.8)]
    packed = _packed(text, kind)
    (tmp_path / f"cut.{kind}").write_bytes(packed)
    (tmp_path / "whole.json").write_text(json.dumps(kineto(steps=8)))
    done = sublight("trace", f"cut.{kind}")
    assert done.code == 0
    assert "Warning: The trace is damaged" in done.out and "the file is cut" in done.out
    both = sublight("trace", "whole.json", f"cut.{kind}")
    assert both.code == 0
    assert both.err.startswith(f"warning: cut.{kind}: the file is cut: its text ends")
    assert sublight("trace", "whole.json").err == ""


def test_the_head_of_a_real_trace_is_named_as_cut(sublight: Sublight, tmp_path: Path) -> None:
    facts = Path(__file__).parents[2] / "src" / "sublight" / "facts" / "catalogue" / "examples"
    (tmp_path / "tr.json.gz").write_bytes((facts / "glm-5-tp8-rank-h200.json.gz").read_bytes()[:3000])
    refused(sublight("trace", "tr.json.gz"), "the file is cut", "inside the compressed data", "the whole file")


def test_calls_without_kernels_in_a_whole_file_are_still_the_profiler(sublight: Sublight, tmp_path: Path) -> None:
    trace = kineto(steps=8)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") != "kernel"]
    (tmp_path / "calls.json").write_text(json.dumps(trace))
    refused(sublight("trace", "calls.json"))
    assert "is cut" not in sublight("trace", "calls.json").err
