"""Whether cards may write into each other's memory, or have to meet in the memory of the host."""

from collections import Counter
from collections.abc import Iterator

from sublight.tuning.checks.base import RTX6K, Check, Knob, costs
from sublight.tuning.machine import MachineFacts
from sublight.tuning.parsers import matrix
from sublight.tuning.readings import Readings
from sublight.tuning.record import Finding, Gain, Verdict

_MEASURED = f"{RTX6K} hardware/pcie-bandwidth.md"
_MEANING = {
    "CNS": "the chipset does not allow it",
    "GNS": "the GPU or its driver does not allow it",
    "TNS": "the topology does not allow it",
    "NS": "not supported",
    "DR": "disabled by a registry key of the driver",
    "U": "the driver does not know",
}

PEER_ACCESS = Knob(
    "peer access (P2P)",
    "OK for every pair",
    "a message between cards takes 0.36 to 0.45 us with it and about 14 us through the memory of the host",
    _MEASURED,
    Gain.MEASURED,
    costs("milliseconds a step", 13.6, "us a message", _MEASURED, "14 us staged against 0.4 us direct"),
)


def _judge(readings: Readings, machine: MachineFacts) -> Iterator[Finding]:
    if len(machine.gpus) == 1:
        return
    source = "nvidia-smi topo -p2p r"
    found: matrix.Matrix | None = readings.parsed(source)
    pairs = found.pairs() if found and found.is_whole else ()
    if not pairs:
        yield PEER_ACCESS.unread(readings, source, reason="its matrix is cut short" if found else "")
        return
    statuses = Counter(status for _, _, status in pairs)
    where = readings.where(source, found.gpus[0].line if found else 0)
    if set(statuses) == {"OK"}:
        words = f"OK for all {len(pairs)} pairs" if len(pairs) > 1 else "OK for the pair"
        yield PEER_ACCESS.found(Verdict.FINE, words, where)
        return
    listed = ", ".join(f"{status} for {count} of {len(pairs)} pairs" for status, count in statuses.most_common())
    reasons = "; ".join(f"{status}: {_MEANING[status]}" for status in statuses if status in _MEANING)
    setting = readings.file("/proc/driver/nvidia/params")
    keys = (
        next((line for line in setting[0].text.splitlines() if line.startswith("RegistryDwords:")), "")
        if setting
        else ""
    )
    yield PEER_ACCESS.found(
        Verdict.CHANGE,
        listed,
        where,
        setting[1] if setting else "",
        why=f"{reasons}. GeForce drivers refuse it whatever is set; elsewhere look at ACS, the IOMMU, Resizable BAR, "
        f"and the driver's keys (ForceP2P=0x11, RMForceP2PType=1, RMPcieP2PType=2, GrdmaPciTopoCheckOverride=1)"
        + (f"; the driver was loaded with {keys}" if keys else ""),
        command="nvidia-smi topo -p2p w, then p2pBandwidthLatencyTest of the CUDA samples",
    )


CHECK = Check("peer-access", ("nvidia-smi topo -p2p r", "NVIDIA driver"), _judge)
