"""Lists, dicts, sets and strings: reading, editing, and their methods, with parts of them unknown."""

from typing import Any

from sublight.audit.source import operators, parts
from sublight.audit.source.machine import Machine, Raising
from sublight.audit.source.values import (
    MANY,
    MISSING,
    Choice,
    Class,
    External,
    Failure,
    Instance,
    Native,
    Scope,
    Template,
    Unknown,
    Value,
    one_of,
    options,
)


def item(machine: Machine, container: Value, key: Value, node: Any, scope: Scope) -> Value:
    """`container[key]`."""
    if isinstance(container, Choice) or isinstance(key, Choice):
        pairs = [(c, k) for c in options(container) for k in options(key)]
        found = []
        for each, wanted in pairs:
            try:
                found.append(item(machine, each, wanted, node, scope))
            except Raising:
                continue
        return one_of(found)
    if isinstance(container, (list, tuple, str, range, dict)):
        try:
            return _held(container, key)
        except Raising as raising:
            machine.note("lacking", scope.module.module, node, raising.failure.kind, value=raising.failure)
            raise
    if isinstance(container, Instance):
        answer = machine.asked(container, "__getitem__", [key], node, scope)
        return Unknown("an element") if answer is MISSING else answer
    if isinstance(container, Class):
        return container.members.get(key, container) if isinstance(key, str) else container
    if container == External("os.environ") and isinstance(key, str):
        if key in machine.environment:
            return machine.environment[key]
        raise Raising(Failure(("KeyError", "LookupError", "Exception"), key))
    return Unknown("an element of something unknown")


def _held(container: Any, key: Value) -> Value:
    if not isinstance(container, dict):
        return _position(container, operators.plain(key))
    found = parts.looked_up(container, operators.plain(key))
    if found is MISSING:
        raise Raising(Failure(("KeyError", "LookupError", "Exception"), operators.written(key)))
    return parts.without_missing(found)


def _position(container: Any, key: Value) -> Value:
    if isinstance(key, slice):
        return container[key] if isinstance(container, str) or MANY not in container else Unknown("a slice", solid=True)
    if not isinstance(key, int):
        return Unknown("an element whose place is unknown")
    if not isinstance(container, (str, range)) and MANY in container and not 0 <= key < container.index(MANY):
        return Unknown("an element of something unknown")
    if -len(container) <= key < len(container):
        return parts.without_missing(container[key])
    raise Raising(Failure(("IndexError", "LookupError", "Exception"), "index out of range"))


def method(
    machine: Machine, callee: Native, arguments: list[Value], keywords: dict[str, Value], node: Any, scope: Scope
) -> Value:
    receiver, name = callee.receiver, callee.name
    if isinstance(receiver, list):
        return _of_list(machine, receiver, name, arguments, keywords, node, scope)
    if isinstance(receiver, dict):
        return _of_dict(machine, receiver, name, arguments, keywords)
    if isinstance(receiver, set):
        return _of_set(machine, receiver, name, arguments)
    if isinstance(receiver, str):
        return _of_string(machine, receiver, name, arguments, keywords)
    if operators.known(receiver) and all(operators.known(each) for each in arguments) and not keywords:
        try:
            return getattr(receiver, name)(*arguments)
        except Exception:
            return Unknown(f"what {name} gives", solid=True)
    return Unknown(f"what {name} gives", solid=True)


def _of_list(
    machine: Machine,
    receiver: list[Value],
    name: str,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: Any,
    scope: Scope,
) -> Value:
    machine.journal.touch(receiver)
    first = arguments[0] if arguments else None
    if name == "append":
        receiver.append(first)
    elif name == "extend":
        receiver.extend(parts.spread(first))
    elif name == "insert" and len(arguments) == 2:
        receiver.insert(first if isinstance(first, int) else len(receiver), arguments[1])
    elif name == "remove":
        _remove(receiver, first)
    elif name == "pop":
        certain = receiver and MANY not in receiver and (first is None or isinstance(first, int))
        return (
            receiver.pop(*arguments) if certain and -len(receiver) <= (first or 0) < len(receiver) else Unknown("pop")
        )
    elif name == "clear":
        receiver.clear()
    elif name == "reverse":
        receiver.reverse()
    elif name == "sort":
        sort(machine, receiver, keywords, node, scope)
    elif name == "copy":
        return receiver.copy()
    elif name == "index":
        answers = [operators.equal(each, first) for each in receiver]
        if True in answers and None not in answers[: answers.index(True)]:
            return answers.index(True)
        return Unknown("a place in a list", solid=True)
    elif name == "count":
        answers = [operators.equal(each, first) for each in receiver]
        return Unknown("a count", solid=True) if None in answers else answers.count(True)
    return None


