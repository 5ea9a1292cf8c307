"""What memory gives on this very machine, now: a large copy, and launches that only read.

A copy is what people call the bandwidth. A kernel that reads 20 MB in one launch gets two thirds of it, because so
short a launch cannot fill the memory pipe; so a layer of a few tokens is held against a read of its own size as well.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sublight.bench.clocks import ready
from sublight.bench.protocol import StoppingRule, interleave, sets_needed
from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.measurement import ClockName
from sublight.errors import KernelError

# The smallest is what a launch costs that reads next to nothing.
_SIZES = (4 << 10, 64 << 10, *(mib << 20 for mib in (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)))
_CPU_SIZES = tuple(kib << 10 for kib in (64, 256, 1024, 4096, 16384))
_RULE = StoppingRule(least=5, most=15, spread=0.02, budget_s=0.3)
_FEWEST_WINDOWS, _MOST_WINDOWS = 8, 1024
_THREADS = 512
_BLOCKS = (1, 2, 3)  # a multiprocessor; the kernel's registers allow three
Reader = Callable[[Tensor], None]


def measure_ceilings(device: torch.device, l2_bytes: int | None, most_bytes: int = 4 << 30) -> Ceilings:
    """Copy and reads, on a GPU over more memory than the cache holds: two buffers of `most_bytes`."""
    gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if gpu else 1 << 28
    total = min(most_bytes if gpu else 32 << 20, free // 4) // 4096 * 4096
    store = torch.empty(total, dtype=torch.uint8, device=device).random_(0, 256)
    other = torch.empty_like(store)
    clock: ClockName = "CUDA graph replay" if gpu else "wall clock"

    # Launched by itself: in a graph the driver may hand a copy to an engine of its own, which on an H200 moves 2.8 TB/s
    # where the kernel of a plain launch moves 4.2. At milliseconds a copy the launch does not count.
    copying = ready("CUDA events" if gpu else clock, [lambda: _copy(store, other)])
    seconds = interleave({"copy": copying.round}, {"copy": 1}, _RULE)["copy"].median_s
    readers, name = _readers(device)
    points: list[tuple[float, float]] = []
    for size in (s for s in (_SIZES if gpu else _CPU_SIZES) if s <= total):
        best = min(_read_s(store, size, reader, clock, l2_bytes) for reader in readers)
        # A curve rises: a larger read that came out faster than a smaller one is the better figure for both.
        while points and points[-1][1] >= best:
            points.pop()
        points.append((float(size), best))
    return Ceilings(copy_bytes_per_s=2 * total / seconds, read_s=tuple(points), read_by=name)


def _copy(source: Tensor, target: Tensor) -> None:
    target.copy_(source)


def _read_s(store: Tensor, size: int, reader: Reader, clock: ClockName, l2_bytes: int | None) -> float:
    """One launch over `size` bytes, windows of the store in turn."""
    wanted = min(max(_FEWEST_WINDOWS, sets_needed(size, l2_bytes or 0)), _MOST_WINDOWS)
    windows = max(1, min(store.numel() // size, wanted))
    parts = [store[i * size : (i + 1) * size] for i in range(windows)]
    timed = ready(clock, [lambda part=part: reader(part) for part in parts])  # type: ignore[misc]
    return interleave({"read": timed.round}, {"read": windows}, _RULE)["read"].median_s


def _readers(device: torch.device) -> tuple[list[Reader], str]:
    """What reads, and its name; on a GPU without a compiler torch's own sum, which is a little slower and says so."""
    if device.type != "cuda":
        return [_by_sum], "torch.sum"
    try:
        return _kernels(device), "a read-only kernel"
    except KernelError as error:
        return [_by_sum], f"torch.sum ({error.found})"


def _by_sum(part: Tensor) -> None:
    part.view(torch.int32).sum()


def _kernels(device: torch.device) -> list[Reader]:
    """The kernel with several numbers of blocks. Raises KernelError without compiler or driver."""
    from sublight.kernels.cuda.build import find_compiler
    from sublight.kernels.cuda.driver import Kernel

    major, minor = torch.cuda.get_device_capability(device)
    target = f"sm_{major}{minor}"
    cubin = find_compiler().compile(Path(__file__).parent / "read.cu", ["-std=c++17"], target)
    kernel = Kernel(cubin, "read_only", 0, early_start=False)  # it would not wait for its predecessor
    count = torch.cuda.get_device_properties(device).multi_processor_count
    sink = torch.zeros(4, dtype=torch.int32, device=device)
    return [_reader(kernel, count * blocks, sink) for blocks in _BLOCKS]


def _reader(kernel: "object", grid: int, sink: Tensor) -> Reader:
    launch = kernel.launch  # type: ignore[attr-defined]

    def read(part: Tensor) -> None:
        arguments = [
            ctypes.c_void_p(part.data_ptr()),
            ctypes.c_ulonglong(part.numel() // 16),
            ctypes.c_void_p(sink.data_ptr()),
        ]
        launch(grid, _THREADS, torch.cuda.current_stream().cuda_stream, arguments)

    return read
