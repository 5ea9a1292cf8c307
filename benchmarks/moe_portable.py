"""The portable kernel on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_portable.py --save record.json

The method, its shapes and its routings are those of `moe_decode.py`; weights stay in the checkpoint's layout, and one
layer prepared for the most tokens takes every smaller batch.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import triton
from moe_decode import SHAPES, TOLERANCE, copy_gb_per_s, graph_us, random_matrix, routing

from sublight.kernels import FusedMoe
from sublight.kernels.reference import Experts, moe_forward


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="glm-5-tp8,qwen3-30b-a3b")
    parser.add_argument("--tokens", default="1,2,4,8,16,64,128,1024")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    ceiling = copy_gb_per_s()
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "kernel": "fused-triton",
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy_gb_per_s": round(ceiling),
        "rows": [],
    }
    print(f"{record['gpu']}, torch {torch.__version__}, Triton {triton.__version__}, copy {ceiling:.0f} GB/s")
    for shape in options.shapes.split(","):
        for row in measure(shape, [int(m) for m in options.tokens.split(",")], ceiling):
            record["rows"].append(row)
            if options.save:
                options.save.write_text(json.dumps(record, indent=1) + "\n")


def measure(shape: str, tokens: list[int], ceiling: float):  # type: ignore[no-untyped-def]
    experts, inter, hidden, top_k = SHAPES[shape]
    weights = Experts(random_matrix(experts, 2 * inter, hidden, 2), random_matrix(experts, hidden, inter, 1))
    layer = FusedMoe(weights, tokens=max(tokens), top_k=top_k, backend="fused-triton")
    per_expert = 3 * inter * hidden * 0.5625
    for count in tokens:
        layers = min(32, experts // top_k) if count == 1 else 16 if count <= 4 else 8 if count < 512 else 3
        routings = [routing(count, experts, top_k, number) for number in range(layers)]
        inputs = [torch.randn(count, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]
        out = [torch.full_like(x, float("nan")) for x in inputs]

        def call(i: int, inputs=inputs, routings=routings, out=out) -> None:  # type: ignore[no-untyped-def]
            layer(inputs[i], *routings[i], out[i])

        call(0)
        expected = moe_forward(inputs[0], *routings[0], weights)
        error = float((out[0].float() - expected).norm() / expected.norm())
        if not error <= TOLERANCE:
            raise SystemExit(f"{shape}, {count} tokens: relative error {error:.1e} is over {TOLERANCE:.0e}; not timed")
        us, spread = graph_us(call, layers)
        hit = sum(len(ids.unique()) for ids, _ in routings) / layers
        moved = per_expert * hit + 2 * inputs[0].numel() * 2
        share = moved / ceiling / 1e3 / us
        print(
            f"{shape:14} M={count:<5} {us:8.2f} us (+-{spread:.2f}) {share:4.0%} of copy; error {error:.1e}", flush=True
        )
        yield {
            "shape": shape,
            "tokens": count,
            "experts_hit": hit,
            "bytes": round(moved),
            "us": round(us, 3),
            "spread_us": round(spread, 3),
            "share_of_copy": round(share, 4),
            "relative_error": float(f"{error:.2e}"),
        }


if __name__ == "__main__":
    main()
