"""SGLang's ways to sum over ranks: the communicators that a group of ranks makes, and what switches each.

Where to look: the constructor of the class of groups makes communicators under tests of its arguments. An argument
comes from a variable of the module, which a function sets that a starting server calls with one of its options; or the
test asks a function that reads a variable of the environment. Everything in between is followed by name.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

from sublight.audit.ladder import Proof
from sublight.audit.source.outline import absolute, bindings, block_text, definition, outline
from sublight.audit.source.tree import Module, Sources

GROUPS = "sglang.srt.distributed.parallel_state"
GROUP = "GroupCoordinator"
MAKER = "init_model_parallel_group"
# Modules of which one hands the server's options to the groups' module when a server starts.
STARTERS = ("sglang.srt.distributed.bootstrap", "sglang.srt.model_executor.model_runner")
_ENVIRONMENT = "sglang.srt.environ"
_CALLED = "all_reduce"
_NOTHING = ast.FunctionDef("f", ast.arguments([], [], None, [], [], None, []), [], [], lineno=1, col_offset=0)
_REDUCING = ("_all_reduce_out_place", "_all_reduce_in_place")  # what that hands a message to


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to sum, and how a launch asks for it.

    Attributes:
        name: the class of the communicator; for a second use of one, that and the option without its verb.
        flag: what a user types, or that nobody has to.
        options: of the server, to ask for it; () where it is on by itself.
        variables: of the environment, likewise.
        runs: dotted, the class.
        made_under: where the tests stand under which it is made, the outermost first.
        unless: the option that switches it off, where it is on by itself.
        line: of the only call that is this way; 0 where every call of the communicator is.
    """

    name: str
    flag: str
    options: tuple[tuple[str, bool | str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    runs: str
    made_under: tuple[str, ...] = ()
    unless: str = ""
    line: int = 0
    proof: Proof


class Setting(NamedTuple):
    """An option that a switch follows, and whether setting it switches off."""

    field: str
    off: bool

    @property
    def option(self) -> str:
        return option(self.field)


class _Made(NamedTuple):
    """`self.attribute = callee(...)` in the constructor, with the tests around it."""

    attribute: str
    callee: str
    tests: tuple[ast.If, ...]
    node: ast.stmt


class _Returned(NamedTuple):
    """A class that a function chooses: the variables that it takes, and the tests around it."""

    dotted: str
    variables: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]
    proof: Proof


def option(field: str) -> str:
    return "--" + field.replace("_", "-")


@lru_cache(maxsize=2)
def ways(sources: Sources) -> tuple[Way, ...]:
    """Every way of this version, in the order in which a group makes them."""
    module = sources.module(GROUPS)
    cls = definition(module, GROUP) if module is not None else None
    if module is None or not isinstance(cls, ast.ClassDef):
        return ()
    found = _Reading(sources, module, cls)
    listed = {way.name: way for way in reversed([*found.communicators(), *found.of_an_option()])}
    return tuple(listed.values())[::-1]


@lru_cache(maxsize=2)
def setters(sources: Sources) -> dict[str, str]:
    """Variable of the groups' module -> the function that does nothing but set it."""
    module = sources.module(GROUPS)
    found: dict[str, str] = {}
    for node in outline(module).body if module is not None else ():
        text = block_text(module, node) or "" if module is not None and isinstance(node, ast.FunctionDef) else ""
        set_ = re.fullmatch(r"def (\w+)\((\w+)[^\n]*\n\s+global (\w+)\n\s+\3 = \2\s*", text)
        if set_ is not None:
            found.setdefault(set_[3], set_[1])
    return found


class Started(NamedTuple):
    """A call by which a starting server hands over an option; `inside`: the function it stands in, "" in a method."""

    module: Module
    call: ast.Call
    inside: str


def started(sources: Sources, setter: str) -> Started | None:
    """The call of a function that takes an option."""
    for name in STARTERS:
        module = sources.module(name)
        at = re.search(rf"^[ \t]*{setter}\(", module.text, re.MULTILINE) if module is not None else None
        call = _call(module.text[at.start() :].lstrip()) if module is not None and at is not None else None
        if module is not None and at is not None and call is not None:
            around = re.findall(r"^(?:def|class) \w+", module.text[: at.start()], re.MULTILINE)[-1:]
            kind, _, inside = around[0].partition(" ") if around else ("", "", "")
            return Started(module, call, f"{name}.{inside}" if kind == "def" else "")
    return None


def _call(text: str) -> ast.Call | None:
    """The call that a text begins with."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and not depth:
            try:
                node = ast.parse(text[: at + 1], mode="eval").body
            except SyntaxError:
                return None
            return node if isinstance(node, ast.Call) else None
    return None


class _Reading:
    """The class of groups of one version."""

    def __init__(self, sources: Sources, module: Module, cls: ast.ClassDef) -> None:
        self.sources = sources
        self.module = module
        self.methods = {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}
        self.maker = self.methods.get("__init__") or _NOTHING
        nodes = list(ast.walk(self.maker))
        self.origins = {
            alias.asname or alias.name: f"{absolute(module, node)}.{alias.name}"
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assigned = [node for node in nodes if isinstance(node, ast.Assign) and len(node.targets) == 1]
        self.chosen = {  # a local name -> the function that chooses what it is
            node.targets[0].id: _name(node.value.func)
            for node in assigned
            if isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call)
        }
        self.kept = {  # `self.use_x = use_x`
            node.targets[0].attr: _name(node.value)
            for node in assigned
            if isinstance(node.targets[0], ast.Attribute) and _name(node.value)
        }

    # -- communicators --------------------------------------------------------------------------------------------

    def communicators(self) -> Iterator[Way]:
        reducing = {
            node.attr
            for name in _REDUCING
            for node in (ast.walk(self.methods[name]) if name in self.methods else ())
            if isinstance(node, ast.Attribute) and _name(node.value) == "self"
        }
        off: dict[str, bool | str] = {}
        plain: list[Way] = []
        for made in _makings(self.maker.body, ()):
            if made.attribute not in reducing:
                continue
            setting, variables = self._switch(made.tests)
            if setting is not None and setting.off:
                off[setting.field] = True
            unless = setting.field if setting is not None and setting.off else ""
            under = tuple(self.module.at(test) for test in made.tests)
            for each in self._classes(made):
                held = tuple(dict((*variables, *each.variables)).items())
                asked = ((setting.field, True),) if setting is not None and not setting.off else ()
                way = Way(name=each.dotted.rpartition(".")[2], flag=_flag(setting, held), options=asked, variables=held,
                          runs=each.dotted, made_under=(*under, *each.tests), unless=unless,
                          proof=each.proof)  # fmt: skip
                if setting is None and not held:
                    plain.append(way)
                else:
                    yield way
        for way in plain:  # what is left when those are off that are on by themselves
            flag = " ".join(option(field) for field in off)
            yield msgspec.structs.replace(way, flag=flag, options=tuple(off.items()))

    def _classes(self, made: _Made) -> Iterator[_Returned]:
        """The class that a statement makes, or those that the function chooses from."""
        if made.callee in self.chosen:
            yield from _returned(self.sources, self.origins.get(self.chosen[made.callee], ""))
        elif made.callee in self.origins:
            proof = Proof("source", self.module.at(made.node), self.module.line(made.node.lineno))
            yield _Returned(self.origins[made.callee], (), (), proof)

    def _switch(self, tests: tuple[ast.If, ...]) -> tuple[Setting | None, tuple[tuple[str, str], ...]]:
        """What the outermost test that follows from a launch follows from: an option, or variables."""
        parameters = {each.arg for each in self.maker.args.args}
        for test in tests:
            for node in ast.walk(test.test):
                name = self.kept.get(node.attr, "") if isinstance(node, ast.Attribute) else _name(node)
                found = self._setting(name) if name in parameters else None
                if found is not None:
                    return found, ()
                origin = self.origins.get(_name(node.func), "") if isinstance(node, ast.Call) else ""
                read = [v for v in _variables(_function(self.sources, origin)) if _is(self.sources, v, False)]
                if read:
                    return None, ((read[0], "1"),)
        return None, ()

    def _setting(self, parameter: str) -> Setting | None:
        """The option that an argument of the constructor follows."""
        maker = definition(self.module, MAKER)
        nodes = list(ast.walk(maker)) if maker is not None else []
        handed = next(
            (_name(each.value) for node in nodes if isinstance(node, ast.Call) and _name(node.func) == GROUP
             for each in node.keywords if each.arg == parameter),
            "",
        )  # fmt: skip
        variable = next(
            (_name(node.value) for node in nodes if isinstance(node, ast.Assign) and _name(node.targets[0]) == handed),
            "",
        )
        found = started(self.sources, setters(self.sources).get(variable, "-"))
        return _setting(found.call.args[0]) if found is not None and found.call.args else None

    # -- a second use ---------------------------------------------------------------------------------------------

    def of_an_option(self) -> Iterator[Way]:
        """Calls of a communicator before all others, where a function says that an option is set."""
        made = {made.attribute: made for made in _makings(self.maker.body, ())}
        for node in ast.walk(self.methods[_CALLED]) if _CALLED in self.methods else ():
            if not isinstance(node, ast.If):
                continue
            asked = [_attribute(call.func) for call in ast.walk(node.test) if isinstance(call, ast.Call)]
            functions = [_function(self.sources, self.origins.get(self.kept.get(name, ""), "")) for name in asked]
            field = next((field for function in functions if (field := _answers(function))), "")
            for call in (each for inner in node.body for each in ast.walk(inner) if isinstance(each, ast.Call)):
                attribute = _attribute(getattr(call.func, "value", call))
                if field and _attribute(call.func) == _CALLED and attribute in made:
                    runs = self.origins.get(made[attribute].callee, "")
                    proof = Proof("source", self.module.at(node.test), self.module.line(call.lineno))
                    name = f"{runs.rpartition('.')[2]} {field.removeprefix('enable_')}"
                    yield Way(name=name, flag=option(field), options=((field, True),), runs=runs, line=call.lineno,
                              proof=proof)  # fmt: skip


def _makings(body: list[ast.stmt], tests: tuple[ast.If, ...]) -> Iterator[_Made]:
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and isinstance(node.value, ast.Call):
            yield _Made(target.attr, _name(node.value.func), tests, node)
        elif isinstance(node, ast.If):
            yield from _makings(node.body, (*tests, node))
            yield from _makings(node.orelse, tests)
        elif isinstance(node, (ast.Try, ast.With)):
            yield from _makings(node.body, tests)


def _returned(sources: Sources, dotted: str) -> Iterator[_Returned]:
    """Classes of the engine's own that a function returns: those further down take what came before to be off."""
    function = _function(sources, dotted)
    module = sources.module(dotted.rpartition(".")[0])
    if module is None or function is None:
        return
    imports = {name: found[0].target for name, found in bindings(module).items() if found and found[0].target}
    imports |= {
        alias.asname or alias.name: f"{absolute(module, node)}.{alias.name}"
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    off: dict[str, str] = {}

    def inside(body: list[ast.stmt], on: dict[str, str], tests: tuple[str, ...]) -> Iterator[_Returned]:
        for node in body:
            if isinstance(node, ast.If):
                asked = [name for name in _variables(node.test) if _is(sources, name, True) is not None]
                yield from inside(node.body, on | dict.fromkeys(asked, "1"), (*tests, module.at(node)))
                off.update(dict.fromkeys(asked, "0") if any(isinstance(n, ast.Return) for n in ast.walk(node)) else {})
                yield from inside(node.orelse, on, tests)
            elif isinstance(node, ast.Return) and (name := _name(node.value)):
                where = imports.get(name, f"{module.name}.{name}")
                if where.partition(".")[0] == module.name.partition(".")[0]:
                    held = {**off, **on}
                    needed = tuple((key, value) for key, value in held.items() if not _is(sources, key, value == "1"))
                    yield _Returned(where, needed, tests, Proof("source", module.at(node), module.line(node.lineno)))

    seen: set[str] = set()
    for each in inside(function.body, {}, ()):
        if each.dotted not in seen:
            seen.add(each.dotted)
            yield each


def _flag(setting: Setting | None, variables: tuple[tuple[str, str], ...]) -> str:
    named = " ".join(f"{name}={value}" for name, value in variables)
    if setting is None or (setting.off and named):
        return named
    return f"on without {setting.option}" if setting.off else setting.option


def _setting(argument: ast.expr) -> Setting | None:
    off = isinstance(argument, ast.UnaryOp) and isinstance(argument.op, ast.Not)
    held = argument.operand if isinstance(argument, ast.UnaryOp) else argument
    return Setting(held.attr, off) if isinstance(held, ast.Attribute) else None


def _answers(function: ast.FunctionDef | None) -> str:
    """The option that a function's answer is."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)] if function else []
    return next((node.attr for node in returned if isinstance(node, ast.Attribute)), "")


def _variables(node: ast.AST | None) -> list[str]:
    """Variables that are read of the engine's own list: `envs.NAME.get()`."""
    nodes = ast.walk(node) if node is not None else ()
    return [each.attr for each in nodes if isinstance(each, ast.Attribute) and _name(each.value) == "envs"]


def _is(sources: Sources, variable: str, value: bool) -> bool | None:
    """Whether a variable is this by itself; None for one that is no switch."""
    module = sources.module(_ENVIRONMENT)
    text = module.text if module is not None else ""
    found = re.search(rf"^[ \t]+{variable}[ \t]*=[ \t]*EnvBool\((True|False)\)", text, re.MULTILINE)
    return None if found is None else (found[1] == "True") is value


def _function(sources: Sources, dotted: str) -> ast.FunctionDef | None:
    module = sources.module(dotted.rpartition(".")[0]) if "." in dotted else None
    found = definition(module, dotted.rpartition(".")[2]) if module is not None else None
    return found if isinstance(found, ast.FunctionDef) else None


def _name(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _attribute(node: ast.AST) -> str:
    """`x` of `self.x`, or of `self.y.x`."""
    return node.attr if isinstance(node, ast.Attribute) else ""
