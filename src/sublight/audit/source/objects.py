"""Attributes: what `object.name` gives, and what setting it does."""

import ast
import builtins
import sys
from collections import namedtuple

from sublight.audit.source import namespaces
from sublight.audit.source.machine import Machine, Raising
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
    Parent,
    Partial,
    Scope,
    Unknown,
    Value,
    one_of,
    options,
)

# Bases outside the sources that bring attributes of their own, and bases known to bring none that decisions hang on.
_PLAIN_BASES = ("builtins.object", "abc.ABC", "typing.Generic", "typing.Protocol", "enum.Enum", "enum.IntEnum",
                "enum.StrEnum", "enum.Flag", "enum.IntFlag", "builtins.str", "builtins.int", "typing.NamedTuple",
                "typing.TypedDict", "msgspec.Struct")  # fmt: skip
_MODULES = ("torch.nn.Module", "torch.nn.modules.module.Module")  # of their names, these are the ones programs use:
_MODULE_NAMES = frozenset(
    [
        "register_parameter",
        "register_buffer",
        "register_module",
        "add_module",
        "parameters",
        "named_parameters",
        "buffers",
        "named_buffers",
        "children",
        "modules",
        "named_modules",
        "named_children",
        "apply",
        "cuda",
        "cpu",
        "to",
        "half",
        "float",
        "eval",
        "train",
        "training",
        "forward",
        "state_dict",
        "load_state_dict",
        "zero_grad",
        "requires_grad_",
        "_parameters",
        "_buffers",
        "_modules",
        "register_forward_hook",
        "register_forward_pre_hook",
        "get_parameter",
        "get_submodule",
    ]
)
_TUPLE = namedtuple("_Tuple", ())()  # for the methods that every named tuple has
_NATIVE = (str, bytes, int, float, tuple, list, dict, set, frozenset, range)


def get(machine: Machine, value: Value, name: str, node: ast.AST, scope: Scope) -> Value:
    """`value.name`; MISSING when it certainly has no such attribute."""
    if isinstance(value, Choice):
        return one_of([get(machine, option, name, node, scope) for option in value.options])
    if isinstance(value, Instance):
        return _of_instance(machine, value, name, node, scope)
    if isinstance(value, External):
        dotted = f"{value.dotted}.{name}"
        return False if name == "TYPE_CHECKING" else machine.facts.values.get(dotted, External(dotted))
    if isinstance(value, Namespace):
        return _of_module(machine, value, name, node, scope)
    if isinstance(value, Class):
        return _of_class(machine, value, name)
    if isinstance(value, Member):
        return _of_member(machine, value, name, node, scope)
    if isinstance(value, Parent):
        return _behind(machine, value, name, node, scope)
    if isinstance(value, Unknown):
        return Unknown(value.why)
    if isinstance(value, Failure):
        return (value.message,) if name == "args" else Unknown("an exception's attribute")
    if isinstance(value, (Function, Bound, Partial)):
        return _of_function(value, name)
    if isinstance(value, _NATIVE) or value is None:
        return Native(value, name) if hasattr(value, name) else MISSING
    return Unknown(f"attribute {name} of {type(value).__name__}")


def _of_function(value: Function | Bound | Partial, name: str) -> Value:
    function = value.function if isinstance(value, Bound) else value
    if name in ("cache_clear", "cache_info"):
        return External(f"functools.{name}")
    if name in ("__name__", "__qualname__") and isinstance(function, Function):
        return function.qualified.rpartition(".")[2] if name == "__name__" else function.qualified
    if name == "__self__" and isinstance(value, Bound):
        return value.receiver
    return Unknown(f"attribute {name} of a function")


def _of_module(machine: Machine, value: Namespace, name: str, node: ast.AST, scope: Scope) -> Value:
    found = namespaces.lookup(machine, value, name)
    if found is not MISSING:
        return found
    child = namespaces.space(machine, f"{value.name}.{name}") if value.module.is_package else None
    if child is not None:
        return child
    hook = namespaces.lookup(machine, value, "__getattr__")
    if isinstance(hook, Function):
        return machine.call(hook, [name], {}, node, scope)
    return MISSING


def find(machine: Machine, cls: Class, name: str) -> tuple[Class | None, Value]:
    """The class along the line that has an attribute, and the attribute as it stands there."""
    for at in cls.line():
        if name in at.names:
            known = machine.facts.values.get(f"{at.dotted}.{name}", MISSING)
            return at, at.names[name] if known is MISSING else known
    return None, MISSING


