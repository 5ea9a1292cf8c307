"""The grouped kernels on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_grouped.py --save record.json
    python benchmarks/moe_grouped.py --every-plan --save record.json   # what plan_grouped chooses from

Method, shapes and bytes are those of `moe_decode.py`, whose functions this uses. Agreement is checked on up to 64
tokens spread over the batch, as the oracle is slow.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import torch
from moe_decode import SHAPES, TOLERANCE, bytes_moved, copy_gb_per_s, graph_us, random_matrix, routing

from sublight.kernels.cuda.build import find_compiler
from sublight.kernels.cuda.grouped import GroupedWorkspace, grouped_moe
from sublight.kernels.cuda.grouped_plan import GroupedPlan, Phase, fitted, plan_grouped
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.reference import Experts, moe_forward

_CHECKED = 64  # tokens
_SHOWN = ("WGMMA", "WARPS", "TILES", "UP_UNITS", "UP_BLOCKS", "UP_DEPTH", "DOWN_UNITS", "DOWN_BLOCKS", "DOWN_DEPTH")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tokens", default="16,32,64,128,256,512,1024")
    parser.add_argument("--shared-limit", type=int, help="bytes of shared memory a block may use")
    parser.add_argument("--every-plan", action="store_true", help="time other plans as well")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    ceiling = copy_gb_per_s()
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "shared_limit_bytes": options.shared_limit,
        "compiler": find_compiler().name,
        "copy_gb_per_s": round(ceiling),
        "rows": [],
    }
    print(f"{record['gpu']}, torch {torch.__version__}, {record['compiler']}, copy {ceiling:.0f} GB/s")
    for shape in options.shapes.split(","):
        tokens = [int(m) for m in options.tokens.split(",")]
        for row in measure(shape, tokens, ceiling, options.shared_limit, options.every_plan):
            record["rows"].append(row)
            if options.save:
                options.save.write_text(json.dumps(record, indent=1) + "\n")


class Fixed(GroupedWorkspace):
    """A workspace with a plan of its own, where one is given."""

    def __init__(self, *arguments: Any, plan: GroupedPlan | None = None, **options: Any) -> None:
        self._fixed = plan
        super().__init__(*arguments, **options)

    def plan(self, tokens: int) -> GroupedPlan:
        return self._fixed or super().plan(tokens)


def plans(shape: str, tokens: int, limit: int) -> list[GroupedPlan]:
    """The chosen one first, then others that fit."""
    experts, inter, hidden, top_k = SHAPES[shape]
    chosen = plan_grouped(hidden, inter, experts, top_k, tokens, limit)
    mean = chosen.pairs / experts
    tiles = ceil((mean + 2.5 * mean**0.5) / 8)
    one, sixteen = Phase(4, 4, 1), Phase(16, 1, 2)
    shapes = [(False, t, up, sixteen) for t in sorted({min(tiles, 6), 1}) for up in (one, Phase(8, 2, 2))]
    if mean > 4:
        shapes = [(False, min(tiles, 6), Phase(8, 2, 2), sixteen), (True, min(tiles, 5), sixteen, sixteen)]
        shapes += [(True, min(tiles, t), Phase(8, 1, 2), Phase(8, 1, 2)) for t in (6, 10)]
    found = [replace(chosen, wgmma=w, tiles=t, up=up, down=down) for w, t, up, down in shapes]
    deep = [fitted(plan, limit) for plan in found]
    return list(dict.fromkeys([chosen, *(plan for plan in deep if plan is not None)]))


def measure(
    shape: str, tokens: list[int], ceiling: float, shared_limit: int | None, every: bool
) -> Iterator[dict[str, object]]:
    experts, inter, hidden, top_k = SHAPES[shape]
    w13, w2 = random_matrix(experts, 2 * inter, hidden, 2), random_matrix(experts, hidden, inter, 1)
    packed = pack_experts(w13, w2)
    oracle = Experts(w13, w2)
    for count in tokens:
        layers = 4 if shape == "deepseek-v3" else 8
        routings = [routing(count, experts, top_k, layer) for layer in range(layers)]
        inputs = [torch.randn(count, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]
        out = [torch.full_like(x, float("nan")) for x in inputs]
        some = torch.arange(0, count, -(-count // _CHECKED), device="cuda")
        checked = (0, layers - 1)
        expected = [moe_forward(inputs[i][some], *(part[some] for part in routings[i]), oracle) for i in checked]
        hit = sum(len(ids.unique()) for ids, _ in routings) / layers
        moved = bytes_moved(packed, hit, inputs[0])
        limit = shared_limit or torch.cuda.get_device_properties(0).shared_memory_per_block_optin
        for plan in plans(shape, count, limit)[: None if every else 1]:
            workspace = Fixed(hidden, inter, experts, top_k, count, shared_limit=shared_limit, plan=plan)

            def layer(i: int, workspace: GroupedWorkspace = workspace) -> None:
                grouped_moe(inputs[i], *routings[i], packed, workspace, out[i])  # noqa: B023

            for i in range(layers):
                out[i].fill_(float("nan"))
                layer(i)
            pairs = zip(checked, expected, strict=True)
            error = max(float((out[i][some].float() - wanted).norm() / wanted.norm()) for i, wanted in pairs)
            row: dict[str, object] = {"shape": shape, "tokens": count, "experts_hit": hit, "bytes": round(moved)}
            row["relative_error"] = float(f"{error:.2e}")
            row["plan"] = {name: plan.defines()[name] for name in _SHOWN}
            name = f"{shape:14} M={count:<4} {' '.join(f'{key[:1]}{key[-5:]}{plan.defines()[key]}' for key in _SHOWN)}"
            if not error <= TOLERANCE:
                print(f"{name}: relative error {error:.1e} is over {TOLERANCE:.0e}; not timed", flush=True)
                yield row
                continue
            us, spread = graph_us(layer, layers)
            share = moved / ceiling / 1e3 / us
            print(
                f"{name} {hit:6.1f} experts {moved / 1e6:8.1f} MB {us:8.1f} us (+-{spread:.1f}) "
                f"{moved / us / 1e3:5.0f} GB/s {share:4.0%} of copy; error {error:.1e}",
                flush=True,
            )
            yield row | {"us": round(us, 2), "spread_us": round(spread, 2), "share_of_copy": round(share, 4)}


if __name__ == "__main__":
    main()
