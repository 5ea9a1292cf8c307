"""Parts of containers: their elements and keys, of which some may be unknown (`MANY`) or may be missing."""

from typing import Any

from sublight.audit.source import operators
from sublight.audit.source.asked import Asked, key_of
from sublight.audit.source.values import MANY, MISSING, Choice, Class, Unknown, Value, one_of, options

_PLAIN = {str, int, float, bool, bytes, type(None)}  # always in order in a set; engines make sets of hundreds of names


def as_set(items: Any) -> Value:
    """A set of values; unknown when one cannot be in a set."""
    listed = list(items)
    if {*map(type, listed)} <= _PLAIN or all(hashable(item) for item in listed):
        return set(listed)
    return Unknown("a set of unknown elements", solid=True)


def hashable(value: Value) -> bool:
    return not isinstance(value, (list, dict, set)) and not (
        isinstance(value, tuple) and not all(hashable(item) for item in value)
    )


def spread(value: Value) -> list[Value]:
    """The elements of something that is iterated over; [MANY] when they are unknown."""
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return list(value) if len(value) <= 10_000 else [MANY]
    if isinstance(value, dict):
        return [key for key in value if value[key] is not MISSING]
    if isinstance(value, str):
        return list(value)
    if isinstance(value, Class) and value.is_enum:
        return list(value.members.values())
    return [MANY]


def pairs(found: list[Value]) -> dict[Any, Value]:
    """The dict of these pairs; one that may be absent gives a value that may be absent."""
    made: dict[Any, Value] = {}
    for item in found:
        pair = next((each for each in options(item) if isinstance(each, tuple)), None)
        if pair is None or not hashable(pair[0]) or isinstance(pair[0], (Unknown, Choice)):
            made[MANY] = MANY
        else:
            made[pair[0]] = one_of((pair[1], MISSING)) if isinstance(item, Choice) else pair[1]
    return made


def without_missing(value: Value) -> Value:
    if isinstance(value, Choice) and MISSING in value.options:
        return one_of([option for option in value.options if option is not MISSING])
    return value


def looked_up(container: dict[Any, Value], key: Value) -> Value:
    """The value of a key, MISSING when there is certainly none, a choice when that is unknown."""
    if _open(key) or not hashable(key):
        held = [value for each, value in container.items() if operators.equal(each, key) is not False]
        return one_of([*held, MISSING, *([Unknown("an element")] if MANY in container else [])])
    if key.__class__ is Asked:
        key = key_of(container, key) or key
    if key.__class__ is not Asked and key in container:
        return container[key]
    for each, value in container.items():
        if each is not MANY and operators.equal(each, key):
            return value
    return one_of((Unknown("an element"), MISSING)) if MANY in container else MISSING


def _open(key: Value) -> bool:
    """Whether a key, or a part of one that is a tuple, is not known."""
    return isinstance(key, (Unknown, Choice)) or (isinstance(key, tuple) and any(_open(item) for item in key))


def as_dict(value: Value) -> dict[Any, Value]:
    """A new dict of a value's items. Of alternatives, keys that not all of them have may be missing."""
    if isinstance(value, dict):
        return dict(value)
    each = options(value)
    if not all(isinstance(option, dict) for option in each):
        return {MANY: MANY}
    keys = dict.fromkeys(key for option in each for key in option)
    return {key: one_of([option.get(key, MISSING) for option in each]) for key in keys}


def updated(container: dict[Any, Value], other: dict[Any, Value]) -> None:
    """`container.update(other)`; what may be missing in `other` may leave the old value."""
    for key, value in other.items():
        if value is MISSING:
            continue
        if isinstance(value, Choice) and MISSING in value.options:
            kept = [option for option in value.options if option is not MISSING]
            container[key] = one_of([*kept, container.get(key, MISSING)])
        else:
            container[key] = value
