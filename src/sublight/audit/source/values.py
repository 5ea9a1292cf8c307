"""Values of a program that is read and not run: what is known stands for itself, what is not says why.

Plain constants, tuples, lists, dicts and sets are Python's own, holding values in turn. Everything else of a program
is one of the classes below. `Choice` is one of a few values, which of them hangs on something unknown.
"""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from sublight.audit.source.asked import Asked
from sublight.audit.source.tree import Module

Value = Any  # one of the classes below, or a constant or container of Python's

OPTIONS_AT_MOST = 12  # a value with more alternatives than this is as good as unknown


class Unknown:
    """A value nothing is known of, and why. A `solid` one is known not to be None (an array, a new object)."""

    __slots__ = ("solid", "why")

    def __init__(self, why: str, solid: bool = False) -> None:
        self.why = why
        self.solid = solid

    def __repr__(self) -> str:
        return f"Unknown({self.why!r})"


class Template(Unknown):
    """A string of which parts are unknown; `text` has the expressions in their place."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__("a string with unknown parts", solid=True)
        self.text = text


class _Mark:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING = _Mark("MISSING")  # no such attribute, name or key
MANY = _Mark("MANY")  # inside a container: any number of further, unknown elements


class External:
    """Something outside the sources that are followed, by its dotted name: "torch.cuda.is_available"."""

    __slots__ = ("dotted",)

    def __init__(self, dotted: str) -> None:
        self.dotted = dotted

    def __repr__(self) -> str:
        return f"External({self.dotted!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, External) and other.dotted == self.dotted

    def __hash__(self) -> int:
        return hash(self.dotted)


class Scope:
    """Names of a running function, class body or module, and what stands around it."""

    __slots__ = ("function", "globals_", "module", "names", "nonlocals", "outer", "owner", "yields")

    def __init__(self, module: "Namespace", outer: "Scope | None", owner: "Class | None" = None) -> None:
        self.module = module
        self.names: dict[str, Value] = {}
        self.outer = outer
        self.owner = owner
        self.function: Function | None = None
        self.globals_: frozenset[str] = frozenset()
        self.nonlocals: frozenset[str] = frozenset()
        self.yields: list[Value] | None = None


class Namespace:
    """A module: names filled when asked for. `written` holds what functions wrote with `global`."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.names: dict[str, Value] = {}
        self.written: dict[str, Value] = {}
        self.done: set[int] = set()
        self.running: list[int] = []  # top-level statements being run, the innermost last
        self.scope = Scope(self, None)
        self.scope.names = self.names
        self.loads = False
        self.name = module.name
        self.index: dict[str, list[int]] | None = None  # name -> the top-level statements that bind or edit it

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"


class Lazy:
    """A name bound by an import that nobody has used yet."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


class Function:
    """A function of the sources.

    Attributes:
        kind: "plain", "property", "static", "class", "kernel" (handed to a compiler outside the sources),
            "context" (a generator that is a context manager).
        qualified: "ModelOptConfig.get_quant_method", the name inside its module.
    """

    __slots__ = ("cached", "dotted", "kind", "module", "node", "outer", "owner", "qualified")

    def __init__(
        self,
        module: Namespace,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        qualified: str,
        outer: Scope | None,
        owner: "Class | None",
    ) -> None:
        self.module = module
        self.node = node
        self.qualified = qualified
        self.outer = outer
        self.owner = owner
        self.kind = "plain"
        self.cached = False  # its answers are kept (`lru_cache`)
        self.dotted = f"{module.module.name}.{qualified}"

    @property
    def where(self) -> str:
        return self.module.module.at(self.node)

    def __repr__(self) -> str:
        return f"Function({self.dotted!r})"


class Bound:
    """A method together with its object (or class)."""

    __slots__ = ("function", "receiver")

    def __init__(self, function: Function, receiver: Value) -> None:
        self.function = function
        self.receiver = receiver


class Native:
    """A method of a constant or container: `"x".upper`, `names.append`."""

    __slots__ = ("name", "receiver")

    def __init__(self, receiver: Value, name: str) -> None:
        self.receiver = receiver
        self.name = name


class Partial:
    """`functools.partial`, and wrappers that leave a function what it is (`lru_cache`)."""

    __slots__ = ("arguments", "keywords", "target")

    def __init__(self, target: Value, arguments: list[Value], keywords: dict[str, Value]) -> None:
        self.target = target
        self.arguments = arguments
        self.keywords = keywords


class Class:
    """A class of the sources. `members` holds an enumeration's, by name."""

    __slots__ = (
        "_line",
        "_outside",
        "bases",
        "declared",
        "dotted",
        "is_enum",
        "members",
        "module",
        "names",
        "node",
        "qualified",
        "record",
    )

    def __init__(self, module: Namespace, node: ast.ClassDef, qualified: str, bases: list[Value]) -> None:
        self.module = module
        self.node = node
        self.qualified = qualified
        self.dotted = f"{module.name}.{qualified}"
        self.bases = bases
        self.names: dict[str, Value] = {}
        self.members: dict[str, Member] = {}
        self._line: list[Class] | None = None
        self._outside: list[Value] | None = None
        self.is_enum = False
        self.declared: list[tuple[str, Value]] | None = None  # fields of a class made at run time, with defaults
        self.record = False  # its constructor is made from annotated fields

    @property
    def where(self) -> str:
        return self.module.module.at(self.node)

    def line(self) -> "list[Class]":
        """The class and its bases of the sources, in the order attributes are looked up."""
        if self._line is None:
            found: dict[int, Class] = {}
            for base in [self, *(c for b in self.bases if isinstance(b, Class) for c in b.line())]:
                found.pop(id(base), None)  # a shared base comes after all that derive from it
                found[id(base)] = base
            self._line = list(found.values())
        return self._line

    def outside(self) -> list[Value]:
        """Bases that the sources do not hold."""
        if self._outside is None:
            self._outside = [base for cls in self.line() for base in cls.bases if not isinstance(base, Class)]
        return self._outside

    def __repr__(self) -> str:
        return f"Class({self.dotted!r})"


