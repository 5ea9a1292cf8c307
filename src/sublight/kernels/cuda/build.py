"""Sources to a cubin for one exact target, through NVRTC or nvcc, kept in a cache whose key forgets nothing.

The key is a hash of the source bytes, the defines, the flags, the target, and the compiler with its version: a change
in any of them compiles anew. A cubin whose file is damaged is compiled again, never loaded. No header is included by
any source here, so there is nothing else that could change the result.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from sublight.errors import KernelError

TARGETS = {"sm_90a": "Hopper", "sm_100a": "Blackwell, data centre", "sm_120a": "Blackwell, workstation"}
"""What the sources compile for. Only sm_90a has been run."""
CAPABILITIES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (12, 0): "sm_120a"}
"""Exact compute capability -> target. Others of a family (10.3, 12.1) load none of these."""
_FOLDER = Path(__file__).parent
_FLAGS = ("-std=c++17",)
_TIMEOUT_S = 300


class Compiler(Protocol):
    """Something that turns a source into a cubin."""

    @property
    def name(self) -> str:
        """With its version, for people."""

    @property
    def identity(self) -> str:
        """What tells this very build from any other, for the key of the cache."""

    def compile(self, source: Path, options: list[str], target: str) -> bytes: ...


@dataclass(frozen=True)
class Nvcc:
    """The toolkit's compiler driver."""

    path: str
    version: str

    @property
    def name(self) -> str:
        return f"nvcc {self.version}"

    @property
    def identity(self) -> str:
        return self.name  # the version of nvcc has three parts

    def compile(self, source: Path, options: list[str], target: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "out.cubin"
            arch = f"arch=compute_{target.removeprefix('sm_')},code={target}"
            command = [self.path, "-cubin", "-gencode", arch, *options, str(source), "-o", str(cubin)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
            if done.returncode:
                raise _failed(source, target, self.name, done.stderr)
            return cubin.read_bytes()


@dataclass(frozen=True)
class Nvrtc:
    """The run-time compiler, a library of NVIDIA's cuda-bindings: no toolkit on the machine, and ten times as fast."""

    version: str
    library: str

    @property
    def name(self) -> str:
        return f"nvrtc {self.version}"

    @property
    def identity(self) -> str:
        """Its version has two parts and says nothing of the build, so the library's file speaks for that."""
        file = Path(self.library).stat()
        return f"{self.name} {file.st_size} {file.st_mtime_ns}"

    def compile(self, source: Path, options: list[str], target: str) -> bytes:
        from cuda.bindings import nvrtc  # type: ignore[import-not-found]

        def checked(result: tuple[object, ...]) -> object:
            if int(result[0]):  # type: ignore[call-overload]
                raise _failed(source, target, self.name, str(result[0]))
            return result[1] if len(result) > 1 else None

        program = checked(nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], []))
        flags = [o.encode() for o in (*options, f"--gpu-architecture={target}")]
        if int(nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0]):
            log = b" " * int(checked(nvrtc.nvrtcGetProgramLogSize(program)))  # type: ignore[call-overload]
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise _failed(source, target, self.name, log.decode(errors="replace"))
        cubin = b" " * int(checked(nvrtc.nvrtcGetCUBINSize(program)))  # type: ignore[call-overload]
        checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin)


@cache
def find_compiler() -> Compiler:
    """NVRTC if Python can import it, otherwise nvcc.

    Raises:
        KernelError: neither is here.
    """
    if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings"):
        from cuda.bindings import nvrtc
        from cuda.pathfinder import load_nvidia_dynamic_lib  # type: ignore[import-not-found]

        try:
            _, major, minor = nvrtc.nvrtcVersion()
            library = load_nvidia_dynamic_lib("nvrtc").abs_path
        except RuntimeError:  # the bindings are there, the library that they bind is not
            pass
        else:
            return Nvrtc(f"{major}.{minor}", library)
    path = shutil.which("nvcc") or _in_toolkit()
    if path is None:
        asked = "compiling a CUDA kernel"
        hint = "pip install 'cuda-bindings[all]', or a CUDA toolkit with nvcc on PATH"
        raise KernelError(asked, "neither NVRTC (cuda-bindings) nor nvcc is here", hint)
    return Nvcc(path, _nvcc_version(path))


def compile_kernel(
    source: str, defines: Mapping[str, int], target: str, compiler: Compiler | None = None, folder: Path | None = None
) -> bytes:
    """A cubin of one source beside this file.

    Args:
        target: exact, with its letter: "sm_90a".
        folder: where cubins are kept; $SUBLIGHT_CACHE or the user's cache folder by default.

    Raises:
        KernelError: an unknown target, or what the compiler had to say.
    """
    if target not in TARGETS:
        known = ", ".join(TARGETS)
        raise KernelError(f"compiling {source} for {target}", "there is no such target here", f"one of {known}")
    compiler = compiler or find_compiler()
    path = _FOLDER / source
    options = [*_FLAGS, *(f"-D{name}={value}" for name, value in sorted(defines.items()))]
    key = _key(path.read_bytes(), options, target, compiler.identity)
    kept = (folder or _cache_folder()) / f"{path.stem}-{target}-{key}.cubin"
    found = _read(kept)
    if found is None:
        found = compiler.compile(path, options, target)
        _keep(kept, found)
    return found


def target_of(what: str, capability: tuple[int, int]) -> str:
    """The target that a GPU of this compute capability loads. Raises KernelError where there is none."""
    if capability not in CAPABILITIES:
        known = ", ".join(target.removesuffix("a") for target in CAPABILITIES.values())
        found = f"this GPU is sm_{capability[0]}{capability[1]}, which it is not built for"
        raise KernelError(what, found, f"a GPU that is exactly one of {known}")
    return CAPABILITIES[capability]


def _key(source: bytes, options: list[str], target: str, compiler: str) -> str:
    """Each part goes in with its length, so that no two lists of parts read the same."""
    digest = hashlib.sha256()
    for part in (source, target.encode(), compiler.encode(), *(o.encode() for o in options)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]


def _read(path: Path) -> bytes | None:
    """A kept cubin, if the hash after it is its own."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    cubin, digest = data[:-32], data[-32:]
    return cubin if hashlib.sha256(cubin).digest() == digest else None


def _keep(path: Path, cubin: bytes) -> None:
    """Whole or not at all; a folder that cannot be written costs time on the next start and nothing else."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(cubin + hashlib.sha256(cubin).digest())
        Path(file.name).replace(path)
    except OSError:
        return


def _cache_folder() -> Path:
    chosen = os.environ.get("SUBLIGHT_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sublight" / "kernels"


def _in_toolkit() -> str | None:
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home and (Path(home) / "bin" / "nvcc").is_file():
            return str(Path(home) / "bin" / "nvcc")
    return None


def _nvcc_version(path: str) -> str:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
    found = re.search(r"\bV(\d+(?:\.\d+)+)", done.stdout)
    if found is None:
        raise KernelError("asking nvcc for its version", f"{path} says {done.stdout!r}", "a working CUDA toolkit")
    return found[1]


def _failed(source: Path, target: str, compiler: str, log: str) -> KernelError:
    first = next((line for line in log.splitlines() if "error" in line), log.strip()[:300])
    return KernelError(
        f"compiling {source.name} for {target} with {compiler}", first, "a compiler of CUDA 12.9 or later"
    )
