"""Truth, comparison and arithmetic with values of which some are unknown: True, False, or None for "not known"."""

import ast
import operator
from collections.abc import Callable, Iterable
from typing import Any

from sublight.audit.source.asked import Asked, exact, key_of
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Bound,
    Choice,
    Class,
    External,
    Failure,
    Function,
    Instance,
    Member,
    Namespace,
    Native,
    Partial,
    Template,
    Unknown,
    Value,
    identical,
    one_of,
    options,
)

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_ORDER: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_SIMPLE = (bool, int, float, str, bytes)
_OBJECTS = (Class, Function, Bound, Namespace, Partial, Native, Failure)


def truth(value: Value) -> bool | None:
    """Whether a value counts as true."""
    if value is True or value is False:
        return value
    if isinstance(value, Choice):
        return agreed(truth(option) for option in value.options)
    if isinstance(value, Member):
        return bool(value.value) if isinstance(value.value, int) and _derives(value.cls, "int", "IntEnum") else True
    if isinstance(value, Instance):
        if value.cls is None or any(name in at.names for at in value.cls.line() for name in ("__bool__", "__len__")):
            return None
        return True
    if isinstance(value, (Unknown, External)):
        return None
    if isinstance(value, _OBJECTS):
        return True
    if isinstance(value, (list, tuple, set, dict)) and MANY in value:
        return True if len(value) > 1 else None
    if value is MISSING or value is MANY:
        return None
    if isinstance(value, dict):
        return _any_there(value.values())
    return _any_there(value) if isinstance(value, list) else bool(value)


def _any_there(held: Iterable[Value]) -> bool | None:
    """Whether a container has anything in it, of what may be missing."""
    there = False
    for each in held:
        if isinstance(each, Choice) and MISSING in each.options:
            there = True
        elif each is not MISSING:
            return True
    return None if there else False


def agreed(answers: Any) -> bool | None:
    """The one answer that all give, else None."""
    found = set(answers)
    return found.pop() if len(found) == 1 else None


def compare(kind: ast.cmpop, left: Value, right: Value) -> bool | None:
    """One comparison. Alternatives are compared one by one."""
    if isinstance(left, Choice) or isinstance(right, Choice):
        return agreed(compare(kind, a, b) for a in options(left) for b in options(right))
    if isinstance(kind, ast.In):  # the most common one
        return contains(right, left)
    if isinstance(kind, ast.Eq):
        return equal(left, right)
    if isinstance(kind, ast.NotEq):
        return negated(equal(left, right))
    if isinstance(kind, ast.Is):
        return _same_object(left, right)
    if isinstance(kind, ast.IsNot):
        return negated(_same_object(left, right))
    if isinstance(kind, ast.NotIn):
        return negated(contains(right, left))
    return _ordered(kind, left, right)


