"""What the benchmarks of expert layers share: options, shapes, weights and routings, the clock, and the record.

A layer is timed as a CUDA graph of several layers back to back, each with a routing of its own over weights several
times the L2 cache (one token's layers use disjoint experts). Bytes are the codes and scales of the experts hit and the
layer's input and output, once. The ceiling is a device-to-device copy of 4 GiB in the same run, read plus written.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from math import inf, isfinite
from pathlib import Path

import torch
from torch import Tensor

from sublight.kernels.cuda.layout import DecodeWeights
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised

SHAPES = {
    # experts, intermediate, hidden, top-k, as one GPU has them
    "glm-5-tp8": (256, 256, 6144, 8),
    # a batch of M tokens over eight ranks sends M pairs to each on average: top-1 of 32 local experts
    "glm-5-ep8": (32, 2048, 6144, 1),
    "qwen3-30b-a3b": (128, 768, 2048, 8),
    "deepseek-v3": (256, 2048, 7168, 8),
}
TOLERANCE = 3e-3
Row = dict[str, object]
Routing = tuple[Tensor, Tensor]
"""Experts and weights, [tokens, top-k] each."""


def parser_for(text: str, tokens: str, shapes: str = ",".join(SHAPES)) -> argparse.ArgumentParser:
    """Options that every one has; `text` begins with its title, the others are taken where none are named."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--shapes", default=shapes)
    parser.add_argument("--tokens", default=tokens)
    parser.add_argument("--save", type=Path)
    return parser


def run(
    options: argparse.Namespace, built_by: str, facts: Row, measure: Callable[[str, list[int], float], Iterable[Row]]
) -> None:
    """Measure every shape that was asked for, and save what there is after each row.

    Args:
        built_by: compiler and version, for people.
        facts: what the record has to say besides the machine.
        measure: of a shape, numbers of tokens and the ceiling in GB/s.
    """
    torch.manual_seed(0)
    ceiling = copy_gb_per_s()
    gpu, rows = torch.cuda.get_device_name(), list[Row]()
    record: Row = {"date": time.strftime("%Y-%m-%d"), "gpu": gpu, "torch": torch.__version__, **facts}
    record |= {"copy_gb_per_s": round(ceiling), "rows": rows}
    print(f"{gpu}, torch {torch.__version__}, {built_by}, copy {ceiling:.0f} GB/s")
    for shape in options.shapes.split(","):
        for row in measure(shape, [int(m) for m in options.tokens.split(",")], ceiling):
            rows.append(row)
            if options.save:
                options.save.write_text(json.dumps(record, indent=1) + "\n")


def row_of(shape: str, tokens: int, hit: float, moved: float, error: float) -> Row:
    """What a record says of a layer, whether it has a time or not."""
    about: Row = {"shape": shape, "tokens": tokens, "experts_hit": hit, "bytes": round(moved)}
    return about | {"relative_error": float(f"{error:.2e}")}


def times_of(us: float, spread_us: float, share: float, digits: int = 3) -> Row:
    """What a record says of a layer's time, `share` being that of a copy of the same bytes."""
    return {"us": round(us, digits), "spread_us": round(spread_us, digits), "share_of_copy": round(share, 4)}


def disagreement(error: float) -> str:
    """Why there is no time, or "" for an error within the tolerance."""
    return "" if error <= TOLERANCE else f"relative error {error:.1e} is over {TOLERANCE:.0e}; not timed"


def relative_error(out: Tensor, expected: Tensor) -> float:
    """Infinite where a value is no number, so that no maximum passes over it."""
    error = float((out.float() - expected).norm() / expected.norm())
    return error if isfinite(error) else inf


def random_matrix(experts: int, rows: int, columns: int, parts: int) -> Quantised:
    """Codes uniform, scales 0.25 to 2, global scales that keep activations near one and differ between parts."""
    codes = torch.empty(experts, rows, columns // 2, dtype=torch.uint8, device="cuda")
    scales = torch.empty(experts, rows, columns // 16, dtype=torch.float8_e4m3fn, device="cuda")
    for e in range(experts):
        codes[e].random_(0, 256)
        scales[e] = (torch.rand(rows, columns // 16, device="cuda") * 1.75 + 0.25).to(torch.float8_e4m3fn)
    above = (torch.rand(experts, parts, device="cuda") * 0.5 + 0.75) / (3.5 * columns**0.5)
    return Quantised(NVFP4, codes, scales, GlobalScale(above))


def random_layer(experts: int, inter: int, hidden: int) -> tuple[Quantised, Quantised]:
    """Gate and up in one, and down."""
    return random_matrix(experts, 2 * inter, hidden, 2), random_matrix(experts, hidden, inter, 1)


def random_inputs(shape: str, tokens: int, layers: int) -> tuple[list[Routing], list[Tensor]]:
    """Of each layer its routing and what it reads."""
    experts, _, hidden, top_k = SHAPES[shape]
    routings = [routing(tokens, experts, top_k, layer) for layer in range(layers)]
    return routings, [torch.randn(tokens, hidden, dtype=torch.bfloat16, device="cuda") for _ in range(layers)]


def routing(tokens: int, experts: int, top_k: int, layer: int) -> Routing:
    generator = torch.Generator().manual_seed(1000 * tokens + (0 if tokens == 1 else layer))
    if tokens == 1:
        order = torch.randperm(experts, generator=generator)
        ids = order[layer * top_k : (layer + 1) * top_k].unsqueeze(0)
    else:
        ids = torch.rand(tokens, experts, generator=generator).topk(top_k, 1).indices
    weights = torch.rand(tokens, top_k, generator=generator) + 0.1
    weights /= weights.sum(1, keepdim=True)
    return ids.int().cuda(), weights.cuda()


def experts_hit(routings: list[Routing]) -> float:
    """Of a layer, on average."""
    return sum(len(ids.unique()) for ids, _ in routings) / len(routings)


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
    elapsed_ms(graph.replay, 3)
    replays = max(2, int(4.0 / elapsed_ms(graph.replay)))
    times = sorted(elapsed_ms(graph.replay, replays) / replays / layers * 1e3 for _ in range(rounds))
    return times[rounds // 2], times[-1] - times[0]


def copy_gb_per_s(size: int = 4 << 30) -> float:
    source = torch.empty(size, dtype=torch.uint8, device="cuda").random_(0, 256)
    target = torch.empty_like(source)
    times = sorted(elapsed_ms(lambda: target.copy_(source)) for _ in range(11))
    return 2 * size / times[5] / 1e6


def elapsed_ms(call: Callable[[], object], count: int = 1) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
