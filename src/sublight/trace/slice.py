"""One step of a trace as a small file of its own, to look at in Perfetto or chrome://tracing, or to attach to an issue.

A slice holds what ran on the step's device while the step lasted, the calls that launched it, whenever they were made,
and what the host did meanwhile or around those calls. The next step, which would show the end of the last one, is not
there; so the slice says where it was cut, and its steps read back as they were. What of the last pause the host took is
not known in it, because the call that ended it launched the next step.
"""

import gzip
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sublight.errors import UsageError
from sublight.records import write_atomically
from sublight.trace.chromefile import chrome_text
from sublight.trace.events import Calls, Cut, GpuEvents, Spans, Trace
from sublight.trace.intervals import Intervals, union
from sublight.trace.links import call_of
from sublight.trace.read import read_trace
from sublight.trace.steps import Step

Rows = npt.NDArray[np.bool_]
AnyTable = TypeVar("AnyTable", bound=GpuEvents | Spans)


def write_slice(
    source: Path | Trace, step: Step, out: Path, *, upto: Step | None = None, operators: bool = True
) -> None:
    """Write one step of a trace; compressed if the name ends in .gz. `out` is the old file or the whole new one.

    Args:
        source: the trace, or its file.
        step: one that `find_steps` found in it.
        out: where to.
        upto: the last of several steps to write, the first of which is `step`.
        operators: with CPU operators and Python functions, which are most of an eager trace.

    Raises:
        UsageError: the steps are of another trace, or `out` is the file that the trace was read from.
        InputFileError: the source can not be read, or `out` can not be written.
    """
    trace = source if isinstance(source, Trace) else read_trace(source)
    origin = Path(trace.origin.path)
    if origin.exists() and out.exists() and origin.samefile(out):
        raise UsageError(f"writing one step to {out}", "that is the file the trace was read from", "another name")
    text = chrome_text(slice_of(trace, step, upto=upto, operators=operators), out.name)
    write_atomically(out, gzip.compress(text, mtime=0) if out.name.endswith(".gz") else text)


def slice_of(trace: Trace, step: Step, *, upto: Step | None = None, operators: bool = True) -> Trace:
    """The part of a trace that belongs to a step, or to all from one step to another, with its times as they were.

    Raises:
        UsageError: the steps are of another trace, or of two devices, or in the wrong order.
    """
    last = step if upto is None else upto
    _check(trace, step, last)
    lasting = Intervals(np.array([step.start_ns]), np.array([last.end_ns]))
    gpu = _kept(trace.gpu, _on_device(trace.gpu.lanes, step)[trace.gpu.lane] & _during(trace.gpu, lasting))
    everywhere, launched = _launching(trace.gpu, trace.calls), _launching(gpu, trace.calls)
    around = Intervals(trace.calls.start[launched], trace.calls.end[launched] + 1)
    by_host = union(Intervals(np.append(lasting.start, around.start), np.append(lasting.end, around.end)))

    def of_host(table: Spans, *, wanted: bool = True) -> Spans:
        return _kept(table, _in_process(table, step) & _during(table, by_host) & wanted)

    # A call whose rows are in another step is shown without its number, or they would seem to have been lost.
    correlation = np.where(everywhere & ~launched, 0, trace.calls.correlation).astype(trace.calls.correlation.dtype)
    calls = replace(trace.calls, correlation=correlation)
    on_gpu = _on_device(trace.gpu_marks.places, step)[trace.gpu_marks.place]
    return replace(
        trace,
        gpu=gpu,
        calls=_kept(calls, launched | _in_process(calls, step) & _during(calls, lasting)),
        ops=of_host(trace.ops, wanted=operators),
        marks=of_host(trace.marks),
        gpu_marks=_kept(trace.gpu_marks, on_gpu & _during(trace.gpu_marks, lasting)),
        python=None if trace.python is None else of_host(trace.python, wanted=operators),
        devices=tuple(device for device in trace.devices if device.id == step.device),
        counts={},
        cut=Cut(step.start_ns, last.end_ns, last.index - step.index + 1),
    )


def _check(trace: Trace, step: Step, last: Step) -> None:
    gpu = trace.gpu
    asked = f"cutting steps {step.index} to {last.index} out of {trace.origin.path}"
    for one in (step, last):
        if not (one.first < one.last <= len(gpu) and int(gpu.start[one.first]) == one.start_ns):
            raise UsageError(
                asked,
                f"none of its {len(gpu):,} GPU rows is row {one.first:,} at {one.start_ns:,} ns",
                "steps that were found in this very trace",
            )
    if last.start_ns < step.start_ns or (last.device, last.process) != (step.device, step.process):
        raise UsageError(asked, "the last is not a later step of the same device", "two steps in order of time")


def _launching(gpu: GpuEvents, calls: Calls) -> Rows:
    """Which calls launched any of the rows."""
    launching = np.zeros(len(calls), bool)
    call = call_of(gpu, calls)
    launching[call[call >= 0]] = True
    return launching


def _during(table: GpuEvents | Spans, times: Intervals) -> Rows:
    """Which rows lie at least partly in some times, which are disjoint. A row that takes no time lies where it is."""
    following = np.searchsorted(times.end, table.start, side="right")
    begins = np.append(times.start, np.iinfo(np.int64).max)[following]
    inside: Rows = begins < np.maximum(table.end, table.start + 1)
    return inside


def _on_device(places: tuple[object, ...], step: Step) -> Rows:
    wanted = (step.device, step.process)
    return np.array(
        [(getattr(place, "device", None), getattr(place, "process", "")) == wanted for place in places], bool
    )


def _in_process(table: Spans, step: Step) -> Rows:
    """Which rows are of the process that used the device, where a file holds several."""
    own = np.array([not step.process or place.process == step.process for place in table.places], bool)
    return own[table.place]


def _kept(table: AnyTable, rows: Rows) -> AnyTable:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    kept: dict[str, Any] = {name: column[rows] for name, column in columns.items() if isinstance(column, np.ndarray)}
    return replace(table, **kept)
