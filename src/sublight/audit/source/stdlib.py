"""What is known of names outside the sources: Python's own functions. Everything else gives something unknown."""

import ast
import builtins
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from sublight.audit.source import containers, objects, operators, parts
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
    Partial,
    Scope,
    Template,
    Unknown,
    Value,
    one_of,
    options,
)

Arguments = list[Value]
Keywords = dict[str, Value]
Work = Callable[[Machine, Arguments, Keywords, Any, Scope], Value]

LEVELS = frozenset(["debug", "info", "warning", "warn", "error", "critical", "exception", "log"])
_SILENT = ("builtins.", "typing.", "functools.", "dataclasses.", "super.", "enum.", "abc.", "contextlib.", "copy.")


def answer(known: Value, arguments: Arguments, keywords: Keywords) -> Value:
    """What a described function answers: a Python function is asked, anything else is the answer."""
    ours = isinstance(known, (Function, Bound, Class, Partial, External, Unknown, Instance, Member, Choice))
    return known(arguments, keywords) if callable(known) and not ours else known


def external(
    machine: Machine, callee: External, arguments: Arguments, keywords: Keywords, node: Any, scope: Scope
) -> Value:
    """A call of something outside."""
    dotted = callee.dotted
    if not dotted.startswith(_SILENT):
        said = {name: value for name, value in keywords.items() if isinstance(value, str)}
        machine.note("call", scope.module.module, node, dotted, value=said)
    if dotted in machine.facts.calls:
        return answer(machine.facts.calls[dotted], arguments, keywords)
    work = _WORK.get(dotted)
    if work is not None:
        return work(machine, arguments, keywords, node, scope)
    bare = dotted.rpartition(".")[2]
    if dotted.startswith(("logging.", "warnings.")) and bare.removesuffix("_once") in LEVELS:
        return _log(machine, bare, arguments, node, scope)
    kinds = exception_kinds(dotted)
    if kinds:
        return Failure(kinds, message(arguments), tuple(arguments))
    if dotted.startswith("builtins."):
        return _builtin(bare, arguments, keywords)
    if dotted.startswith("math.") and all(isinstance(a, (int, float)) for a in arguments):
        return _computed(getattr(math, bare, None), arguments)
    return Unknown(f"what {dotted} gives", solid=bare[:1].isupper() or dotted.startswith("torch."))


def _computed(work: Any, arguments: Arguments) -> Value:
    try:
        return work(*arguments)
    except Exception:
        return Unknown("arithmetic that fails", solid=True)


_PURE = frozenset(
    ("abs", "bin", "bool", "bytes", "chr", "divmod", "float", "format", "hash", "hex", "int", "max", "min", "oct",
     "ord", "pow", "range", "repr", "round", "str", "sum")
)  # fmt: skip


def _builtin(bare: str, arguments: Arguments, keywords: Keywords) -> Value:
    plain = [operators.plain(a) for a in arguments]
    if bare == "str" and len(arguments) == 1 and not operators.known(plain[0]):
        text = operators.written(arguments[0])
        return text if isinstance(arguments[0], Member) else Template(text)
    if bare == "repr" and len(arguments) == 1 and not operators.known(plain[0]):
        return Template(operators.written(arguments[0]))
    if bare in _PURE and not keywords and all(operators.known(a) for a in plain):
        return _computed(getattr(builtins, bare), plain)
    return Unknown(f"what {bare} gives", solid=True)


def message(arguments: Arguments) -> str:
    """What an exception says."""
    return operators.written(arguments[0]) if arguments else ""


