"""Global scales before a kernel trusts them: present, finite, usable, and the right way round.

A checkpoint can lack the activation scales of experts that no calibration prompt reached, or hold 0, infinity or a
number whose reciprocal overflows (vllm#45212, #54189): the model then answers well until a prompt reaches such an
expert. And a divisor read as a multiplier (modular#6600) scales everything by 1.3e7.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.facts.scales import scale_problem

_UNCALIBRATED = "a checkpoint calibrated on all experts, or a kernel that reads activations in BF16 (W4A16)"


def unsound(values: Tensor | Sequence[float | None]) -> dict[int, str]:
    """Expert number -> why its scale cannot be meant: "missing", "zero", "inf", "nan", "negative", "denormal"."""
    numbers = values.flatten().tolist() if isinstance(values, Tensor) else values
    problems = {number: "missing" if value is None else scale_problem(value) for number, value in enumerate(numbers)}
    return {number: problem for number, problem in problems.items() if problem}


def require_sound(name: str, values: Tensor | Sequence[float | None], hint: str = _UNCALIBRATED) -> None:
    """Raises KernelError that names every expert whose scale is missing or unusable; `hint` is what to try."""
    wrong = unsound(values)
    if wrong:
        listed = ", ".join(f"expert {number} {problem}" for number, problem in wrong.items())
        raise KernelError(f"{name} of every expert", listed, hint)


def stack_scales(name: str, of_expert: Mapping[int, Tensor | None], experts: int) -> Tensor:
    """fp32 [experts] from one scalar each.

    Raises:
        KernelError: a scale that is missing or unusable; a checkpoint that has none at all is weight-only.
    """
    found = [of_expert.get(number) for number in range(experts)]
    if all(value is None for value in found):
        hint = "a kernel that reads activations in BF16 (W4A16)"
        raise KernelError(f"{name} of {experts} experts", "the checkpoint is weight-only: it has none", hint)
    require_sound(name, [None if value is None else float(value.reshape(()).item()) for value in found])
    return torch.stack([value.reshape(()).float() for value in found if value is not None])


def require_convention(name: str, values: Tensor, *, is_divisor: bool) -> None:
    """Raises KernelError where the median lies on the wrong side of 1 for what its name promises.

    A multiplier is amax/2688 and a divisor 2688/amax; weights have an amax far below 2688, so the two never meet.
    """
    median = float(values.float().flatten().median())
    if is_divisor and median < 1:
        found = f"convention looks reversed, stop: the median is {median:.4g}, and a divisor lies above 1"
        raise KernelError(f"{name} as a divisor", found, "the multiplier's name, or 2688/amax under this one")
    if not is_divisor and median > 1:
        found = f"convention looks reversed, stop: the median is {median:.4g}, and a multiplier lies below 1"
        raise KernelError(f"{name} as a multiplier", found, "the divisor's name, or amax/2688 under this one")
