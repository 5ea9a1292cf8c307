"""Work on padding: attention heads and tokens that a kernel computes and nobody reads. Needs the model's plan."""

import re
from collections.abc import Iterable, Sequence

from sublight.trace.classify import Kind
from sublight.trace.kernels import KernelTime
from sublight.trace.oddity import Oddity, Seen
from sublight.units import counted, show_time

# FlashMLA's tile holds 64 query heads of one token; a rank with fewer has them padded (vLLM logs it).
_HEADS_A_TILE = {"FlashMLA": 64}
_OFTEN = 10  # calls a step: once a layer, not once a step
# Kernels with one block for each token, by what their sources launch. Others that write the cache take a block for
# several heads or tokens.
_A_BLOCK_A_TOKEN = re.compile(r"reshape_and_cache|concat_and_cache_mla|fused_?add_?rms_?norm_?kernel", re.IGNORECASE)


def tokens_of(kernels: Sequence[KernelTime]) -> int | None:
    """How many tokens a rank ran in the step, by kernels of every layer with a block a token; None if they differ."""
    blocks = {k.blocks for k in kernels if k.calls > 1 and k.blocks and _A_BLOCK_A_TOKEN.search(k.name)}
    return blocks.pop() if len(blocks) == 1 else None


def padded_heads(seen: Seen) -> Iterable[Oddity]:
    if seen.plan is None or not seen.plan.heads:
        return
    for kernel in seen.kernels:
        tile = next((n for name, n in _HEADS_A_TILE.items() if kernel.backend.startswith(name)), 0)
        if kernel.kind == Kind.ATTENTION and kernel.calls >= _OFTEN and seen.plan.heads < tile:
            heads = counted(seen.plan.heads, "attention head of this rank is", "attention heads of this rank are")
            yield Oddity(
                "padded-heads",
                f"{heads} computed as {tile}",
                f"{kernel.backend} works on tiles of {tile} query heads: {counted(kernel.calls, 'call')}, "
                f"{show_time(kernel.summed_ns * 1e-9)} of the step",
                min(kernel.summed_ns, seen.exposed_ns(kernel.row) or kernel.summed_ns),
                "data-parallel attention keeps all heads on a rank; or a backend with smaller tiles",
                kernel.row,
            )


def padded_batch(seen: Seen) -> Iterable[Oddity]:
    """Kernels that write the KV cache start one block a token; graphs run at the captured size, whatever the batch."""
    if seen.plan is None or not seen.plan.tokens or not seen.step.replayed:
        return
    writes = [k for k in seen.kernels if k.kind == Kind.KV_WRITE and k.calls >= _OFTEN and k.blocks]
    blocks = {k.blocks for k in writes}
    if len(blocks) != 1 or (tokens := blocks.pop()) <= seen.plan.tokens:
        return
    share = 1 - seen.plan.tokens / tokens
    yield Oddity(
        "padded-batch",
        f"the captured graph runs {tokens} tokens for {seen.plan.tokens}",
        f"{counted(len(writes), 'kernel that writes the KV cache starts', 'kernels that write the KV cache start')} "
        f"{tokens} blocks, one a token, in every layer",
        round(share * sum(row.exposed_ns for row in seen.breakdown.rows)),
        "capture the batch sizes that occur; or the batch named here is not the one that ran",
    )
