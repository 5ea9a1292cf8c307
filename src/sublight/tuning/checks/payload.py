"""Sizes of PCIe packets: often tuned, and without effect where it was measured."""

from collections import Counter
from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, unmeasured
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import lspci
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict
from sublight.units import counted

READ_REQUEST = Knob(
    "PCIe MaxReadReq",
    "leave it (512)",
    "128 to 4096 changed nothing; a switch port that locks it at 128 lost nothing either",
    f"{RTX6K} hardware/pcie-posted-write-collapse.md",
    Gain.NONE,
    unmeasured("none shown", "measured, without a difference"),
)
PAYLOAD = Knob(
    "PCIe MaxPayload",
    "as negotiated",
    "it is settled between a port and its device at start and cannot be tuned afterwards",
    f"{RTX6K} hardware/pcie-posted-write-collapse.md",
    Gain.NONE,
    unmeasured("none shown", "there is no other setting to compare with"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:  # noqa: ARG001 - the form of a check
    pci: lspci.Pci | None = readings.parsed("lspci -vvv")
    gpus = pci.gpus if pci else ()
    sized = [gpu for gpu in gpus if gpu.read_request_bytes is not None]
    if not sized:
        denied = any(gpu.denied for gpu in gpus)
        reason = "lspci was not run as root: capabilities are <access denied>" if denied else (
            "" if pci is None else "the listing shows no NVIDIA GPU with these sizes"
        )  # fmt: skip
        yield READ_REQUEST.unread(readings, "lspci -vvv", reason=reason)
        yield PAYLOAD.unread(readings, "lspci -vvv", reason=reason)
        return
    where = readings.where("lspci -vvv", sized[0].sizes_line)
    yield READ_REQUEST.found(Verdict.FINE, _counted([gpu.read_request_bytes for gpu in sized]), where)
    yield PAYLOAD.found(Verdict.FINE, _counted([gpu.payload_bytes for gpu in sized]), where)


def _counted(sizes: list[int | None]) -> str:
    counts = Counter(sizes)
    if len(counts) == 1:
        return f"{sizes[0]} bytes on {'all GPUs' if len(sizes) > 1 else 'the GPU'}"
    return ", ".join(f"{size} bytes on {counted(count, 'GPU')}" for size, count in counts.most_common())


CHECK = Check("payload", ("lspci -vvv",), _judge)
