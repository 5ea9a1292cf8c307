"""Workload: what a decode step is asked to do, and over how many GPUs it is spread."""

from math import inf
from typing import Literal

import msgspec

from sublight.errors import UsageError
from sublight.facts.model import Model
from sublight.facts.tensors import Cache
from sublight.units import counted

_MOST_TOKENS = 10**7


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is cut over GPUs.

    Attributes:
        tp: ranks that share every layer (tensor parallelism).
        dp: data-parallel groups inside them that each run attention whole for their own requests; attention is then cut
            over tp/dp ranks. SGLang's --enable-dp-attention, vLLM's data parallelism with expert parallelism.
        ep: expert-parallel degree inside them: each rank holds experts/ep experts, each cut over tp/ep ranks.
        pp: pipeline stages; layers are spread over them in order.
    """

    tp: int = 1
    dp: int = 1
    ep: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "ep", "pp"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name} {value}", "a parallel degree is at least 1", f"--{name} 1")
        for name in ("dp", "ep"):
            value = getattr(self, name)
            if self.tp % value:
                divisors = ", ".join(str(d) for d in range(1, self.tp + 1) if self.tp % d == 0)
                raise UsageError(
                    f"{name} {value} inside tp {self.tp}", f"{value} does not divide {self.tp}", f"--{name} {divisors}"
                )

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def attention_tp(self) -> int:
        """Ranks that share one request's attention."""
        return self.tp // self.dp

    @property
    def expert_tp(self) -> int:
        """Ranks that share one expert."""
        return self.tp // self.ep

    def __str__(self) -> str:
        parts = [f"TP{self.tp}"]
        parts += [f"{n}{v}" for n, v in (("EP", self.ep), ("DP attention ", self.dp), ("PP", self.pp)) if v > 1]
        return " + ".join(parts)


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding: how many tokens are drafted, and how many a step then yields.

    Attributes:
        draft_length: tokens drafted a step, one pass of the MTP layers each.
        verify_width: tokens a sequence takes through the model at once, the last accepted one included.
        tokens_per_step: tokens a sequence gains a step on average, between 1 and the verify width; None when nobody
            measured it, and then no rate of tokens is stated.
    """

    draft_length: int
    verify_width: int
    tokens_per_step: float | None = None

    def __post_init__(self) -> None:
        if self.draft_length < 1:
            raise UsageError(f"a draft of {self.draft_length} tokens", "it has to be at least 1", "--draft 3")
        if self.verify_width < 2:
            raise UsageError(f"a verify width of {self.verify_width}", "it has to be at least 2", "--verify-width 4")
        if self.tokens_per_step is not None and not 1 <= self.tokens_per_step <= self.verify_width:
            raise UsageError(
                f"{self.tokens_per_step} tokens a step",
                f"a step of verify width {self.verify_width} yields between 1 and {self.verify_width}",
                "the mean accepted length as the engine reports it",
            )


class Routing(msgspec.Struct, frozen=True):
    """Which experts tokens are sent to.

    Attributes:
        counts: how often each expert was chosen, from a measurement; empty means uniform at random.
        source: where the counts were measured.
    """

    counts: tuple[float, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        if self.counts and not (min(self.counts) >= 0 and 0 < sum(self.counts) < inf):
            raise UsageError(
                f"the expert histogram {self.source}",
                "counts have to be zero or more, with a finite sum above zero",
                "a JSON list with one count an expert",
            )

    @property
    def is_uniform(self) -> bool:
        return not self.counts

    def inclusion(self, top_k: int) -> list[float]:
        """Probability that one token chooses each expert; the sum is `top_k`.

        Shares above 1 (an expert chosen by every token) are capped, and what is cut off goes to the others in
        proportion, so that the sum still is `top_k`.
        """
        left, free = float(top_k), list(range(len(self.counts)))
        chance = [0.0] * len(self.counts)
        while free:
            total = sum(self.counts[i] for i in free)
            if total <= 0:
                break
            full = [i for i in free if self.counts[i] / total * left >= 1]
            if not full:
                for i in free:
                    chance[i] = self.counts[i] / total * left
                break
            for i in full:
                chance[i] = 1.0
            left -= len(full)
            free = [i for i in free if chance[i] < 1.0]
        return chance


KvDtype = Literal["bf16", "fp8", "fp8_ds_mla", "nvfp4"]
KV_DTYPES: dict[str, str] = {
    "bf16": "2 B a value",
    "fp8": "1 B a value, scale per tensor",
    "fp8_ds_mla": "latent: 1 B a value, FP32 scale per 128, rotary part in BF16 (vLLM's and SGLang's 656 B layout)",
    "nvfp4": "0.5 B a value and an E4M3 scale per 16",
}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One decode step.

    Attributes:
        batch: sequences decoded together, over all data-parallel groups.
        context: tokens each of them attends to, the new one included.
        kv_dtype: format of the KV cache; index keys and states keep the format their kernels fix.
    """

    batch: int = 1
    context: int = 1024
    kv_dtype: KvDtype = "bf16"
    layout: Layout = Layout()
    speculation: Speculation | None = None
    routing: Routing = Routing()

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= _MOST_TOKENS:
            raise UsageError(f"a batch of {self.batch}", f"it has to be between 1 and {_MOST_TOKENS}", "--batch 1")
        if not 1 <= self.context <= _MOST_TOKENS * 10:
            raise UsageError(
                f"a context of {self.context} tokens",
                f"it has to be between 1 and {_MOST_TOKENS * 10}",
                "--context 1024",
            )

    @property
    def width(self) -> int:
        """Tokens a sequence takes through the model in one step."""
        return self.speculation.verify_width if self.speculation else 1

    @property
    def tokens(self) -> int:
        """Tokens in the step, over all ranks."""
        return self.batch * self.width

    @property
    def sequences_per_rank(self) -> int:
        """Sequences whose attention the busiest rank runs."""
        return -(-self.batch // self.layout.dp)

    def with_batch(self, batch: int) -> "Workload":
        return msgspec.structs.replace(self, batch=batch)


def cache_bytes_per_token(cache: Cache, kv_dtype: str) -> float:
    """Bytes that one token adds to one layer's cache, over all heads. A state has none."""
    if not cache.grows:
        return 0.0
    values = cache.values_per_token
    if cache.bytes_per_value:
        return values * cache.bytes_per_value
    if kv_dtype == "fp8_ds_mla" and cache.latent_split is not None:
        plain, rotary = cache.latent_split
        return plain + 4 * -(-plain // 128) + 2 * rotary
    return values * {"bf16": 2.0, "fp8": 1.0, "fp8_ds_mla": 1.0, "nvfp4": 0.5625}[kv_dtype]


def check_fit(model: Model, workload: Workload) -> None:
    """Refuse a layout that the model cannot be cut into, naming what would work. Raises UsageError."""
    layout = workload.layout
    asked = f"{model.name} as {layout}"
    ways = layout.attention_tp
    if model.heads and model.heads % ways:
        good = [d for d in range(1, layout.tp + 1) if model.heads % d == 0]
        heads = counted(model.heads, "attention head does", "attention heads do")
        raise UsageError(
            asked,
            f"{heads} not divide over {counted(ways, 'rank')}",
            f"an attention group of {', '.join(map(str, good))} rank{'s' * (good != [1])} (--tp, or --dp to make the "
            "groups smaller)",
        )
    kv = model.kv_heads
    if kv > 1 and kv % ways and ways % kv:
        raise UsageError(
            asked,
            f"{kv} key-value heads neither divide over {ways} ranks nor repeat evenly on them",
            f"a number of ranks that divides {kv} or is a multiple of it",
        )
    if layout.ep > 1:
        if model.moe is None:
            raise UsageError(asked, f"{model.name} has no routed experts", "--ep 1")
        if model.moe.experts % layout.ep:
            raise UsageError(
                asked,
                f"{model.moe.experts} experts do not divide over {counted(layout.ep, 'rank')}",
                "an --ep that divides them",
            )
    if layout.pp > model.layers:
        raise UsageError(
            asked,
            f"{counted(layout.pp, 'pipeline stage')} for {counted(model.layers, 'layer')}",
            f"--pp {model.layers} at most",
        )
    if workload.speculation is not None and not model.has_mtp:
        # A draft model of another kind would have its own weights, which nothing here knows.
        raise UsageError(
            asked, "this checkpoint has no multi-token-prediction layers to draft with", "a limit without --draft"
        )
    if workload.routing.counts:
        experts = model.moe.experts if model.moe else 0
        if len(workload.routing.counts) != experts:
            raise UsageError(
                f"the expert histogram {workload.routing.source}",
                f"it has {counted(len(workload.routing.counts), 'count')} for {counted(experts, 'expert')}",
                "one count an expert",
            )
        chosen, top_k = sum(count > 0 for count in workload.routing.counts), model.moe.top_k if model.moe else 0
        if chosen < top_k:
            are = "is" if chosen == 1 else "are"
            raise UsageError(
                f"the expert histogram {workload.routing.source}",
                f"{chosen} of its counts {are} above zero, and every token is sent to {top_k} different experts",
                "counts of enough tokens",
            )
    if workload.kv_dtype == "fp8_ds_mla" and not any(c.latent_split for c in model.caches):
        raise UsageError(asked, "fp8_ds_mla is a layout of latent caches, and this model has none", "--kv-dtype fp8")
