"""Kernels among the calls of a walk: which of them does the work, and who provides it."""

import re
import sys
from collections.abc import Iterable

from sublight.audit.source.events import Event

_PLUMBING = frozenset(("torch", "numpy", "sglang", "builtins", "typing", "super"))
# What a call that does the multiplying is named after, and what its helpers are.
_MEGA = re.compile(r"mega", re.IGNORECASE)
_WHOLE = re.compile(r"moe|experts|mega", re.IGNORECASE)
_PRODUCT = re.compile(r"gemm|_mm|mm_|grouped|matmul|marlin|mla|attention|attn|mha", re.IGNORECASE)
_HELPER = re.compile(
    r"quant|permut|align|sort|topk|silu|gelu|shuffle|sum$|_sum|reduce|prepare|convert|interleave|swizzle|is_|has_|get_"
    r"|_dispatch(?:_|$)|_combine(?:_|$)|workspace|available|config|_type|version|register|reorder|repack|copy|count|index|tune|create|empty"
    r"|(?:Info|Tensors|Args|Params|Spec|Inputs?|Outputs?)$",
    re.IGNORECASE,
)


def root(event: Event) -> str:
    """The package a call goes to; what is called through PyTorch's operators counts as its owner's."""
    parts = event.name.split(".")
    return parts[2] if parts[:2] == ["torch", "ops"] and len(parts) > 2 else parts[0]


def is_foreign(event: Event) -> bool:
    """Whether a call leaves the engine and PyTorch, or is a kernel of the engine's own that a compiler gets."""
    if event.kind == "kernel":
        return True
    name = root(event)
    return event.kind == "call" and name not in _PLUMBING and name not in sys.stdlib_module_names and bool(name)


def working(events: Iterable[Event]) -> list[Event]:
    """The calls that do the work: of whole layers, else products; those that happen for certain, if there are any.

    A kernel that the engine compiles when it runs is called through something no reading can follow; then it is the
    innermost function of the engine's own that is named after the work.
    """
    events = list(events)
    held = inside(events)
    past = [event for event in _past(events, held) if not event.certain]
    found = _working(held)
    return [*past, *found] if found and not any(event.certain for event in found) else found


def _past(events: list[Event], held: list[Event]) -> list[Event]:
    """Kernels for whole layers that are called outside the deciding function, perhaps instead of it."""
    inner = {id(event) for event in held}
    outside = [event for event in events if id(event) not in inner and is_foreign(event)]
    return [event for event in outside if _MEGA.search(_bare(event)) and not _is_helper(event)]


def _working(events: list[Event]) -> list[Event]:
    for candidates in ([event for event in events if is_foreign(event)], _own(events)):
        found = [event for event in candidates if not _is_helper(event)]
        whole = [event for event in found if _WHOLE.search(_bare(event))]
        product = [event for event in found if _PRODUCT.search(_bare(event)) and event not in whole]
        for group in (whole, product):
            certain = [event for event in group if event.certain]
            if certain:
                return certain
        if found := [*whole, *product]:
            return found
    return []


def inside(events: list[Event]) -> list[Event]:
    """What happened from the deciding function on; everything where the way passes none."""
    method = deciding(events)
    for at, event in enumerate(events):
        if event.kind == "call" and event.name == method:
            return [each for each in events[at + 1 :] if each.depth > event.depth or not each.depth]
    return events


def _own(events: list[Event]) -> list[Event]:
    """Calls of the engine's own functions, the innermost first."""
    own = [event for event in events if event.kind == "call" and root(event) == "sglang" and not _is_method(event)]
    return sorted(own, key=lambda event: -event.depth)


def _is_method(event: Event) -> bool:
    return event.name.split(".")[-2][:1].isupper() or _bare(event)[:1].isupper()


def _is_helper(event: Event) -> bool:
    return _HELPER.search(_bare(event)) is not None


def _bare(event: Event) -> str:
    return event.name.rpartition(".")[2]


def destination(event: Event) -> str:
    """What runs, as a reader knows it: the symbol that does a whole layer, else the function that strings it together.

    A product (`cutlass_fp4_group_mm`) is one of several in a function of the engine's, and that is what gets a name.
    """
    if event.kind == "kernel" or _WHOLE.search(_bare(event)) or root(event) == "sglang":
        return event.name
    holder = event.function
    last = holder.rpartition(".")[2]
    return event.name if not holder or last in ("apply", "forward", "run", "__call__", "<lambda>") else holder


def provider(event: Event) -> str:
    return "Triton" if event.kind == "kernel" else "the engine's own" if root(event) == "sglang" else root(event)


def deciding(events: Iterable[Event]) -> str:
    """The function that decides which kernel is called: the quantisation method's `apply`; "" when none is passed."""
    named = [event.name for event in events if event.kind == "call" and ".apply" in event.name]
    own = [name for name in named if "quantization" in name]
    return next(iter(own or named), "")


def calls_nothing(events: Iterable[Event]) -> bool:
    """Whether the deciding function was followed and calls nothing that could compute: only asks of itself."""
    events = list(events)
    method = deciding(events)
    cls = method.rpartition(".")[0]
    outgoing = [
        event.name
        for event in events
        if event.function == method and event.kind in ("call", "kernel", "unknown call", "not followed")
        if not event.name.startswith(cls) and not re.search(r"\.(?:is|get|enable|use|format)_\w+$", event.name)
    ]
    return bool(method) and not outgoing
