"""One line about a scheme, for a reader."""

from sublight.facts.formats import FP8_BLOCK, Format
from sublight.units import counted


def described(format: Format) -> str:
    """ "NVFP4, group 16", "FP8 block 128x128", "INT4 group 32": the title, and the block where the title lacks it."""
    if format.name.startswith(FP8_BLOCK.name) and "x" not in format.title:
        return f"{format.title} {format.block_rows}x{format.block}"
    if format.block and not any(word in format.title for word in ("group", "block")):
        return f"{format.title}, group {format.block}"
    return format.title


def summary(what: str, kv_cache: str, exclusions: int) -> str:
    """E.g. "NVFP4, group 16, KV FP8, 471 exclusions"."""
    parts = [what]
    if kv_cache:
        parts.append(f"KV {kv_cache.upper()}")
    parts.append(counted(exclusions, "exclusion"))
    return ", ".join(parts)
