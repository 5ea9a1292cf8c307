"""Outline: the module level of a file without the insides of its functions and classes, and what each name there is.

Whoever asks whether a name exists, or what importing a module runs into, does not need the bodies. Leaving them out
before parsing makes generated kernel modules of several hundred kilobytes cheap. Line numbers stay those of the file.
"""

import ast
import re
import warnings
from weakref import WeakKeyDictionary

import msgspec

from sublight.audit.source.tree import Module

# A function or class that starts in the first column, up to the next line that starts there with something else than a
# closing bracket (the end of a long signature) or a comment.
_BLOCK = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(\w+)[^\n]*\n(?:[ \t)\]}#][^\n]*\n|\n)*", re.MULTILINE)

_outlines: "WeakKeyDictionary[Module, ast.Module]" = WeakKeyDictionary()
_bindings: "WeakKeyDictionary[Module, dict[str, list[Binding]]]" = WeakKeyDictionary()
_spans: "WeakKeyDictionary[Module, dict[int, tuple[int, int]]]" = WeakKeyDictionary()  # line of a block -> its text
_definitions: "WeakKeyDictionary[Module, dict[str, int]]" = WeakKeyDictionary()  # name -> its place
_wholes: "WeakKeyDictionary[Module, dict[int, ast.stmt | None]]" = WeakKeyDictionary()

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Binding(msgspec.Struct, frozen=True):
    """One statement of the module level that gives a name its value.

    Attributes:
        node: FunctionDef or ClassDef (empty: read the full tree for its body), Import, ImportFrom, Assign, ...
        target: what the name stands for when the statement is an import: "package.module.name" or a module's name.
        value: the expression, when it is an assignment.
        conditions: tests of the `if` statements around it, from the outside in; those of an else are negated.
        guard: line of the `try` or `with suppress` around it, whose failure loses the name; 0 for none.
        fallback: whether it stands in an `except` of such a `try`.
    """

    node: ast.stmt
    target: str = ""
    value: ast.expr | None = None
    conditions: tuple[str, ...] = ()
    guard: int = 0
    fallback: bool = False


def _emptied(match: re.Match[str]) -> str:
    block = match.group(0)
    if block.count('"""') % 2 or block.count("'''") % 2:
        raise ValueError("a string of the block goes on beyond it")
    kind = "class" if block.startswith("class") else "def"
    head = f"class {match.group(1)}: pass" if kind == "class" else f"def {match.group(1)}(): pass"
    return head + "\n" * block.count("\n")


def outline(module: Module) -> ast.Module:
    """The statements of the module level. Where a file does not lend itself to shortening it is the full tree."""
    if module not in _outlines:
        _outlines[module] = _shortened(module) or module.tree
    return _outlines[module]


