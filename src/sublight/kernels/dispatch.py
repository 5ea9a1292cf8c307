"""The one place where a call meets a kernel: the reference by name, a kernel by name, or the catalogue's choice.

Nothing falls back: tensors on a CPU are refused unless the reference is named, and a GPU for which no kernel fits is
refused with every candidate's reason. This module imports no torch until a GPU has to be asked what it is.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sublight.errors import KernelError
from sublight.kernels.catalogue import all_kernels, kernel_named, load
from sublight.kernels.problem import Problem

if TYPE_CHECKING:
    import torch

# What computes each operation on any device, in plain torch: slow and exact.
_REFERENCES = {
    "fused_moe": "sublight.kernels.reference:prepare",
    "grouped_gemm_nt_masked": "sublight.kernels.masked_reference:grouped_gemm",
    "grouped_quantise": "sublight.kernels.masked_reference:quantise",
}


class Dispatched(NamedTuple):
    """What runs a problem, the numbers it is configured with, and why it is this one."""

    run: Callable[..., Any]
    configuration: Mapping[str, int]
    reason: str


def dispatch(call: str, problem: Problem, device: "torch.device", backend: str | None) -> Dispatched:
    """What runs `problem` on this device.

    Args:
        call: what errors name.
        backend: "reference", a kernel's name, or None for the catalogue's choice.

    Raises:
        KernelError: a backend that is no name, tensors on a CPU without the reference named, or no kernel for this GPU,
            with every reason.
        UnknownNameError: a backend that is no kernel.
    """
    _require_name(call, problem.op, backend)
    if backend == "reference":
        return Dispatched(load(_REFERENCES[problem.op]), {}, "reference (asked for by name)")
    kernels = None if backend is None else [kernel_named(backend)]
    require_gpu(call, device.type)
    from sublight.kernels.device import limits_of
    from sublight.kernels.heuristics import choose_for

    choice = choose_for(problem, limits_of(device), kernels)
    return Dispatched(choice.kernel.load(), choice.configuration, choice.reason)


def _require_name(call: str, op: str, backend: Any) -> None:
    if backend is not None and not isinstance(backend, str):
        names = ", ".join(sorted(["reference", *(kernel.name for kernel in all_kernels() if kernel.op == op)]))
        raise KernelError(f"{call}: backend", f"it is {backend!r}, which is no name", f"None, or one of {names}")


def require_gpu(call: str, device_type: str) -> None:
    """Raises KernelError for tensors on a CPU, or anything else that no kernel here runs on."""
    if device_type != "cuda":
        found = f"its tensors are on {device_type}, and kernels run on CUDA GPUs"
        raise KernelError(call, found, "backend='reference', which is plain torch: slow and exact")
