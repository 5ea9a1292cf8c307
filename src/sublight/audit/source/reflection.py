"""Reflection: what a program asks of its own objects and classes by name (`getattr`, `isinstance`, `fields`)."""

import ast
import builtins
from collections.abc import Callable
from functools import wraps
from typing import Any

from sublight.audit.source import objects, operators, parts
from sublight.audit.source.asked import exact
from sublight.audit.source.machine import Machine, Raising
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Bound,
    Class,
    External,
    Failure,
    Function,
    Instance,
    Member,
    Namespace,
    Scope,
    Unknown,
    Value,
    one_of,
    options,
)

Arguments = list[Value]
Keywords = dict[str, Value]
Work = Callable[[Machine, Arguments, Keywords, Any, Scope], Value]


def _by_name(work: Work) -> Work:
    """What looks something up by the name in its second argument looks at all of that name."""

    @wraps(work)
    def ask(machine: Machine, arguments: Arguments, keywords: Keywords, node: Any, scope: Scope) -> Value:
        given = [arguments[0], exact(arguments[1]), *arguments[2:]] if len(arguments) > 1 else arguments
        return work(machine, given, keywords, node, scope)

    return ask


def isinstance_(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    if len(arguments) != 2:
        return Unknown("isinstance")
    classes = arguments[1] if isinstance(arguments[1], tuple) else (arguments[1],)
    answers = {_is_one(option, classes) for option in options(arguments[0])}
    found = answers.pop() if len(answers) == 1 else None
    return Unknown("isinstance of something unknown", solid=True) if found is None else found


def _is_one(value: Value, classes: tuple[Value, ...]) -> bool | None:
    answers = [_is(value, cls) for cls in classes]
    return True if True in answers else None if None in answers else False


def _is(value: Value, cls: Value) -> bool | None:
    if isinstance(cls, tuple):
        return _is_one(value, cls)
    if isinstance(value, (Unknown, External)) or not isinstance(cls, (Class, External)):
        return value is None if cls is None else (False if value is None else None)
    own = value.cls if isinstance(value, (Instance, Member)) else None
    if own is not None:
        if isinstance(cls, Class):
            return (
                True
                if cls in own.line()
                else (None if isinstance(value, Instance) and value.open and not own.bases else False)
            )
        return cls in own.outside() or cls.dotted == "builtins.object"
    if isinstance(value, Failure):
        name = cls.dotted.removeprefix("builtins.")
        return name in value.kinds
    if isinstance(cls, Class):
        return False
    if isinstance(value, Class):
        # A class is one of its metaclass only, and those are called so.
        return cls.dotted == "builtins.type" or (None if cls.dotted.endswith(("Meta", "Type")) else False)
    python = getattr(builtins, cls.dotted.removeprefix("builtins."), None)
    if isinstance(python, type):
        return isinstance(value, python)
    bare = cls.dotted.rpartition(".")[2]
    if isinstance(value, (Function, Namespace, Bound)):
        return None
    kin = {"Sequence": (list, tuple, str), "Iterable": (list, tuple, dict, set, str), "Mapping": (dict,)}
    return isinstance(value, kin[bare]) if bare in kin else False


def issubclass_(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    if len(arguments) == 2 and isinstance(arguments[0], Class):
        classes = arguments[1] if isinstance(arguments[1], tuple) else (arguments[1],)
        return any(cls in arguments[0].line() or cls in arguments[0].outside() for cls in classes)
    return Unknown("issubclass of something unknown", solid=True)


@_by_name
def hasattr_(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 2 and isinstance(arguments[1], str):
        found = objects.has(machine, arguments[0], arguments[1], node, scope)
        if found is not None:
            return found
    return Unknown("hasattr of something unknown", solid=True)


@_by_name
def getattr_(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) < 2 or not isinstance(arguments[1], str):
        return Unknown("an attribute whose name is unknown")
    if len(arguments) == 2:
        return objects.require(machine, arguments[0], arguments[1], node, scope)
    found = []
    for option in options(arguments[0]):
        try:
            value = objects.get(machine, option, arguments[1], node, scope)
        except Raising as raising:
            if "AttributeError" not in raising.failure.kinds:
                raise
            value = MISSING
        found += [arguments[2] if each is MISSING else each for each in options(value)]
        if (
            isinstance(option, (Unknown, External))
            and f"{getattr(option, 'dotted', '')}.{arguments[1]}" not in machine.facts.values
        ):
            found.append(arguments[2])
    return one_of(found)


@_by_name
def setattr_(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 3:
        if isinstance(arguments[1], str):
            objects.put(machine, arguments[0], arguments[1], arguments[2], node, scope)
        elif isinstance(arguments[0], Instance) and not arguments[0].open:
            arguments[0].open = True
            machine.opened.append(arguments[0])
    return None


@_by_name
def raw_get(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 2 and isinstance(arguments[0], Instance) and isinstance(arguments[1], str):
        held = arguments[0].attributes.get(arguments[1], MISSING)
        return objects.require(machine, arguments[0], arguments[1], node, scope) if held is MISSING else held
    return Unknown("an attribute")


@_by_name
def raw_set(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 3 and isinstance(arguments[0], Instance) and isinstance(arguments[1], str):
        name = f"{arguments[0].cls.qualified if arguments[0].cls else 'object'}.{arguments[1]}"
        machine.note("write", scope.module.module, node, name, value=arguments[2])
        machine.journal.touch(arguments[0].attributes)
        arguments[0].attributes[arguments[1]] = arguments[2]
    return None


def type_(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if len(arguments) == 1 else MISSING
    if isinstance(value, (Instance, Member)) and value.cls is not None:
        return value.cls
    if operators.known(value):
        return External(f"builtins.{type(value).__name__}")
    return Unknown("a type", solid=True)


def vars_(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if arguments else None
    if isinstance(value, Class):
        return dict(value.names)
    return value.attributes if isinstance(value, Instance) else {MANY: MANY}


def defstruct(_machine: Machine, arguments: Arguments, keywords: Keywords, node: Any, scope: Scope) -> Value:
    """`msgspec.defstruct(name, fields, namespace=...)`, `dataclasses.make_dataclass(...)`."""
    if len(arguments) < 2 or not isinstance(arguments[0], str):
        return Unknown("a class made at run time", solid=True)
    definition = ast.ClassDef(arguments[0], [], [], [], [], lineno=node.lineno, col_offset=0)
    made = Class(scope.module, definition, arguments[0], [External("msgspec.Struct")])
    made.record, made.declared = True, []
    for field in parts.spread(arguments[1]):
        if isinstance(field, tuple) and isinstance(field[0], str):
            made.declared.append((field[0], field[2] if len(field) > 2 else MISSING))
    inherited = keywords.get("namespace")
    if isinstance(inherited, dict):
        made.names.update({key: value for key, value in inherited.items() if isinstance(key, str)})
    return made


def field_list(machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    """`dataclasses.fields`, `msgspec.structs.fields`: of each field its name and default."""
    value = arguments[0] if arguments else None
    cls = value.cls if isinstance(value, Instance) else value
    if not isinstance(cls, Class):
        return [MANY]
    none = External("msgspec.NODEFAULT")
    return [
        Instance(None, {"name": name, "default": none if default is MISSING else default, "default_factory": none})
        for name, default in machine.fields(cls)
    ]


def hints(machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    cls = arguments[0] if arguments else None
    if not isinstance(cls, Class):
        return {MANY: MANY}
    return {name: Unknown(f"the annotation of {name}", solid=True) for name, _ in machine.fields(cls)}


def is_dataclass(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if arguments else None
    cls = value.cls if isinstance(value, Instance) else value
    return cls.record if isinstance(cls, Class) else False