def negated(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _ordered(kind: ast.cmpop, left: Value, right: Value) -> bool | None:
    left, right = plain(left), plain(right)
    if not (known(left) and known(right)):
        return None
    try:
        return bool(_ORDER[type(kind)](left, right))
    except TypeError:
        return None


def plain(value: Value) -> Value:
    """The constant that a member of an integer or string enumeration is, the tuple that a named tuple is."""
    if isinstance(value, Member) and _derives(value.cls, "int", "str", "IntEnum", "StrEnum", "IntFlag"):
        return value.value
    if isinstance(value, Instance) and value.cls is not None and _derives(value.cls, "NamedTuple"):
        return tuple(value.attributes.values())
    return value


def known(value: Value) -> bool:
    """Whether a value is a constant through and through."""
    if value is None or isinstance(value, _SIMPLE):
        exact(value)
        return True
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(known(item) for item in value)
    if isinstance(value, dict):
        return all(known(key) and known(item) for key, item in value.items())
    return isinstance(value, (range, slice))


def equal(left: Value, right: Value) -> bool | None:
    if type(left) is str and type(right) is str:  # nine of ten comparisons, in long lists of names
        return left == right
    if isinstance(left, Choice) or isinstance(right, Choice):
        return agreed(equal(a, b) for a in options(left) for b in options(right))
    left, right = plain(left), plain(right)
    if identical(left, right):
        return True
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        solid = (left is None and getattr(right, "solid", False)) or (right is None and getattr(left, "solid", False))
        return False if solid else None
    if isinstance(left, External) or isinstance(right, External):
        return _externals(left, right)
    if isinstance(left, Instance) or isinstance(right, Instance):
        return _instances(left, right)
    if isinstance(left, (list, tuple)) and isinstance(right, type(left)):
        return _sequences(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return bool(left == right)
    if known(left) and known(right):
        return bool(left == right)
    if isinstance(left, dict) and isinstance(right, dict):
        return None
    return False


def _externals(left: Value, right: Value) -> bool | None:
    """Two names of the same place outside ("torch.uint8", "torch.int8") are two things; None is never one of them."""
    if isinstance(left, External) and isinstance(right, External):
        same_place = left.dotted.rpartition(".")[0] == right.dotted.rpartition(".")[0]
        return False if same_place else None
    return False if left is None or right is None or isinstance(left, Member) or isinstance(right, Member) else None


def _instances(left: Value, right: Value) -> bool | None:
    if isinstance(left, Instance) and isinstance(right, Instance) and _is_record(left) and _is_record(right):
        return left.cls is right.cls and agreed_all(
            equal(left.attributes.get(name), right.attributes.get(name)) for name in left.attributes | right.attributes
        )
    for value, other in ((left, right), (right, left)):
        if isinstance(value, Instance):
            custom = value.cls is None or value.cls.record or any("__eq__" in at.names for at in value.cls.line())
            if custom and other is not None:
                return None
    return False


def _is_record(value: Instance) -> bool:
    """Whether two of its kind are the same when their fields are: a dataclass that compares in no way of its own."""
    cls = value.cls
    return cls is not None and cls.record and not value.open and not any("__eq__" in at.names for at in cls.line())


def agreed_all(answers: Iterable[bool | None]) -> bool | None:
    """Whether all hold: one that does not decides, else one that is not known leaves it open."""
    found = set(answers)
    return False if False in found else None if None in found else True


def _sequences(left: Any, right: Any) -> bool | None:
    if MANY in left or MANY in right:
        return None
    if len(left) != len(right):
        return False
    return agreed_all(equal(a, b) for a, b in zip(left, right, strict=True))


def _same_object(left: Value, right: Value) -> bool | None:
    if left is None or right is None:
        other = right if left is None else left
        if other is None:
            return True
        return None if (isinstance(other, Unknown) and not other.solid) or other is MISSING else False
    if (_is_sentinel(left) and not _open(right)) or (_is_sentinel(right) and not _open(left)):
        return False
    if isinstance(left, bool) or isinstance(right, bool):
        return equal(left, right) if type(left) is type(right) else None if _open(left) or _open(right) else False
    if (isinstance(left, External) and _made_here(right)) or (isinstance(right, External) and _made_here(left)):
        return False
    if _open(left) or _open(right):
        return True if identical(left, right) else _externals(left, right) if _both_external(left, right) else None
    return identical(left, right)


def _is_sentinel(value: Value) -> bool:
    """Whether something outside is a constant made to be told apart by identity: `dataclasses.MISSING`."""
    return isinstance(value, External) and value.dotted.rpartition(".")[2].isupper()


def _made_here(value: Value) -> bool:
    """A constant, container or object of the program, which is never the very object that something outside is."""
    return not isinstance(value, (bool, Unknown, External, Choice)) and value is not MISSING


def _open(value: Value) -> bool:
    return isinstance(value, (Unknown, External))


def _both_external(left: Value, right: Value) -> bool:
    return isinstance(left, External) and isinstance(right, External)


def contains(container: Value, item: Value) -> bool | None:
    """`item in container`."""
    container = plain(container)
    if isinstance(container, str):
        item = exact(plain(item))
        return item in container if isinstance(item, str) else None
    if isinstance(container, Class) and container.is_enum:
        container = list(container.members.values())
    if not isinstance(container, (list, tuple, set, frozenset, dict, range)):
        return None
    if isinstance(container, range):
        return item in container if isinstance(item, int) else None
    if item.__class__ is Asked and isinstance(container, dict):
        item = key_of(container, item) or item
    elif item.__class__ is Asked:
        if item.among(each for each in container if each.__class__ is str):
            return True
        container = [candidate for candidate in container if candidate.__class__ not in _SIMPLE]
    elif isinstance(item, (str, int)) and not isinstance(container, dict):
        if item in container:
            return True
        container = [candidate for candidate in container if candidate.__class__ not in _SIMPLE]
    held_by = container if isinstance(container, dict) else None
    if held_by is not None and item.__class__ is str:
        if item in held_by:
            return _there(held_by[item])
        container = [key for key in held_by if key.__class__ not in _SIMPLE]
    answers: set[bool | None] = set()
    for candidate in container:
        if candidate is MANY:
            answers.add(None)
            continue
        answer = equal(candidate, item)
        if answer and held_by is not None:
            answer = _there(held_by[candidate])
        if answer:
            return True
        answers.add(answer)
    return None if None in answers else False


def _there(held: Value) -> bool | None:
    """Whether a key is in a dict that holds this for it."""
    return None if isinstance(held, Choice) and MISSING in held.options else held is not MISSING


def binary(kind: ast.operator, left: Value, right: Value) -> Value:
    """Arithmetic, joining of strings and lists, `X | Y` of types."""
    if isinstance(left, Choice) or isinstance(right, Choice):
        return one_of([binary(kind, a, b) for a in options(left) for b in options(right)])
    left, right = plain(left), plain(right)
    if isinstance(kind, ast.Add):
        if isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(left, tuple) and isinstance(right, tuple):
            return left + right
        if isinstance(left, (str, Template)) and isinstance(right, (str, Template)):
            joined = _text(left) + _text(right)
            return joined if isinstance(left, str) and isinstance(right, str) else Template(joined)
    if isinstance(kind, ast.Mod) and isinstance(left, str):
        return format_percent(left, right)
    if isinstance(kind, (ast.BitOr, ast.BitAnd, ast.Sub)) and isinstance(left, (set, dict)):
        return _sets(kind, left, right)
    if isinstance(kind, ast.BitOr) and _type(left) and _type(right):
        return (*(left if isinstance(left, tuple) else (left,)), *(right if isinstance(right, tuple) else (right,)))
    work = _BINARY.get(type(kind))
    if work is None or not (known(left) and known(right)) or _huge(kind, left, right):
        return Unknown("arithmetic with unknown values", solid=True)
    try:
        return work(left, right)
    except (TypeError, ValueError, ArithmeticError):
        return Unknown("arithmetic that fails", solid=True)


def _type(value: Value) -> bool:
    return (
        value is None
        or isinstance(value, (Class, External))
        or (isinstance(value, tuple) and bool(value) and all(_type(item) for item in value))
    )


def _huge(kind: ast.operator, left: Value, right: Value) -> bool:
    """Whether a result could be too large to be worth having."""
    if isinstance(kind, (ast.Pow, ast.LShift)):
        return not (isinstance(right, (int, float)) and abs(right) <= 512 and isinstance(left, (int, float)))
    return isinstance(kind, ast.Mult) and any(
        isinstance(n, int) and n * max(len(v), 1) > 100_000
        for n, v in ((left, right), (right, left))
        if isinstance(v, (str, bytes, list, tuple))
    )


def _sets(kind: ast.operator, left: Value, right: Value) -> Value:
    if type(left) is not type(right) or MANY in left or MANY in right:
        return Unknown("a set with unknown elements", solid=True)
    return _BINARY[type(kind)](left, right)


def _text(value: str | Template) -> str:
    return value.text if isinstance(value, Template) else value


def format_percent(pattern: str, value: Value) -> Value:
    """`pattern % value`, unknown parts as "?"."""
    values = value if isinstance(value, tuple) else (value,)
    try:
        text = pattern % tuple(written(item) if not isinstance(item, (int, float)) else item for item in values)
    except (TypeError, ValueError):
        return Template(pattern)
    return text if all(known(plain(item)) for item in values) else Template(text)


def written(value: Value, unknown: str = "?") -> str:
    """A value as `str` would have it, `unknown` where it is not known."""
    if isinstance(value, Template):
        return value.text
    if isinstance(value, Member):
        return str(value.value) if _derives(value.cls, "StrEnum", "IntEnum") else f"{value.cls.qualified}.{value.name}"
    if isinstance(value, Choice):
        return " or ".join(dict.fromkeys(written(option, unknown) for option in value.options))
    if isinstance(value, External):
        return value.dotted
    if isinstance(value, (Class, Function)):
        return value.dotted
    if isinstance(value, Failure):
        return value.message
    if isinstance(value, (list, tuple, set, frozenset)) and not known(value):
        return "[" + ", ".join(written(item, unknown) for item in value) + "]"
    return str(value) if known(value) else unknown


def _derives(cls: Class, *names: str) -> bool:
    return any(isinstance(base, External) and base.dotted.rpartition(".")[2] in names for base in cls.outside())
