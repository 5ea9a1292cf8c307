"""Where tensor parallelism cuts a quantised matrix: through a group of values that share a scale, or between them."""

from collections.abc import Iterable

import msgspec

from sublight.facts.model import Model
from sublight.facts.quantization.base import Finding
from sublight.facts.tensors import Tensor
from sublight.facts.workload import Layout, Workload
from sublight.limits.sharding import ways

# Kernels for block-scaled experts take widths in steps of this many channels a rank; engines pad up to it where they
# can (vLLM and SGLang pad NVFP4 MoE weights to 64 or 128 for CUTLASS and Marlin).
_KERNEL_STEP = 64


class WidthCut(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of matrix under one degree of tensor parallelism.

    Attributes:
        module: as in the inventory.
        width: channels in all.
        ranks: that share it.
        on_rank: channels of one rank, before any padding; a fraction is left over when the ranks do not divide it.
        group: channels that share a scale.
        splits: the cut goes through a group, so the checkpoint cannot be loaded so without moving scales.
        padded: channels that kernels which need steps of 64 read instead.
        padding_bytes: read more a step and layer than the checkpoint holds, at that padding, by one rank and matrix.
    """

    module: str
    width: int
    ranks: int
    on_rank: float
    group: int
    splits: bool
    padded: int
    padding_bytes: float

    @property
    def whole_groups(self) -> int:
        """Channels of the rank with the most, where whole groups are dealt out."""
        return -(-self.width // (self.group * self.ranks)) * self.group


def width_cuts(model: Model, layout: Layout) -> list[WidthCut]:
    """Every kind of quantised matrix whose width is cut, once, under `layout`."""
    found: dict[tuple[str, int, int], WidthCut] = {}
    for tensor in model.tensors:
        cut = _cut(tensor, layout)
        if cut is not None:
            found.setdefault((cut.module, cut.width, cut.group), cut)
    return list(found.values())


def _cut(tensor: Tensor, layout: Layout) -> WidthCut | None:
    ranks = ways(tensor, layout)
    if tensor.cut is None or not tensor.format.is_quantised or not tensor.format.block or len(tensor.shape) != 2:
        return None
    axis = tensor.cut.axis
    group = tensor.format.block if axis == 1 else tensor.format.block_rows
    # Cutting the output dimension goes through a group only where a scale spans several output rows.
    if ranks == 1 or group == 1:
        return None
    width, units = tensor.shape[axis], tensor.cut.units
    # Heads are never divided: more ranks than heads hold the same head several times.
    ranks = min(ranks, units)
    on_rank = width / ranks
    padded = -(-width // (ranks * _KERNEL_STEP)) * _KERNEL_STEP
    other = tensor.shape[1 - axis]
    extra = (padded - on_rank) * other * tensor.format.bits_per_value / 8
    return WidthCut(
        module=tensor.module,
        width=width,
        ranks=ranks,
        on_rank=on_rank,
        group=group,
        splits=bool(width % (ranks * group)),
        padded=padded,
        padding_bytes=max(0.0, extra),
    )


def cut_findings(model: Model, workload: Workload) -> Iterable[Finding]:
    """What to say of a layout: matrices that it cuts through a group, and what padding would cost."""
    layout = workload.layout
    for cut in width_cuts(model, layout):
        name = cut.module.replace("{layer}", "*").replace("{expert}", "*")
        if cut.splits:
            good = _good_ways(cut)
            dealt = model.moe is not None and "{expert}" in cut.module and model.moe.experts % layout.tp == 0
            instead = f"--ep {layout.tp}" if dealt and layout.ep == 1 else ""
            advice = " or ".join(filter(None, [instead, f"a tensor-parallel degree of {good}" if good else ""]))
            yield Finding(
                "error",
                "tensor-parallel cut",
                f"{name}: {cut.width}/{cut.ranks} = {cut.on_rank:g} splits a group of {cut.group} that shares a scale; "
                f"an engine refuses it, or deals out whole groups; the busiest rank then reads {cut.whole_groups:,} "
                f"({(cut.whole_groups / cut.on_rank - 1) * 100:.1f} % more of it than the floor counts). "
                f"Try {advice or 'whole matrices on each rank'}",
            )
        elif cut.padded > cut.on_rank:
            yield Finding(
                "info",
                "tensor-parallel cut",
                f"{name}: {cut.width}/{cut.ranks} = {cut.on_rank:g} is no multiple of {_KERNEL_STEP}; kernels that "
                f"need one pad to {cut.padded} and read {(cut.padded / cut.on_rank - 1) * 100:.0f} % more of it",
            )


def _good_ways(cut: WidthCut) -> str:
    good = [d for d in range(1, cut.ranks) if cut.width % (d * cut.group) == 0 and cut.ranks % d == 0]
    return ", ".join(map(str, good))
