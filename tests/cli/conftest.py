"""Running the program from outside, as a person does."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


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
