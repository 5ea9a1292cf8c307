"""The few calls of the CUDA driver that launching a cubin takes, by ctypes: the driver is wherever a GPU is.

Everything happens in the context that torch has made current, on the stream that the caller names.
"""

import ctypes
from functools import cache

from sublight.errors import KernelError

SHARED_LIMIT = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Kernel:
    """A loaded kernel. It keeps its module loaded for as long as the process lives, as graphs may hold on to it."""

    def __init__(self, cubin: bytes, name: str, dynamic_shared_bytes: int) -> None:
        self.name = name
        self.dynamic_shared_bytes = dynamic_shared_bytes
        self.module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self.module), cubin)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), self.module, name.encode())
        self._call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, dynamic_shared_bytes)

    def launch_cooperative(self, grid: int, threads: int, stream: int, arguments: list[ctypes._SimpleCData]) -> None:  # type: ignore[type-arg]
        """All blocks resident at once, or none: what blocks that wait for each other need."""
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        shape = (grid, 1, 1, threads, 1, 1, self.dynamic_shared_bytes)
        self._call("cuLaunchCooperativeKernel", self._function, *shape, ctypes.c_void_p(stream), pointers)

    def _call(self, function: str, *arguments: object) -> None:
        check(function, f"{function} for {self.name}", *arguments)


def check(function: str, asked: str, *arguments: object) -> None:
    """Calls the driver.

    Raises:
        KernelError: the driver's own words.
    """
    library = _library()
    status = getattr(library, function)(*arguments)
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(text))
        found = text.value.decode() if text.value else f"error {status}"
        raise KernelError(
            asked, f"the CUDA driver says: {found}", "a GPU of the kernel's exact target with its memory free"
        )


def device_attribute(attribute: int, device: int) -> int:
    value = ctypes.c_int()
    check("cuDeviceGetAttribute", "asking the GPU for its limits", ctypes.byref(value), attribute, device)
    return value.value


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise KernelError(
            "running a CUDA kernel", "there is no CUDA driver here", "a machine with an NVIDIA GPU"
        ) from None