def _of_class(machine: Machine, value: Class, name: str) -> Value:
    if name in value.members:
        return value.members[name]
    _, found = find(machine, value, name)
    if isinstance(found, Function):
        return Bound(found, value) if found.kind == "class" else found
    if found is not MISSING:
        return found
    if name in ("__name__", "__qualname__"):
        return value.qualified
    if name == "__members__":
        return dict(value.members)
    if name == "__annotations__":
        return {field: Unknown("an annotation", solid=True) for field, _ in machine.fields(value)}
    if name == "__module__":
        return value.module.name
    if name == "__mro__":
        return tuple(value.line())
    outside = [base for base in value.outside() if _brings(base)]
    return Unknown(f"{name} may come from {_named(outside[0])}") if outside else MISSING


def _of_instance(machine: Machine, value: Instance, name: str, node: ast.AST, scope: Scope) -> Value:
    held = value.attributes.get(name, MISSING)
    if held is MISSING and name in value.lacks:
        return MISSING
    if held is not MISSING or value.cls is None:
        return held if held is not MISSING or not value.open else Unknown(f"attribute {name}")
    _, found = find(machine, value.cls, name)
    if found is not MISSING:
        return _bind(machine, found, value, node, scope)
    if name == "__class__":
        return value.cls
    if name == "__dict__":
        return value.attributes
    if value.open:
        return Unknown(f"attribute {name} of {value.cls.qualified}, which may be set elsewhere")
    _, hook = find(machine, value.cls, "__getattr__")
    if isinstance(hook, Function):
        return machine.call(Bound(hook, value), [name], {}, node, scope)
    return _inherited(value, value.cls, name)


def _inherited(value: Instance, cls: Class, name: str) -> Value:
    for base in cls.outside():
        if _is_module(base):
            if name in _MODULE_NAMES:
                return Native(value, name)
        elif _brings(base):
            return Unknown(f"{name} may come from {_named(base)}")
    if name == "_replace" and _is_named_tuple(value):
        return Native(value, name)
    return Native(value, name) if hasattr(builtins.object, name) else MISSING


def _is_module(base: Value) -> bool:
    return isinstance(base, External) and base.dotted in _MODULES


def _brings(base: Value) -> bool:
    return not (isinstance(base, External) and (base.dotted in _PLAIN_BASES or _is_module(base)))


def _named(base: Value) -> str:
    return base.dotted if isinstance(base, External) else "a base that is not known"


def _bind(machine: Machine, found: Value, receiver: Value, node: ast.AST, scope: Scope) -> Value:
    if isinstance(found, Function):
        if found.kind == "property":
            return machine.call(Bound(found, receiver), [], {}, node, scope)
        if found.kind == "static":
            return found
        if found.kind == "class":
            return Bound(found, receiver.cls if isinstance(receiver, (Instance, Member)) else receiver)
        return Bound(found, receiver)
    if isinstance(found, Instance) and found.cls is not None:
        owner, getter = find(machine, found.cls, "__get__")
        if owner is not None and isinstance(getter, Function):
            holder = receiver.cls if isinstance(receiver, (Instance, Member)) else receiver
            return machine.call(Bound(getter, found), [receiver, holder], {}, node, scope)
    return found


def _of_member(machine: Machine, value: Member, name: str, node: ast.AST, scope: Scope) -> Value:
    if name in ("value", "_value_"):
        return value.value
    if name in ("name", "_name_"):
        return value.name
    _, found = find(machine, value.cls, name)
    if found is not MISSING:
        return _bind(machine, found, value, node, scope)
    if name in value.cls.members:
        return value.cls.members[name]
    if name == "__class__":
        return value.cls
    if isinstance(value.value, str) and hasattr(str, name):
        return Native(value.value, name)
    return MISSING


def _behind(machine: Machine, value: Parent, name: str, node: ast.AST, scope: Scope) -> Value:
    receiver = value.receiver
    cls = receiver.cls if isinstance(receiver, (Instance, Member)) else receiver
    line = cls.line() if isinstance(cls, Class) else []
    behind = line[line.index(value.cls) + 1 :] if value.cls in line else value.cls.line()[1:]
    for at in behind:
        if name in at.names:
            return _bind(machine, at.names[name], receiver, node, scope)
    return External(f"super.{name}")


