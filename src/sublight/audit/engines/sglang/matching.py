"""Whether a kernel is the one a name asks for: by the kernel's own name, or by a decision that asks for the name."""

import re

from sublight.audit.engines.sglang import kernels
from sublight.audit.source.events import Event

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


def asks_for(text: str, spelled: list[str]) -> bool:
    """Whether a condition asks for a name, under any of its spellings."""
    said = text.lower()
    return any(
        re.search(rf"(?<![a-z0-9_]){re.escape(each)}(?![a-z0-9_])", said)
        or re.search(rf"(?:is|enable|use)_{re.escape(each)}(?:_moe)?\b", said)
        for each in spelled
    )
