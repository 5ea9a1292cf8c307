"""The one place where a number meets its unit in text: parsing what people type, printing what they read.

Decimal prefixes throughout, as bandwidth is sold (1 GB = 1e9 B); GiB only where a tool people compare with says GiB.
"""

import math
import re

from sublight.errors import UsageError

_TIME_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZE = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_COUNT = {"": 1, "k": 1024, "m": 1024**2}
_NUMBER = re.compile(
    r"\s*([0-9]+(?:[_,][0-9]{3})*(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|\.[0-9]+)\s*([^\s0-9].*?)?\s*", re.IGNORECASE
)


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UsageError(what, f"{text!r} is not a positive number with a unit", example)
    value = float(match[1].replace("_", "").replace(",", ""))
    if not math.isfinite(value):
        raise UsageError(what, f"{text!r} is not finite", example)
    return value, (match[2] or "").strip()


def parse_time_s(text: str, what: str = "a time") -> float:
    """Seconds from "97ms", "6.9 us", "0.1s". A unit is required: a bare 97 could be anything."""
    value, unit = _split(text, what, "97ms")
    scale = _TIME_S.get(unit.lower() if unit not in ("µs", "μs") else unit)
    if scale is None:
        raise UsageError(
            what, f"{text!r} has {'no unit' if not unit else f'the unit {unit!r}'}", "97ms, 250us, or 0.1s"
        )
    if value <= 0:
        raise UsageError(what, f"{text!r} is not above zero", "97ms")
    return value * scale


def parse_bandwidth_bytes_per_s(text: str, what: str = "a bandwidth") -> float:
    """Bytes per second from "1551GB/s", "1.5 TB/s", "1400 GiB/s"."""
    value, unit = _split(text, what, "1551GB/s")
    scale = _SIZE.get(unit.lower().removesuffix("ps").removesuffix("/s"))
    if scale is None or not unit.lower().endswith(("/s", "ps")):
        raise UsageError(what, f"{text!r} is not in bytes per second", "1551GB/s or 1.55TB/s")
    if value <= 0:
        raise UsageError(what, f"{text!r} is not above zero", "1551GB/s")
    return value * scale


def parse_count(text: str, what: str = "a count") -> int:
    """A whole number of tokens or sequences: "8192", "8k" (8192), "128k" (131072), "1m" (1048576)."""
    value, unit = _split(text, what, "8192 or 8k")
    scale = _COUNT.get(unit.lower())
    if scale is None or not float(value * scale).is_integer():
        raise UsageError(what, f"{text!r} is not a whole number", "8192 or 8k")
    return int(value * scale)


def significant(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits without an exponent, keeping every digit before the point."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    # 9.999 rounds up into a digit more than was asked for.
    if decimals and sum(ch.isdigit() for ch in text.lstrip("-0.,")) > digits:
        text = f"{value:,.{decimals - 1}f}"
    return text


def _scaled(value: float, steps: list[tuple[float, str]], digits: int) -> str:
    for scale, unit in steps:
        # The comparison is made on the rounded value, so that 999.96 MB is printed as 1.00 GB.
        if abs(float(f"{value / scale:.{digits}g}")) >= 1:
            return f"{significant(value / scale, digits)} {unit}"
    scale, unit = steps[-1]
    return f"{significant(value / scale, digits)} {unit}"


def show_time(seconds: float, digits: int = 3) -> str:
    """ "6.64 ms", "9.20 us", "1.20 s"."""
    return _scaled(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")], digits)


def show_ms(seconds: float, decimals: int = 2) -> str:
    """Milliseconds with fixed decimals, for columns."""
    return f"{seconds * 1e3:,.{decimals}f}"


def show_bytes(count: float, digits: int = 3) -> str:
    """Decimal bytes: "9.19 GB", "12.3 kB"."""
    return _scaled(count, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")], digits)


def show_gib(count: float, digits: int = 4) -> str:
    """Binary gigabytes, as drivers and kernels count memory: "95.59 GiB"."""
    return f"{significant(count / 2**30, digits)} GiB"


def show_rate(bytes_per_s: float, digits: int = 4) -> str:
    """Bandwidth, in GB/s as data sheets print it: "1,792 GB/s"."""
    return f"{significant(bytes_per_s / 1e9, digits)} GB/s"


def show_flops(count: float, digits: int = 3) -> str:
    """Floating point operations: "15.9 GFLOP"."""
    return _scaled(count, [(1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")], digits)


def show_count(count: float) -> str:
    """A count with thousands separators."""
    return f"{round(count):,}"


def counted(number: int, noun: str, many: str = "") -> str:
    """ "no exclusions", "1 exclusion", "1,471 exclusions"; `many` where an s does not make the plural."""
    return f"{f'{number:,}' if number else 'no'} {noun if number == 1 else many or f'{noun}s'}"


def show_parameters(count: float) -> str:
    """A parameter count as models are named: "743.9 B", "81.3 M"."""
    return f"{count / 1e9:,.1f} B" if count >= 1e9 else f"{count / 1e6:,.1f} M"


def show_percent(fraction: float) -> str:
    """A share: "58 %", "3.4 %"; one decimal below ten."""
    percent = fraction * 100
    return f"{percent:.1f} %" if abs(percent) < 9.95 else f"{percent:.0f} %"


def show_ratio(ratio: float) -> str:
    """A factor: "14.6x"."""
    return f"{significant(ratio, 3)}x"