def exception_kinds(dotted: str) -> tuple[str, ...]:
    """Every class an outside exception derives from, itself first; empty for what is no exception."""
    bare = dotted.rpartition(".")[2]
    if dotted.startswith("builtins."):
        found = getattr(builtins, bare, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return tuple(cls.__name__ for cls in found.__mro__[:-1])
        return ()
    return (dotted, "Exception", "BaseException") if bare.endswith(("Error", "Exception")) else ()


def _log(machine: Machine, level: str, arguments: Arguments, node: Any, scope: Scope) -> Value:
    if arguments:
        first = arguments[0]
        text = operators.written(first, unknown="?")
        if len(arguments) > 1 and isinstance(first, str):
            text = operators.written(operators.format_percent(first, tuple(arguments[1:])))
        machine.note("log", scope.module.module, node, level, value=text)
    return None


# -- Python's own functions --------------------------------------------------------------------------------------


def _len(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    found = [_length(option) for option in options(arguments[0])] if arguments else []
    if isinstance(arguments[0], Instance):
        asked = machine.asked(arguments[0], "__len__", [], node, scope)
        return Unknown("a length", solid=True) if asked is MISSING else asked
    return one_of(found)


def _length(value: Value) -> Value:
    if isinstance(value, Class) and value.is_enum:
        return len(value.members)
    if not isinstance(value, (str, bytes, list, tuple, dict, set, frozenset, range)):
        return Unknown("a length", solid=True)
    uncertain = not isinstance(value, (str, bytes, range)) and any(
        item is MANY or (isinstance(item, Choice) and MISSING in item.options) for item in value
    )
    return Unknown("a length", solid=True) if uncertain else len(value)


def _isinstance(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
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
        return cls.dotted == "builtins.type" or (None if value.outside() else False)
    python = getattr(builtins, cls.dotted.removeprefix("builtins."), None)
    if isinstance(python, type):
        return isinstance(value, python)
    bare = cls.dotted.rpartition(".")[2]
    if isinstance(value, (Function, Namespace, Bound)):
        return None
    kin = {"Sequence": (list, tuple, str), "Iterable": (list, tuple, dict, set, str), "Mapping": (dict,)}
    return isinstance(value, kin[bare]) if bare in kin else False


def _issubclass(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    if len(arguments) == 2 and isinstance(arguments[0], Class):
        classes = arguments[1] if isinstance(arguments[1], tuple) else (arguments[1],)
        return any(cls in arguments[0].line() or cls in arguments[0].outside() for cls in classes)
    return Unknown("issubclass of something unknown", solid=True)


def _hasattr(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 2 and isinstance(arguments[1], str):
        found = objects.has(machine, arguments[0], arguments[1], node, scope)
        if found is not None:
            return found
    return Unknown("hasattr of something unknown", solid=True)


def _getattr(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
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


def _setattr(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 3:
        if isinstance(arguments[1], str):
            objects.put(machine, arguments[0], arguments[1], arguments[2], node, scope)
        elif isinstance(arguments[0], Instance):
            arguments[0].open = True
    return None


def _raw_get(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 2 and isinstance(arguments[0], Instance) and isinstance(arguments[1], str):
        held = arguments[0].attributes.get(arguments[1], MISSING)
        return objects.require(machine, arguments[0], arguments[1], node, scope) if held is MISSING else held
    return Unknown("an attribute")


def _raw_set(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) == 3 and isinstance(arguments[0], Instance) and isinstance(arguments[1], str):
        name = f"{arguments[0].cls.qualified if arguments[0].cls else 'object'}.{arguments[1]}"
        machine.note("write", scope.module.module, node, name, value=arguments[2])
        machine.journal.touch(arguments[0].attributes)
        arguments[0].attributes[arguments[1]] = arguments[2]
    return None


def _all(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return _every(arguments, stops=False)


def _any(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return _every(arguments, stops=True)


def _every(arguments: Arguments, stops: bool) -> Value:
    found = [operators.truth(item) for item in parts.spread(arguments[0])] if arguments else []
    if stops in found:
        return stops
    return Unknown("any or all of something unknown", solid=True) if None in found else not stops


def _type(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if len(arguments) == 1 else MISSING
    if isinstance(value, (Instance, Member)) and value.cls is not None:
        return value.cls
    if operators.known(value):
        return External(f"builtins.{type(value).__name__}")
    return Unknown("a type", solid=True)


def _container(kind: type) -> Work:
    def make(machine: Machine, arguments: Arguments, keywords: Keywords, node: Any, scope: Scope) -> Value:
        if kind is dict:
            if arguments and isinstance(arguments[0], list):
                return parts.pairs(arguments[0]) | keywords
            return (parts.as_dict(arguments[0]) if arguments else {}) | keywords
        items = parts.spread(machine.iterated(arguments[0], node, scope)) if arguments else []
        return parts.as_set(items) if kind in (set, frozenset) else kind(items)

    return make


def _map(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    if len(arguments) != 2:
        return [MANY]
    items = parts.spread(machine.iterated(arguments[1], node, scope))
    return [MANY if item is MANY else machine.call(arguments[0], [item], {}, node, scope) for item in items]


def _filter(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    found: list[Value] = []
    for item in parts.spread(machine.iterated(arguments[1], node, scope)) if len(arguments) == 2 else [MANY]:
        kept = item if item is MANY or arguments[0] is None else machine.call(arguments[0], [item], {}, node, scope)
        answer_ = None if item is MANY else operators.truth(kept)
        if answer_ is not False:
            found.append(item if answer_ or item is MANY else one_of((item, MISSING)))
    return found


def _zip(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    columns = [parts.spread(each) for each in arguments]
    return [MANY] if any(MANY in column for column in columns) else list(zip(*columns, strict=False))


def _enumerate(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    items = parts.spread(arguments[0])
    return [MANY] if MANY in items else list(enumerate(items))


def _sorted(machine: Machine, arguments: Arguments, keywords: Keywords, node: Any, scope: Scope) -> Value:
    items = list(parts.spread(arguments[0]))
    containers.sort(machine, items, keywords, node, scope)
    return items


def _reversed(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return parts.spread(arguments[0])[::-1]


def _callable(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if arguments else None
    if isinstance(value, (Function, Bound, Class, Partial)):
        return True
    return False if value is None or operators.known(value) else Unknown("callable")


def _partial(_machine: Machine, arguments: Arguments, keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return Partial(arguments[0], arguments[1:], keywords) if arguments else Unknown("partial")


def _wrapper(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    """`lru_cache(f)`, `lru_cache(maxsize=1)(f)`, `wraps(f)(g)`: what they are given last, as it is."""
    if len(arguments) == 1 and isinstance(arguments[0], (Function, Partial, Bound, Class)):
        return arguments[0]
    return External("functools.same")


def _same(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return arguments[0] if arguments else None


def _second(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return arguments[1] if len(arguments) > 1 else Unknown("cast")


def _copied(_machine: Machine, arguments: Arguments, keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if arguments else None
    if isinstance(value, Instance):
        return Instance(value.cls, value.attributes | keywords, value.open)
    return value.copy() if isinstance(value, (list, dict, set)) else value


def _getenv(machine: Machine, arguments: Arguments, keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    default = arguments[1] if len(arguments) > 1 else keywords.get("default")
    name = operators.plain(arguments[0]) if arguments else None
    return machine.environment.get(name, default) if isinstance(name, str) else Unknown("a variable")


def _setenv(machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    if len(arguments) == 2 and isinstance(arguments[0], str):
        machine.journal.touch(machine.environment)
        return machine.environment.setdefault(arguments[0], arguments[1])
    return Unknown("a variable")


def _import_module(machine: Machine, arguments: Arguments, _keywords: Keywords, node: Any, scope: Scope) -> Value:
    from sublight.audit.source import namespaces

    if not arguments or not isinstance(arguments[0], str):
        return Unknown("a module whose name is unknown", solid=True)
    event = machine.note("import", scope.module.module, node, arguments[0])
    event.how = "string"
    return namespaces.space(machine, arguments[0]) or External(arguments[0])


def _find_spec(machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    name = arguments[0] if arguments else None
    found = machine.facts.importable(name) if isinstance(name, str) else None
    return Unknown("a spec", solid=True) if found else None if found is False else Unknown(f"whether {name} is there")


def _vars(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if arguments else None
    if isinstance(value, Class):
        return dict(value.names)
    return value.attributes if isinstance(value, Instance) else {MANY: MANY}


def _defstruct(_machine: Machine, arguments: Arguments, keywords: Keywords, node: Any, scope: Scope) -> Value:
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


def _field_list(machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
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


def _hints(machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    cls = arguments[0] if arguments else None
    if not isinstance(cls, Class):
        return {MANY: MANY}
    return {name: Unknown(f"the annotation of {name}", solid=True) for name, _ in machine.fields(cls)}


def _is_dataclass(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    value = arguments[0] if arguments else None
    cls = value.cls if isinstance(value, Instance) else value
    return cls.record if isinstance(cls, Class) else False


def _matched(bare: str) -> Work:
    """`re.match` and its kin on known text: whether it matches; what matches is not gone into."""

    def match(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
        if len(arguments) != 2 or not all(isinstance(each, str) and len(each) <= 200 for each in arguments):
            return Unknown(f"what re.{bare} finds")
        try:
            found = getattr(re, bare)(*arguments)
        except re.error:
            return Unknown(f"what re.{bare} finds")
        return None if found is None else Unknown(f"what re.{bare} finds", solid=True)

    return match


def _logger(_machine: Machine, _arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return External("logging.Logger")


def _auto(_machine: Machine, _arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return Unknown("enum.auto", solid=True)


def _nothing(_machine: Machine, _arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return None


_WORK: Mapping[str, Work] = {
    "builtins.len": _len, "builtins.isinstance": _isinstance, "builtins.issubclass": _issubclass,
    "builtins.hasattr": _hasattr, "builtins.getattr": _getattr, "builtins.setattr": _setattr,
    "builtins.object.__setattr__": _raw_set, "builtins.object.__getattribute__": _raw_get,
    "super.__setattr__": _nothing, "super.__init__": _nothing, "builtins.print": _nothing,
    "builtins.all": _all, "builtins.any": _any, "builtins.type": _type, "builtins.callable": _callable,
    "builtins.list": _container(list), "builtins.tuple": _container(tuple), "builtins.set": _container(set),
    "builtins.frozenset": _container(frozenset), "builtins.dict": _container(dict),
    "collections.OrderedDict": _container(dict), "types.MappingProxyType": _same, "builtins.iter": _same,
    "builtins.map": _map, "builtins.filter": _filter, "builtins.zip": _zip, "builtins.enumerate": _enumerate,
    "builtins.sorted": _sorted, "builtins.reversed": _reversed, "functools.partial": _partial,
    "functools.lru_cache": _wrapper, "functools.cache": _wrapper, "functools.wraps": _wrapper,
    "functools.same": _same, "typing.cast": _second, "copy.copy": _copied, "copy.deepcopy": _copied,
    "dataclasses.replace": _copied, "os.environ.get": _getenv, "os.getenv": _getenv, "os.environ.setdefault": _setenv,
    "importlib.import_module": _import_module, "importlib.util.find_spec": _find_spec,
    "builtins.vars": _vars, "msgspec.defstruct": _defstruct, "dataclasses.make_dataclass": _defstruct,
    "dataclasses.fields": _field_list, "msgspec.structs.fields": _field_list, "typing.get_type_hints": _hints,
    "dataclasses.is_dataclass": _is_dataclass, "msgspec.Struct.__setattr__": _raw_set,
    "re.match": _matched("match"), "re.search": _matched("search"), "re.fullmatch": _matched("fullmatch"),
    "logging.getLogger": _logger, "enum.auto": _auto,
}  # fmt: skip


def native(
    machine: Machine, callee: Native, arguments: Arguments, keywords: Keywords, node: Any, scope: Scope
) -> Value:
    """A method of a constant, a container, or of an outside base of an object."""
    receiver, name = callee.receiver, callee.name
    if isinstance(receiver, Instance):
        return _of_base(machine, receiver, name, arguments, node, scope)
    return containers.method(machine, callee, arguments, keywords, node, scope)


def _of_base(machine: Machine, receiver: Instance, name: str, arguments: Arguments, node: Any, scope: Scope) -> Value:
    if name in ("register_parameter", "register_buffer", "register_module", "add_module", "__setattr__"):
        if len(arguments) >= 2:
            return _raw_set(machine, [receiver, *arguments[:2]], {}, node, scope)
        return None
    if name == "__getattribute__":
        return _raw_get(machine, [receiver, *arguments], {}, node, scope)
    return Unknown(f"what {name} of an outside base gives", solid=True)