def _remove(receiver: list[Value], value: Value) -> None:
    for at, each in enumerate(receiver):
        answer = operators.equal(each, value)
        if answer:
            del receiver[at]
            return
        if answer is None:
            receiver[at] = MANY if each is MANY else one_of((each, MISSING))
            return
    raise Raising(Failure(("ValueError", "Exception"), "list.remove(x): x not in list"))


def sort(machine: Machine, receiver: list[Value], keywords: dict[str, Value], node: Any, scope: Scope) -> None:
    """Sorts in place where every key is known; otherwise the order stays as it is, and is not relied upon."""
    key = keywords.get("key")
    keys = [
        each if key is None else machine.call(key, [each], {}, node, scope) for each in receiver if each is not MANY
    ]
    plain = [operators.plain(each) for each in keys]
    if len(keys) == len(receiver) and all(operators.known(each) for each in plain):
        try:
            order = sorted(range(len(keys)), key=lambda at: plain[at], reverse=keywords.get("reverse") is True)
        except TypeError:
            return
        receiver[:] = [receiver[at] for at in order]


def _of_dict(
    machine: Machine, receiver: dict[Any, Value], name: str, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    first = operators.plain(arguments[0]) if arguments else None
    default = arguments[1] if len(arguments) > 1 else keywords.get("default")
    if name == "get":
        return one_of([default if each is MISSING else each for each in options(parts.looked_up(receiver, first))])
    live = {key: value for key, value in receiver.items() if value is not MISSING}
    if name == "items":
        return [MANY if key is MANY else (key, parts.without_missing(value)) for key, value in live.items()]
    if name == "keys":
        return list(live)
    if name == "values":
        return [value if value is MANY else parts.without_missing(value) for value in live.values()]
    if name == "copy":
        return dict(receiver)
    machine.journal.touch(receiver)
    if name == "update":
        for each in arguments:
            parts.updated(receiver, parts.as_dict(each))
        receiver.update(keywords)
        return None
    if name == "clear":
        receiver.clear()
        return None
    hashable = parts.hashable(first) and not isinstance(first, (Unknown, Choice))
    if name == "setdefault":
        found = parts.looked_up(receiver, first)
        if found is MISSING and hashable:
            receiver[first] = default
            return default
        return parts.without_missing(found)
    if name == "pop":
        found = parts.looked_up(receiver, first)
        if hashable:
            receiver.pop(first, None)
        return one_of([default if each is MISSING else each for each in options(found)])
    return Unknown(f"what {name} gives", solid=True)


def _of_set(machine: Machine, receiver: set[Value], name: str, arguments: list[Value]) -> Value:
    items = [each for argument in arguments for each in parts.spread(argument)]
    if name in ("union", "intersection", "difference", "issubset", "issuperset", "isdisjoint", "copy"):
        if MANY in receiver or MANY in items or not all(parts.hashable(each) for each in items):
            return Unknown(f"what {name} gives", solid=True)
        return getattr(receiver, name)(*([set(items)] if arguments else []))
    machine.journal.touch(receiver)
    if name == "update":
        receiver.update(each for each in items if parts.hashable(each))
    elif name == "add" and arguments:
        receiver.add(arguments[0] if parts.hashable(arguments[0]) else MANY)
    elif name in ("discard", "remove") and arguments and parts.hashable(arguments[0]):
        receiver.discard(arguments[0])
    elif name == "clear":
        receiver.clear()
    else:
        return Unknown(f"what {name} gives")
    return None


def _of_string(machine: Machine, receiver: str, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
    plain = [operators.plain(each) for each in arguments]
    if name == "join" and arguments:
        plain = [parts.spread(plain[0])]
    if name == "format" and not all(operators.known(each) for each in [*plain, *keywords.values()]):
        return Template(receiver)
    if name == "join" and plain and not all(isinstance(each, str) for each in plain[0]):
        return Template(receiver.join(operators.written(each) for each in plain[0]))
    if any(isinstance(each, Choice) for each in plain):
        at = next(at for at, each in enumerate(plain) if isinstance(each, Choice))
        found = [
            _of_string(machine, receiver, name, [*plain[:at], option, *plain[at + 1 :]], keywords)
            for option in plain[at].options
        ]
        return one_of(found)
    if not all(operators.known(each) for each in [*plain, *keywords.values()]):
        return Unknown(f"what {name} gives", solid=True)
    try:
        return getattr(receiver, name)(*plain, **keywords)
    except Exception:
        return Unknown(f"what {name} gives", solid=True)
