"""Facts that a walk through a program is given: what certain functions answer, and what is set in the environment."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sublight.audit.source.values import Function, Value


def _yes(_symbol: str) -> bool | None:
    return True


def _never(_function: Function) -> bool:
    return False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beforehand. Everything else is read from the program, or unknown.

    Attributes:
        follow: top-level packages that are walked into; others stay outside and are only named.
        calls: what a function answers, instead of being walked into or unknown. By full dotted name; a function of the
            sources also by the name inside its module ("Class.method") or by its bare name, wherever it is defined.
            A Python function is called with (arguments, keywords); anything else is the answer itself.
        values: what a name outside the sources is ("torch.version.hip": None), and what a module-level name or class
            attribute of the sources is, instead of being read.
        environment: variables that are set; all others are not.
        importable: whether a symbol outside the sources can be imported; None walks both ways.
        opaque: functions (by full or bare name) that are named when called but never walked into.
        skips: says of any function of the sources whether it is treated as opaque.
        registers: decorators (by bare name) that are run for what they do, not only for what they return.
        steps_at_most, depth_at_most, rounds_at_most: when a walk, a chain of calls, a loop is given up.
    """

    follow: tuple[str, ...]
    calls: Mapping[str, Any] = {}
    values: Mapping[str, Value] = {}
    environment: Mapping[str, str] = {}
    importable: Callable[[str], bool | None] = _yes
    opaque: frozenset[str] = frozenset()
    skips: Callable[[Function], bool] = _never
    registers: frozenset[str] = frozenset()
    steps_at_most: int = 400_000
    depth_at_most: int = 40
    rounds_at_most: int = 2_000