def _shortened(module: Module) -> ast.Module | None:
    """None where a block is no definition: the text of one inside a string, or one that does not end where it seems."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ast.parse(_BLOCK.sub(_emptied, module.text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    starts = {node.lineno for node in found.body if isinstance(node, Definition)}
    line, at = 1, 0
    for block in _BLOCK.finditer(module.text):
        line, at = line + module.text.count("\n", at, block.start()), block.start()
        if line not in starts:
            return None
        _spans.setdefault(module, {})[line] = block.span()
    return found


def whole(module: Module, at: int) -> ast.stmt | None:
    """The statement at a place of the module level, with its body; parsed alone where the file was not parsed yet.

    None when its body cannot be parsed by this Python; the module then has the error.
    """
    node = outline(module).body[at]
    span = _spans.get(module, {}).get(node.lineno) if isinstance(node, Definition) else None
    if span is None or outline(module) is module.__dict__.get("tree"):
        return node
    known = _wholes.setdefault(module, {})
    if at not in known:
        known[at] = _alone(module, node, span) if "tree" not in module.__dict__ else None
        known[at] = known[at] or next(iter(module.tree.body[at : at + 1]), None)
    return known[at]


def block_text(module: Module, node: ast.stmt) -> str | None:
    """The text of a definition that the outline has without its inside, from its own line on; None for others."""
    span = _spans.get(module, {}).get(node.lineno)
    return (
        module.text[slice(*span)] if span is not None and outline(module) is not module.__dict__.get("tree") else None
    )


def _alone(module: Module, node: ast.stmt, span: tuple[int, int]) -> ast.stmt | None:
    """One definition with its decorators, on the lines where it stands."""
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    start = span[0]
    for _ in range(node.lineno - first):
        start = module.text.rfind("\n", 0, start - 1) + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ast.parse("\n" * (first - 1) + module.text[start : span[1]]).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return found[0] if len(found) == 1 and getattr(found[0], "name", "") == getattr(node, "name", None) else None


def definition(module: Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
    """The first function or class of the module level that has this name, with its body."""
    if module not in _definitions:
        body = enumerate(outline(module).body)
        _definitions[module] = {}
        for at, node in body:
            if isinstance(node, Definition):
                _definitions[module].setdefault(node.name, at)
    place = _definitions[module].get(name)
    found = whole(module, place) if place is not None else None
    return found if isinstance(found, Definition) else None


def swallows_import_error(expression: ast.expr | None) -> bool:
    """Whether an `except` or `suppress` of this catches a failing import."""
    if expression is None:
        return True
    if isinstance(expression, ast.Tuple):
        return any(swallows_import_error(item) for item in expression.elts)
    name = expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", "")
    return name in ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


def is_suppress(statement: ast.With | ast.AsyncWith) -> bool:
    """Whether it is `with contextlib.suppress(ImportError)` or the like."""
    for item in statement.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress"):
            return any(swallows_import_error(argument) for argument in call.args)
    return False


def is_type_checking(test: ast.expr) -> bool:
    """`if TYPE_CHECKING`: what stands there is not executed."""
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


class _Collector:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.found: dict[str, list[Binding]] = {}

    def add(self, name: str, binding: Binding) -> None:
        self.found.setdefault(name, []).append(binding)

    def body(self, body: list[ast.stmt], conditions: tuple[str, ...], guard: int, fallback: bool) -> None:
        for node in body:
            self.statement(node, conditions, guard, fallback)

    def statement(self, node: ast.stmt, conditions: tuple[str, ...], guard: int, fallback: bool) -> None:
        context = {"conditions": conditions, "guard": guard, "fallback": fallback}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.add(node.name, Binding(node, **context))  # type: ignore[arg-type]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imported(node, context)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self.assigned(node, context)
        elif isinstance(node, ast.If):
            if not is_type_checking(node.test):
                test = ast.unparse(node.test)
                self.body(node.body, (*conditions, test), guard, fallback)
                conditions = (*conditions, f"not ({test})")
            self.body(node.orelse, conditions, guard, fallback)
        elif isinstance(node, ast.Try):
            catching = [handler for handler in node.handlers if swallows_import_error(handler.type)]
            self.body(node.body, conditions, node.lineno if catching else guard, fallback)
            for handler in node.handlers:
                self.body(handler.body, conditions, guard, True)
            self.body(node.orelse + node.finalbody, conditions, guard, fallback)
        elif isinstance(node, ast.With):
            self.body(node.body, conditions, node.lineno if is_suppress(node) else guard, fallback)
        elif isinstance(node, ast.For | ast.While):
            self.body(node.body, (*conditions, f"loop at line {node.lineno}"), guard, fallback)

    def imported(self, node: ast.Import | ast.ImportFrom, context: dict[str, object]) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                target = alias.name if alias.asname else alias.name.partition(".")[0]
                self.add(alias.asname or target, Binding(node, target, **context))  # type: ignore[arg-type]
            return
        base = absolute(self.module, node)
        for alias in node.names:
            name = alias.asname or alias.name
            self.add(name, Binding(node, base if name == "*" else f"{base}.{alias.name}", **context))  # type: ignore[arg-type]

    def assigned(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, context: dict[str, object]) -> None:
        if node.value is None:
            return
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for item in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(item, ast.Name):
                    value = node.value if item is target else None
                    self.add(item.id, Binding(node, "", value, **context))  # type: ignore[arg-type]


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The full name of the module that a `from ... import` of `module` means."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + (1 if module.is_package else 0)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def bindings(module: Module) -> dict[str, list[Binding]]:
    """Every name of the module level, with each statement that binds it, in order; star imports under "*"."""
    if module not in _bindings:
        collector = _Collector(module)
        collector.body(outline(module).body, (), 0, False)
        _bindings[module] = collector.found
    return _bindings[module]
