"""`lspci -vvv`: every PCI device with its link, its payload sizes, its ACS control, and the bridges above it."""

import re
from collections.abc import Iterator

import msgspec

from sublight.tuning.parsers.values import kept, plain

_DEVICE = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7]) (.+?): (.+)")
_BUS = re.compile(r"Bus: primary=[0-9a-f]+, secondary=([0-9a-f]+), subordinate=([0-9a-f]+)")
_LINK = re.compile(r"Speed ([0-9.]+)GT/s(?: \((\w+)\))?, Width x([0-9]+)(?: \((\w+)\))?")
_SIZES = re.compile(r"MaxPayload ([0-9]+) bytes, MaxReadReq ([0-9]+) bytes")
_BAR = re.compile(r"Region ([0-9]+): Memory at .*\[size=([0-9]+)([KMGT])\]")
_NUMA = re.compile(r"NUMA node: ([0-9]{1,4})")  # -1 where the firmware does not say
# Lines that are kept as they are: numbers, flags, and what the subsystem is called.
_READ = re.compile(
    r"(?:Bus: primary=|LnkCap:|LnkSta:)[\w\s=,.()/#+-]*|(?:ACSCtl|Control):[\w\s/+-]*"
    r"|NUMA node: -?[0-9]{1,4}$|Subsystem: .*"
)
_FLAG = re.compile(r"(\w+)([+-])")
_UNIT = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_DISPLAY = ("3D controller", "VGA compatible controller", "Display controller", "Processing accelerators")


class Link(msgspec.Struct, frozen=True):
    """Speed in GT/s and lanes, and the line."""

    speed_gts: float
    width: int
    line: int


class Device(msgspec.Struct, frozen=True):
    """One function. What is behind a capability that only root may read is absent, and `denied` is set."""

    address: str  # with its domain: "0000:06:00.0"
    kind: str
    title: str
    line: int
    link_can: Link | None = None
    link_now: Link | None = None
    payload_bytes: int | None = None
    read_request_bytes: int | None = None
    sizes_line: int = 0
    acs: dict[str, bool] | None = None
    acs_line: int = 0
    secondary: int | None = None
    subordinate: int | None = None
    numa: int | None = None
    largest_bar_bytes: int = 0
    denied: bool = False

    @property
    def domain(self) -> str:
        return self.address[:-8]

    @property
    def bus(self) -> int:
        return int(self.address[-7:-5], 16)

    @property
    def is_bridge(self) -> bool:
        return self.secondary is not None

    @property
    def is_gpu(self) -> bool:
        return self.kind.split(" [")[0] in _DISPLAY and ("NVIDIA" in self.title or "10de:" in self.title)

    @property
    def redirects(self) -> bool:
        """Whether ACS sends peer traffic up to the root instead of across."""
        return self.acs is not None and (self.acs.get("ReqRedir", False) or self.acs.get("CmpltRedir", False))


class Pci(msgspec.Struct, frozen=True):
    devices: tuple[Device, ...]

    def gpu_at(self, bus: str) -> Device | None:
        """The card of an address in whichever spelling."""
        return next((device for device in self.gpus if bus and device.address == address(bus)), None)

    @property
    def gpus(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.is_gpu)

    def above(self, device: Device) -> tuple[Device, ...]:
        """The bridges between a device and the root complex, nearest first."""
        found = [
            bridge
            for bridge in self.devices
            if bridge.secondary is not None
            and bridge.subordinate is not None
            and bridge.domain == device.domain
            and bridge.secondary <= device.bus <= bridge.subordinate
        ]
        return tuple(sorted(found, key=lambda bridge: -(bridge.secondary or 0)))

    @property
    def above_gpus(self) -> tuple[Device, ...]:
        """Every bridge that is above a GPU, once, in the order of the listing."""
        addresses = {bridge.address for gpu in self.gpus for bridge in self.above(gpu)}
        return tuple(device for device in self.devices if device.address in addresses)


def address(bus: str) -> str:
    """An address as it is spelt here; nvidia-smi writes a domain of eight digits, lspci of four or more."""
    domain, _, rest = bus.lower().rpartition(":")[0].rpartition(":")
    number = int(domain, 16) if re.fullmatch("[0-9a-f]{1,8}", domain) else 0
    return f"{number:04x}:{rest}:{bus.lower().rpartition(':')[2]}"


def looks_like(text: str) -> bool:
    return any(_DEVICE.match(line) for line in text.splitlines()) and (
        "\tSubsystem: " in text or "\tCapabilities: " in text or "\tControl: " in text
    )


def keep(text: str) -> str:
    """The lines that are read, and those by which a listing is recognised; no vital product data, no serial numbers."""
    return kept(text, _kept)


def _kept(raw: str) -> str:
    line = raw.strip()
    if _DEVICE.match(raw):
        return raw
    if not raw[:1].isspace():
        return ""
    if "<access denied>" in line:
        return "\tCapabilities: <access denied>"
    if match := _BAR.match(line) or _SIZES.search(line) or _READ.match(line):
        return f"\t{match[0]}"
    return ""


def parse(text: str) -> Pci:
    return Pci(tuple(_device(block) for block in _blocks(plain(text))))


def _blocks(text: str) -> Iterator[list[tuple[int, str]]]:
    """The lines of each device with their numbers."""
    block: list[tuple[int, str]] = []
    for line, raw in enumerate(text.splitlines(), 1):
        if _DEVICE.match(raw):
            if block:
                yield block
            block = [(line, raw)]
        elif block and raw[:1].isspace():
            block.append((line, raw.strip()))
    if block:
        yield block


def _device(block: list[tuple[int, str]]) -> Device:
    line, head = block[0]
    match = _DEVICE.match(head)
    assert match is not None
    domain, bus, slot, function, kind, title = match.groups()
    found: dict[str, object] = {}
    for place, text in block[1:]:
        for name, value in _read(place, text, found):
            found.setdefault(name, value)
    at = address(f"{domain or '0000'}:{bus}:{slot}.{function}")
    return msgspec.convert({"address": at, "kind": kind, "title": title, "line": line, **found}, Device)


def _read(line: int, text: str, found: dict[str, object]) -> Iterator[tuple[str, object]]:
    if match := _BUS.match(text):
        yield "secondary", int(match[1], 16)
        yield "subordinate", int(match[2], 16)
    elif text.startswith(("LnkCap:", "LnkSta:")):
        if link := _LINK.search(text):
            value = {"speed_gts": float(link[1]), "width": int(link[3]), "line": line}
            yield ("link_can" if text.startswith("LnkCap") else "link_now"), value
    elif match := _SIZES.search(text):
        yield "payload_bytes", int(match[1])
        yield "read_request_bytes", int(match[2])
        yield "sizes_line", line
    elif text.startswith("ACSCtl:"):
        yield "acs", {name: sign == "+" for name, sign in _FLAG.findall(text)}
        yield "acs_line", line
    elif match := _NUMA.fullmatch(text):
        yield "numa", int(match[1])
    elif "<access denied>" in text:
        yield "denied", True
    elif match := _BAR.match(text):
        size = int(match[2]) * _UNIT[match[3]]
        largest = found.get("largest_bar_bytes", 0)
        found["largest_bar_bytes"] = max(size, largest) if isinstance(largest, int) else size
