"""What holds for a slice of any step: it reads back to the same rows, and no line of a viewer holds two at once."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace.chromefile import chrome_text
from sublight.trace.events import Collective, Lane, Launch, Thread, Trace
from sublight.trace.slice import slice_of
from sublight.trace.tracks import tracks_of_rows, tracks_of_spans

from .samples import read
from .small import Small
from .test_slice import TABLES, back, said, step_of

COUNT = st.none() | st.integers(0, 2**40)
WORD = st.sampled_from(["", "tp", "0", "é"])
COLLECTIVES = st.builds(Collective, st.sampled_from(["allreduce", "x"]), WORD, COUNT, COUNT, WORD, COUNT)
SIZES = st.none() | st.tuples(*[st.integers(1, 2**20)] * 3)
LAUNCHES = st.builds(Launch, SIZES, SIZES, COUNT, COUNT, COUNT, st.none() | COLLECTIVES)
PIDS, TIDS = st.sampled_from(["1", "41", "-3"]), st.sampled_from(["1", "41", "007", "CPU", "-3", "-0"])
# Times from which the reader has nothing to repair: everything takes less than what it calls impossible.
TIMES, LENGTHS = st.integers(1000, 1400), st.integers(0, 200)


@st.composite
def traces(draw: st.DrawFn, process: str = "") -> Trace:
    small = Small()
    small.run(1100, 10, process=process)
    for _ in range(draw(st.integers(0, 12))):
        lane = Lane(draw(st.integers(0, 1)), draw(st.sampled_from([7, 23])), process)
        correlation = draw(st.integers(0, 5))
        small.gpu.append((draw(TIMES), draw(LENGTHS), draw(st.sampled_from(["k", "Memset", "Memcpy DtoD"])), lane,
                          correlation, draw(LAUNCHES)))  # fmt: skip
    for number in range(1, draw(st.integers(1, 6))):
        small.call(
            draw(TIMES) - 200, draw(LENGTHS), draw(st.sampled_from(["cudaLaunchKernel", "cuLaunchKernel"])), number
        )
    for _ in range(draw(st.integers(0, 4))):
        small.mark(draw(TIMES) - 200, draw(LENGTHS), "step")
        small.gpu_mark(draw(TIMES), draw(LENGTHS), "step", device=draw(st.integers(0, 1)))
    trace = small.trace()
    # A process that has no number is its own label.
    thread = Thread("CPU", draw(TIDS), "CPU") if draw(st.booleans()) else Thread(draw(PIDS), draw(TIDS), process)
    return replace(
        trace,
        marks=replace(trace.marks, places=(thread,) * len(trace.marks.places)),
        ops=trace.marks,
        calls=replace(trace.calls, places=(thread,)),
        gpu_marks=replace(
            trace.gpu_marks, places=tuple(Lane(p.device, p.stream, process) for p in trace.gpu_marks.places)
        ),
    )


@settings(max_examples=150, deadline=None)
@given(traces(), st.integers(1, 300))
def test_a_slice_reads_back(trace: Trace, length: int) -> None:
    with TemporaryDirectory() as folder:
        again = back(Path(folder), trace, step_of(trace, 1100, 1100 + length))
        assert again.repairs == () or all(not repair.changed for repair in again.repairs)


@settings(max_examples=100, deadline=None)
@given(traces(process="[TP01]"))
def test_a_whole_trace_reads_back(trace: Trace) -> None:
    """The file is made of any trace, also one put together of several."""
    again = read(chrome_text(trace, "any"))
    for table in TABLES:
        assert said(getattr(again, table)) == said(getattr(trace, table)), table


@given(traces(), st.integers(1, 300))
def test_a_slice_is_what_overlaps_the_step(trace: Trace, length: int) -> None:
    end = 1100 + length
    kept = said(slice_of(trace, step_of(trace, 1100, end)).gpu)
    overlapping = [
        row
        for row in said(trace.gpu)
        if row[4].device == 0 and row[0] < end and max(row[0] + row[1], row[0] + 1) > 1100
    ]
    assert kept == overlapping


@given(traces())
def test_no_line_holds_two_rows_at_once(trace: Trace) -> None:
    for table, tracks in ((trace.gpu, tracks_of_rows(trace.gpu)), (trace.gpu_marks, tracks_of_spans(trace.gpu_marks))):
        reached: dict[str, int] = {}
        for track, start, end in zip(tracks, table.start.tolist(), table.end.tolist(), strict=True):
            line = str(track.ids)
            assert reached.get(line, 0) <= start
            reached[line] = end
