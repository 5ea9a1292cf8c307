"""Which widths each backend takes under tensor parallelism, and what it pads where it does not.

Two different things go wrong. A cut through a group of values that share a scale cannot be loaded at all: no padding
puts half a group right. A width that is whole groups but no whole tile of some kernel can be padded with zeros, which
costs bytes on every step; each backend has its own number, and not all of them pad by themselves.
"""

import msgspec

from sublight.errors import UsageError


class Alignment(msgspec.Struct, frozen=True, kw_only=True):
    """What one backend needs of an NVFP4 expert.

    Attributes:
        width, width_ungated: steps of an expert's channels on a rank; with a gate, w13 has twice as many rows.
        hidden: steps of the layer's channels.
        width_beside_half: the step of the width where the layer's channels are whole steps and a half; 0 where that
            is not taken.
        pads: the engine pads by itself; otherwise it refuses.
        source: where that is written.
    """

    backend: str
    width: int
    width_ungated: int
    hidden: int
    pads: bool
    source: str
    width_beside_half: int = 0

    def step(self, hidden_size: int, *, gated: bool = True) -> int:
        """What has to divide the width of an expert beside this hidden size."""
        if self.width_beside_half and hidden_size % self.hidden == self.hidden // 2:
            return self.width_beside_half
        return self.width if gated else self.width_ungated

    def padded_hidden(self, hidden_size: int) -> int:
        """The layer's channels as the backend reads them."""
        step = self.hidden // 2 if self.width_beside_half else self.hidden
        return -(-hidden_size // step) * step


_VLLM = "vLLM 0.33.0, vllm/model_executor/layers/quantization/utils"
ALIGNMENTS = {
    a.backend: a
    for a in (
        Alignment(
            backend="marlin",
            width=64,
            width_ungated=64,
            hidden=128,
            width_beside_half=128,
            pads=True,
            source=f"{_VLLM}/marlin_utils_fp4.py: tiles of 128 x 64 or 64 x 128",
        ),
        Alignment(
            backend="flashinfer_trtllm",
            width=64,
            width_ungated=128,
            hidden=256,
            pads=True,
            source=f"{_VLLM}/flashinfer_fp4_moe.py: w13 has to have a multiple of 128 rows",
        ),
        Alignment(
            backend="flashinfer_cutedsl",
            width=64,
            width_ungated=128,
            hidden=256,
            pads=True,
            source=f"{_VLLM}/flashinfer_fp4_moe.py: rows of w13 by 128, K tiles of 256",
        ),
        Alignment(
            backend="grouped_gemm_nt_masked",
            width=32,
            width_ungated=32,
            hidden=32,
            pads=False,
            source="FlashInfer 0.6.3, flashinfer/cute_dsl/blockscaled_gemm.py: rows of 16 bytes",
        ),
        Alignment(
            backend="sublight",
            width=64,
            width_ungated=64,
            hidden=64,
            pads=False,
            source="this package",
        ),
    )
}


class RankWidth(msgspec.Struct, frozen=True, kw_only=True):
    """An expert's channels on one rank under one degree of tensor parallelism.

    Attributes:
        width: channels in all, over the ranks; a fraction where they do not divide.
        splits: the cut goes through a group that shares a scale.
        padded: what a kernel reads instead; the same number where nothing is padded.
    """

    ranks: int
    width: float
    group: int
    splits: bool
    padded: int

    @property
    def extra(self) -> float:
        """Share of the expert's bytes that padding adds to every step."""
        return self.padded / self.width - 1

    def extra_bytes(self, hidden_size: int, bits_per_value: float, *, gated: bool = True) -> float:
        """What padding adds to reading one expert once: of w13's one or two halves and of w2."""
        return (self.padded - self.width) * hidden_size * (3 if gated else 2) * bits_per_value / 8

    def __str__(self) -> str:
        if self.splits:
            return f"TP{self.ranks} {self.width:g} splits a group of {self.group} ({self.width / self.group:g} groups)"
        if self.padded == self.width:
            return f"TP{self.ranks} {self.width:g} ok"
        return f"TP{self.ranks} {self.width:g} -> {self.padded} (+{self.extra * 100:.1f} %)"


def widths_by_backend(
    width: int, hidden_size: int, group: int, ranks: tuple[int, ...] = (1, 2, 4, 8), *, gated: bool = True
) -> dict[str, list[RankWidth]]:
    """Each backend's row for each degree of tensor parallelism; whether it pads by itself, `ALIGNMENTS` says."""
    return {
        name: rank_widths(width, group, ranks, step=alignment.step(hidden_size, gated=gated))
        for name, alignment in ALIGNMENTS.items()
    }


def rank_widths(width: int, group: int, ranks: tuple[int, ...] = (1, 2, 4, 8), step: int = 64) -> list[RankWidth]:
    """A row for each degree of tensor parallelism.

    Args:
        width: channels of one expert.
        group: channels that share a scale: 16 for NVFP4, 32 for MXFP4.
        step: what the kernel takes (`Alignment.step`).
    """
    if width < 1 or group < 1 or step < 1 or min(ranks, default=1) < 1:
        raise UsageError(f"widths of {width} over {ranks}", "a size is below 1", "sizes of at least 1")
    rows = []
    for count in ranks:
        on_rank = width / count
        padded = -(-width // (count * step)) * step
        rows.append(
            RankWidth(ranks=count, width=on_rank, group=group, splits=bool(width % (count * group)), padded=padded)
        )
    return rows
