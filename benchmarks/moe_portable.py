"""The portable kernel on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_portable.py --save record.json

`moe_timing.py` says how; weights stay in the checkpoint's layout, and one layer prepared for the most tokens takes
every smaller batch.
"""

from collections.abc import Iterator

import moe_timing as moe
import torch
import triton

from sublight.kernels import FusedMoe
from sublight.kernels.reference import Experts, moe_forward


def main() -> None:
    parser = moe.parser_for(__doc__, tokens="1,2,4,8,16,64,128,1024", shapes="glm-5-tp8,qwen3-30b-a3b")
    facts: moe.Row = {"kernel": "fused-triton", "triton": triton.__version__}
    moe.run(parser.parse_args(), f"Triton {triton.__version__}", facts, measure)


def measure(shape: str, tokens: list[int], ceiling: float) -> Iterator[moe.Row]:
    experts, inter, hidden, top_k = moe.SHAPES[shape]
    weights = Experts(*moe.random_layer(experts, inter, hidden))
    layer = FusedMoe(weights, tokens=max(tokens), top_k=top_k, backend="fused-triton")
    per_expert = 3 * inter * hidden * 0.5625
    for count in tokens:
        layers = min(32, experts // top_k) if count == 1 else 16 if count <= 4 else 8 if count < 512 else 3
        routings, inputs = moe.random_inputs(shape, count, layers)
        out = [torch.full_like(x, float("nan")) for x in inputs]

        def call(i: int) -> None:
            layer(inputs[i], *routings[i], out[i])  # noqa: B023

        call(0)
        error = moe.relative_error(out[0], moe_forward(inputs[0], *routings[0], weights))
        if wrong := moe.disagreement(error):
            raise SystemExit(f"{shape}, {count} tokens: {wrong}")
        us, spread = moe.graph_us(call, layers)
        hit = moe.experts_hit(routings)
        moved = per_expert * hit + 2 * inputs[0].numel() * 2
        share = moved / ceiling / 1e3 / us
        print(
            f"{shape:14} M={count:<5} {us:8.2f} us (+-{spread:.2f}) {share:4.0%} of copy; error {error:.1e}", flush=True
        )
        yield moe.row_of(shape, count, hit, moved, error) | moe.times_of(us, spread, share)


if __name__ == "__main__":
    main()
