"""The decode kernel on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_decode.py --save record.json

`moe_timing.py` says how. With --whole a layer begins at the router's logits and has the model's shared expert in it.
"""

from collections.abc import Iterator
from functools import partial

import moe_timing as moe
import torch
from torch import Tensor

from sublight.kernels.cuda.build import find_compiler
from sublight.kernels.cuda.decode import DecodeRouter, DecodeWorkspace, fused_moe, routed_moe
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.reference import Experts, moe_forward
from sublight.kernels.routing import Router, route

ROUTERS = {
    # router, whether it has a correction, shared experts; a shard of whole experts has the routing of its whole model
    "glm-5-tp8": (Router("sigmoid", 8, True, 2.5), True, 1),
    "qwen3-30b-a3b": (Router("softmax", 8), False, 0),
    "deepseek-v3": (Router("sigmoid", 8, True, 2.5, groups=8, top_groups=4), True, 1),
}


def main() -> None:
    parser = moe.parser_for(__doc__, tokens="1,2,3,4,5,8,16")
    parser.add_argument("--shared-limit", type=int, help="bytes of shared memory a block may use")
    parser.add_argument("--whole", action="store_true", help="router and shared expert inside the launch")
    options = parser.parse_args()
    compiler = find_compiler().name
    limit, whole = options.shared_limit, options.whole
    facts: moe.Row = {"cuda": torch.version.cuda, "shared_limit_bytes": limit, "whole": whole, "compiler": compiler}
    moe.run(options, compiler, facts, partial(measure, shared_limit=limit, whole=whole))


def measure(shape: str, tokens: list[int], ceiling: float, shared_limit: int | None, whole: bool) -> Iterator[moe.Row]:
    experts, inter, hidden, top_k = moe.SHAPES[shape]
    w13, w2 = moe.random_layer(experts, inter, hidden)
    oracle, shared, chooser, correction = Experts(w13, w2), None, None, None
    if whole:
        router, corrects, width = ROUTERS[shape]
        correction = torch.randn(experts, device="cuda") * 0.01 if corrects else None
        chooser = DecodeRouter(router, experts, corrects)
        if width:
            shared = moe.random_layer(1, width * inter, hidden)
    packed = pack_experts(w13, w2, shared)
    beside = None if shared is None else Experts(*shared)
    for count in tokens:
        layers = min(32, experts // top_k) if count == 1 else 16 if count <= 4 else 8
        routings, inputs = moe.random_inputs(shape, count, layers)
        logits = [towards(ids, experts) for ids, _ in routings]
        if chooser is not None:
            routings = [route(each, chooser.router, correction) for each in logits]
        times, error, plan = {}, 0.0, None
        for early in (True, False):
            options = {"early_start": early, "shared": packed.shared, "router": chooser}
            workspace = DecodeWorkspace(hidden, inter, top_k, shared_limit=shared_limit, **options)
            plan = workspace.plan(count)
            out = [torch.full_like(x, float("nan")) for x in inputs]

            def layer(i: int, workspace: DecodeWorkspace = workspace, out: list[Tensor] = out) -> None:
                if workspace.router is not None:
                    routed_moe(inputs[i], logits[i], packed, workspace, correction, out[i])  # noqa: B023
                else:
                    fused_moe(inputs[i], *routings[i], packed, workspace, out[i])  # noqa: B023

            times[early] = moe.graph_us(layer, layers)
            for i in (0, layers - 1) if early else ():
                expected = moe_forward(inputs[i], *routings[i], oracle, shared=beside)
                error = max(error, moe.relative_error(out[i], expected))
        if wrong := moe.disagreement(error):
            raise SystemExit(f"{shape}, {count} tokens: {wrong}")
        hit = moe.experts_hit(routings)
        moved = moe.bytes_moved(packed, hit + packed.shared, inputs[0])
        us, spread = times[True]
        share = moved / ceiling / 1e3 / us
        print(
            f"{shape:14} M={count:<3} {hit:6.1f} experts {moved / 1e6:8.1f} MB {us:8.2f} us (+-{spread:.2f}) "
            f"{moved / us / 1e3:5.0f} GB/s {share:4.0%} of copy; without early start {times[False][0]:8.2f} us; "
            f"error {error:.1e}",
            flush=True,
        )
        row = moe.row_of(shape, count, hit, moved, error) | moe.times_of(us, spread, share)
        row["us_without_early_start"] = round(times[False][0], 3)
        names = ("piece", "items", "depth", "team", "down_warps", "shared")
        row["plan"] = {name: getattr(plan, name) for name in names}
        yield row | {"shared_bytes": plan.shared_bytes}


def towards(ids: Tensor, experts: int) -> Tensor:
    """Logits that make a router choose these experts, with weights that differ."""
    logits = torch.rand(ids.shape[0], experts, device="cuda")
    return logits.scatter_add_(1, ids.long(), torch.full(ids.shape, 4.0, device="cuda"))


if __name__ == "__main__":
    main()
