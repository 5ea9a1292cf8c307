"""Command output of machines that are put together for a test, in the form in which the tools print it.

The large one is a server with two processors, two PCIe switches and two cards on each. Every text is written here from
a description, so that a test changes one property and nothing else.
"""

from dataclasses import dataclass
from pathlib import Path

PRO_6000 = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
SWITCHES: tuple[tuple[str, str, str, tuple[str, str]], ...] = (
    ("00:01.1", "01", "02", ("03", "04")),
    ("80:01.1", "81", "82", ("83", "84")),
)  # root, up, inside, cards


@dataclass(frozen=True)
class Server:
    """What is true of it; the defaults are a machine with nothing wrong, read while idle."""

    pstate: str = "P8"
    utilization: int = 0
    generation: int = 1
    width: int = 16
    power_w: float = 39.17
    limit_w: float = 600.0
    memory: str = "97887 MiB"
    bar1: str = "131072 MiB"
    slowdown: str = "Not Active"
    persistence: str = "Enabled"
    acs: str = "-"
    root: bool = True
    upstream_width: int = 16
    cmdline: str = "BOOT_IMAGE=/vmlinuz-6.17.0-20-generic root=/dev/sda1 ro quiet iommu=off amd_iommu=off"
    peers: str = "OK"
    hypervisor: str = ""
    cpus: str = "64-127"
    switches: tuple[tuple[str, str, str, tuple[str, str]], ...] = SWITCHES

    def smi(self) -> str:
        head = (
            "\n==============NVSMI LOG==============\n\n"
            "Driver Version                         : 595.58.03\nCUDA Version                           : 13.2\n\n"
            "Attached GPUs                          : 4\n"
        )
        return head + "\n".join(self._gpu(bus) for _, _, _, cards in SWITCHES for bus in cards)

    def _gpu(self, bus: str) -> str:
        return f"""GPU 00000000:{bus.upper()}:00.0
    Product Name                       : {PRO_6000}
    Persistence Mode                   : {self.persistence}
    Serial Number                      : 1320022032114
    GPU UUID                           : GPU-7a0b1c2d-1234-5678-9abc-def012345678
    PCI
        GPU Link Info
            PCIe Generation
                Max                    : 5
                Current                : {self.generation}
            Link Width
                Max                    : 16x
                Current                : {self.width}x
    Performance State                  : {self.pstate}
    Clocks Event Reasons
        Idle                           : {"Active" if self.pstate == "P8" else "Not Active"}
        SW Power Cap                   : Not Active
        HW Slowdown                    : {self.slowdown}
            HW Power Brake Slowdown    : {self.slowdown}
    FB Memory Usage
        Total                          : {self.memory}
    BAR1 Memory Usage
        Total                          : {self.bar1}
    Utilization
        GPU                            : {self.utilization} %
    GPU Power Readings
        Average Power Draw             : N/A
        Instantaneous Power Draw       : {self.power_w:.2f} W
        Current Power Limit            : {self.limit_w:.2f} W
        Default Power Limit            : 600.00 W
"""

    def pci(self) -> str:
        return "\n".join(block for switch in self.switches for block in self._switch(*switch))

    def _switch(self, root: str, up: str, inside: str, cards: tuple[str, str]) -> list[str]:
        last = cards[-1]
        own = root[:2]
        blocks = [
            self._bridge(root, "Advanced Micro Devices, Inc. [AMD] Device 153e", own, up, last, self.upstream_width),
            self._bridge(f"{up}:00.0", "Broadcom / LSI PEX890xx PCIe Gen 5 Switch", up, inside, last, 16, acs=False),
        ]
        for place, card in enumerate(cards):
            port = f"{inside}:0{place + 1}.0"
            blocks.append(
                self._bridge(port, "Broadcom / LSI PEX890xx PCIe Gen 5 Switch", inside, card, card, self.width)
            )
        return blocks + [self._card(card) for card in cards]

    def _bridge(self, at: str, title: str, own: str, first: str, last: str, width: int, acs: bool = True) -> str:
        lines = [
            f"{at} PCI bridge: {title} (prog-if 00 [Normal decode])",
            "Control: I/O+ Mem+ BusMaster+",
            f"Bus: primary={own}, secondary={first}, subordinate={last}, sec-latency=0",
            *self._capabilities(32.0, width),
        ]
        if acs and self.root:
            lines.append(
                f"ACSCtl:\tSrcValid+ TransBlk- ReqRedir{self.acs} CmpltRedir{self.acs} UpstreamFwd+ EgressCtrl-"
            )
        return "\n\t".join(lines) + "\n"

    def _card(self, bus: str) -> str:
        speed = 2.5 if self.generation == 1 else 32.0
        lines = [
            f"{bus}:00.0 3D controller: NVIDIA Corporation Device 2bb5 (rev a1)",
            "Subsystem: NVIDIA Corporation Device 204e",
            f"NUMA node: {0 if bus < '80' else 1}",
            "Region 2: Memory at 76000000000 (64-bit, prefetchable) [size=128G]",
            *self._capabilities(speed, self.width),
        ]
        return "\n\t".join(lines) + "\n"

    def _capabilities(self, speed: float, width: int) -> list[str]:
        if not self.root:
            return ["Capabilities: <access denied>"]
        slowed = " (downgraded)" if speed < 32 else ""
        return [
            "Capabilities: [60] Express (v2)",
            "\tMaxPayload 256 bytes, MaxReadReq 512 bytes",
            "LnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1",
            f"LnkSta:\tSpeed {speed:g}GT/s{slowed}, Width x{width}",
        ]

    def topology(self) -> str:
        head = "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        rows = [
            "GPU0\t X \tPIX\tSYS\tSYS\t0-63\t0\t\tN/A",
            "GPU1\tPIX\t X \tSYS\tSYS\t0-63\t0\t\tN/A",
            f"GPU2\tSYS\tSYS\t X \tPIX\t{self.cpus}\t1\t\tN/A",
            f"GPU3\tSYS\tSYS\tPIX\t X \t{self.cpus}\t1\t\tN/A",
        ]  # fmt: skip
        return head + "\n".join(rows) + "\n\nLegend:\n\n  X    = Self\n  PIX  = at most a single PCIe bridge\n"

    def peer_access(self) -> str:
        p = self.peers
        rows = [
            f" GPU0\tX\tOK\t{p}\t{p}",
            f" GPU1\tOK\tX\t{p}\t{p}",
            f" GPU2\t{p}\t{p}\tX\tOK",
            f" GPU3\t{p}\t{p}\tOK\tX",
        ]
        legend = "\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"
        return " \t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\t\x1b[0m\n" + "\n".join(rows) + legend

    def cpu(self) -> str:
        guest = f"Hypervisor vendor:   {self.hypervisor}\nVirtualization type: full\n" if self.hypervisor else ""
        return (
            "Architecture:        x86_64\nCPU(s):              128\nOn-line CPU(s) list: 0-127\n"
            "Model name:          AMD EPYC 9575F 64-Core Processor\nSocket(s):           2\n"
            f"{guest}NUMA node(s):        2\nNUMA node0 CPU(s):   0-63\nNUMA node1 CPU(s):   64-127\n"
        )

    def numa(self) -> str:
        return (
            "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2\nnode 0 size: 773676 MB\nnode 1 cpus: 64 65\n"
            "node 1 size: 774030 MB\nnode distances:\nnode   0   1 \n  0:  10  32 \n  1:  32  10 \n"
        )

    def texts(self) -> dict[str, str]:
        """Everything, under names that say nothing."""
        return {
            "a.log": self.smi(),
            "b.log": self.topology(),
            "c.log": self.peer_access(),
            "d.log": self.pci(),
            "e.log": self.cpu(),
            "f.log": self.numa(),
            "g.log": self.cmdline + "\n",
        }


def folder(path: Path, texts: dict[str, str]) -> Path:
    """The texts as files of a folder."""
    path.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (path / name).write_text(text)
    return path
