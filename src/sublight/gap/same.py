"""Whether two limits are of one step: a measurement of one is no measurement of the other where anything differs."""

from sublight.facts.workload import Speculation
from sublight.limits.decode import DecodeLimit


def differences(asked: DecodeLimit, found: DecodeLimit) -> list[str]:
    """What defines the step and differs, each as "what: the found one, asked is the other".

    Bandwidth and the time of a collective are not looked at: they say what a card reaches, not which step it ran.
    Counts of routed experts are a closer look at the same step where only one side has them.
    """
    ours, theirs = _parts(asked), _parts(found)
    told = [f"{what}: {theirs[what]}, asked is {ours[what]}" for what in ours if ours[what] != theirs[what]]
    mine, other = asked.workload.routing.counts, found.workload.routing.counts
    if mine and other and mine != other:
        told.append("expert counts: others than those asked for")
    return told


# What has to be the same for a step to be faster or slower than another: how it is cut and cached may be what changed.
SAME_WORK = ("model", "card", "cards", "batch", "context", "speculation")
# What has to be the same for one record to answer a question about another.
SAME_SHAPES = ("model", "card", "cards", "link", "layout", "batch", "speculation")


def alike(one: DecodeLimit, other: DecodeLimit, parts: tuple[str, ...]) -> bool:
    """Whether two limits have these parts in common."""
    ours, theirs = _parts(one), _parts(other)
    return all(ours[part] == theirs[part] for part in parts)


def _parts(limit: DecodeLimit) -> dict[str, str]:
    model, gpu, work = limit.model, limit.gpu, limit.workload
    size = f"{model.parameters:,} parameters, {model.checkpoint_bytes:,.0f} bytes"
    return {
        "model": model.name,
        "checkpoint": f"{size}, {model.quantization}",
        "card": gpu.name,
        "cards": f"{gpu.count}",
        "link": gpu.interconnect or "none",
        "layout": str(work.layout),
        "batch": f"{work.batch:,}",
        "context": f"{work.context:,}",
        "KV cache": work.kv_dtype,
        "speculation": _speculation(work.speculation),
    }


def _speculation(speculation: Speculation | None) -> str:
    if speculation is None:
        return "none (verify width 1)"
    text = f"draft {speculation.draft_length}, verify width {speculation.verify_width}"
    gained = speculation.tokens_per_step
    return text if gained is None else f"{text}, {gained:g} {'token' if gained == 1 else 'tokens'} a step"
