"""Installed engines to read: real wheels, without their dependencies, each in a folder of its own.

`SUBLIGHT_TEST_WHEELS` names a folder that keeps them between runs ("sglang-0.5.9", "flashinfer-python-0.6.3", ...);
without it they are kept in pytest's cache, and tests that need one of the `LARGE` wheels besides are skipped: together
they take more time to fetch than all other tests to run. What is not there is installed by pip. Nothing of them is
ever imported.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from sublight.audit.source.tree import Sources

LARGE = ("flashinfer-python==0.7.2", "flashinfer-python==0.7.4", "vllm==0.20.2", "nvidia-cutlass-dsl==4.8.1")
ENGINE_PACKAGES = ("sglang", "vllm", "flashinfer", "sgl_kernel", "humming")


class Disk:
    """Files of this machine, as the audit's sources ask for them."""

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except OSError:
            return None

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name + "/" * entry.is_dir() for entry in Path(folder).iterdir()))
        except OSError:
            return ()


@cache
def installed(requirement: str) -> Path:
    """The folder that holds one wheel ("sglang==0.5.9"), installed as `pip install --target` leaves it."""
    named = os.environ.get("SUBLIGHT_TEST_WHEELS")
    folder = Path(named or Path.cwd() / ".pytest_cache" / "wheels") / requirement.replace("==", "-")
    if requirement in LARGE and not named:
        pytest.skip(f"{requirement} is large: SUBLIGHT_TEST_WHEELS=FOLDER fetches it and keeps it there")
    if not folder.exists():
        _install(requirement, folder)
    return folder


def _install(requirement: str, folder: Path) -> None:
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:"]
    # A wheel for another Python or an accelerator's platform is read all the same: nothing of it is run.
    subprocess.run([*pip, "--disable-pip-version-check", "--target", str(partial), requirement], check=True)
    try:
        partial.rename(folder)
    except OSError:  # another worker was faster
        if not folder.exists():
            raise


@cache
def sources(*requirements: str) -> Sources:
    """The sources of these wheels, read from where they are installed; parsed once for all tests of a run."""
    folders = [installed(requirement) for requirement in requirements]
    roots = {package: str(folder) for folder in folders for package in ENGINE_PACKAGES if (folder / package).is_dir()}
    return Sources(Disk(), roots)


def tree(folder: Path) -> Sources:
    """The sources of packages that a test wrote into a folder."""
    return Sources(Disk(), {path.name.removesuffix(".py"): str(folder) for path in folder.iterdir()})
