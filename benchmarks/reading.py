"""How long single facts take to read: a card, a model of the catalogue, and a checkpoint of 100,000 tensors.

    python benchmarks/reading.py

Prints the best of several rounds, in milliseconds.
"""

import json
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sublight.facts.catalogue.gpus import card_names, read_card
from sublight.facts.catalogue.models import model_names
from sublight.facts.checkpoint import read_checkpoint
from sublight.facts.model import read_model
from sublight.facts.scales import scan_scales


def best_ms(work: Callable[[], object], rounds: int = 7) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken) * 1e3


def write_checkpoint(folder: Path, experts: int = 256, layers: int = 25) -> int:
    """Four shards of NVFP4 expert tensors of a few bytes each; headers are as long as real ones."""
    names = [
        f"model.layers.{layer}.mlp.experts.{expert}.{matrix}_proj"
        for layer in range(layers)
        for expert in range(experts)
        for matrix in ("gate", "up", "down")
    ]
    count = 0
    for shard in range(4):
        header: dict[str, object] = {}
        data = bytearray()
        for name in names[shard::4]:
            for leaf, dtype, shape, value in (
                ("weight", "U8", [1, 8], bytes(8)),
                ("weight_scale", "F8_E4M3", [1, 1], b"\x38"),
                ("weight_scale_2", "F32", [], struct.pack("<f", 2.79e-4)),
                ("input_scale", "F32", [], struct.pack("<f", 0.011)),
            ):
                header[f"{name}.{leaf}"] = {
                    "dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(value)],
                }  # fmt: skip
                data += value
                count += 1
        text = json.dumps(header).encode()
        (folder / f"model-{shard + 1:05d}-of-00004.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return count


def main() -> None:
    catalogue = Path(__file__).parents[1] / "src" / "sublight" / "facts" / "catalogue" / "gpus"
    cards = [catalogue / f"{name}.toml" for name in card_names()]
    label = f"one card, mean of {len(cards)}"
    print(f"{label:<44}{best_ms(lambda: [read_card(c) for c in cards]) / len(cards):>9.2f}")
    for name in ("glm-5-nvfp4", "deepseek-v3"):
        print(f"{name:<44}{best_ms(lambda name=name: read_model(name)):>9.2f}")  # type: ignore[misc]
    names = model_names()
    print(f"{'all ' + str(len(names)) + ' models':<44}{best_ms(lambda: [read_model(n) for n in names], 3):>9.1f}")
    with tempfile.TemporaryDirectory() as folder:
        count = write_checkpoint(Path(folder))
        label = f"headers and scales of {count:,} stored tensors"
        print(f"{label:<44}{best_ms(lambda: scan_scales(read_checkpoint(Path(folder))), 3):>9.1f}")


if __name__ == "__main__":
    main()
