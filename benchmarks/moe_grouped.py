"""The grouped kernels on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_grouped.py --save record.json
    python benchmarks/moe_grouped.py --every-plan --save record.json   # what plan_grouped chooses from

`moe_timing.py` says how. Agreement is checked on up to 64 tokens spread over the batch, as the oracle is slow.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

import moe_timing as moe
import torch

from sublight.kernels.cuda.build import find_compiler
from sublight.kernels.cuda.grouped import GroupedWorkspace, grouped_moe
from sublight.kernels.cuda.grouped_plan import GroupedPlan, Phase, fitted, plan_grouped
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.reference import Experts, moe_forward

_CHECKED = 64  # tokens
_SHOWN = ("WGMMA", "WARPS", "TILES", "UP_UNITS", "UP_BLOCKS", "UP_DEPTH", "DOWN_UNITS", "DOWN_BLOCKS", "DOWN_DEPTH")


def main() -> None:
    parser = moe.parser_for(__doc__, tokens="16,32,64,128,256,512,1024")
    parser.add_argument("--shared-limit", type=int, help="bytes of shared memory a block may use")
    parser.add_argument("--every-plan", action="store_true", help="time other plans as well")
    options = parser.parse_args()
    compiler, limit = find_compiler().name, options.shared_limit
    facts: moe.Row = {"cuda": torch.version.cuda, "shared_limit_bytes": limit, "compiler": compiler}
    moe.run(options, compiler, facts, partial(measure, shared_limit=limit, every=options.every_plan))


class Fixed(GroupedWorkspace):
    """A workspace with a plan of its own, where one is given."""

    def __init__(self, *arguments: Any, plan: GroupedPlan | None = None, **options: Any) -> None:
        self._fixed = plan
        super().__init__(*arguments, **options)

    def plan(self, tokens: int) -> GroupedPlan:
        return self._fixed or super().plan(tokens)


def plans(shape: str, tokens: int, limit: int) -> list[GroupedPlan]:
    """The chosen one first, then others that fit."""
    experts, inter, hidden, top_k = moe.SHAPES[shape]
    chosen = plan_grouped(hidden, inter, experts, top_k, tokens, limit)
    mean = chosen.pairs / experts
    tiles = ceil((mean + 2.5 * mean**0.5) / 8)
    one, sixteen = Phase(4, 4, 1), Phase(16, 1, 2)
    shapes = [(False, t, up, sixteen) for t in sorted({min(tiles, 6), 1}) for up in (one, Phase(8, 2, 2))]
    if mean > 4:
        shapes = [(False, min(tiles, 6), Phase(8, 2, 2), sixteen), (True, min(tiles, 7), sixteen, sixteen)]
        shapes += [(True, min(tiles, t), Phase(8, 2, 1), Phase(8, 2, 2)) for t in (7, 11)]
    found = [replace(chosen, wgmma=w, tiles=t, up=up, down=down) for w, t, up, down in shapes]
    deep = [fitted(plan, limit) for plan in found]
    return list(dict.fromkeys([chosen, *(plan for plan in deep if plan is not None)]))


def measure(shape: str, tokens: list[int], ceiling: float, shared_limit: int | None, every: bool) -> Iterator[moe.Row]:
    experts, inter, hidden, top_k = moe.SHAPES[shape]
    w13, w2 = moe.random_layer(experts, inter, hidden)
    packed = pack_experts(w13, w2)
    oracle = Experts(w13, w2)
    for count in tokens:
        layers = 4 if shape == "deepseek-v3" else 8
        routings, inputs = moe.random_inputs(shape, count, layers)
        out = [torch.full_like(x, float("nan")) for x in inputs]
        some = torch.arange(0, count, -(-count // _CHECKED), device="cuda")
        checked = (0, layers - 1)
        expected = [moe_forward(inputs[i][some], *(part[some] for part in routings[i]), oracle) for i in checked]
        hit = moe.experts_hit(routings)
        moved = moe.bytes_moved(packed, hit, inputs[0])
        limit = shared_limit or torch.cuda.get_device_properties(0).shared_memory_per_block_optin
        for plan in plans(shape, count, limit)[: None if every else 1]:
            workspace = Fixed(hidden, inter, experts, top_k, count, shared_limit=shared_limit, plan=plan)

            def layer(i: int, workspace: GroupedWorkspace = workspace) -> None:
                grouped_moe(inputs[i], *routings[i], packed, workspace, out[i])  # noqa: B023

            for i in range(layers):
                out[i].fill_(float("nan"))
                layer(i)
            pairs = zip(checked, expected, strict=True)
            error = max(moe.relative_error(out[i][some], wanted) for i, wanted in pairs)
            row = moe.row_of(shape, count, hit, moved, error)
            row["plan"] = {name: plan.defines()[name] for name in _SHOWN}
            name = f"{shape:14} M={count:<4} {' '.join(f'{key[:1]}{key[-5:]}{plan.defines()[key]}' for key in _SHOWN)}"
            if wrong := moe.disagreement(error):
                print(f"{name}: {wrong}", flush=True)
                yield row
                continue
            us, spread = moe.graph_us(layer, layers)
            share = moved / ceiling / 1e3 / us
            print(
                f"{name} {hit:6.1f} experts {moved / 1e6:8.1f} MB {us:8.1f} us (+-{spread:.1f}) "
                f"{moved / us / 1e3:5.0f} GB/s {share:4.0%} of copy; error {error:.1e}",
                flush=True,
            )
            yield row | moe.times_of(us, spread, share, digits=2)


if __name__ == "__main__":
    main()
