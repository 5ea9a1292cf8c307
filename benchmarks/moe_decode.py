"""The decode kernel on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_decode.py --save record.json

A layer is timed as a CUDA graph of several layers back to back, each with a routing of its own over weights several
times the L2 cache (one token's layers use disjoint experts). Bytes are the codes and scales of the experts hit and the
layer's input and output, once. The ceiling is a device-to-device copy of 4 GiB in the same run, read plus written.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sublight.kernels.cuda.build import find_compiler
from sublight.kernels.cuda.decode import DecodeWorkspace, fused_moe
from sublight.kernels.cuda.layout import DecodeWeights, pack_experts
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.reference import Experts, moe_forward

SHAPES = {
    # experts, intermediate, hidden, top-k, as one GPU has them
    "glm-5-tp8": (256, 256, 6144, 8),
    # a batch of M tokens over eight ranks sends M pairs to each on average: top-1 of 32 local experts
    "glm-5-ep8": (32, 2048, 6144, 1),
    "qwen3-30b-a3b": (128, 768, 2048, 8),
    "deepseek-v3": (256, 2048, 7168, 8),
}
TOLERANCE = 3e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tokens", default="1,2,3,4,5,8,16")
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
        record["rows"] += measure(shape, [int(m) for m in options.tokens.split(",")], ceiling, options.shared_limit)
        if options.save:
            options.save.write_text(json.dumps(record, indent=1) + "\n")


def measure(shape: str, tokens: list[int], ceiling: float, shared_limit: int | None) -> list[dict[str, object]]:
    experts, inter, hidden, top_k = SHAPES[shape]
    w13, w2 = random_matrix(experts, 2 * inter, hidden, 2), random_matrix(experts, hidden, inter, 1)
    packed = pack_experts(w13, w2)
    oracle = Experts(w13, w2)
    rows = []
    for count in tokens:
        layers = min(32, experts // top_k) if count == 1 else 16 if count <= 4 else 8
        routings = [routing(count, experts, top_k, layer) for layer in range(layers)]
        inputs = [torch.randn(count, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]
        times, error, plan = {}, 0.0, None
        for early in (True, False):
            workspace = DecodeWorkspace(hidden, inter, top_k, shared_limit=shared_limit, early_start=early)
            plan = workspace.plan(count)
            out = [torch.full_like(x, float("nan")) for x in inputs]

            def layer(i: int, workspace: DecodeWorkspace = workspace, out: list[Tensor] = out) -> None:
                fused_moe(inputs[i], *routings[i], packed, workspace, out[i])  # noqa: B023

            times[early] = graph_us(layer, layers)
            for i in (0, layers - 1) if early else ():
                expected = moe_forward(inputs[i], *routings[i], oracle)
                error = max(error, float((out[i].float() - expected).norm() / expected.norm()))
        if not error <= TOLERANCE:
            raise SystemExit(f"{shape}, {count} tokens: relative error {error:.1e} is over {TOLERANCE:.0e}; not timed")
        hit = sum(len(ids.unique()) for ids, _ in routings) / layers
        row = line(shape, count, hit, bytes_moved(packed, hit, inputs[0]), times, ceiling, error)
        row["plan"] = {"piece": plan.piece, "items": plan.items, "depth": plan.depth, "team": plan.team}
        row["shared_bytes"] = plan.shared_bytes
        rows.append(row)
    return rows


def line(
    shape: str,
    tokens: int,
    hit: float,
    moved: float,
    times: dict[bool, tuple[float, float]],
    ceiling: float,
    error: float,
) -> dict[str, object]:
    us, spread = times[True]
    share = moved / ceiling / 1e3 / us
    print(
        f"{shape:14} M={tokens:<3} {hit:6.1f} experts {moved / 1e6:8.1f} MB {us:8.2f} us (+-{spread:.2f}) "
        f"{moved / us / 1e3:5.0f} GB/s {share:4.0%} of copy; without early start {times[False][0]:8.2f} us; "
        f"error {error:.1e}",
        flush=True,
    )
    return {
        "shape": shape,
        "tokens": tokens,
        "experts_hit": hit,
        "bytes": round(moved),
        "us": round(us, 3),
        "spread_us": round(spread, 3),
        "us_without_early_start": round(times[False][0], 3),
        "share_of_copy": round(share, 4),
        "relative_error": float(f"{error:.2e}"),
    }


def random_matrix(experts: int, rows: int, columns: int, parts: int) -> Quantised:
    """Codes uniform, scales 0.25 to 2, global scales that keep activations near one and differ between parts."""
    codes = torch.empty(experts, rows, columns // 2, dtype=torch.uint8, device="cuda")
    scales = torch.empty(experts, rows, columns // 16, dtype=torch.float8_e4m3fn, device="cuda")
    for e in range(experts):
        codes[e].random_(0, 256)
        scales[e] = (torch.rand(rows, columns // 16, device="cuda") * 1.75 + 0.25).to(torch.float8_e4m3fn)
    above = (torch.rand(experts, parts, device="cuda") * 0.5 + 0.75) / (3.5 * columns**0.5)
    return Quantised(NVFP4, codes, scales, GlobalScale(above))


def routing(tokens: int, experts: int, top_k: int, layer: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * tokens + (0 if tokens == 1 else layer))
    if tokens == 1:
        order = torch.randperm(experts, generator=generator)
        ids = order[layer * top_k : (layer + 1) * top_k].unsqueeze(0)
    else:
        ids = torch.rand(tokens, experts, generator=generator).topk(top_k, 1).indices
    weights = torch.rand(tokens, top_k, generator=generator) + 0.1
    weights /= weights.sum(1, keepdim=True)
    return ids.int().cuda(), weights.cuda()


def bytes_moved(weights: DecodeWeights, hit: float, x: Tensor) -> float:
    return weights.nbytes / weights.experts * hit + 2 * x.numel() * x.element_size()


def graph_us(layer: Callable[[int], None], layers: int, rounds: int = 7) -> tuple[float, float]:
    """Time a layer: median and range over rounds of replays."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(layers):
            layer(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(layers):
            layer(i)
    replays_ms(graph, 3)
    replays = max(2, int(4.0 / replays_ms(graph, 1)))
    times = sorted(replays_ms(graph, replays) / replays / layers * 1e3 for _ in range(rounds))
    return times[rounds // 2], times[-1] - times[0]


def replays_ms(graph: torch.cuda.CUDAGraph, count: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def copy_gb_per_s(size: int = 4 << 30) -> float:
    source = torch.empty(size, dtype=torch.uint8, device="cuda").random_(0, 256)
    target = torch.empty_like(source)
    times = []
    for _ in range(11):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * size / sorted(times)[5] / 1e6


if __name__ == "__main__":
    main()
