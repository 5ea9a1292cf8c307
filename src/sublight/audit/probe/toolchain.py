"""Compilers and assemblers that would be used here, the targets each knows, and the CUDA libraries there are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

_TARGET = re.compile(r"\b(?:sm|compute)_(\d{2,3}[af]?)\b")
_RELEASE = re.compile(r"release (\d+\.\d+)(?:, V([\d.]+))?")
_LIBRARY = re.compile(
    r"(lib(?:cuda|cudart|nvrtc|cublas|cublasLt|cudnn|cufft|cusparse|cusolver|nccl|nvjitlink|nvJitLink)\.so\.\d+)"
)


def describe(path: list[str] | None = None, timeout_s: float = 10) -> dict[str, Any]:
    """{"tools": [...], "libraries": {name: path}}.

    A tool is {"tool", "path", "found_by", "release", "targets", "error"}; a file that is found in several ways is told
    once with every way. `path` is where packages lie (default: the interpreter's own path).
    """
    entries = [entry for entry in (sys.path if path is None else path) if entry and os.path.isdir(entry)]
    tools: dict[str, dict[str, Any]] = {}
    for tool, file, found_by in _candidates(entries):
        if not os.path.isfile(file):
            if found_by.isupper():  # a variable that leads nowhere is worth knowing; a folder without it is not
                tools[file] = _broken(tool, file, found_by, "no such file")
            continue
        key = os.path.realpath(file)
        if key in tools:
            tools[key]["found_by"].append(found_by)
        else:
            tools[key] = _asked(tool, file, found_by, timeout_s)
    return {"tools": list(tools.values()), "libraries": _libraries(entries, timeout_s)}


def _candidates(entries: list[str]) -> Iterator[tuple[str, str, str]]:
    """(tool, file, how it is found), those that programs look at first before others."""
    for variable, tool in (("TRITON_PTXAS_PATH", "ptxas"), ("TRITON_PTXAS_BLACKWELL_PATH", "ptxas")):
        if os.environ.get(variable):
            yield tool, os.environ[variable], variable
    for variable in ("FLASHINFER_NVCC", "PYTORCH_NVCC"):
        if os.environ.get(variable):
            yield "nvcc", os.environ[variable].split()[-1], variable
    for tool in ("nvcc", "ptxas"):
        for variable in ("CUDA_HOME", "CUDA_PATH"):
            if os.environ.get(variable):
                yield tool, os.path.join(os.environ[variable], "bin", tool), variable
        on_path = shutil.which(tool)
        if on_path:
            yield tool, on_path, "on the PATH"
        yield tool, os.path.join("/usr/local/cuda/bin", tool), "/usr/local/cuda"
        for entry in entries:
            for package in sorted(_listing(os.path.join(entry, "nvidia"))):
                yield tool, os.path.join(entry, "nvidia", package, "bin", tool), "a wheel"
    for entry in entries:
        folder = os.path.join(entry, "triton", "backends", "nvidia", "bin")
        for name in _listing(folder):
            if name.startswith("ptxas"):
                yield "ptxas", os.path.join(folder, name), "triton"


def _listing(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _broken(tool: str, file: str, found_by: str, error: str) -> dict[str, Any]:
    return {"tool": tool, "path": file, "found_by": [found_by], "release": "", "targets": [], "error": error}


def _asked(tool: str, file: str, found_by: str, timeout_s: float) -> dict[str, Any]:
    code, said = _run([file, "--version"], timeout_s)
    match = _RELEASE.search(said)
    if code != 0 or not match:
        late = f"no answer within {timeout_s:.0f} s"
        reason = late if code is None else f"exit code {code}: {said.strip()[-120:]}"
        return _broken(tool, file, found_by, reason)
    # nvcc lists plain targets only; the assembler beside it is what has to know the one that is wanted.
    _, listed = _run([file, "--list-gpu-code" if tool == "nvcc" else "--help"], timeout_s)
    known = _TARGET.findall(listed)
    found = _broken(tool, file, found_by, "")
    found["release"] = match.group(2) or match.group(1)
    found["targets"] = sorted(set(known), key=lambda target: (len(target.rstrip("af")), target))
    return found


def _libraries(entries: list[str], timeout_s: float) -> dict[str, str]:
    """CUDA libraries the loader or a package could find: name with major version -> where."""
    found: dict[str, str] = {}
    for program in ("ldconfig", "/sbin/ldconfig"):
        code, said = _run([program, "-p"], timeout_s)
        if code == 0:
            for line in said.splitlines():
                match = _LIBRARY.search(line)
                if match and "=>" in line:
                    found.setdefault(match.group(1), line.split("=>")[1].strip())
            break
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders += ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
    for entry in entries:
        folders += [
            os.path.join(entry, "nvidia", package, "lib") for package in _listing(os.path.join(entry, "nvidia"))
        ]
        folders.append(os.path.join(entry, "torch", "lib"))
    for folder in folders:
        for name in _listing(folder):
            match = _LIBRARY.match(name)
            if match:
                found.setdefault(match.group(1), os.path.join(folder, name))
    return found


def _run(argv: list[str], timeout_s: float) -> tuple[int | None, str]:
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")
