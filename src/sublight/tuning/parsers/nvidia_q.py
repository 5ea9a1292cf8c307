"""`nvidia-smi -q`: a tree by indentation, one section a GPU. Names of fields have changed between drivers."""

import re
from collections.abc import Iterator

import msgspec

from sublight.tuning.parsers.values import has_value, number, plain

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_FIELD = re.compile(r"( *)(\S[^:]*?) +: ?(.*)")
_TITLE = "==============NVSMI LOG=============="
# What is kept: the paths of fields that are read, and the names of sections on the way to them.
_OF_HEAD = re.compile("Driver Version|CUDA Version|Attached GPUs")
_OF_GPU = re.compile(
    r"Product Name|Persistence Mode|Performance State|PCI/GPU Link Info/(?:PCIe Generation|Link Width)/[\w ]+"
    r"|Clocks (?:Event|Throttle) Reasons/[\w ]+|(?:FB|BAR1) Memory Usage/\w+|Utilization/\w+"
    r"|(?:GPU )?Power Readings/[\w ]+"
)
_SECTIONS = frozenset(
    (
        *("PCI", "GPU Link Info", "PCIe Generation", "Link Width", "Clocks Event Reasons", "Clocks Throttle Reasons"),
        *("FB Memory Usage", "BAR1 Memory Usage", "Utilization", "GPU Power Readings", "Power Readings"),
    )
)


class Field(msgspec.Struct, frozen=True):
    """A value as it was printed, and the line it stands in, counted from 1."""

    text: str
    line: int

    @property
    def has_value(self) -> bool:
        return has_value(self.text)

    @property
    def number(self) -> float | None:
        return number(self.text)


class Section(msgspec.Struct, frozen=True):
    """The fields of one GPU, or of the head of the log (`bus` is "")."""

    bus: str
    fields: dict[str, Field]  # "PCI/GPU Link Info/PCIe Generation/Current"

    def get(self, *paths: str) -> Field | None:
        """The first of these paths that is there and has a value; else the first that is there; else None."""
        found = [self.fields[path] for path in paths if path in self.fields]
        return next((field for field in found if field.has_value), found[0] if found else None)

    def number(self, *paths: str) -> float | None:
        field = self.get(*paths)
        return None if field is None else field.number

    def text(self, *paths: str) -> str:
        """The value as printed; "" where there is none."""
        field = self.get(*paths)
        return field.text if field is not None and field.has_value else ""

    @property
    def utilization(self) -> float:
        """Percent; -1 where it was not printed."""
        found = self.number("Utilization/GPU", "Utilization/Gpu")
        return -1.0 if found is None else found


class QueryLog(msgspec.Struct, frozen=True):
    head: Section
    gpus: tuple[Section, ...]


def looks_like(text: str) -> bool:
    return "NVSMI LOG" in text or (
        re.search(r"^GPU [0-9A-F]{8}:[0-9A-F]{2}:", text, re.MULTILINE) is not None and "Product Name" in text
    )


def parse(text: str) -> QueryLog:
    """Every field of every GPU; the first of two fields with one path counts.

    A card that was read several times (`nvidia-smi -q -l`) is one card, as it was when it did most.
    """
    head: dict[str, Field] = {}
    gpus: list[Section] = []
    fields = head
    for entry in _entries(plain(text)):
        if entry.bus:
            fields = {}
            gpus.append(Section(entry.bus, fields))
        elif entry.value is not None:
            fields.setdefault(entry.path, Field(entry.value, entry.line))
    return QueryLog(Section("", head), _once(gpus))


def keep(text: str) -> str:
    """The fields that are read and the sections that they stand in: no serial numbers, no processes."""
    lines = [""] * len(plain(text).splitlines())
    in_gpu = False
    for entry in _entries(plain(text)):
        in_gpu = in_gpu or bool(entry.bus)
        if entry.value is None:
            read = bool(entry.bus) or entry.path.rpartition("/")[2] in _SECTIONS
        else:
            read = (_OF_GPU if in_gpu else _OF_HEAD).fullmatch(entry.path) is not None
        if read:
            lines[entry.line - 1] = entry.raw
    if "NVSMI LOG" in text:
        lines[0] = lines[0] or _TITLE
    return "\n".join(lines) + "\n"


class _Entry(msgspec.Struct, frozen=True):
    """A line: the start of a GPU (`bus`), a field (`value`), or the name of a section."""

    line: int
    raw: str
    path: str
    bus: str = ""
    value: str | None = None


def _entries(text: str) -> Iterator[_Entry]:
    path: list[tuple[int, str]] = []  # indentation and name of the sections that are open
    for line, raw in enumerate(text.splitlines(), 1):
        if gpu := _GPU.fullmatch(raw.rstrip()):
            path = []
            yield _Entry(line, raw, "", bus=gpu[1].lower())
            continue
        if not raw.strip() or raw.startswith("="):
            continue
        indent = len(raw) - len(raw.lstrip())
        while path and path[-1][0] >= indent:
            path.pop()
        sections = [section for _, section in path]
        match = _FIELD.fullmatch(raw.rstrip("\n"))
        if match is None:
            path.append((indent, raw.strip()))
            yield _Entry(line, raw, "/".join([*sections, raw.strip()]))
        else:
            yield _Entry(line, raw, "/".join([*sections, match[2].strip()]), value=match[3].strip())


def _once(gpus: list[Section]) -> tuple[Section, ...]:
    found: dict[str, Section] = {}
    for gpu in gpus:
        before = found.get(gpu.bus)
        if before is None or gpu.utilization > before.utilization:
            found[gpu.bus] = gpu
    return tuple(found.values())
