"""Which functions a name stands in: cut out of the text, as parsing each of them would give it."""

import ast
from pathlib import Path

from sublight.audit.source.mentions import named_in
from sublight.audit.source.tree import Module

_SOURCE = '''
import os


@decorated
def plain(a=1):
    """Text.

    def not_a_function(): pass
    """
    return alpha  # beta

# gamma: a comment after the end


class Handlers(Base):
    x = 1

    def first(
        self,
        a: int,
    ) -> int:
        def inner():
            return delta

        return inner()

    # epsilon: above the next one
    @property
    async def second(self): return zeta

    if os.name:

        def third(self):
            text = """
begins further left: eta
"""
            return text

    class Inner:
        def fourth(self):
            return theta


if os.name:

    def fifth():
        return iota
'''


def _module() -> Module:
    return Module("pkg.module", "pkg/module.py", _SOURCE.encode())


def test_a_word_belongs_to_the_function_around_it() -> None:
    words = {
        "alpha": "plain",
        "delta": "first",
        "zeta": "second",
        "eta": "third",
        "theta": "fourth",
        "iota": "fifth",
    }
    everyone = sorted(set(words.values()))
    module = _module()
    found = {word: [name for name in everyone if named_in(module, name, word)] for word in ("gamma", "epsilon", *words)}
    assert found == {word: [name] for word, name in words.items() if word != "eta"} | {
        "gamma": [],
        "epsilon": [],
        # "theta", "beta" and "zeta" have it in them too
        "eta": ["fourth", "plain", "second", "third"],
    }


def test_this_package_is_cut_as_it_is_parsed() -> None:
    from sublight.audit.source import mentions

    for path in sorted((Path(mentions.__file__).parents[1]).rglob("*.py")):
        module = Module("pkg.module", path.name, path.read_bytes())
        parsed: dict[str, list[str]] = {}
        todo: list[ast.stmt] = list(Module("pkg.module", path.name, path.read_bytes()).tree.body)
        while todo:
            node = todo.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                parsed.setdefault(node.name, []).append("\n".join(module.lines[node.lineno - 1 : node.end_lineno]))
            elif isinstance(node, ast.ClassDef | ast.If | ast.Try):
                todo.extend(node.body)
        cut: dict[str, list[str]] = {}
        for name, text in mentions._texts(module):
            cut.setdefault(name, []).append(text)
        assert {name: sorted(texts) for name, texts in cut.items()} == {
            name: sorted(texts) for name, texts in parsed.items()
        }, path
