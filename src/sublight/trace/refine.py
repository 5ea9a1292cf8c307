"""Rows by place, for every step of a trace: `resolve` asked once for each different sequence of kernels."""

from collections import OrderedDict
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from sublight.trace.classify import classify
from sublight.trace.events import Ids, Trace
from sublight.trace.labels import Labels
from sublight.trace.phases import Phase
from sublight.trace.plan import Plan
from sublight.trace.resolve import Event, Resolver
from sublight.trace.steps import Step, Steps

_MOST_KNOWN = 1 << 20  # events of different orders that are remembered
Places = npt.NDArray[np.int64]


def refine(trace: Trace, labels: Labels, steps: Steps, plan: Plan | None) -> tuple[Labels, str]:
    """Labels in which what shares a name is told apart by its place in the step.

    Args:
        plan: of the model, for one rank; without it only names and neighbours decide.

    Returns:
        The labels, and why products could not be told apart ("" if they could, or no plan was given).
    """
    resolver, table = Resolver(plan), _Table(trace)
    row, numbered = labels.row.copy(), {name: number for number, name in enumerate(labels.rows)}
    known: OrderedDict[bytes, Ids] = OrderedDict()
    reasons: dict[str, None] = {}
    for step in steps.steps:
        numbers = events_of(trace, step)
        if not len(numbers):
            continue
        order = table.events(numbers, resolver)
        key = blake2b(order.tobytes(), digest_size=16).digest()
        if key not in known:
            # A prefill step has other products than the plan of a decode step lists, but in the same places.
            resolved = resolver.resolve(order)
            for name in sorted(set(resolved.rows)):
                numbered.setdefault(name, len(numbered))
            known[key] = np.array([numbered[name] for name in resolved.rows], np.min_scalar_type(len(numbered)))
            misfit = "" if step.phase is Phase.PREFILL else resolved.misfit
            for reason in filter(None, (resolved.why, misfit)):
                reasons.setdefault(reason)
            while sum(map(len, known.values())) > _MOST_KNOWN and len(known) > 1:
                known.popitem(last=False)
        known.move_to_end(key)
        row = row.astype(np.promote_types(row.dtype, known[key].dtype), copy=False)
        row[numbers] = known[key]
    return replace(labels, row=row, rows=tuple(numbered)), "; ".join(reasons) if plan is not None else ""


class _Table:
    """The different events of a trace, made as they are met."""

    def __init__(self, trace: Trace) -> None:
        self._gpu = trace.gpu
        self._judged = [classify(name) for name in trace.gpu.names]
        self._known: dict[int, int] = {}

    def events(self, numbers: Places, resolver: Resolver) -> Places:
        """What the resolver calls these events."""
        gpu = self._gpu
        launches, lanes = len(gpu.launches), len(gpu.lanes)
        keys = (gpu.name[numbers].astype(np.int64) * launches + gpu.launch[numbers]) * lanes + gpu.lane[numbers]
        different, which = np.unique(keys, return_inverse=True)
        found = []
        for key in different.tolist():
            if key not in self._known:
                (name, launch), lane = divmod(key // lanes, launches), key % lanes
                event = Event(gpu.names[name], self._judged[name], lane, gpu.launches[launch].grid)
                self._known[key] = resolver.number(event)
            found.append(self._known[key])
        return np.array(found, np.int64)[which]


def events_of(trace: Trace, step: Step) -> Places:
    """Rows of `Trace.gpu` that belong to the step: its range, less what ran on other devices."""
    numbers = np.arange(step.first, step.last, dtype=np.int64)
    own = np.array([lane.device == step.device and lane.process == step.process for lane in trace.gpu.lanes])
    chosen: Places = numbers[own[trace.gpu.lane[step.first : step.last]]]
    return chosen
