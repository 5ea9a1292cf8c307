"""Interpreters and folders to audit, made for one test: an environment without pip, and packages written into it."""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sublight.audit.doors import InterpreterDoor
from sublight.audit.replies import Imported
from sublight.hosts.local import LocalHost


class Site:
    """A folder of installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else textwrap.dedent(content).encode())

    def install(
        self,
        name: str,
        version: str,
        files: Mapping[str, str | bytes],
        requires: Sequence[str] = (),
        only_listed: Sequence[str] = (),
    ) -> Path:
        """Files and their .dist-info; those in `only_listed` are in RECORD but not written: another owner has them."""
        self.write({path: content for path, content in files.items() if path not in only_listed})
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {line}" for line in requires]
        (info / "METADATA").write_text("\n".join([*lines, "", "text"]))
        record = io.StringIO()
        rows = [(path, record_hash(content), str(len(content))) for path, content in files.items()]
        csv.writer(record, lineterminator="\n").writerows([*rows, (f"{info.name}/RECORD", "", "")])
        (info / "RECORD").write_text(record.getvalue())
        return info


def record_hash(content: str | bytes) -> str:
    data = content if isinstance(content, bytes) else textwrap.dedent(content).encode()
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Environment(Site):
    """A virtual environment of this Python."""

    def __init__(self, root: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
        self.python = str(root / "bin" / "python")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        super().__init__(root / "lib" / version / "site-packages")


def door(python: str) -> InterpreterDoor:
    return InterpreterDoor(LocalHost(), python, here=True)


def imported(python: str, *symbols: str, limit_s: float = 30) -> dict[str, Imported]:
    """What came of importing each symbol in an interpreter."""
    reply = door(python).ask({"import": {"symbols": list(symbols), "timeout_s": limit_s}}, timeout_s=120)
    return msgspec.json.decode(reply["import"].answer, type=dict[str, Imported])
