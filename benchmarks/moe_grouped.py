"""The grouped kernels on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_grouped.py --save record.json

Method, shapes and bytes are those of `moe_decode.py`, whose functions this uses. Agreement is checked on up to 64
tokens spread over the batch, as the oracle is slow.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from moe_decode import SHAPES, TOLERANCE, bytes_moved, copy_gb_per_s, graph_us, random_matrix, routing
from torch import Tensor

from sublight.kernels.cuda.build import find_compiler
from sublight.kernels.cuda.grouped import GroupedWorkspace, grouped_moe
from sublight.kernels.cuda.layout import pack_experts
from sublight.kernels.reference import Experts, moe_forward

_CHECKED = 64  # tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tokens", default="16,32,64,128,256,512,1024")
    parser.add_argument("--shared-limit", type=int, help="bytes of shared memory a block may use")
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
        for row in measure(shape, [int(m) for m in options.tokens.split(",")], ceiling, options.shared_limit):
            record["rows"].append(row)
            if options.save:
                options.save.write_text(json.dumps(record, indent=1) + "\n")


def measure(shape: str, tokens: list[int], ceiling: float, shared_limit: int | None) -> Iterator[dict[str, object]]:
    experts, inter, hidden, top_k = SHAPES[shape]
    w13, w2 = random_matrix(experts, 2 * inter, hidden, 2), random_matrix(experts, hidden, inter, 1)
    packed = pack_experts(w13, w2)
    oracle = Experts(w13, w2)
    workspace = GroupedWorkspace(hidden, inter, experts, top_k, max(tokens), shared_limit=shared_limit)
    for count in tokens:
        layers = 4 if shape == "deepseek-v3" else 8
        routings = [routing(count, experts, top_k, layer) for layer in range(layers)]
        inputs = [torch.randn(count, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]
        out = [torch.full_like(x, float("nan")) for x in inputs]

        def layer(i: int, out: list[Tensor] = out) -> None:
            grouped_moe(inputs[i], *routings[i], packed, workspace, out[i])  # noqa: B023

        for i in range(layers):
            layer(i)
        error = 0.0
        some = torch.arange(0, count, -(-count // _CHECKED), device="cuda")
        for i in (0, layers - 1):
            expected = moe_forward(inputs[i][some], *(part[some] for part in routings[i]), oracle)
            error = max(error, float((out[i][some].float() - expected).norm() / expected.norm()))
        if not error <= TOLERANCE:
            raise SystemExit(
                f"{shape}, {count} tokens: relative error {error:.1e} is over {TOLERANCE:.0e}; no time kept"
            )
        us, spread = graph_us(layer, layers)
        hit = sum(len(ids.unique()) for ids, _ in routings) / layers
        moved = bytes_moved(packed, hit, inputs[0])
        share = moved / ceiling / 1e3 / us
        print(
            f"{shape:14} M={count:<4} {hit:6.1f} experts {moved / 1e6:8.1f} MB {us:8.1f} us (+-{spread:.1f}) "
            f"{moved / us / 1e3:5.0f} GB/s {share:4.0%} of copy; error {error:.1e}",
            flush=True,
        )
        plan = workspace.plan(count)
        yield {
            "shape": shape,
            "tokens": count,
            "experts_hit": hit,
            "bytes": round(moved),
            "us": round(us, 2),
            "spread_us": round(spread, 2),
            "share_of_copy": round(share, 4),
            "relative_error": float(f"{error:.2e}"),
            "plan": {name: value for name, value in plan.defines().items() if name[:2] in ("TI", "UP", "DO")},
        }


if __name__ == "__main__":
    main()
