"""Rows by place, for every step of a trace: `resolve` asked once for each different sequence of kernels."""

from collections.abc import Sequence

import numpy as np

from sublight.trace.classify import Classification, classify
from sublight.trace.events import Trace
from sublight.trace.labels import Labels
from sublight.trace.plan import Plan
from sublight.trace.resolve import Event, resolve
from sublight.trace.steps import Step, Steps


def refine(trace: Trace, labels: Labels, steps: Steps, plan: Plan | None) -> tuple[Labels, str]:
    """Labels in which what shares a name is told apart by its place in the step.

    Args:
        plan: of the model, for one rank; without it only names and neighbours decide.

    Returns:
        The labels, and why products could not be told apart ("" if they could, or no plan was given).
    """
    known: dict[bytes, list[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]]]]] = {}
    found: dict[str, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
    reasons: dict[str, None] = {}
    judged = [classify(name) for name in trace.gpu.names]
    for step in steps.steps:
        numbers = events_of(trace, step)
        if not len(numbers):
            continue
        gpu = trace.gpu
        columns = np.stack([gpu.name[numbers], gpu.launch[numbers], gpu.lane[numbers]], dtype=np.int64)
        key = columns.tobytes()
        if key not in known:
            # A prefill step has other products than the plan of a decode step lists, but in the same places.
            resolved = resolve(_as_events(trace, judged, columns), plan)
            rows = np.array(resolved.rows)
            known[key] = [(row, np.flatnonzero(rows == row)) for row in np.unique(rows).tolist()]
            if resolved.why:
                reasons.setdefault(resolved.why)
        for row, places in known[key]:
            found.setdefault(row, []).append(numbers[places])
    for row, in_steps in found.items():
        labels = labels.with_rows(np.concatenate(in_steps), row)
    return labels, "; ".join(reasons) if plan is not None else ""


def events_of(trace: Trace, step: Step) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows of `Trace.gpu` that belong to the step: its range, less what ran on other devices."""
    numbers = np.arange(step.first, step.last, dtype=np.int64)
    own = np.array([lane.device == step.device and lane.process == step.process for lane in trace.gpu.lanes])
    chosen: np.ndarray[tuple[int], np.dtype[np.int64]] = numbers[own[trace.gpu.lane[step.first : step.last]]]
    return chosen


def _as_events(
    trace: Trace, judged: Sequence[Classification], columns: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> list[Event]:
    names, launches = trace.gpu.names, trace.gpu.launches
    return [
        Event(names[name], judged[name], lane, launches[launch].grid)
        for name, launch, lane in zip(*columns.tolist(), strict=True)
    ]
