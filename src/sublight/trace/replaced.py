"""Which kernels ran in the steps of two traces, and which of them only in one: what replaced what."""

from collections.abc import Sequence

import msgspec
import numpy as np

from sublight.trace.events import Trace
from sublight.trace.labels import Labels
from sublight.trace.refine import events_of
from sublight.trace.steps import Step


class KernelUse(msgspec.Struct, frozen=True):
    """One kernel in one row. `calls` and `summed_ns` are means per step."""

    name: str
    row: str
    backend: str
    calls: float
    summed_ns: float


class BackendUse(msgspec.Struct, frozen=True):
    """Kernels of one backend, the longest first; the backend is "" where it is not known."""

    backend: str
    kernels: tuple[KernelUse, ...]

    @property
    def calls(self) -> float:
        return sum(kernel.calls for kernel in self.kernels)

    @property
    def summed_ns(self) -> float:
        return sum(kernel.summed_ns for kernel in self.kernels)


class Replacement(msgspec.Struct, frozen=True):
    """What runs for a row in A only, and in B only."""

    row: str
    a: tuple[BackendUse, ...]
    b: tuple[BackendUse, ...]

    @property
    def summed_ns(self) -> float:
        """The time of the longer side."""
        return max(sum(backend.summed_ns for backend in side) for side in (self.a, self.b))


def kernels_of(trace: Trace, steps: Sequence[Step], labels: Labels) -> tuple[KernelUse, ...]:
    """Everything that begins in the steps, by name, row and backend."""
    gpu = trace.gpu
    shown, rows = labels.shown()
    at = np.concatenate([events_of(trace, step) for step in steps])
    keys = np.stack([column[at].astype(np.int64) for column in (gpu.name, shown, labels.backend)])
    used, which = np.unique(keys, axis=1, return_inverse=True)
    calls = np.bincount(which.reshape(-1), minlength=used.shape[1]) / len(steps)
    summed = np.bincount(which.reshape(-1), gpu.duration[at], used.shape[1]) / len(steps)
    return tuple(
        KernelUse(gpu.names[name], rows[row], labels.backends[backend], its_calls, its_ns)
        for (name, row, backend), its_calls, its_ns in zip(
            used.T.tolist(), calls.tolist(), summed.tolist(), strict=True
        )
    )


def replacements(a: Sequence[KernelUse], b: Sequence[KernelUse]) -> tuple[Replacement, ...]:
    """By row, the kernels whose names only one side has; rows with the most time first."""
    in_a, in_b = {kernel.name for kernel in a}, {kernel.name for kernel in b}
    only_a = [kernel for kernel in a if kernel.name not in in_b]
    only_b = [kernel for kernel in b if kernel.name not in in_a]
    found = [
        Replacement(row, _by_backend(only_a, row), _by_backend(only_b, row))
        for row in sorted({kernel.row for kernel in (*only_a, *only_b)})
    ]
    return tuple(sorted(found, key=lambda one: -one.summed_ns))


def _by_backend(kernels: Sequence[KernelUse], row: str) -> tuple[BackendUse, ...]:
    backends: dict[str, list[KernelUse]] = {}
    for kernel in sorted(kernels, key=lambda kernel: (-kernel.summed_ns, kernel.name)):
        if kernel.row == row:
            backends.setdefault(kernel.backend, []).append(kernel)
    uses = (BackendUse(backend, tuple(its)) for backend, its in backends.items())
    return tuple(sorted(uses, key=lambda use: -use.summed_ns))
