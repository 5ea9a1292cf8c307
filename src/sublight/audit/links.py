"""Whether NVLink joins the cards of a kind: what the catalogue says, for code that asks it of the machine."""

from sublight.errors import SublightError
from sublight.facts.gpu import get_gpu

SAID = {True: " that NVLink joins, as it usually does this card", False: " without NVLink", None: ""}


def linked(gpu: str) -> bool | None:
    """Whether NVLink joins all cards of a kind; None for a card nobody knows, and for one that has it in pairs."""
    try:
        known = get_gpu(gpu)
    except SublightError:
        return None
    if known.nvlink_bytes_per_s_bidirectional.value == 0:
        return False
    return True if known.interconnect.startswith("nvlink") else None