_NOTHING: Mapping[str, str] = {}


class Instance:
    """An object of a class of the sources.

    An `open` one may have attributes that nobody has seen being set, but for those in `lacks`: attribute -> what it is
    that has none of this name.
    """

    __slots__ = ("attributes", "cls", "lacks", "open")

    def __init__(self, cls: Class | None, attributes: dict[str, Value] | None = None, open_: bool = False) -> None:
        self.cls = cls
        self.attributes = attributes if attributes is not None else {}
        self.open = open_
        self.lacks: Mapping[str, str] = _NOTHING

    def __repr__(self) -> str:
        return f"Instance({self.cls.qualified if self.cls else 'object'})"


class Member:
    """A member of an enumeration."""

    __slots__ = ("cls", "name", "value")

    def __init__(self, cls: Class, name: str, value: Value) -> None:
        self.cls = cls
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"{self.cls.qualified}.{self.name}"


class Parent:
    """`super()`: attributes are looked up behind `cls`."""

    __slots__ = ("cls", "receiver")

    def __init__(self, cls: Class, receiver: Value) -> None:
        self.cls = cls
        self.receiver = receiver


class Failure:
    """An exception: its class by dotted name, every class it derives from, and its message."""

    __slots__ = ("kinds", "message", "value")

    def __init__(self, kinds: tuple[str, ...], message: str, value: Value = None) -> None:
        self.kinds = kinds
        self.message = message
        self.value = value

    @property
    def kind(self) -> str:
        return self.kinds[0]

    def __repr__(self) -> str:
        return f"Failure({self.kind}: {self.message!r})"


class Choice:
    """One of several values."""

    __slots__ = ("options",)

    def __init__(self, options: tuple[Value, ...]) -> None:
        self.options = options

    def __repr__(self) -> str:
        return f"Choice{self.options!r}"


def identical(a: Value, b: Value) -> bool:
    """Whether two values are certainly one and the same."""
    if a is b:
        return True
    if type(a) is not type(b):
        return isinstance(a, str) and isinstance(b, str) and (type(a) is Asked or type(b) is Asked) and bool(a == b)
    if isinstance(a, (bool, int, float, str, bytes, External)):
        return bool(a == b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(identical(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Bound):
        return a.function is b.function and a.receiver is b.receiver
    if isinstance(a, Lazy):
        return (a.module, a.name) == (b.module, b.name)
    return False


def options(value: Value) -> tuple[Value, ...]:
    return value.options if isinstance(value, Choice) else (value,)


def one_of(values: Iterable[Value]) -> Value:
    """The value that is any of these: itself if they are all one, unknown if they are too many."""
    found: list[Value] = []
    values = list(values)
    if len(values) == 1:
        return values[0]
    unknown = False
    for value in values:
        for option in value.options if value.__class__ is Choice else (value,):
            if isinstance(option, Unknown):
                if unknown:
                    continue
                unknown = True
            for kept in found:
                if kept is option or identical(option, kept):
                    break
            else:
                found.append(option)
    if len(found) == 1:
        return found[0]
    if len(found) > OPTIONS_AT_MOST:
        return Unknown("one of too many values")
    return Choice(tuple(found)) if found else Unknown("no value")
