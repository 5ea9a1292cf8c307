"""Which kernel computes a problem on one exact target, and with which numbers: a pure function that gives its reasons.

No torch, no GPU: what it would do on any card can be asked on any machine.
"""

from collections.abc import Iterable, Mapping

import msgspec

from sublight.errors import KernelError
from sublight.facts.gpu import Gpu
from sublight.kernels.catalogue import Kernel, Limits, all_kernels
from sublight.kernels.problem import Problem


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel for a problem.

    Attributes:
        status: whether it was run on this target, or only compiled for it.
        configuration: the numbers it is compiled with.
        reason: why this one, in words.
        refused: the others, and why not.
    """

    kernel: Kernel
    target: str
    status: str
    configuration: Mapping[str, int]
    reason: str
    refused: Mapping[str, str]


def choose(problem: Problem, gpu: Gpu, kernels: Iterable[Kernel] | None = None) -> Choice:
    """The kernel for a problem on a card of the catalogue. Raises KernelError with every candidate's reason."""
    return choose_for(problem, Limits.of(gpu), kernels)


def choose_for(problem: Problem, limits: Limits, kernels: Iterable[Kernel] | None = None) -> Choice:
    """The same from what choosing needs of a card. `kernels` are the candidates; the catalogue's where left out."""
    target = limits.target
    refused: dict[str, str] = {}
    fitting: list[tuple[Kernel, Mapping[str, int], int]] = []
    for kernel in all_kernels() if kernels is None else kernels:
        why = kernel.refusal(problem, target)
        if not why:
            try:
                configuration = kernel.configuration(problem, limits)
                fitting.append((kernel, configuration, kernel.priority_for(problem, limits)))
            except KernelError as error:
                why = f"{error.asked}: {error.found}"
        if why:
            refused[kernel.name] = why
    if not fitting:
        raise _none_fits(problem, target, refused)
    # What was run beats what was only compiled; between equals the priority decides, then the name.
    fitting.sort(key=lambda one: (not one[0].was_run(target), -one[2], one[0].name))
    kernel, configuration, _ = fitting[0]
    return Choice(
        kernel=kernel,
        target=target,
        status=kernel.statuses[target],
        configuration=configuration,
        reason=_reason([(kernel, priority) for kernel, _, priority in fitting], target),
        refused=refused,
    )


def _reason(fitting: list[tuple[Kernel, int]], target: str) -> str:
    (kernel, priority), *others = fitting
    status = kernel.statuses[target]
    if not others:
        return f"{kernel.name} ({status} for {target}) is the only one that fits"
    parts = []
    for other, below in others:
        compiled_only = kernel.was_run(target) and not other.was_run(target)
        why = "only compiled" if compiled_only else f"priority {below} against {priority}"
        parts.append(f"{other.name} ({why})")
    return f"{kernel.name} ({status} for {target}) before {', '.join(parts)}"


def _none_fits(problem: Problem, target: str, refused: Mapping[str, str]) -> KernelError:
    reasons = "; ".join(f"{name}: {why}" for name, why in refused.items()) or "there is no kernel for any"
    return KernelError(
        f"a kernel of {problem.op} for {problem} on {target}",
        f"none fits: {reasons}",
        "backend='reference' for a slow and exact result, or another problem",
    )
