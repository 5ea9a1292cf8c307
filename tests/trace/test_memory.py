"""Memory does not grow with the file: what is held of the text at any time stays small."""

from pathlib import Path

import numpy as np
import pytest

from sublight.trace.read import read_trace
from sublight.trace.window import Window

from .samples import EPOCH_NS, LAYOUTS, Literal, Sample, found, kineto, names, read, typical, write


@pytest.fixture
def most_held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    held = [0]
    more = Window.more

    def watched(self: Window) -> bool:
        result = more(self)
        held[0] = max(held[0], len(self.data))
        return result

    monkeypatch.setattr(Window, "more", watched)
    return held


def many(count: int = 20_000) -> Sample:
    sample = Sample()
    for number in range(count):
        sample.kernel(EPOCH_NS + number * 100, 50)
    return sample


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_window_holds_a_few_blocks(layout: str, most_held: list[int]) -> None:
    text = LAYOUTS[layout](many())
    assert len(text) > 3_000_000
    assert len(read(text, 10_000).gpu) == 20_000
    # The separator is learned from the first 256 kB.
    assert most_held[0] <= 262_144 + 3 * 10_000


def test_a_member_of_any_size_is_passed_over(most_held: list[int]) -> None:
    sample = many(10)
    sample.members["large"] = Literal('"' + "x" * 20_000_000 + '"')
    sample.members["larger"] = Literal("[" + ",".join(["{}"] * 1_500_000) + "]")
    assert len(read(kineto(sample), 1 << 20).gpu) == 10
    assert most_held[0] <= 3 << 20


def test_a_string_that_never_ends_does_not_fill_the_memory(most_held: list[int]) -> None:
    text = kineto(many(100)).replace(b'"traceName": "', b'"traceName": "' + b"y" * 60_000_000)
    broken = text[: text.rindex(b'"')]
    trace = read(broken, 1 << 20)
    assert len(trace.gpu) == 100
    assert most_held[0] <= 20 << 20


def test_an_endless_event_is_given_up_and_the_next_ones_are_read(most_held: list[int]) -> None:
    sample = many(100)
    sample.kernel(EPOCH_NS + 50, 5, "MARK")
    sample.kernel(EPOCH_NS + 10**6, 5, "after")
    trace = read(kineto(sample).replace(b"MARK", b"z" * 60_000_000), 1 << 20)
    assert names(trace.gpu)[-1] == "after"
    assert len(trace.gpu) == 101
    assert found(trace)["unreadable event"] == 1
    assert most_held[0] <= 20 << 20


def test_a_gpu_event_is_narrow() -> None:
    trace = read(kineto(many()))
    gpu = trace.gpu
    columns = (gpu.start, gpu.duration, gpu.name, gpu.kind, gpu.lane, gpu.correlation, gpu.node, gpu.launch)
    assert sum(column.itemsize for column in columns) <= 28
    assert trace.table_bytes == sum(column.nbytes for column in columns)


def test_operators_are_counted_and_not_kept_where_nobody_asks_for_them(tmp_path: Path) -> None:
    path = write(tmp_path, kineto(typical()))
    everything, less = read_trace(path), read_trace(path, operators=False)
    assert len(everything.ops) > 0
    assert (len(less.ops), less.counts) == (0, everything.counts)
    assert np.array_equal(less.gpu.start, everything.gpu.start)
    assert less.table_bytes < everything.table_bytes
