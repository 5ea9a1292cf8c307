"""What a power log says beside a trace: cards that are busy and wait, and clocks that are held down."""

from collections.abc import Iterable, Sequence

from sublight.trace.classify import Category, Kind
from sublight.trace.oddity import Oddity, Published, Seen
from sublight.trace.powerlog import GpuPower
from sublight.units import show_count, show_percent, show_time

# Of the limit. Kernels that spin draw a quarter (140 of 600 W was seen), kernels that read memory half and more.
_WAITING = 1 / 3
_BUSY = 90.0
_OFTEN = 0.1  # of the busy moments
_LOWER = 0.1  # of the highest clock
_AT_LIMIT = 0.97
_MESSAGES = {kind.value for kind in Kind if kind.category is Category.COMMUNICATION}
_COMMUNICATION = Category.COMMUNICATION.value


def waits(power: GpuPower) -> bool:
    """Whether the card is busy and draws too little to be working."""
    if power.power_w is None or power.limit_w is None or (power.utilization or 0.0) < _BUSY:
        return False
    return power.power_w < _WAITING * power.limit_w


def of_no_use(power: GpuPower | None, cards: Sequence[GpuPower], number: int) -> str:
    """Why a log does not tell whether the card of a rank or device works; "" where it does, or without a log."""
    if not cards:
        return ""
    if power is None:
        return f"it has GPU {', '.join(str(card.index) for card in cards)}, and none of them is told to be GPU {number}"
    if not power.busy:
        return f"GPU {power.index} is busy in none of its {show_count(power.moments)} moments"
    missing = {
        "utilisation in per cent": power.utilization,
        "power in watts": power.power_w,
        "power limit in watts": power.limit_w,
    }
    absent = [what for what, value in missing.items() if value is None]
    return f"it tells no {' and no '.join(absent)} of GPU {power.index}" if absent else ""


def unused(power: GpuPower | None, cards: Sequence[GpuPower], number: int) -> tuple[Oddity, ...]:
    """A log that was given and says nothing."""
    why = of_no_use(power, cards, number)
    advice = "a log of the GPU of this trace while it decodes, as nvidia-smi writes it (sublight trace -h: --power)"
    title = "the power log does not tell whether the GPU works"
    return (Oddity("power-log", title, f"{cards[0].source}: {why}", 0, advice),) if why else ()


def shown(power: GpuPower) -> str:
    """ "busy 100 % at 140 W of 600 W"."""
    busy = "" if power.utilization is None else f"busy {power.utilization:.0f} % at "
    limit = "" if power.limit_w is None else f" of {power.limit_w:.0f} W"
    return f"{busy}{power.power_w:.0f} W{limit}" if power.power_w is not None else f"GPU {power.index}"


def spinning(seen: Seen) -> Iterable[Oddity]:
    """A kernel of a collective spins until the other ranks come: the card counts as busy, and draws little."""
    power, wall = seen.power, seen.breakdown.wall_ns
    if power is None or not waits(power):
        return
    calls = sum(kernel.calls for kernel in seen.kernels if kernel.kind in _MESSAGES)
    exposed = sum(row.exposed_ns for row in seen.breakdown.rows if row.category == _COMMUNICATION)
    idle = seen.breakdown.idle_ns
    moments = "one busy moment" if power.busy == 1 else f"medians of {show_count(power.busy)} busy moments"
    where = f"{power.source}, GPU {power.index}: {moments}"
    if calls and exposed > idle:
        yield Oddity(
            "spinning",
            f"{shown(power)}: waiting, not working",
            f"{calls} collectives stand alone for {show_time(exposed * 1e-9)}, {show_percent(exposed / wall)} of the "
            f"step, and such kernels spin ({where})",
            exposed,
            "sublight trace --ranks on all ranks for a straggler; without one, protocol (NCCL_PROTO LL or Simple) and "
            "channels of NCCL, or a custom all-reduce: bandwidth is not what a few kilobytes wait for",
        )
    else:
        yield Oddity(
            "low-power",
            f"{shown(power)}: most of the card does not work",
            f"{show_percent(idle / wall)} of the step is idle, {show_percent(exposed / wall)} is collectives ({where})",
            max(idle, exposed),
            "kernels of few blocks and gaps between kernels, which are listed here where they take long",
        )


def held_down(seen: Seen) -> Iterable[Oddity]:
    """Clocks below what the card could run at, with the reason where the log has it."""
    power = seen.power
    if power is None:
        return
    often = [held for held in power.held_down if held.share >= _OFTEN]
    clock, most = power.clock_mhz, power.most_clock_mhz
    slower = 0.0 if clock is None or not most else 1 - clock / most
    at_limit = power.power_w is not None and power.limit_w is not None and power.power_w >= _AT_LIMIT * power.limit_w
    if not often and not at_limit and slower < _LOWER:
        return
    said = [f"{held.reason} in {show_percent(held.share)} of the busy moments" for held in often]
    if clock is not None and most:
        said.append(f"SM clock {clock:.0f} of {most:.0f} MHz{'' if power.rated else ', the highest in the log'}")
    if power.power_w is not None:
        said.append(shown(power))
    thermal = any("thermal" in held.reason for held in often)
    yield Oddity(
        "held-down",
        "the card is held down" + (": it is too hot" if thermal else " by its power limit" if at_limit else ""),
        f"{'; '.join(said)} ({power.source}, GPU {power.index})",
        0,
        "cooling"
        if thermal
        else "a higher power limit (nvidia-smi -pl), or clocks that were locked (nvidia-smi -rgc); "
        "how much a step gains is told by a trace at the other clock",
    )


def excess(kind: str, calls: int, summed_ns: int, published: Published | None) -> tuple[str, int]:
    """How much longer these calls take than the published ones, in words and in all; nothing where that is not much."""
    if published is None or kind != Kind.ALL_REDUCE.value or not calls or summed_ns < 1.5 * calls * published.ns:
        return "", 0
    more = summed_ns - calls * published.ns
    words = (
        f"{show_time(published.ns * 1e-9)} is published ({published.said}): {show_time(more / calls * 1e-9)} more each"
    )
    return f"{words}, {show_time(more * 1e-9)} a step", more
