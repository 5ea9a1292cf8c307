"""Bad input gets one clear error (asked, found, try), exit code 2, no traceback, and no half-written file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

Sublight = Callable[..., Run]
GPUS = ("--gpus", "8xb200")

SMALL: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "vocab_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "torch_dtype": "bfloat16",
}


def refused(done: Run, *words: str) -> None:
    assert done.code == 2, done.out + done.err
    assert done.out == ""
    lines = done.err.splitlines()
    assert len(lines) == 3, done.err
    assert lines[0].startswith("sublight: ") and lines[1].startswith("  found: ") and lines[2].startswith("  try:   ")
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err, done.err


def write(folder: Path, config: object, name: str = "config.json") -> str:
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / name).write_text(text)
    return f"./{name}"


def test_the_small_configuration_itself_is_fine(sublight: Sublight, tmp_path: Path) -> None:
    done = sublight("limit", write(tmp_path, SMALL), *GPUS)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(SMALL)[:-40], ("not whole JSON",)),
        ("", ("not whole JSON",)),
        ("[1, 2]", ("list, not an object",)),
        ('"config"', ("str, not an object",)),
        ("\x00\x01\x02", ("not whole JSON",)),
        ("{" * 5000, ("not whole JSON",)),
        (json.dumps({"hidden_size": 256}), ("no model_type",)),
    ],
)
def test_files_that_are_no_configuration(sublight: Sublight, tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    refused(sublight("limit", write(tmp_path, text), *GPUS), *words)


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("num_hidden_layers", None, "num_hidden_layers"),
        ("num_hidden_layers", 0, "below 1"),
        ("num_hidden_layers", -3, "below 1"),
        ("hidden_size", float("inf"), "hidden_size is inf"),
        ("hidden_size", float("nan"), "hidden_size is nan"),
        ("vocab_size", 1.5, "not a whole number"),
        ("vocab_size", "1024", "not a whole number"),
        ("vocab_size", True, "not a whole number"),
        ("hidden_size", 10**12, "beyond any model"),
        ("num_experts_per_tok", 17, "17 of 16 experts"),
        ("num_key_value_heads", 3, "8 attention heads do not divide"),
        ("model_type", "qwen4_moe", "qwen3_moe"),
        ("model_type", "siglip_vision_model", "no such name"),
        ("model_type", 7, "not text"),
        ("quantization_config", {"quant_method": "modelopts"}, "modelopt"),
        ("quantization_config", "nvfp4", "not an object"),
        ("mlp_only_layers", [5], "layer 5 of 2"),
    ],
)
def test_fields_that_cannot_be_used(sublight: Sublight, tmp_path: Path, field: str, value: object, word: str) -> None:
    refused(sublight("limit", write(tmp_path, SMALL | {field: value}), *GPUS), word)


def test_infinity_where_nobody_sizes_with_it(sublight: Sublight, tmp_path: Path) -> None:
    """Published Nemotron files hold a bare Infinity in a time-step limit."""
    done = sublight("limit", write(tmp_path, SMALL | {"time_step_limit": [0.0, float("inf")]}), *GPUS)
    assert (done.code, done.err) == (0, "")


def test_a_vision_tower_alone(sublight: Sublight, tmp_path: Path) -> None:
    config = {"architectures": ["SiglipVisionModel"], "hidden_size": 1152, "num_hidden_layers": 27}
    refused(sublight("limit", write(tmp_path, config), *GPUS), "no model_type", "language model")


def test_folders(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(sublight("limit", "./empty", *GPUS), "it is empty")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.bin").write_text("x")
    refused(sublight("limit", "./weights", *GPUS), "no config.json (model.bin)")
    refused(sublight("limit", "./nowhere", *GPUS), "no such file or folder")
    refused(sublight("limit", "./nowhere.json", *GPUS), "no such file or folder")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("limit",), ("no model was named",)),
        (("limit", "glm-5-nvfp4"), ("no GPU was named", "--gpus")),
        (("limit", "glm5-nvfp4", *GPUS), ("glm-5-nvfp4",)),
        (("limit", "zzz", *GPUS), ("no such name", "--list")),
        (("limit", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000"), ("1,792 GB/s", "1,597 GB/s")),
        (("limit", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-sever"), ("rtx-pro-6000-server",)),
        (("limit", "glm-5-nvfp4", "--gpus", "0xb200"), ("0",)),
        (("limit", "glm-5-nvfp4", "--gpus", "-8xb200"), ("-8",)),
        (("limit", "glm-5-nvfp4", "--gpus", "6xb200"), ("64 attention heads", "6 ranks")),
        (("limit", "glm-5-nvfp4", *GPUS, "--tp", "4"), ("4 GPUs, 8 are given",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--pp", "3"), ("does not divide",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--ep", "3"), ("does not divide 8",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--tp", "0"), ("at least 1",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--batch", "0"), ("between 1 and",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--batch", "-1"), ("--batch",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--context", "much"), ("--context",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--kv-dtype", "fp7"), ("fp8",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--bandwidth", "7.7"), ("bytes per second",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--bandwidth", "99TB/s"), ("times the catalogue's",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--measured-gpu", "none.json"), ("none.json",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--allreduce-us", "-1"), ("--allreduce-us",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--interconnect", "nvlnk5"), ("nvlink5",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--accepted", "2"), ("--draft",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--draft", "3", "--accepted", "9"), ("between 1 and 4",)),
        (("limit", "kimi-k2", *GPUS, "--draft", "3"), ("no multi-token-prediction layers",)),
        (("limit", "glm-5-nvfp4", *GPUS, "--experts", "none.json"), ("none.json",)),
        (("gap", "glm-5-nvfp4", *GPUS), ("no measured step",)),
        (("gap", "--measured", "97ms"), ("no model was named",)),
        (("gap", "glm-5-nvfp4", *GPUS, "--measured", "97"), ("no unit",)),
        (("gap", "glm-5-nvfp4", *GPUS, "--measured", "0 tok/s"), ("above zero",)),
        (("gap", "glm-5-nvfp4", *GPUS, "--measured", "none.json"), ("none.json",)),
        (("gap", "glm-5-nvfp4", *GPUS, "--measured", "9ms", "--claimed-part", "bf16"), ("no '='",)),
        (("show", "none.json"), ("No such file",)),
        (("lmit",), ("limit",)),
    ],
)
def test_arguments_that_do_not_fit(sublight: Sublight, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(sublight(*arguments), *words)


def test_an_unknown_option_is_an_error(sublight: Sublight) -> None:
    done = sublight("limit", "glm-5-nvfp4", *GPUS, "--btach", "3")
    assert done.code == 2
    assert "--batch" in done.err and "Traceback" not in done.err


def test_contradictory_quantisation_files_are_both_shown(sublight: Sublight, tmp_path: Path) -> None:
    config = SMALL | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    path = write(tmp_path, config)
    quant = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}
    write(tmp_path, quant, "hf_quant_config.json")
    done = sublight("limit", path, *GPUS)
    text = " ".join(done.out.replace("▌", "").split())
    assert done.code == 0
    assert "Warning" in text and "NVFP4" in text and "FP8" in text


def test_nothing_is_left_behind(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    refused(sublight("gap", "zzz", *GPUS, "--measured", "9ms", "--save", "old.json", "--html", "new.html"))
    assert (tmp_path / "old.json").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]
    refused(sublight("gap", "--save", "no/such/folder/x.json"), "writing")
    refused(sublight("gap", "--html", "."), "writing")
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]


def test_control_characters_in_a_name_are_shown_not_sent(sublight: Sublight, tmp_path: Path) -> None:
    done = sublight("limit", write(tmp_path, SMALL | {"model_type": "x\x1b[31mred"}), *GPUS)
    refused(done, "\\x1b[31mred")
    assert "\x1b" not in done.err
