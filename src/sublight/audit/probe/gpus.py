"""The cards: as nvidia-smi tells them, and what only the driver library knows (shared memory, multiprocessors)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

_FIELDS = ("index", "name", "compute_cap", "memory.total", "driver_version", "mig.mode.current")
# The numbers of CUdevice_attribute in cuda.h.
_ATTRIBUTES = {"sm_count": 16, "major": 75, "minor": 76, "shared_memory_per_block_optin": 97}
# In a process of its own: initialising a driver that is not well can hang or end it.
_ASK_DRIVER = """
import ctypes, json, sys
lib = ctypes.CDLL("libcuda.so.1")
status = lib.cuInit(0)
if status:
    sys.exit(f"cuInit answers {status}")
version, count, cards = ctypes.c_int(), ctypes.c_int(), []
lib.cuDriverGetVersion(ctypes.byref(version))
lib.cuDeviceGetCount(ctypes.byref(count))
for number in range(count.value):
    device, name, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    lib.cuDeviceGet(ctypes.byref(device), number)
    lib.cuDeviceGetName(name, 256, device)
    lib.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    card = {"name": name.value.decode("utf-8", "replace"), "memory_bytes": size.value}
    for field, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        status = lib.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        card[field] = None if status else value.value
    cards.append(card)
print(json.dumps({"driver_cuda": version.value, "cards": cards}))
"""


def describe(timeout_s: float = 20) -> dict[str, Any]:
    """{"smi": cards, "smi_error", "driver": cards, "driver_cuda", "driver_error"}; what is not told is None."""
    cards, error = _smi(timeout_s)
    found: dict[str, Any] = {"smi": cards, "smi_error": error, "driver": [], "driver_cuda": None, "driver_error": ""}
    code, out, err = _run([sys.executable, "-S", "-c", f"ATTRIBUTES = {_ATTRIBUTES!r}\n{_ASK_DRIVER}"], timeout_s)
    if code == 0:
        said = json.loads(out.strip().splitlines()[-1])
        found["driver"], found["driver_cuda"] = said["cards"], said["driver_cuda"]
    else:
        found["driver_error"] = _late(timeout_s) if code is None else _last(err) or _last(out)
    return found


def _late(timeout_s: float) -> str:
    return f"no answer within {timeout_s:.0f} s"


def _last(text: str) -> str:
    return text.strip().rpartition("\n")[2][-200:]


def _smi(timeout_s: float) -> tuple[list[dict[str, Any]], str]:
    program = shutil.which("nvidia-smi") or next(
        (p for p in ("/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi") if os.access(p, os.X_OK)), None
    )
    if program is None:
        return [], "nvidia-smi is not there"
    for fields in (_FIELDS, _FIELDS[:-1]):  # old drivers refuse a query that names a field they do not know
        code, out, err = _run([program, "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"], timeout_s)
        if code == 0:
            return [_card(line) for line in out.splitlines() if line.count(",") >= 4], ""
    return [], f"nvidia-smi: {_late(timeout_s)}" if code is None else _last(out + err)


def _card(line: str) -> dict[str, Any]:
    index, name, capability, memory, driver, *mig = [_told(value) for value in line.split(",")]
    match = re.fullmatch(r"(\d+)\.(\d+)", capability or "")
    return {
        "name": name,
        "major": int(match.group(1)) if match else None,
        "minor": int(match.group(2)) if match else None,
        "memory_bytes": int(float(memory) * 1048576) if memory and memory.replace(".", "").isdigit() else None,
        "driver": driver,
        "index": index,
        "mig": mig[0] if mig else None,
    }


def _told(value: str) -> str | None:
    """None for every way in which nvidia-smi says that it does not tell."""
    value = value.strip()
    return None if not value or value.strip("[]").lower() in ("n/a", "not supported", "unknown error") else value


def _run(argv: list[str], timeout_s: float) -> tuple[int | None, str, str]:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None, "", ""
    except OSError as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
