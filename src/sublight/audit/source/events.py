"""What happened on the way through a program that was read: decisions, calls, refusals, imports, writes, messages."""

import ast
from collections.abc import Mapping
from functools import cached_property, lru_cache

from sublight.audit.source.tree import Module
from sublight.audit.source.values import Failure, Value

TEXT_AT_MOST = 160


@lru_cache(maxsize=32_768)
def shown(node: ast.AST) -> str:
    """An expression as text, on one line and not too long."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= TEXT_AT_MOST else text[: TEXT_AT_MOST - 3] + "..."


@lru_cache(maxsize=32_768)
def alternatives(test: ast.expr) -> tuple[ast.BoolOp, ...]:
    """Every `or` inside an expression."""
    return tuple(node for node in ast.walk(test) if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or))


_NONE: Mapping[ast.BoolOp, ast.expr] = {}


class Condition:
    """Something unknown that the program's way hangs on: the condition, and how it was taken to come out."""

    __slots__ = ("module", "node", "outcome")

    def __init__(self, module: Module, node: ast.AST, outcome: bool) -> None:
        self.module = module
        self.node = node
        self.outcome = outcome

    @property
    def where(self) -> str:
        return self.module.at(self.node)

    @property
    def text(self) -> str:
        return shown(self.node) if self.outcome else f"not ({shown(self.node)})"


class Event:
    """One thing that happened.

    Attributes:
        kind: "branch", "assert", "call", "kernel", "raise", "import", "write", "log", "missing" (an attribute that
            nothing has set), "lacking" (a key or place that what is looked into does not have), "unknown call" (of
            something unknown), "not followed".
        name: what it is about: the dotted callee, symbol, attribute, exception class, or log level.
        outcome: of a branch: True, False, or None when it is unknown and both sides were walked.
        value: what was written, raised, or said; of a call outside, its keywords that are known strings.
        conditions: the unknown conditions this hangs on; empty when it happens for certain.
        function: dotted name of the function it happened in, "" for module level.
        depth: how many calls deep.
        because: of a branch: each `or` of its test -> the part that it came to, the first that holds where one does.
        how, on_failure: of imports, as the audit's contract has them.
    """

    def __init__(
        self,
        kind: str,
        module: Module,
        node: ast.AST,
        conditions: tuple[Condition, ...],
        depth: int,
        function: str,
        name: str = "",
        outcome: bool | None = None,
        value: Value = None,
    ) -> None:
        self.kind = kind
        self.module = module
        self.node = node
        self.conditions = conditions
        self.depth = depth
        self.function = function
        self.name = name
        self.outcome = outcome
        self.value = value
        self.because: Mapping[ast.BoolOp, ast.expr] = _NONE
        self.how = ""
        self.on_failure = ""
        self.condition = ""

    @property
    def where(self) -> str:
        """ "sglang/srt/server_args.py:176"."""
        return self.module.at(self.node)

    @property
    def line(self) -> int:
        return int(getattr(self.node, "lineno", 1))

    @cached_property
    def text(self) -> str:
        """The condition, message or source line."""
        if self.kind in ("branch", "assert"):
            return shown(self.node)
        if self.kind == "raise" and isinstance(self.value, Failure):
            return f"{self.value.kind.rpartition('.')[2]}: {self.value.message}"
        if self.kind in ("log", "not followed"):
            return str(self.value)
        return self.module.line(self.line)

    @property
    def certain(self) -> bool:
        return not self.conditions

    def __repr__(self) -> str:
        mark = "" if self.certain else " if " + " and ".join(guard.text for guard in self.conditions)
        return f"<{self.kind} {self.name} {self.where} {self.outcome if self.kind == 'branch' else ''}{mark}>"
