"""What Linux says of itself: lscpu, numactl -H, /proc and /sys. Small texts, a parser each."""

import re

import msgspec

from sublight.tuning.parsers.values import kept, plain

_PAIR = re.compile(r"([^:\n]+):\s+(\S.*)")


class Value(msgspec.Struct, frozen=True):
    """A value as printed, and its line."""

    text: str
    line: int


class Cpu(msgspec.Struct, frozen=True):
    """`lscpu`, by the names it prints."""

    values: dict[str, Value]

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return value.text if value else ""

    def line(self, name: str) -> int:
        value = self.values.get(name)
        return value.line if value else 0

    @property
    def sockets(self) -> int | None:
        text = self.text("Socket(s)")
        return int(text) if text.isdecimal() else None

    @property
    def nodes(self) -> dict[int, str]:
        """NUMA node -> its CPUs as a list of ranges."""
        found = {}
        for name, value in self.values.items():
            if match := re.fullmatch(r"NUMA node([0-9]+) CPU\(s\)", name):
                found[int(match[1])] = value.text
        return found


def looks_like_cpu(text: str) -> bool:
    return re.search(r"^\s*Architecture: ", text, re.MULTILINE) is not None and "CPU(s): " in text


def parse_cpu(text: str) -> Cpu:
    return Cpu(_pairs(text))


_OF_CPU = re.compile(
    r"(?:Architecture|CPU\(s\)|O(?:n|ff)-line CPU\(s\) list|Vendor ID|Model name|CPU\(s\) scaling MHz|Socket\(s\)"
    r"|Thread\(s\) per core|Core\(s\) per socket|NUMA node(?:\(s\)|[0-9]+ CPU\(s\))|Hypervisor vendor"
    r"|Virtualization type|Vulnerability [\w ]+):\s.*"
)


def keep_cpu(text: str) -> str:
    return kept(text, lambda raw: raw if _OF_CPU.fullmatch(raw.strip()) else "")


def looks_like_memory(text: str) -> bool:
    return re.search(r"^MemTotal: +[0-9]+ kB", text, re.MULTILINE) is not None


def parse_memory(text: str) -> dict[str, Value]:
    """/proc/meminfo, by name."""
    return _pairs(text)


_OF_MEMORY = re.compile(r"(?:Mem\w+|Swap\w+|Huge\w+|AnonHugePages|Buffers|Cached): +[0-9]+(?: kB)?")


def keep_memory(text: str) -> str:
    return kept(text, lambda raw: raw if _OF_MEMORY.fullmatch(raw.strip()) else "")


def kib(values: dict[str, Value], name: str) -> int | None:
    """A size of /proc/meminfo in bytes; its "kB" are 1024."""
    match = re.fullmatch(r"([0-9]+) kB", values[name].text) if name in values else None
    return int(match[1]) * 1024 if match else None


