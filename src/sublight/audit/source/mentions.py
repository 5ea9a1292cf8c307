"""Which functions can have to do with a name at all: those whose text has it, and those that call one of them.

A walk through hundreds of argument handlers is not worth its time when only a few of them know the option in question.
Calls are followed by name, into other modules of the package too.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache, lru_cache

from sublight.audit.source.outline import block_text, outline, whole
from sublight.audit.source.tree import Module, Sources

_WORD = re.compile(r"[A-Za-z_]\w*")
_IMPORT = re.compile(r"^[ \t]*from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_METHOD = re.compile(r"^([ \t]+)(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
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
    """Bare name -> text and the words in it, of every function and method; those of one name together.

    Texts are cut out by indentation: parsing each definition would take longer than all else that is asked of it. Where
    indentation is no guide (a string of several lines that begins further to the left) the definition is parsed.
    """
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for name, text in _texts(module):
        before = found.get(name, ("", frozenset()))
        found[name] = (f"{before[0]}\n{text}" if before[0] else text, before[1] | frozenset(_WORD.findall(text)))
    return found


def _texts(module: Module) -> Iterator[tuple[str, str]]:
    """Name and text of every function of the module level, and of those in its classes and conditions."""
    body = outline(module).body
    for at, node in enumerate(body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            cut = _cut(module, node)
            if cut is not None:
                yield from cut
                continue
        whole_ = whole(module, at)
        if whole_ is not None:
            yield from _parsed(module, whole_)


def _parsed(module: Module, node: ast.stmt) -> Iterator[tuple[str, str]]:
    todo = [node]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, "\n".join(module.lines[node.lineno - 1 : node.end_lineno])
        elif isinstance(node, (ast.ClassDef, ast.If, ast.Try)):
            todo.extend(node.body)


def _cut(module: Module, node: ast.stmt) -> list[tuple[str, str]] | None:
    """The same of one block that the outline left out, by indentation; None where that is no guide."""
    text = block_text(module, node)
    if text is None:
        return None
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [(node.name, _trimmed(text))]
    found, end = [], 0
    for match in _METHOD.finditer(text):
        if match.start() < end:
            continue  # inside the one before
        indent = match[1]
        after = _end(indent).search(text, match.end())
        end = after.start() if after else len(text)
        method = text[match.start() : end]
        if method.count('"""') % 2 or method.count("'''") % 2:
            return None
        found.append((match[2], _trimmed(method)))
    return found


@cache
def _end(indent: str) -> re.Pattern[str]:
    """The first line that stands no deeper, and closes no bracket."""
    return re.compile(rf"^(?!{indent}[ \t])[ \t]*[^\s)\]}}#]", re.MULTILINE)


def _trimmed(text: str) -> str:
    """Without blank lines and comments after the last statement: they belong to nobody."""
    lines = text.rstrip().split("\n")
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return "\n".join(lines)


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
