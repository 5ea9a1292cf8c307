"""What a time was taken on, as torch and nvidia-smi say; nothing that names a host or a person."""

import platform
import shutil
import subprocess
from itertools import product

import torch

from sublight.bench.record.measurement import Environment
from sublight.errors import BenchError, SublightError
from sublight.facts.gpu import get_gpu

_QUERY = ("driver_version", "clocks.sm", "clocks.mem", "power.limit", "power.default_limit", "reasons")
# One field, renamed by drivers; an unknown name makes the whole query fail.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_TIMEOUT_S = 20
_IDLE_OR_NONE = 0x1  # throttle reasons: a GPU that has nothing to do lowers its clock, and that is no limit


def seen(device: str) -> Environment:
    """The environment of `device`, clocks as they are at this moment.

    Raises:
        BenchError: a device that torch does not have here.
    """
    if device == "cpu":
        return Environment(
            device="cpu",
            title=platform.processor() or platform.machine(),
            torch=str(torch.__version__),
            python=platform.python_version(),
            notes=(f"torch with {torch.get_num_threads()} of this machine's threads",),
        )
    require_cuda("timing on a GPU")
    properties = torch.cuda.get_device_properties(0)
    told = _nvidia_smi()
    return Environment(
        device="cuda",
        title=properties.name,
        card=card_of(properties.name),
        target=f"sm_{properties.major}{properties.minor}",
        driver=told.get("driver_version", ""),
        torch=str(torch.__version__),
        cuda=torch.version.cuda or "",
        python=platform.python_version(),
        l2_bytes=getattr(properties, "L2_cache_size", None),
        sm_count=properties.multi_processor_count,
        clocks_mhz={
            name: float(told[key]) for name, key in (("sm", "clocks.sm"), ("memory", "clocks.mem")) if key in told
        },
        notes=_notes(told),
    )


def require_cuda(asked: str) -> None:
    """Raises BenchError, with what is needed, where torch sees no CUDA GPU."""
    if torch.cuda.is_available():
        return
    built = "is a CPU build" if torch.version.cuda is None else f"was built for CUDA {torch.version.cuda}"
    raise BenchError(
        asked,
        f"torch {torch.__version__} sees no CUDA GPU (it {built})",
        "a machine with an NVIDIA GPU and a CUDA build of torch, or --device cpu for a rehearsal of the protocol",
    )


def card_of(title: str) -> str:
    """The catalogue's name of a card that a driver calls so; "" for one it does not have, or that several could be."""
    try:
        return get_gpu(title).name
    except SublightError:
        return ""


def _nvidia_smi() -> dict[str, str]:
    """What it answers for the GPU that torch calls number 0; empty where it is not there or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    named = [uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"] if uuid else []
    # Where there is one GPU its place says as much as its name, which some containers do not know it by.
    ways = named + (["0"] if torch.cuda.device_count() == 1 else [])
    for which, reasons in product(ways, _REASONS):
        query = ",".join((*_QUERY[:-1], reasons))
        argv = [program, f"--query-gpu={query}", "--format=csv,noheader,nounits", "-i", which]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired):
            return {}
        if told := parse_query(done.stdout):
            return told
    return {}


def parse_query(text: str) -> dict[str, str]:
    """One line of values in the order of the query; what the driver does not support is left out."""
    lines = text.strip().splitlines()
    values = [v.strip() for v in lines[0].split(",")] if lines else []
    if len(values) != len(_QUERY):
        return {}
    return {n: v for n, v in zip(_QUERY, values, strict=True) if v and not v.startswith("[") and v != "N/A"}


def _notes(told: dict[str, str]) -> tuple[str, ...]:
    notes = []
    reasons = told.get("reasons", "0x0")
    if reasons.startswith("0x") and int(reasons, 16) & ~_IDLE_OR_NONE:
        notes.append(f"the driver holds the clocks back (reasons {reasons})")
    limit, default = told.get("power.limit"), told.get("power.default_limit")
    if limit and default and float(limit) < float(default):
        notes.append(f"power is limited to {float(limit):.0f} W of {float(default):.0f} W")
    return tuple(notes)
