"""The few calls of the CUDA driver that launching a cubin takes, by ctypes: the driver is wherever a GPU is.

Everything happens in the context that torch has made current, on the stream that the caller names.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from sublight.errors import KernelError

SHARED_LIMIT = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_MAY_START_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_int * 17))  # the value starts at byte 8 and has 64


class _Config(ctypes.Structure):
    _fields_ = (
        ("shape", ctypes.c_uint * 7),  # grid, block, dynamic shared memory
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class Kernel:
    """A loaded kernel. It keeps its module loaded for as long as the process lives, as graphs may hold on to it.

    Args:
        early_start: the kernel may start before its predecessor on the stream has ended, and waits for that end itself.
        cooperative: all blocks are resident at once or none of them, which blocks that wait for each other need.
    """

    def __init__(
        self, cubin: bytes, name: str, dynamic_shared_bytes: int, early_start: bool = True, cooperative: bool = True
    ) -> None:
        self.name = name
        self.dynamic_shared_bytes = dynamic_shared_bytes
        self.module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self.module), cubin)
        self._call("cuModuleGetFunction", ctypes.byref(self._function), self.module, name.encode())
        self._call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, dynamic_shared_bytes)
        self._attributes = (_Attribute * 2)()
        wanted = ((_COOPERATIVE, cooperative), (_MAY_START_EARLY, early_start))
        for attribute, (kind, value) in zip(self._attributes, wanted, strict=True):
            attribute.id, attribute.value[1] = kind, int(value)

    def launch(self, grid: int, threads: int, stream: int, arguments: "Sequence[ctypes._SimpleCData[Any]]") -> None:
        """Asks for a one-dimensional grid of one-dimensional blocks; the launch may be captured in a graph."""
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        shape = (ctypes.c_uint * 7)(grid, 1, 1, threads, 1, 1, self.dynamic_shared_bytes)
        config = _Config(shape, stream, self._attributes, len(self._attributes))
        self._call("cuLaunchKernelEx", ctypes.byref(config), self._function, pointers, None)

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
        hint = "a GPU of the kernel's exact target with its memory free"
        raise KernelError(asked, f"the CUDA driver says: {found}", hint)


def device_attribute(attribute: int, device: int) -> int:
    value = ctypes.c_int()
    check("cuDeviceGetAttribute", "asking the GPU for its limits", ctypes.byref(value), attribute, device)
    return value.value


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        asked, found = "running a CUDA kernel", "there is no CUDA driver here"
        raise KernelError(asked, found, "a machine with an NVIDIA GPU") from None
