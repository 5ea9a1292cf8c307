"""Files from and for the person at the keyboard: read whole and within reason, written whole or not at all.

Everything that is read in one piece (configurations, cards, measurements, records) comes through `read_small_file`. A
pipe would wait for a writer, a device has no end, and a file far beyond its kind is the wrong one; none is opened.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from sublight.errors import InputFileError

LARGEST = 64 * 1024 * 1024  # ten times the largest index of shards that was published
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def is_present(path: Path) -> bool:
    """Whether anything has this name, be it a link to nowhere. What cannot be asked for is not there."""
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True


def read_small_file(path: Path, asked: str, hint: str, at_most: int = LARGEST) -> bytes:
    """All bytes of a regular file. Raises InputFileError for anything else, and for one above `at_most` bytes."""
    try:
        found = _unreadable(path.stat(), at_most)
        if found:
            raise InputFileError(asked, found, hint)
        with path.open("rb") as file:
            data = file.read(at_most + 1)
    except OSError as error:
        raise InputFileError(asked, _reason(path, error), hint) from None
    if len(data) > at_most:  # grew meanwhile, or one of those that say they are empty
        raise InputFileError(asked, f"it is larger than {at_most:,} bytes, far more than such a file has", hint)
    return data


def _unreadable(status: os.stat_result, at_most: int) -> str:
    if not stat.S_ISREG(status.st_mode):
        return f"it is {_kind(status.st_mode)}, not a regular file"
    if status.st_size > at_most:
        return f"it has {status.st_size:,} bytes, far more than such a file has"
    return ""


def _kind(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")


def _reason(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return "it is a link to a file that is not there"
    return error.strerror or str(error)


_WRITE_HINT = "the name of a file in a folder that exists and can be written to"


def write_target(path: Path) -> Path:
    """Where writing to `path` writes: the file a link leads to. Raises InputFileError for what no file can replace."""
    asked = f"writing {path}"
    target = Path(os.path.realpath(path))
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise InputFileError(asked, f"there is no folder {target.parent}", _WRITE_HINT) from None
        return target
    except OSError as error:
        raise InputFileError(asked, error.strerror or str(error), _WRITE_HINT) from None
    if stat.S_ISLNK(mode):
        raise InputFileError(asked, "it is a link that leads back to itself", _WRITE_HINT)
    if not stat.S_ISREG(mode):
        raise InputFileError(asked, f"it is {_kind(mode)}, which a file would replace", _WRITE_HINT)
    return target


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: written beside it, then renamed. Raises InputFileError."""
    write_together({path: data})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Several files: every one is written beside its place before the first is renamed into it.

    A link is followed, so that it still leads to the file. Raises InputFileError, and then no file has changed.
    """
    written: dict[Path, Path] = {}
    path = Path()
    try:
        for path, data in contents.items():
            target = write_target(path)
            written[target] = _beside(target, data)
        for target, temporary in written.items():
            path = target
            temporary.replace(target)
    except OSError as error:
        raise InputFileError(f"writing {path}", _unwritten(path, error), _WRITE_HINT) from None
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def _unwritten(path: Path, error: OSError) -> str:
    """Why a file could not be made. A folder of the running kernel says of new files that they are not there."""
    folder = Path(os.path.realpath(path)).parent
    if isinstance(error, FileNotFoundError) and folder.is_dir():
        return f"no file can be made in {folder}"
    return error.strerror or str(error)


def _beside(target: Path, data: bytes) -> Path:
    """A finished file with a name of its own in the folder of `target`."""
    import tempfile

    handle, name = tempfile.mkstemp(prefix=".sublight-", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(0o666 & ~_umask())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
