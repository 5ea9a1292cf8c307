"""Several processes read what one does; a wrong guess of where to cut, or a worker that dies, changes nothing."""

from pathlib import Path

import pytest

from sublight.trace import parts, worker
from sublight.trace.chrome import read_chrome
from sublight.trace.events import Trace
from sublight.trace.repairs import RepairKind, RepairLog
from sublight.trace.source import Source

from .samples import EPOCH_NS, LAYOUTS, Sample, compact, everything, found, kineto, names, read, typical, write


def in_parts(path: Path, part_bytes: int, *, python: bool = False) -> Trace:
    repairs = RepairLog()
    source = Source(path, repairs, block_bytes=4096)
    try:
        return read_chrome(source, repairs, python=python, part_bytes=part_bytes)
    finally:
        source.close()


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_cores", lambda: 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_processes_read_what_one_reads(tmp_path: Path, layout: str) -> None:
    text = LAYOUTS[layout](typical(200))
    trace = in_parts(write(tmp_path, text), len(text) // 3, python=True)
    assert trace.origin.processes == 2
    assert trace.origin.text_bytes == len(text)
    assert everything(trace) == everything(read(text, python=True))


def test_four_processes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_cores", lambda: 64)
    text = kineto(typical(200))
    trace = in_parts(write(tmp_path, text), len(text) // 8)
    assert trace.origin.processes == 4
    assert everything(trace) == everything(read(text))


def test_a_small_file_is_read_here(tmp_path: Path) -> None:
    text = kineto(typical())
    assert in_parts(write(tmp_path, text), len(text)).origin.processes == 1


def test_damage_in_either_part_is_counted_as_in_one(tmp_path: Path) -> None:
    sample = Sample()
    for number in range(400):
        sample.kernel(EPOCH_NS + number * 100, 50, "MARK" if number in (3, 50, 350) else "k")
    text = kineto(sample).replace(b"MARK", b'f<"x">')
    for cut in (len(text), len(text) - 300):
        trace = in_parts(write(tmp_path, text[:cut]), len(text) // 3)
        assert trace.origin.processes == 2
        assert everything(trace) == everything(read(text[:cut]))
        assert found(trace)[RepairKind.MENDED_TEXT] == 3


def test_a_cut_inside_a_string_is_found_out(tmp_path: Path) -> None:
    # All of the second half is one event, whose name looks like many.
    sample = Sample()
    for number in range(100):
        sample.kernel(EPOCH_NS + number * 100, 50, "k")
    sample.kernel(EPOCH_NS + 20_000, 50, "MARK")
    text = compact(sample)
    fake = b'x },{ \\"ph\\":1 ' * 3000
    trace = in_parts(write(tmp_path, text.replace(b"MARK", fake)), len(fake) // 2)
    assert names(trace.gpu)[-1] == fake.decode().replace("\\", "")
    assert trace.origin.processes == 1
    assert trace.repairs == ()


def test_a_cut_behind_the_end_of_the_list_is_found_out(tmp_path: Path) -> None:
    sample = typical(20)
    text = compact(sample)
    rows = b"[" + b",".join([b'{"ph":"X","cat":"kernel","name":"no","ts":1,"dur":1}'] * 2000) + b"]"
    trace = in_parts(write(tmp_path, text[:-1] + b',"more":' + rows + b"}"), len(rows) // 3)
    assert trace.origin.processes == 1
    assert everything(trace) == everything(read(text))


@pytest.mark.parametrize("broken", ["dies", "does not start", "says nonsense"])
def test_a_worker_that_fails_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    start = worker.Worker.__init__

    def failing(self: worker.Worker, part: worker.Part) -> None:
        if broken == "does not start":
            raise OSError
        start(self, worker.Part("/nowhere", 0, None, b"},{", False, 1, False) if broken == "dies" else part)

    monkeypatch.setattr(worker.Worker, "__init__", failing)
    if broken == "says nonsense":
        monkeypatch.setattr(worker, "_MAGIC", b"Welcome to Python!!!")
    text = kineto(typical(100))
    trace = in_parts(write(tmp_path, text), len(text) // 3)
    assert trace.origin.processes == 1
    assert everything(trace) == everything(read(text))
