"""An axis: from numbers to places between 0 and 1, and the round numbers worth a tick."""

import math
import sys
from collections.abc import Sequence

import msgspec

_STEPS = (1.0, 2.0, 5.0)


class Axis(msgspec.Struct, frozen=True):
    """`low` to `high` is what is drawn; ticks lie inside, in increasing order."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where `value` lies: 0 at `low`, 1 at `high`."""
        if self.log:
            bottom = math.log(self.low)
            return (math.log(value) - bottom) / (math.log(self.high) - bottom)
        return (value - self.low) / (self.high - self.low)


def axis(values: Sequence[float], *, log: bool, ticks: int, upright: bool = False) -> Axis:
    """An axis that holds all `values`.

    Args:
        values: within what `check` lets through.
        log: a logarithmic scale.
        ticks: about how many ticks there is room for.
        upright: the axis that curves rise along: it ends on round numbers, and a linear one holds zero, so that
            heights compare. The other axis ends where its values end.
    """
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if log:
        return _log_axis(values, low, high, ticks, upright)
    if upright:
        low, high = min(low, 0.0), max(high, 0.0)
    return _linear_axis(low, high, ticks, upright)


def number(value: float) -> str:
    """A tick or a point in words: four significant digits without idle zeros, an exponent only far from one."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e7:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _linear_axis(low: float, high: float, wanted: int, upright: bool) -> Axis:
    # A span that vanishes beside its own values has no round steps; open it up around them.
    if high - low <= max(1e-9 * max(abs(low), abs(high)), sys.float_info.min * 1e6):
        reach = abs(high) / 2 or 1.0
        low, high = (low, high + reach) if upright else (low - reach, high + reach)
    step = _round_up((high - low) / wanted)
    if upright:
        low, high = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
    first, last = _multiples(low, high, step)
    while last <= first:
        step /= 2
        first, last = _multiples(low, high, step)
    return Axis(low, high, False, tuple(index * step for index in range(first, last + 1)))


def _multiples(low: float, high: float, step: float) -> tuple[int, int]:
    return math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)


def _log_axis(values: Sequence[float], low: float, high: float, wanted: int, upright: bool) -> Axis:
    # Batch sizes and context lengths are powers of two; decades would miss every one of them.
    powers_of_two = bool(values) and not upright and all(math.frexp(value)[0] == 0.5 for value in values)
    if upright:
        low, high = _round_down(low), _round_up(high)
    if math.log(high) - math.log(low) < 1e-6:
        low, high = low / 2, high * 2
    if powers_of_two:
        first, last = round(math.log2(low)), round(math.log2(high))
        stride = math.ceil((last - first + 1) / wanted)
        return Axis(low, high, True, tuple(2.0**power for power in range(first, last + 1, stride)))
    return Axis(low, high, True, _log_ticks(low, high, wanted))


def _log_ticks(low: float, high: float, wanted: int) -> tuple[float, ...]:
    """The densest set of round numbers that there is room for; within less than a decade, those of a linear axis."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))

    def inside(steps: Sequence[float], stride: int) -> tuple[float, ...]:
        places = (m * 10.0**decade for decade in range(first, last + 1, stride) for m in steps)
        return tuple(place for place in places if low * (1 - 1e-9) <= place <= high * (1 + 1e-9))

    for steps in ((1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0), _STEPS, (1.0, 3.0), (1.0,)):
        ticks = inside(steps, 1)
        if len(ticks) <= wanted:
            break
    else:
        ticks = inside((1.0,), math.ceil((last - first + 1) / wanted))
    if len(ticks) < 2:
        ticks = tuple(place for place in _linear_axis(low, high, wanted, upright=False).ticks if place >= low / 2)
    return ticks if len(ticks) >= 2 else (low, high)


def _round_up(value: float) -> float:
    """The next number 1, 2 or 5 times a power of ten that is not below `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in _STEPS if m * power >= value * (1 - 1e-9)), 10 * power)


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in reversed(_STEPS) if m * power <= value * (1 + 1e-9)), power)