def _pairs(text: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for line, raw in enumerate(plain(text).splitlines(), 1):
        if match := _PAIR.fullmatch(raw.strip()):
            found.setdefault(match[1].strip(), Value(match[2].strip(), line))
    return found


_NODE_SIZE = re.compile(r"^node ([0-9]+) size: ([0-9]+) MB$", re.MULTILINE)


class Numa(msgspec.Struct, frozen=True):
    """`numactl -H`: nodes and the distances between them (10 is a node to itself)."""

    nodes: tuple[int, ...]
    distances: dict[str, int]  # "0-1" -> 32; the one direction that is larger, if they differ
    line: int
    sizes_bytes: dict[int, int]


def looks_like_numa(text: str) -> bool:
    return re.search(r"^available: [0-9]+ nodes?", text, re.MULTILINE) is not None and "node distances:" in text


def parse_numa(text: str) -> Numa:
    lines = plain(text).splitlines()
    at = next((place for place, line in enumerate(lines) if line.startswith("node distances:")), len(lines))
    header = lines[at + 1].split()[1:] if at + 1 < len(lines) else []
    nodes = tuple(int(word) for word in header if word.isdecimal())
    distances: dict[str, int] = {}
    for row in lines[at + 2 :]:
        words = row.replace(":", " ").split()
        if len(words) != len(nodes) + 1 or not all(word.isdecimal() for word in words):
            break
        for other, word in zip(nodes, words[1:], strict=True):
            if int(words[0]) != other:
                pair = "-".join(map(str, sorted((int(words[0]), other))))
                distances[pair] = max(distances.get(pair, 0), int(word))
    sizes = {int(node): int(size) * 2**20 for node, size in _NODE_SIZE.findall(plain(text))}
    return Numa(nodes, distances, at + 1, sizes)


_OF_NUMA = re.compile(
    r"available: [0-9]+ nodes?(?: \([0-9,-]+\))?|node [0-9]+ (?:cpus:[ 0-9]*|(?:size|free): [0-9]+ MB)|node distances:"
    r"|(?:node|[0-9]+:)(?: +[0-9]+)+"
)


def keep_numa(text: str) -> str:
    return kept(text, lambda raw: raw if _OF_NUMA.fullmatch(raw.strip()) else "")


_BOOT = re.compile(r"(BOOT_IMAGE=\S+|\bro\b|\broot=\S+|\bquiet\b|\bconsole=\S+)")

_ARGUMENT = re.compile(r'(?:[^\s"]|"[^"]*"?)+')  # a value in double quotes may hold spaces


def looks_like_cmdline(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == 1 and len(_BOOT.findall(lines[0])) >= 2


def parse_cmdline(text: str) -> dict[str, list[str]]:
    """Kernel parameters in their order: name -> every value it is given; "" for one without a value."""
    found: dict[str, list[str]] = {}
    for name, value in arguments(text):
        found.setdefault(name, []).append(value)
    return found


def arguments(text: str) -> list[tuple[str, str]]:
    """Kernel parameters as they stand, for those of which a later one overrules an earlier one of another name."""
    found = []
    for word in _ARGUMENT.findall(plain(text)):
        if word == "--":  # what follows is for init
            break
        name, _, value = word.replace('"', "").partition("=")
        found.append((name.replace("-", "_"), value))  # to the kernel a dash in a parameter's name is an underscore
    return found


# What is read, by name. Anything else on a command line may be an address, a host's name or a secret.
_PARAMETERS = frozenset(
    (
        *("iommu", "amd_iommu", "intel_iommu", "iommu.passthrough", "iommu.strict", "pcie_port_pm", "pcie_aspm"),
        *("processor.max_cstate", "intel_idle.max_cstate", "idle", "cpuidle.off", "mitigations", "nopti"),
        *("nospectre_v1", "nospectre_v2", "spectre_v2", "spectre_v2_user", "l1tf", "mds", "tsx_async_abort", "srbds"),
        *("mmio_stale_data", "retbleed", "spectre_bhi", "spec_store_bypass_disable"),
    )
)


def keep_cmdline(text: str) -> str:
    """Parameters that are read, and of the kernel's image its name without the folder."""
    words = []
    for name, value in arguments(text):
        if name == "BOOT_IMAGE":
            image = re.search(r"vmlinuz-[\w.+~-]+$", value)
            words += [f"BOOT_IMAGE={image[0]}"] if image else []
        elif name in _PARAMETERS and re.fullmatch(r"[\w,.:+-]{0,60}", value):
            words.append(f"{name}={value}" if value else name)
    return " ".join(words) + "\n"


_PATH_LINE = re.compile(r"(/(?:proc|sys)/[^\n]*?):(.*)")
_SYSCTL = re.compile(r"((?:kernel|vm)\.[a-z0-9_.]+) = (.*)")


def looks_like_files(text: str, prefix: str) -> bool:
    return any(path.startswith(prefix) for path in parse_files(text))


def parse_files(text: str) -> dict[str, Value]:
    """`grep -H "" FILES` or `sysctl -a`: path -> what is in it; several lines of one file are joined by newlines."""
    found: dict[str, Value] = {}
    for line, raw in enumerate(plain(text).splitlines(), 1):
        if setting := _SYSCTL.fullmatch(raw):
            found.setdefault("/proc/sys/" + setting[1].replace(".", "/"), Value(setting[2], line))
        elif match := _PATH_LINE.fullmatch(raw):
            before = found.get(match[1])
            joined = match[2] if before is None else f"{before.text}\n{match[2]}"
            found[match[1]] = Value(joined, line if before is None else before.line)
    return found


_PARAMS = "/proc/driver/nvidia/params"
_OF_PARAMS = re.compile(r'\w+: [0-9]+|RegistryDwords: "[\w=;, ]*"')


def keep_files(text: str, paths: re.Pattern[str]) -> str:
    """The lines of those files, in either form."""

    def of_a_line(raw: str) -> str:
        if setting := _SYSCTL.fullmatch(raw):
            path, value = "/proc/sys/" + setting[1].replace(".", "/"), setting[2]
        elif match := _PATH_LINE.fullmatch(raw):
            path, value = match[1], match[2]
        else:
            return ""
        if not paths.fullmatch(path) or (path == _PARAMS and not _OF_PARAMS.fullmatch(value)):
            return ""
        return raw

    return kept(text, of_a_line)


def looks_like_iommu(text: str) -> bool:
    return re.search(r"^/sys/(class/iommu|kernel/iommu_groups):$", text, re.MULTILINE) is not None


def parse_iommu(text: str) -> dict[str, tuple[str, ...]]:
    """`ls` of both folders: folder -> what is in it."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for raw in plain(text).splitlines():
        if raw.endswith(":") and raw.startswith("/sys/"):
            names = found.setdefault(raw[:-1], [])
        elif raw.strip():
            names.append(raw.strip())
    return {folder: tuple(items) for folder, items in found.items()}


_OF_IOMMU = re.compile(r"/sys/(?:class/iommu|kernel/iommu_groups):|[0-9]{1,5}|(?:dmar|ivhd|smmu)[\w.]*")


def keep_iommu(text: str) -> str:
    return kept(text, lambda raw: raw if _OF_IOMMU.fullmatch(raw.strip()) else "")


_KERNEL = re.compile(r"\s*Linux ([0-9]+\.[0-9]+\S*)\s*")


def looks_like_kernel(text: str) -> bool:
    return text.count("\n") <= 1 and parse_kernel(text) != ""


def parse_kernel(text: str) -> str:
    """The release in `uname -sr` or `uname -a`; "" where it is none."""
    match = _KERNEL.fullmatch(text) or re.match(r"Linux \S+ ([0-9]+\.[0-9]+\S*) #", text)
    return match[1] if match else ""


def keep_kernel(text: str) -> str:
    """The release alone: what else `uname -a` prints names the machine."""
    release = parse_kernel(text)
    return f"Linux {release}\n" if release else ""


_MOST_CPUS = 65536  # the kernel is built for 8192 at the most; what is beyond is a damaged list


def ranges(text: str) -> set[int]:
    """CPUs of "0-63,128-191"."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and int(last or first) < _MOST_CPUS:
            found.update(range(int(first), int(last or first) + 1))
    return found
