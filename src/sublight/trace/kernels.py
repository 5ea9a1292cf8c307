"""The kernels of one step: each name with its row, how often it runs, how long, and how many blocks it starts."""

import re

import msgspec
import numpy as np

from sublight.trace.classify import own_name
from sublight.trace.events import Trace
from sublight.trace.labels import Labels
from sublight.trace.refine import events_of
from sublight.trace.steps import Step


class KernelTime(msgspec.Struct, frozen=True):
    """One name in one row. `blocks` is the grid of most of its launches, 0 where the profiler did not say."""

    name: str
    row: str
    backend: str
    kind: str
    calls: int
    summed_ns: int
    shortest_ns: int
    longest_ns: int
    blocks: int


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """One event of the step: offset and duration in nanoseconds, and numbers into `StepEvents`."""

    start_ns: int
    duration_ns: int
    lane: int
    row: int
    name: int


class StepEvents(msgspec.Struct, frozen=True):
    """Everything that ran in one step, for a timeline."""

    lanes: tuple[str, ...]
    rows: tuple[str, ...]
    names: tuple[str, ...]
    moments: tuple[Moment, ...]


def kernel_times(trace: Trace, step: Step, labels: Labels) -> tuple[KernelTime, ...]:
    """Largest sum first."""
    numbers = events_of(trace, step)
    gpu = trace.gpu
    shown, names_of_rows = labels.shown()
    names, rows = gpu.name[numbers].astype(np.int64), shown[numbers].astype(np.int64)
    keys, where = np.unique(names * len(names_of_rows) + rows, return_inverse=True)
    duration = gpu.duration[numbers]
    found = []
    for place, key in enumerate(keys.tolist()):
        mine = np.flatnonzero(where == place)
        first = int(numbers[mine[0]])
        blocks = [_blocks(trace, int(launch)) for launch in np.unique(gpu.launch[numbers[mine]]).tolist()]
        found.append(
            KernelTime(
                name=gpu.names[key // len(names_of_rows)],
                row=names_of_rows[key % len(names_of_rows)],
                backend=labels.backends[labels.backend[first]],
                kind=labels.kinds[labels.kind[first]],
                calls=len(mine),
                summed_ns=int(duration[mine].sum()),
                shortest_ns=int(duration[mine].min()),
                longest_ns=int(duration[mine].max()),
                blocks=max(blocks, default=0),
            )
        )
    return tuple(sorted(found, key=lambda k: (-k.summed_ns, k.name)))


def _blocks(trace: Trace, launch: int) -> int:
    grid = trace.gpu.launches[launch].grid
    return grid[0] * grid[1] * grid[2] if grid else 0


def step_events(trace: Trace, step: Step, labels: Labels) -> StepEvents:
    """The step's events in order, with the tables they index cut down to what occurs."""
    numbers = events_of(trace, step)
    gpu = trace.gpu
    shown, names_of_rows = labels.shown()
    lane_ids, lanes = np.unique(gpu.lane[numbers], return_inverse=True)
    row_ids, rows = np.unique(shown[numbers], return_inverse=True)
    name_ids, names = np.unique(gpu.name[numbers], return_inverse=True)
    start, duration = gpu.start[numbers] - step.start_ns, gpu.duration[numbers]
    columns = (start.tolist(), duration.tolist(), lanes.tolist(), rows.tolist(), names.tolist())
    return StepEvents(
        lanes=tuple(f"stream {gpu.lanes[i].stream}" for i in lane_ids.tolist()),
        rows=tuple(names_of_rows[i] for i in row_ids.tolist()),
        names=tuple(gpu.names[i] for i in name_ids.tolist()),
        moments=tuple(Moment(*values) for values in zip(*columns, strict=True)),
    )


_SHORT = 60
# What CUTLASS calls every kernel, and what restricts one to an architecture; the argument tells them apart.
_WRAPPERS = re.compile(r"(?:.*::)?(?:device_kernel|Kernel2|kernel|enable_sm\w+)")
# Constants and types of numbers, which name nothing.
_PLAIN = re.compile(
    r"\W*(?:\d|(?:true|false|signed|unsigned|int|long|short|char|bool|float|double|half|__\w+)\b|c10::)"
)
_CLOSES = {">": "<", ")": "(", "]": "[", "}": "{"}


def short_name(name: str) -> str:
    """A kernel's own name, for a line of text; of a bare wrapper, what it wraps."""
    own = own_name(name) or name
    while _WRAPPERS.fullmatch(own) and (wrapped := _first_argument(name)) and not _PLAIN.match(wrapped):
        name, own = wrapped, own_name(wrapped) or own
    return own if len(own) <= _SHORT else own[: _SHORT - 3] + "..."


def _first_argument(name: str) -> str:
    """The first template argument, as far as it goes in a name that was cut short; empty if there is none."""
    start = name.find("<") + 1
    open_brackets: list[str] = []
    for place in range(start, len(name)) if start else ():
        letter = name[place]
        if not open_brackets and letter in ",>":
            return name[start:place]
        if letter in _CLOSES.values():
            open_brackets.append(letter)
        elif letter in _CLOSES and open_brackets and open_brackets[-1] == _CLOSES[letter]:
            # A > inside parentheses compares, and closes nothing.
            open_brackets.pop()
    return name[start:] if start else ""
