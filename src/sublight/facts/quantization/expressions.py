"""Regular expressions from a configuration: compiled when they are small and certain to end soon.

Python's matcher tries every way to divide a name among the repeats of an expression. `(a+)+` has exponentially many,
and so has a row of fifty `.?`; matching such a one would not end. The ways are bounded here from the expression's
structure, before it is ever matched: a repeat of what itself repeats or branches is refused, and the others multiply.
"""

from collections.abc import Iterable
from re import Pattern
from typing import Any

from sublight.facts.fields import Fields
from sublight.facts.quantization.patterns import LONGEST
from sublight.units import counted

MOST = 512  # expressions of one list; published ones have some dozens
_NAME = 64  # characters of a long module name
_PER_LITERAL = 8  # how often one character occurs in it
_WAYS = 100_000  # of all expressions of a list together, to match one name
_SHORT = 16  # so often may be repeated what itself varies


def compiled(pattern: str, fields: Fields, prefix: str = "") -> Pattern[str]:
    """The expression, written behind a `prefix`. Raises ConfigError for none, or one that might not come to an end."""
    import re

    shown = repr(prefix + (pattern if len(pattern) <= 80 else f"{pattern[:77]}..."))
    if len(pattern) > LONGEST:
        raise fields.error(f"{shown} has {len(pattern):,} characters", f"expressions of at most {LONGEST:,}")
    try:
        ways_to_match(pattern)
        return re.compile(pattern)
    except _EndlessError as error:
        hint = "a simpler expression: no repeat of what itself repeats, few repeats side by side"
        raise fields.error(f"{shown} {error}", hint) from None
    except (re.error, RecursionError, OverflowError) as error:
        raise fields.error(f"{shown} is no regular expression ({error})", "a valid one") from None


def check_together(patterns: Iterable[str], fields: Fields) -> None:
    """Raises ConfigError for more expressions than can be tried on every module. Each has been compiled before."""
    listed = list(patterns)
    if len(listed) > MOST:
        raise fields.error(f"it holds {len(listed):,} regular expressions", f"at most {MOST} in one list")
    ways = sum(ways_to_match(pattern) for pattern in listed)
    if ways > _WAYS:
        raise fields.error(
            f"its {counted(len(listed), 'regular expression takes', 'regular expressions take')} up to {ways:,} steps "
            "for one module",
            "simpler expressions: fewer repeats in each",
        )


class _EndlessError(Exception):
    """An expression with too many ways to match; the text says why."""


def ways_to_match(pattern: str) -> int:
    """A bound on how many ways a name of usual length can be divided among the repeats of an expression."""
    from re import _parser  # type: ignore[attr-defined]

    ways = _ways(list(_parser.parse(pattern)), 1)
    if ways > _WAYS:
        raise _EndlessError("has too many repeats side by side")
    return ways


def _ways(items: list[Any], times: int, after: Any = None) -> int:
    """Of a sequence that is itself repeated up to `times`, with `after` behind it."""
    total = 1
    for place, (operator, argument) in enumerate(items):
        follower = items[place + 1] if place + 1 < len(items) else after
        total *= _ways_of(str(operator), argument, follower, times)
        if total > _WAYS:
            raise _EndlessError("has too many repeats side by side")
    return total


def _ways_of(operator: str, argument: Any, follower: Any, times: int) -> int:
    if operator in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, inner = argument
        return _ways_of_repeat(int(least), int(most), list(inner), follower, times)
    if operator == "BRANCH":
        if times > _SHORT:
            raise _EndlessError("repeats alternatives")
        return max(1, sum(_ways(list(branch), times, follower) for branch in argument[1]))
    if operator in ("SUBPATTERN", "ATOMIC_GROUP", "ASSERT", "ASSERT_NOT"):
        inner = argument if operator == "ATOMIC_GROUP" else argument[3 if operator == "SUBPATTERN" else 1]
        return _ways(list(inner), times, follower)
    if operator == "GROUPREF_EXISTS":
        return max(1, sum(_ways(list(branch), times, follower) for branch in argument[1:] if branch))
    return 1


def _ways_of_repeat(least: int, most: int, inner: list[Any], follower: Any, times: int) -> int:
    varies = most - least
    if times > 1 and times * most > (_SHORT if varies else LONGEST):
        raise _EndlessError("repeats what itself repeats")
    ends_at_literal = follower is None or str(follower[0]) in ("LITERAL", "AT")
    own = min(varies + 1, _PER_LITERAL if ends_at_literal else _NAME)
    return own * _ways(inner, times * most if most > 1 else times, follower)
