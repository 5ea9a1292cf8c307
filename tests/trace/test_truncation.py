"""A file cut anywhere gives what was whole before the cut, and says that and where it was cut."""

import gzip
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import InputFileError
from sublight.trace.read import read_trace
from sublight.trace.repairs import RepairKind

from .samples import EPOCH_NS, LAYOUTS, Sample, bare, compact, everything, found, kineto, names, read, typical, write

KERNELS = [f"k{number}" for number in range(20)]


def numbered() -> Sample:
    sample = Sample()
    for number, name in enumerate(KERNELS):
        sample.kernel(EPOCH_NS + 100 * number, 50, name)
    return sample


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cut_anywhere_keeps_every_whole_event(layout: str) -> None:
    text = LAYOUTS[layout](numbered())
    # An event is whole once its closing brace is there.
    ends = [text.index(f'"{name}"'.encode()) for name in KERNELS[1:]]
    begin = text.index(b"[", text.find(b"traceEvents") if b"traceEvents" in text else 0)
    for cut in range(begin + 1, len(text), 7):
        trace = read(text[:cut])
        got = names(trace.gpu)
        assert got == KERNELS[: len(got)]
        whole = sum(end < cut for end in ends)
        assert whole <= len(got) <= whole + 1


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_random_cut_in_random_blocks(data: st.DataObject) -> None:
    text = LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))](typical(6))
    cut = data.draw(st.integers(0, len(text)))
    block_bytes = data.draw(st.integers(1, 2000))
    try:
        trace = read(text[:cut], block_bytes)
    except InputFileError:
        assert b'"traceEvents":' not in text[:cut].replace(b" ", b"")[:-1]
        return
    assert everything(trace) == everything(read(text[:cut]))
    start = everything(read(text))["gpu.start"][1]
    assert trace.gpu.start.tolist() == start[: len(trace.gpu)] or len(start) > len(trace.gpu)


def test_the_report_says_where_and_how_much() -> None:
    text = kineto(numbered())
    third, fourth = text.index(b'"k3"'), text.index(b'"k4"')
    begin = text.rindex(b"  {\n", 0, fourth) + 2
    trace = read(text[: fourth + 20])
    assert names(trace.gpu) == KERNELS[:4]
    repair = trace.repairs[0]
    assert repair.kind is RepairKind.TRUNCATED
    assert "inside an event" in repair.note
    assert f"used up to byte {begin:,} of the text" in repair.example
    assert f"{fourth + 20 - begin:,} bytes of a cut event left out" in repair.example
    assert third < begin
    assert trace.origin.text_bytes == fourth + 20


def test_a_cut_between_events_or_after_them_is_told_too() -> None:
    text = compact(numbered())
    between = text.rindex(b'},{"ph"') + 2
    after = text.rindex(b"]") + 1
    for cut, kernels in ((between, 19), (after - 1, 20), (after, 20)):
        trace = read(text[:cut])
        assert len(trace.gpu) == kernels
        assert found(trace) == {RepairKind.TRUNCATED: 1}
        assert "between events or after them" in trace.repairs[0].note
    assert found(read(text)) == {}


def test_a_bare_list_may_end_without_its_bracket_but_not_inside_an_event() -> None:
    text = bare(numbered())
    assert found(read(text[: text.rindex(b"]")])) == {}
    assert found(read(text[: text.rindex(b"]") - 10])) == {RepairKind.TRUNCATED: 1}


def test_a_cut_before_the_events_is_no_trace() -> None:
    text = kineto(numbered())
    with pytest.raises(InputFileError) as caught:
        read(text[: text.index(b'"traceEvents"')])
    assert "no" in caught.value.found


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.95, 1.0])
def test_a_cut_gzip_gives_what_had_been_written(tmp_path: Path, keep: float) -> None:
    text = kineto(typical(400))
    packed = gzip.compress(text, mtime=0)
    path = tmp_path / "trace.json.gz"
    size = int(len(packed) * keep) - (4 if keep == 1.0 else 0)
    path.write_bytes(packed[:size])
    trace = read_trace(path)
    plain = zlib.decompressobj(31).decompress(packed[:size])
    assert everything(trace)["gpu.start"] == everything(read(plain))["gpu.start"]
    damage = [repair for repair in trace.repairs if repair.kind is RepairKind.DAMAGED_COMPRESSION]
    assert len(damage) == 1
    assert ("without its trailer" if keep == 1.0 else "inside the compressed data") in damage[0].note
    if keep < 1.0:
        truncated = [repair for repair in trace.repairs if repair.kind is RepairKind.TRUNCATED]
        assert f"the file has {size:,} compressed bytes" in truncated[0].example


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_gzip_damaged_anywhere_never_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    packed = bytearray(gzip.compress(kineto(typical(60)), mtime=0))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(2, len(packed) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("gz") / "t.json.gz"
    path.write_bytes(bytes(packed[: data.draw(st.integers(10, len(packed)))]))
    try:
        trace = read_trace(path)
    except InputFileError:
        return
    assert len(trace.gpu) <= 84 or RepairKind.DAMAGED_COMPRESSION in found(trace)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="it is empty"):
        read_trace(write(tmp_path, b""))
