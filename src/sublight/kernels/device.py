"""What choosing a kernel has to know of the GPU that holds a tensor: its exact target and a block's shared memory."""

import torch


def target_of(device: torch.device) -> str:
    """The exact architecture: "sm_90"."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def shared_memory_bytes(device: torch.device) -> int | None:
    """The most one block can opt in to, as the driver says; None where this build of torch does not hand it on."""
    properties = torch.cuda.get_device_properties(device)
    limit: int | None = getattr(properties, "shared_memory_per_block_optin", None)
    return limit
