"""What choosing a kernel has to know of the GPU that holds a tensor."""

import torch

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
