"""Whether a kernel is the one a name asks for: by the kernel's own name, or by a decision that asks for the name."""

import ast
import re

from sublight.audit.engines.sglang import kernels
from sublight.audit.source.events import Event, shown

# Words of a name that say nothing about which kernel it is.
_LOOSE = frozenset(("experimental", "sgl", "routed", "kernel", "kernels", "auto", "ops", "lora"))


def alike(name: str, event: Event) -> bool:
    """Whether a kernel's own name says that it is the backend's: every word of it, and the same provider."""
    said = " ".join(event.value.values()) if isinstance(event.value, dict) else ""
    where = _squeezed(_own_name(kernels.destination(event)) + _own_name(event.name) + said)
    words = [word for word in name.split("_") if word not in _LOOSE]
    same = ("flashinfer" in where) == ("flashinfer" in words)
    return bool(words) and same and all(_squeezed(word) in where for word in words)


def _own_name(dotted: str) -> str:
    """A symbol without the engine's folders it lies in: they are named after what lay there first.

    Marlin's function for experts, for one, stands in a package called after Triton.
    """
    parts = dotted.split(".")
    if parts[0] != "sglang":
        return dotted
    return ".".join(parts[-3:] if len(parts) > 2 and parts[-2][:1].isupper() else parts[-2:])


def _squeezed(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def asks_for(event: Event, spelled: list[str]) -> bool:
    """Whether a condition that holds asks for a name, under any of its spellings, and holds because of it.

    Of an `or` that is the part which it came to; what stands under a `not`, or is unequal, is not asked for.
    """
    return isinstance(event.node, ast.expr) and _holds_for(event.node, event, spelled, holds=True)


def _holds_for(node: ast.expr, event: Event, spelled: list[str], holds: bool) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _holds_for(node.operand, event, spelled, not holds)
    if isinstance(node, ast.BoolOp):
        if isinstance(node.op, ast.Or) is not holds:
            return any(_holds_for(part, event, spelled, holds) for part in node.values)
        part = event.because.get(node)
        return part is not None and _holds_for(part, event, spelled, holds)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.NotEq, ast.NotIn)):
        holds = not holds
    return holds and _names(shown(node).lower(), spelled)


def _names(said: str, spelled: list[str]) -> bool:
    return any(
        re.search(rf"(?<![a-z0-9_]){re.escape(each)}(?![a-z0-9_])", said)
        or re.search(rf"(?:is|enable|use)_{re.escape(each)}(?:_moe)?\b", said)
        for each in spelled
    )
