"""Which functions can have to do with a name at all: those whose text has it, and those that call one of them.

A walk through hundreds of argument handlers is not worth its time when only a few of them know the option in question.
Calls are followed by name, into other modules of the package too.
"""

import ast
import re
from functools import lru_cache

from sublight.audit.source.outline import outline, whole
from sublight.audit.source.tree import Module, Sources

_WORD = re.compile(r"[A-Za-z_]\w*")
_IMPORT = re.compile(r"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_NOISE = re.compile(r"#[^\n]*|[()\\]")


class Mentions:
    """Asks of functions whether they can have to do with any of some names."""

    def __init__(self, sources: Sources, names: frozenset[str]) -> None:
        self._sources = sources
        self._pattern = re.compile("|".join(re.escape(name) for name in sorted(names)))
        self._known: dict[tuple[str, str], bool] = {}

    def may(self, module: Module, function: str) -> bool:
        """Whether a function (by bare name) of a module can have to do with the names."""
        key = (module.name, function)
        if key not in self._known:
            self._known[key] = False  # while it is being asked, for those that call each other
            self._known[key] = self._asked(module, function)
        return self._known[key]

    def _asked(self, module: Module, function: str) -> bool:
        bodies = _functions(module)
        if function not in bodies:
            return False
        text, called = bodies[function]
        if self._pattern.search(text):
            return True
        imports = _imports(self._sources, module)
        for name in sorted(called & (bodies.keys() | imports.keys())):
            if name in bodies:
                if name != function and self.may(module, name):
                    return True
            else:
                origin = self._sources.module(imports[name])
                if origin is not None and self.may(origin, name):
                    return True
        return False


def named_in(module: Module, function: str, word: str) -> bool:
    """Whether the text of a function (dotted) has a name in it itself."""
    text, _ = _functions(module).get(function.rpartition(".")[2], ("", frozenset()))
    return word in text


@lru_cache(maxsize=512)
def _functions(module: Module) -> dict[str, tuple[str, frozenset[str]]]:
    """Bare name -> text and the words in it, of every function and method; those of one name together."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    todo: list[ast.stmt] = [node for at in range(len(outline(module).body)) if (node := whole(module, at)) is not None]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = "\n".join(module.lines[node.lineno - 1 : node.end_lineno])
            before = found.get(node.name, ("", frozenset()))
            found[node.name] = (before[0] + text, before[1] | frozenset(_WORD.findall(text)))
        elif isinstance(node, (ast.ClassDef, ast.If, ast.Try)):
            todo.extend(node.body)
    return found


@lru_cache(maxsize=512)
def _imports(sources: Sources, module: Module) -> dict[str, str]:
    """Names that a module imports from others of its package, and from where."""
    found: dict[str, str] = {}
    for match in _IMPORT.finditer(module.text):
        level = len(match[1]) - len(match[1].lstrip("."))
        origin = sources.absolute(module, match[1][level:] or None, level)
        if origin.partition(".")[0] == module.name.partition(".")[0]:
            names = _NOISE.sub("", match[2]).split(",")
            found.update((name.split(" as ")[0].strip(), origin) for name in names if name.strip())
    return found
