"""A folder of ordinary command output, as if it were a machine. Files are recognised by what is in them."""

from pathlib import Path

import msgspec

from sublight.errors import InputFileError
from sublight.files import read_small_file
from sublight.hosts.base import Completed
from sublight.hosts.recording import Answer, Recording, answer_of
from sublight.tuning.sources import SOURCES
from sublight.units import counted

_LARGEST_BYTES = 32 * 1024 * 1024
_MOST_FILES = 500
_HINT = "a folder with the output of nvidia-smi -q, nvidia-smi topo -m, lspci -vvv, lscpu and the like, a file each"


class Folder(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        recording: the files as answers to the commands they are outputs of.
        labels: source -> the name of its file.
        remarks: what the reader should know of the files: two of a kind, some not recognised.
    """

    recording: Recording
    labels: dict[str, str]
    remarks: tuple[str, ...]


def read_folder(folder: Path) -> Folder:
    """Raises InputFileError when it is no folder, or nothing in it is recognised."""
    asked = f"reading {folder} as a folder of command output"
    try:
        if not folder.is_dir():
            raise InputFileError(asked, "it is not a folder" if folder.exists() else "it is not there", _HINT)
        paths = sorted(path for path in folder.iterdir() if path.is_file())
    except (OSError, ValueError) as error:
        raise InputFileError(asked, getattr(error, "strerror", None) or str(error), _HINT) from None
    if any(folder.resolve().is_relative_to(place) for place in ("/proc", "/sys", "/dev")):
        raise InputFileError(asked, "it is a folder of the running kernel, not of saved output", _HINT)
    if len(paths) > _MOST_FILES:
        raise InputFileError(asked, f"it holds {len(paths):,} files", _HINT)
    texts: dict[str, str] = {}
    labels: dict[str, str] = {}
    remarks: list[str] = []
    strangers: list[str] = []
    for path in paths:
        text = _text(path, asked)
        kinds = [name for name, source in SOURCES.items() if source.looks_like(text)]
        if not kinds:
            strangers.append(path.name)
        for kind in kinds:
            if kind in labels:
                remarks.append(f"{labels[kind]} and {path.name} are both {kind}: the first of them is read")
            else:
                labels[kind], texts[kind] = path.name, text
    if not labels:
        seen = f"none of its {counted(len(paths), 'file')} is recognised" if paths else "it is empty"
        raise InputFileError(asked, seen, _HINT)
    if strangers:
        remarks.append(f"not recognised, and left out: {_some(strangers)}")
    return Folder(Recording(folder.resolve().name, tuple(_answers(texts))), labels, tuple(remarks))


def _text(path: Path, asked: str) -> str:
    """What is in it. Files of the running kernel say that they are empty, and reading some of them waits for ever."""
    try:
        if path.stat().st_size == 0:
            return ""
    except OSError as error:
        raise InputFileError(asked, f"{path.name}: {error.strerror or error}", _HINT) from None
    return read_small_file(path, asked, _HINT, _LARGEST_BYTES).decode("utf-8", "replace")


def _answers(texts: dict[str, str]) -> list[Answer]:
    answers = []
    for name, text in texts.items():
        argv = SOURCES[name].argv
        answers.append(answer_of(Completed(argv, 0, SOURCES[name].keep(text).encode())))
    return answers


def _some(names: list[str], at_most: int = 6) -> str:
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more
