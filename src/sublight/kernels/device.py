"""What choosing a kernel has to know of the GPU that holds a tensor."""

from typing import Any

import torch

from sublight.errors import KernelError
from sublight.kernels.catalogue import Limits


def limits_of(device: torch.device) -> Limits:
    """Its exact target and limits, as the driver says; a limit is None where this torch does not hand it on."""
    major, minor = torch.cuda.get_device_capability(device)
    properties = torch.cuda.get_device_properties(device)
    return Limits(
        target=f"sm_{major}{minor}",
        shared_memory_bytes=getattr(properties, "shared_memory_per_block_optin", None),
        sm_count=properties.multi_processor_count,
    )


def usable_device(call: str, device: Any) -> torch.device:
    """The device with its number. Raises KernelError for one that this torch does not know, or cannot use here."""
    try:
        return torch.empty(0, device=device).device
    except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        hint = "the device of the weights, or a torch and a driver that have this one"
        raise KernelError(f"{call}: device", f"torch cannot use {device!r} here: {reason}", hint) from None
