"""Imports: every symbol of other packages that a module asks for, how, under which condition, and what a failure does.

An import that stands in the text is not an import that runs, and a failing one is not an error that anybody sees. So
each comes with the function it stands in, the tests around it, and the `try` or `suppress` that would swallow its
failure, together with all that the same guard loses. Names in strings count only where a function imports them: a log
message that begins with a package's name is no import.
"""

import ast
from collections.abc import Iterable, Iterator

import msgspec

from sublight.audit.source.guards import Guard, guard_of
from sublight.audit.source.outline import absolute, is_suppress, is_type_checking
from sublight.audit.source.strings import StringImports
from sublight.audit.source.tree import Module


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """One symbol that is asked for.

    Attributes:
        symbol: dotted; a module where the module itself is imported, "package.module.*" for all its names.
        bound: the name it gets here, "" where it gets none.
        where: file:line.
        kind: "import", "from", "string" (a name in text, given to a function that imports) or "attribute" (of a module
            that was imported).
        scope: function or class it stands in, "" for the module level.
        conditions: tests around it, from the outside in.
        guard: what swallows its failure; None when the error reaches the caller.
        side_effect: whether the module is imported for what happens then: no name of it is used.
    """

    symbol: str
    bound: str
    where: str
    kind: str
    scope: str = ""
    conditions: tuple[str, ...] = ()
    guard: Guard | None = None
    side_effect: bool = False

    @property
    def how(self) -> str:
        """ "module level", "lazy", "guarded" or "string"."""
        if self.kind == "string":
            return "string"
        return "guarded" if self.guard else "lazy" if self.scope else "module level"

    @property
    def on_failure(self) -> str:
        """What the engine does when the symbol is not there."""
        if self.guard:
            return self.guard.on_failure
        return "AttributeError" if self.kind == "attribute" else "ImportError"


class _Context(msgspec.Struct, frozen=True):
    scope: str = ""
    conditions: tuple[str, ...] = ()
    guard: Guard | None = None


class _Reader:
    def __init__(self, module: Module, packages: frozenset[str]) -> None:
        self.module = module
        self.packages = packages
        self.strings = StringImports(module, packages)
        self.found: list[Import] = []
        self.modules: dict[str, str] = {}  # local name -> the package or module it was bound to by `import`
        self.aliases: dict[str, str] = {}

    def ours(self, dotted: str) -> bool:
        return dotted.partition(".")[0] in self.packages

    def body(self, body: Iterable[ast.stmt], context: _Context) -> None:
        for node in body:
            self.statement(node, context)

    def statement(self, node: ast.stmt, context: _Context) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.imported(node, context)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for item in [*node.decorator_list, *_defaults(node)]:
                self.expression(item, context)
            inside = msgspec.structs.replace(context, scope=f"{context.scope}.{node.name}".lstrip("."))
            # A function defined under a guard runs later, outside of it; the insides of a class run at once.
            guard = context.guard if isinstance(node, ast.ClassDef) else None
            self.body(node.body, msgspec.structs.replace(inside, guard=guard))
        elif isinstance(node, ast.If):
            self.branch(node, context)
        elif isinstance(node, ast.Try):
            self.attempt(node, context)
        elif isinstance(node, ast.With | ast.AsyncWith):
            guard = guard_of(self.module, node, self.packages) if is_suppress(node) else context.guard
            for entered in node.items:
                self.expression(entered.context_expr, context)
            self.body(node.body, msgspec.structs.replace(context, guard=guard))
        else:
            self.plain(node, context)

    def plain(self, node: ast.stmt, context: _Context) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.statement(child, context)
            elif isinstance(child, ast.match_case):
                self.body(child.body, context)
            elif isinstance(child, ast.expr):
                self.expression(child, context)

    def branch(self, node: ast.If, context: _Context) -> None:
        self.expression(node.test, context)
        test = ast.unparse(node.test)
        if not is_type_checking(node.test):
            self.body(node.body, msgspec.structs.replace(context, conditions=(*context.conditions, test)))
            context = msgspec.structs.replace(context, conditions=(*context.conditions, f"not ({test})"))
        self.body(node.orelse, context)

    def attempt(self, node: ast.Try, context: _Context) -> None:
        guard = guard_of(self.module, node, self.packages)
        self.body(node.body, msgspec.structs.replace(context, guard=guard) if guard else context)
        failed = (*context.conditions, f"the import at line {node.lineno} failed") if guard else context.conditions
        for handler in node.handlers:
            self.body(handler.body, msgspec.structs.replace(context, conditions=failed))
        self.body([*node.orelse, *node.finalbody], context)

    def imported(self, node: ast.Import | ast.ImportFrom, context: _Context) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if self.ours(alias.name):
                    bound = alias.asname or alias.name.partition(".")[0]
                    self.modules[bound] = alias.name if alias.asname else bound
                    self.add(alias.name, bound, node, "import", context)
            return
        base = absolute(self.module, node)
        if self.ours(base) and not node.level:
            for alias in node.names:
                bound = alias.asname or alias.name
                self.aliases[bound] = f"{base}.{alias.name}"
                self.add(f"{base}.{alias.name}", bound, node, "from", context)

    def add(self, symbol: str, bound: str, node: ast.AST, kind: str, context: _Context) -> None:
        self.found.append(
            Import(
                symbol=symbol,
                bound=bound,
                where=self.module.at(node),
                kind=kind,
                scope=context.scope,
                conditions=context.conditions,
                guard=context.guard,
            )
        )

    def expression(self, node: ast.AST, context: _Context) -> None:
        """Names in strings, and attributes of modules: `flashinfer.comm.x` where `import flashinfer` was."""
        for symbol, place in self.strings.within(node):
            self.add(symbol, "", place, "string", context)
        for dotted, place in _chains(node):
            head, _, rest = dotted.partition(".")
            if head in self.modules and rest:
                self.add(f"{self.modules[head]}.{rest}", "", place, "attribute", context)


def _defaults(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.expr]:
    if isinstance(node, ast.ClassDef):
        return node.bases
    return [item for item in [*node.args.defaults, *node.args.kw_defaults] if item is not None]


def _chains(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each longest `a.b.c` in an expression, with its node."""
    if isinstance(node, ast.Attribute):
        parts = [node.attr]
        value = node.value
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            yield ".".join([value.id, *reversed(parts)]), node
            return
        yield from _chains(value)
        return
    for child in ast.iter_child_nodes(node):
        yield from _chains(child)


def _used_names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def imports(module: Module, packages: Iterable[str]) -> tuple[Import, ...]:
    """What `module` asks of `packages` (top-level names), in the order of the text; imports for type checkers left out.

    A module without any of the names in its bytes is not parsed.
    """
    wanted = frozenset(packages)
    if not any(package in module.text for package in wanted):
        return ()
    reader = _Reader(module, wanted)
    reader.body(module.tree.body, _Context())
    used = _used_names(module.tree)
    exported = module.is_package  # a package's names are there for others
    return tuple(
        msgspec.structs.replace(found, side_effect=True)
        if found.kind == "import" and found.bound not in used and not exported
        else found
        for found in reader.found
    )
