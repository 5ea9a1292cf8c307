"""Every kernel there is, as a declaration: what it computes, for which exact targets, and whether anybody ran it.

A declaration says all that choosing needs, so that choosing loads no kernel. It is closed: a trait or a target that it
does not name is refused, and a kernel that was only compiled says so wherever it appears. Another package adds a kernel
with one entry point in the group `sublight.kernels`, whose object is a `Kernel`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import msgspec

from sublight.errors import KernelError, UnknownNameError
from sublight.facts.gpu import Gpu
from sublight.kernels.problem import Problem
from sublight.registry import Registry

COMPILED = "compiled, not run"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a card lets one kernel have.

    Attributes:
        target: the exact architecture, "sm_90".
        shared_memory_bytes: the most one block can opt in to. None where nobody knows; so below.
        sm_count: multiprocessors.
    """

    target: str
    shared_memory_bytes: int | None = None
    sm_count: int | None = None

    @classmethod
    def of(cls, gpu: Gpu) -> "Limits":
        """Of a card of the catalogue."""
        shared, count = gpu.shared_memory_per_block_bytes.value, gpu.sm_count.value
        return cls(
            target=gpu.target,
            shared_memory_bytes=None if shared is None else int(shared),
            sm_count=None if count is None else int(count),
        )


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel.

    Attributes:
        name: what `backend=` and reports call it.
        op: what it computes: a problem's `op`.
        statuses: exact target ("sm_90") -> "run on NVIDIA H200" or `COMPILED`. sm_100 says nothing of sm_120.
        traits: trait of the problem -> the values that it can do.
        steps: dimension -> the number that has to divide it.
        ranges: dimension -> the least and the most, both included.
        priority: among several that fit and were run, the highest is taken.
        prefer: "module:attribute" of a pure function (problem, `Limits`) -> the priority, where one number does not do:
            where it depends on sizes which of two kernels is faster. "" where it does.
        loader: "module:attribute" of what runs it; imported when it is called for.
        configure: "module:attribute" of a pure function (problem, `Limits`) -> the numbers that the kernel is compiled
            with. It raises KernelError where nothing fits. "" where there is nothing to choose.
    """

    name: str
    op: str
    statuses: dict[str, str]
    traits: dict[str, tuple[str, ...]]
    steps: dict[str, int] = {}
    ranges: dict[str, tuple[int, int]] = {}
    priority: int = 0
    prefer: str = ""
    loader: str
    configure: str = ""

    def was_run(self, target: str) -> bool:
        return self.statuses.get(target, COMPILED) != COMPILED

    @property
    def standing(self) -> str:
        """ "run on NVIDIA H200 (sm_90); compiled, not run (sm_100, sm_120)": every target, what was run first."""
        targets: dict[str, list[str]] = {}
        for target, status in sorted(self.statuses.items(), key=lambda pair: (pair[1] == COMPILED, pair[0])):
            targets.setdefault(status, []).append(target)
        return "; ".join(f"{status} ({', '.join(names)})" for status, names in targets.items())

    def refusal(self, problem: Problem, target: str) -> str:
        """Why it cannot compute this there; "" where it can."""
        if problem.op != self.op:
            return f"computes {self.op}"
        if target not in self.statuses:
            return f"is built for {', '.join(sorted(self.statuses)) or 'no target'}"
        for name, value in problem.traits().items():
            able = self.traits.get(name, ())
            if value not in able:
                return f"{name} is {value!r}, it does {', '.join(able) or 'not say which'}"
        sizes = problem.dimensions()
        for name, step in self.steps.items():
            if sizes[name] % step:
                return f"{name} {sizes[name]} is no multiple of {step}"
        for name, (least, most) in self.ranges.items():
            if not least <= sizes[name] <= most:
                return f"{name} {sizes[name]} is outside {least} to {most}"
        return ""

    def priority_for(self, problem: Problem, limits: Limits) -> int:
        """For a problem that it fits."""
        return int(load(self.prefer)(problem, limits)) if self.prefer else self.priority

    def load(self) -> Callable[..., Any]:
        """What runs it."""
        found: Callable[..., Any] = load(self.loader)
        return found

    def configuration(self, problem: Problem, limits: Limits) -> Mapping[str, int]:
        """The numbers it is compiled with. Raises KernelError where no configuration fits, or a limit is not known."""
        if not self.configure:
            return {}
        for name in ("shared_memory_bytes", "sm_count"):
            if getattr(limits, name) is None:
                raise KernelError(f"configuring {self.name}", f"{name} of {limits.target} is not known", "a known card")
        numbers: Mapping[str, int] = load(self.configure)(problem, limits)
        return numbers


def load(path: str) -> Any:
    """The object that "module:attribute" names, imported now."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


_KERNELS = Registry(
    "kernel",
    "sublight.kernels",
    {
        "decode": "sublight.kernels.decode:DECODE",
        "fused-triton": "sublight.kernels.fused_portable:PORTABLE",
        "fused-triton-fp4": "sublight.kernels.fused_portable:NATIVE",
        "grouped": "sublight.kernels.grouped:GROUPED",
        "masked-triton": "sublight.kernels.masked_portable:DECODED",
        "masked-triton-fp4": "sublight.kernels.masked_portable:NATIVE",
        "quantise-triton": "sublight.kernels.masked_portable:QUANTISE",
    },
)


def all_kernels() -> list[Kernel]:
    """Every declaration, by name."""
    return [_KERNELS.load(name) for name in _KERNELS.names()]


def kernel_named(name: str) -> Kernel:
    """One declaration. Raises UnknownNameError, which names the kernels there are."""
    if name not in _KERNELS:
        raise UnknownNameError("kernel", name, [*_KERNELS.names(), "reference"])
    found: Kernel = _KERNELS.load(name)
    return found
