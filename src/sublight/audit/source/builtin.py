"""Python's own functions, and a few of its libraries', with arguments of which some may be unknown."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from sublight.audit.source import containers, namespaces, operators, parts, reflection
from sublight.audit.source.asked import exact
from sublight.audit.source.machine import Machine
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Bound,
    Choice,
    Class,
    External,
    Function,
    Instance,
    Partial,
    Scope,
    Unknown,
    Value,
    one_of,
    options,
)

Arguments = list[Value]


Keywords = dict[str, Value]


Work = Callable[[Machine, Arguments, Keywords, Any, Scope], Value]


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


def _all(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return _every(arguments, stops=False)


def _any(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    return _every(arguments, stops=True)


def _every(arguments: Arguments, stops: bool) -> Value:
    found = [operators.truth(item) for item in parts.spread(arguments[0])] if arguments else []
    if stops in found:
        return stops
    return Unknown("any or all of something unknown", solid=True) if None in found else not stops


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
    if not arguments or not isinstance(arguments[0], str):
        return Unknown("a module whose name is unknown", solid=True)
    name = exact(arguments[0])
    event = machine.note("import", scope.module.module, node, name)
    event.how = "string"
    return namespaces.space(machine, name) or External(name)


def _find_spec(machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
    name = exact(arguments[0]) if arguments else None
    found = machine.facts.importable(name) if isinstance(name, str) else None
    return Unknown("a spec", solid=True) if found else None if found is False else Unknown(f"whether {name} is there")


def _matched(bare: str) -> Work:
    """`re.match` and its kin on known text: whether it matches; what matches is not gone into."""

    def match(_machine: Machine, arguments: Arguments, _keywords: Keywords, _node: Any, _scope: Scope) -> Value:
        if len(arguments) != 2 or not all(isinstance(each, str) and len(each) <= 200 for each in arguments):
            return Unknown(f"what re.{bare} finds")
        try:
            found = getattr(re, bare)(*map(exact, arguments))
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


WORK: Mapping[str, Work] = {
    "builtins.len": _len,
    "builtins.isinstance": reflection.isinstance_,
    "builtins.issubclass": reflection.issubclass_,
    "builtins.hasattr": reflection.hasattr_,
    "builtins.getattr": reflection.getattr_,
    "builtins.setattr": reflection.setattr_,
    "builtins.object.__setattr__": reflection.raw_set,
    "builtins.object.__getattribute__": reflection.raw_get,
    "super.__setattr__": _nothing,
    "super.__init__": _nothing,
    "builtins.print": _nothing,
    "builtins.all": _all,
    "builtins.any": _any,
    "builtins.type": reflection.type_,
    "builtins.callable": _callable,
    "builtins.list": _container(list),
    "builtins.tuple": _container(tuple),
    "builtins.set": _container(set),
    "builtins.frozenset": _container(frozenset),
    "builtins.dict": _container(dict),
    "collections.OrderedDict": _container(dict),
    "types.MappingProxyType": _same,
    "builtins.iter": _same,
    "builtins.map": _map,
    "builtins.filter": _filter,
    "builtins.zip": _zip,
    "builtins.enumerate": _enumerate,
    "builtins.sorted": _sorted,
    "builtins.reversed": _reversed,
    "functools.partial": _partial,
    "functools.lru_cache": _wrapper,
    "functools.cache": _wrapper,
    "functools.wraps": _wrapper,
    "functools.same": _same,
    "typing.cast": _second,
    "copy.copy": _copied,
    "copy.deepcopy": _copied,
    "dataclasses.replace": _copied,
    "os.environ.get": _getenv,
    "os.getenv": _getenv,
    "os.environ.setdefault": _setenv,
    "importlib.import_module": _import_module,
    "importlib.util.find_spec": _find_spec,
    "builtins.vars": reflection.vars_,
    "msgspec.defstruct": reflection.defstruct,
    "dataclasses.make_dataclass": reflection.defstruct,
    "dataclasses.fields": reflection.field_list,
    "msgspec.structs.fields": reflection.field_list,
    "typing.get_type_hints": reflection.hints,
    "dataclasses.is_dataclass": reflection.is_dataclass,
    "msgspec.Struct.__setattr__": reflection.raw_set,
    "re.match": _matched("match"),
    "re.search": _matched("search"),
    "re.fullmatch": _matched("fullmatch"),
    "logging.getLogger": _logger,
    "enum.auto": _auto,
}
