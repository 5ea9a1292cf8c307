"""Running the program from outside, as a person does."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts import sshd


class Run:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


@pytest.fixture
def sublight(tmp_path: Path) -> Callable[..., Run]:
    """`sublight(*arguments)` in an empty folder, at 100 columns, with no terminal."""

    def run(*arguments: str, columns: int = 100, limit_s: float = 60) -> Run:
        env = os.environ | {"COLUMNS": str(columns), "PYTHONUTF8": "1"}
        argv = [sys.executable, "-m", "sublight", *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, env=env, cwd=tmp_path, check=False, timeout=limit_s)
        return Run(done)

    return run


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[sshd.Server]:
    """A server that `ssh` on the PATH trusts: the user's own configuration cannot be replaced in a test, ssh can."""
    path = tmp_path_factory.mktemp("ssh")
    running = sshd.start(path / "server")
    wrapper = path / "bin" / "ssh"
    wrapper.parent.mkdir()
    options = " ".join(f"'{option}'" for option in running.options)
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=":")
    yield running
    running.stop()
