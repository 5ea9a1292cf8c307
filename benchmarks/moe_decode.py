"""The decode kernel on this GPU: agreement with the oracle first, then time, at shards of published models.

    python benchmarks/moe_decode.py --save record.json

A layer is timed as a CUDA graph of several layers back to back, each with a routing of its own over weights several
times the L2 cache (one token's layers use disjoint experts). Bytes are the codes and scales of the experts hit and the
layer's input and output, once. The ceiling is a device-to-device copy of 4 GiB in the same run, read plus written.

With --whole a layer begins at the router's logits and has the model's shared expert in it.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sublight.kernels.cuda.build import find_compiler
from sublight.kernels.cuda.decode import DecodeRouter, DecodeWorkspace, fused_moe, routed_moe
from sublight.kernels.cuda.layout import DecodeWeights, pack_experts
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.reference import Experts, moe_forward
from sublight.kernels.routing import Router, route

SHAPES = {
    # experts, intermediate, hidden, top-k, as one GPU has them
    "glm-5-tp8": (256, 256, 6144, 8),
    # a batch of M tokens over eight ranks sends M pairs to each on average: top-1 of 32 local experts
    "glm-5-ep8": (32, 2048, 6144, 1),
    "qwen3-30b-a3b": (128, 768, 2048, 8),
    "deepseek-v3": (256, 2048, 7168, 8),
}
ROUTERS = {
    # router, whether it has a correction, shared experts; a shard of whole experts has the routing of its whole model
    "glm-5-tp8": (Router("sigmoid", 8, True, 2.5), True, 1),
    "qwen3-30b-a3b": (Router("softmax", 8), False, 0),
    "deepseek-v3": (Router("sigmoid", 8, True, 2.5, groups=8, top_groups=4), True, 1),
}
TOLERANCE = 3e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tokens", default="1,2,3,4,5,8,16")
    parser.add_argument("--shared-limit", type=int, help="bytes of shared memory a block may use")
    parser.add_argument("--whole", action="store_true", help="router and shared expert inside the launch")
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
        "whole": options.whole,
        "compiler": find_compiler().name,
        "copy_gb_per_s": round(ceiling),
        "rows": [],
    }
    print(f"{record['gpu']}, torch {torch.__version__}, {record['compiler']}, copy {ceiling:.0f} GB/s")
    for shape in options.shapes.split(","):
        counts = [int(m) for m in options.tokens.split(",")]
        record["rows"] += measure(shape, counts, ceiling, options.shared_limit, options.whole)
        if options.save:
            options.save.write_text(json.dumps(record, indent=1) + "\n")


def measure(
    shape: str, tokens: list[int], ceiling: float, shared_limit: int | None, whole: bool
) -> list[dict[str, object]]:
    experts, inter, hidden, top_k = SHAPES[shape]
    w13, w2 = random_matrix(experts, 2 * inter, hidden, 2), random_matrix(experts, hidden, inter, 1)
    oracle, shared, chooser, correction = Experts(w13, w2), None, None, None
    if whole:
        router, corrects, width = ROUTERS[shape]
        correction = torch.randn(experts, device="cuda") * 0.01 if corrects else None
        chooser = DecodeRouter(router, experts, corrects)
        if width:
            shared = (random_matrix(1, 2 * width * inter, hidden, 2), random_matrix(1, hidden, width * inter, 1))
    packed = pack_experts(w13, w2, shared)
    beside = None if shared is None else Experts(*shared)
    rows = []
    for count in tokens:
        layers = min(32, experts // top_k) if count == 1 else 16 if count <= 4 else 8
        routings = [routing(count, experts, top_k, layer) for layer in range(layers)]
        inputs = [torch.randn(count, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]
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

            times[early] = graph_us(layer, layers)
            for i in (0, layers - 1) if early else ():
                expected = moe_forward(inputs[i], *routings[i], oracle, shared=beside)
                error = max(error, float((out[i].float() - expected).norm() / expected.norm()))
        if not error <= TOLERANCE:
            raise SystemExit(f"{shape}, {count} tokens: relative error {error:.1e} is over {TOLERANCE:.0e}; not timed")
        hit = sum(len(ids.unique()) for ids, _ in routings) / layers
        row = line(shape, count, hit, bytes_moved(packed, hit + packed.shared, inputs[0]), times, ceiling, error)
        names = ("piece", "items", "depth", "team", "down_warps", "shared")
        row["plan"] = {name: getattr(plan, name) for name in names}
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


def towards(ids: Tensor, experts: int) -> Tensor:
    """Logits that make a router choose these experts, with weights that differ."""
    logits = torch.rand(ids.shape[0], experts, device="cuda")
    return logits.scatter_add_(1, ids.long(), torch.full(ids.shape, 4.0, device="cuda"))


def bytes_moved(weights: DecodeWeights, hit: float, x: Tensor) -> float:
    return weights.nbytes / weights.w13.shape[0] * hit + 2 * x.numel() * x.element_size()


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
