"""What a healthy all-reduce takes on the cards of a trace, as somebody published it: the measured one is held to it."""

from collections.abc import Sequence

from sublight.errors import SublightError
from sublight.facts.gpu import get_gpu
from sublight.facts.interconnect import collective_time, interconnect_for
from sublight.trace.events import Trace
from sublight.trace.oddity import Published

_BYTES = {"bfloat16": 2, "bf16": 2, "half": 2, "float16": 2, "float": 4, "float32": 4, "fp32": 4}


def healthy_all_reduce(trace: Trace, ranks: int = 0) -> Published | None:
    """The published time of NCCL for these cards and the size that the trace tells; None where nothing is known.

    A CUDA graph hides the size. The smallest published one then stands for it: decode sends a few kilobytes.

    Args:
        trace: which names its card and, usually, the number of ranks.
        ranks: how many there are, where that is known better.
    """
    gpus = ranks or trace.world_size or 0
    card = next((device.name for device in trace.devices), "")
    if gpus < 2 or not card:
        return None
    try:
        link = interconnect_for(get_gpu(card))
    except SublightError:
        return None  # a card that the catalogue does not have, or a name that several share
    payload = _payload_bytes(trace)
    found = collective_time(link, "all-reduce", "nccl", gpus, payload)
    if found.seconds.value is None:
        return None
    return Published(round(found.seconds.value * 1e9), f"{found.rule}; {link.title}")


def _payload_bytes(trace: Trace) -> int:
    """What most all-reduces of the trace carry; 0 where it does not say."""
    sizes: Sequence[int] = [
        (launch.collective.elements_in or 0) * _BYTES.get(launch.collective.dtype.lower(), 0)
        for launch in trace.gpu.launches
        if launch.collective is not None and "allreduce" in launch.collective.name.lower().replace("_", "")
    ]
    return min((size for size in sizes if size), default=0)