def put(machine: Machine, value: Value, name: str, new: Value, node: ast.AST, scope: Scope) -> None:
    """`value.name = new`."""
    for option in options(value):
        merged = new if option is value else one_of((new, get_raw(option, name)))
        if isinstance(option, Instance):
            machine.note("write", scope.module.module, node, f"{_called(option)}.{name}", value=merged)
            if not _set_property(machine, option, name, merged, node, scope):
                machine.journal.touch(option.attributes)
                option.attributes[name] = merged
        elif isinstance(option, Class):
            machine.journal.touch(option.names)
            option.names[name] = merged
        elif isinstance(option, Namespace):
            machine.journal.touch(option.written)
            option.written[name] = merged
        elif isinstance(option, Unknown):
            machine.note("write", scope.module.module, node, f"?.{name}", value=merged)


def _set_property(machine: Machine, value: Instance, name: str, new: Value, node: ast.AST, scope: Scope) -> bool:
    if value.cls is None:
        return False
    _, setter = find(machine, value.cls, f"{name}.setter")
    if not isinstance(setter, Function):
        return False
    machine.call(Bound(setter, value), [new], {}, node, scope)
    return True


def get_raw(value: Value, name: str) -> Value:
    return value.attributes.get(name, MISSING) if isinstance(value, Instance) else MISSING


def _called(value: Instance, lacking: str = "") -> str:
    return value.lacks.get(lacking) or (value.cls.qualified if value.cls else "object")


def require(machine: Machine, value: Value, name: str, node: ast.AST, scope: Scope) -> Value:
    """`value.name` in the middle of a walk. A missing attribute of an object is taken to be set where nobody looked."""
    found = get(machine, value, name, node, scope)
    if found is MISSING:
        if value is None or _is_known_to_lack(value, name):
            who = "None" if value is None else _called(value, name)
            failure = Failure(("AttributeError", "Exception", "BaseException"), f"{who} has no attribute {name}")
            machine.note("raise", scope.module.module, node, "AttributeError", value=failure)
            raise Raising(failure)
        if isinstance(value, Instance):
            machine.note("missing", scope.module.module, node, f"{_called(value)}.{name}")
        return Unknown(f"attribute {name}, which nothing that was read sets")
    if isinstance(found, Choice) and MISSING in found.options:
        return one_of([option for option in found.options if option is not MISSING])
    return found


def _is_known_to_lack(value: Value, name: str) -> bool:
    if isinstance(value, Instance) and name in value.lacks:
        return True
    return _is_named_tuple(value) and not hasattr(_TUPLE, name)


def _is_named_tuple(value: Value) -> bool:
    """Whether nobody can have set further attributes of an object: those of a named tuple are its fields."""
    bases = value.cls.outside() if isinstance(value, Instance) and value.cls is not None and not value.open else ()
    return any(isinstance(base, External) and base.dotted.endswith(".NamedTuple") for base in bases)


def has(machine: Machine, value: Value, name: str, node: ast.AST, scope: Scope) -> bool | None:
    """`hasattr(value, name)`."""
    answers: set[bool | None] = set()
    for option in options(value):
        if isinstance(option, Unknown) or option is MANY:
            answers.add(None)
            continue
        if isinstance(option, External):
            answers.add(_has_outside(machine, f"{option.dotted}.{name}", node, scope))
            continue
        if isinstance(option, Instance) and name not in option.attributes and option.cls is not None:
            inside, _ = find(machine, option.cls, name)
            if inside is not None:
                answers.add(True)
                continue
        try:
            found = get(machine, option, name, node, scope)
        except Raising as raising:
            answers.add(False if "AttributeError" in raising.failure.kinds else None)
            continue
        for each in options(found):
            certain = not isinstance(each, Unknown) or name in getattr(option, "attributes", ())
            answers.add(False if each is MISSING else True if certain else None)
    return answers.pop() if len(answers) == 1 else None


def _has_outside(machine: Machine, dotted: str, node: ast.AST, scope: Scope) -> bool | None:
    """Whether something outside has an attribute: what is told of it, else as for an import of that name.

    PyTorch's and Python's own attributes tell versions and platforms apart; of those nothing is taken for granted.
    """
    told = machine.facts.values.get(dotted, MANY)
    if told is not MANY:
        return told is not MISSING
    top = dotted.partition(".")[0]
    if top in ("torch", "builtins", "super") or top in sys.stdlib_module_names:
        return None
    answer = machine.facts.importable(dotted)
    if answer:
        event = machine.note("import", scope.module.module, node, dotted)
        event.how, event.on_failure = "hasattr", "another way is taken"
    return answer
