"""Cost: what one rank reads, writes and multiplies for one row of the step. Costs add."""

import msgspec


class Bytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one rank by what they are.

    Attributes:
        weights: codes of weights.
        scales: their scales and zero points.
        kv_read, kv_written: keys and values, or latents.
        index: keys of a sparse-attention indexer, read to score the whole context.
        state: fixed states of linear attention and Mamba, read and written.
        activations: inputs and outputs of the row's launches. They pass through the L2 cache where they fit, so they
            count as memory time only where they do not (`decode.memory_s`).
    """

    weights: float = 0.0
    scales: float = 0.0
    kv_read: float = 0.0
    kv_written: float = 0.0
    index: float = 0.0
    state: float = 0.0
    activations: float = 0.0

    def __add__(self, other: "Bytes") -> "Bytes":
        return Bytes(**{name: getattr(self, name) + getattr(other, name) for name in KINDS})

    @property
    def weights_and_scales(self) -> float:
        return self.weights + self.scales

    @property
    def caches(self) -> float:
        """Everything a sequence remembers: read and written."""
        return self.kv_read + self.kv_written + self.index + self.state

    @property
    def from_memory(self) -> float:
        """Everything but activations."""
        return self.weights_and_scales + self.caches


KINDS = ("weights", "scales", "kv_read", "kv_written", "index", "state", "activations")


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One row on one rank.

    Attributes:
        calls: launches, at the least: one a layer for a fused row.
        bytes: over all calls.
        flops: multiply-adds counted as two, by the rate they run at ("fp4", "fp8", "bf16"), over all calls.
    """

    calls: int = 0
    bytes: Bytes = Bytes()
    flops: dict[str, float] = {}

    def __add__(self, other: "Cost") -> "Cost":
        flops = dict(self.flops)
        for rate, count in other.flops.items():
            flops[rate] = flops.get(rate, 0.0) + count
        return Cost(calls=self.calls + other.calls, bytes=self.bytes + other.bytes, flops=flops)

    def times(self, factor: float) -> "Cost":
        """The same, `factor` times over; calls are left to whoever counts launches."""
        if factor == 1:
            return self
        scaled = {name: getattr(self.bytes, name) * factor for name in KINDS}
        return Cost(
            calls=self.calls, bytes=Bytes(**scaled), flops={rate: count * factor for rate, count in self.flops.items()}
        )
