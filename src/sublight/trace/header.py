"""What a Kineto file says about itself, beside its events."""

from typing import Any

import msgspec

from sublight.trace.events import Cut, Device

_VERSIONS = ("cupti_version", "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "torch_version")
CUT, CUT_KEYS = "sublightSlice", ("beginNanoseconds", "endNanoseconds", "steps")  # ours: no profiler cuts


class Header(msgspec.Struct):
    """The members we use, each absent if the file does not have it or garbles it."""

    devices: tuple[Device, ...] = ()
    schema_version: int | None = None
    base_time_ns: int = 0
    name: str = ""
    rank: int | None = None
    world_size: int | None = None
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    cut: Cut | None = None


def read_header(members: dict[str, bytes]) -> Header:
    """The header from the text of the document's members."""
    values = {name: _value(text) for name, text in members.items()}
    distributed = values.get("distributedInfo")
    if not isinstance(distributed, dict):
        distributed = {}
    name = values.get("traceName")
    return Header(
        devices=_devices(values.get("deviceProperties")),
        schema_version=_whole(values.get("schemaVersion")),
        base_time_ns=_whole(values.get("baseTimeNanoseconds")) or 0,
        name=name if isinstance(name, str) else "",
        rank=_whole(distributed.get("rank")),
        world_size=_whole(distributed.get("world_size")),
        versions={key: str(values[key]) for key in _VERSIONS if values.get(key) is not None},
        cut=_cut(values.get(CUT)),
    )


def _value(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _whole(value: Any) -> int | None:
    """An integer below 2**62, also from a string: some writers quote the base time."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal() and len(value) < 25:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None


def _cut(value: Any) -> Cut | None:
    """What we wrote about a slice, if it can be true."""
    found = [_whole(value.get(key)) for key in CUT_KEYS] if isinstance(value, dict) else []
    begin_ns, end_ns, steps = found if len(found) == len(CUT_KEYS) else (None, None, None)
    if begin_ns is None or end_ns is None or steps is None or end_ns <= begin_ns or steps < 1:
        return None
    return Cut(begin_ns, end_ns, steps)


def _devices(value: Any) -> tuple[Device, ...]:
    """The devices, each number once: merged files repeat them per rank."""
    found: dict[int, Device] = {}
    for entry in value if isinstance(value, list) else []:
        number = _whole(entry.get("id")) if isinstance(entry, dict) else None
        if number is None:
            continue
        major, minor = _whole(entry.get("computeMajor")), _whole(entry.get("computeMinor"))
        found.setdefault(
            number,
            Device(
                number,
                str(entry.get("name", "")),
                sms=_whole(entry.get("numSms")),
                memory_bytes=_whole(entry.get("totalGlobalMem")),
                compute=None if major is None or minor is None else (major, minor),
                shared_memory_per_block_bytes=_whole(
                    entry.get("sharedMemPerBlockOptin", entry.get("sharedMemPerBlock"))
                ),
            ),
        )
    return tuple(found.values())
