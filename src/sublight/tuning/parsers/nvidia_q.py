"""`nvidia-smi -q`: a tree by indentation, one section a GPU. Names of fields have changed between drivers."""

import re

import msgspec

from sublight.tuning.parsers.values import has_value, number, plain

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*")
_FIELD = re.compile(r"( *)(\S[^:]*?) +: ?(.*)")


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


class QueryLog(msgspec.Struct, frozen=True):
    head: Section
    gpus: tuple[Section, ...]


def looks_like(text: str) -> bool:
    return "NVSMI LOG" in text or (
        re.search(r"^GPU [0-9A-F]{8}:[0-9A-F]{2}:", text, re.MULTILINE) is not None and "Product Name" in text
    )


def parse(text: str) -> QueryLog:
    """Every field of every GPU; the first of two fields with one path counts."""
    head: dict[str, Field] = {}
    gpus: list[Section] = []
    fields = head
    path: list[tuple[int, str]] = []  # indentation and name of the sections that are open
    for line, raw in enumerate(plain(text).splitlines(), 1):
        if gpu := _GPU.fullmatch(raw.rstrip()):
            fields = {}
            gpus.append(Section(gpu[1].lower(), fields))
            path = []
            continue
        if not raw.strip() or raw.startswith("="):
            continue
        indent = len(raw) - len(raw.lstrip())
        while path and path[-1][0] >= indent:
            path.pop()
        match = _FIELD.fullmatch(raw.rstrip("\n"))
        if match is None:
            path.append((indent, raw.strip()))
            continue
        name = "/".join([*(section for _, section in path), match[2].strip()])
        fields.setdefault(name, Field(match[3].strip(), line))
    return QueryLog(Section("", head), tuple(gpus))
