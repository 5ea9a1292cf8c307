"""Modules in few words: "layer 17 experts 3, 90"."""

from collections.abc import Iterable

from sublight.facts.quantization.names import expert_place, layer_number, shortened
from sublight.units import counted

_AT_MOST = 6


def places(modules: Iterable[str]) -> str:
    """The layers and experts that modules belong to; the name itself for a module outside the experts."""
    experts: dict[str, set[int]] = {}
    others: list[str] = []
    for module in modules:
        place = expert_place(module) if ".experts." in module else None
        if place is None:
            others.append(module)
        else:
            experts.setdefault(place[0], set()).add(place[1])
    parts = [f"{_layer(stack)} {_numbers(numbers)}" for stack, numbers in _by_layer(experts)]
    if others:
        parts.append(shortened(sorted(others)))
    shown = "; ".join(parts[:_AT_MOST])
    return shown if len(parts) <= _AT_MOST else f"{shown} and {counted(len(parts) - _AT_MOST, 'more layer')}"


def _by_layer(experts: dict[str, set[int]]) -> list[tuple[str, set[int]]]:
    return sorted(experts.items(), key=lambda item: (layer_number(item[0]) or 0, item[0]))


def _layer(stack: str) -> str:
    number = layer_number(stack)
    return stack if number is None else f"layer {number}"


def _numbers(numbers: set[int]) -> str:
    """ "3, 90" or "0-255": runs of three and more as a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = []
    for run in runs:
        texts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    word = "expert" if len(numbers) == 1 else "experts"
    return f"{word} {shortened(texts, 8)}"
