"""Files that are no files, too large, too deep, or named as no system takes: one clear error, at once."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import GPUS, SMALL, refused, write

Sublight = Callable[..., Run]
CARDS = Path(__file__).parents[2] / "src" / "sublight" / "facts" / "catalogue" / "gpus"


def nested(depth: int) -> str:
    return '{"a":' + "[" * depth + "]" * depth + "}"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("a link", "a link to a file that is not there"),
        ("a folder", "it is a folder"),
        ("a pipe", "it is a pipe"),
        ({}, "it says of no module how it is stored (it holds nothing)"),
        ({"quantization": None}, "it says of no module"),
        ({"quantization": {"group_size": 16}}, "(it holds group_size)"),
        ({"quantization": {"kv_cache_quant_algo": "FP8"}}, "(it holds kv_cache_quant_algo)"),
        ([], "not an object"),
    ],
)
def test_a_quantisation_file_that_cannot_be_used(sublight: Sublight, tmp_path: Path, content: Any, word: str) -> None:
    write(tmp_path, SMALL)
    side = tmp_path / "hf_quant_config.json"
    match content:
        case "a link":
            side.symlink_to("nowhere")
        case "a folder":
            side.mkdir()
        case "a pipe":
            os.mkfifo(side)
        case _:
            side.write_text(json.dumps(content))
    for model in (".", "./config.json"):
        refused(sublight("limit", model, *GPUS), "hf_quant_config.json", word)


def test_a_quantisation_file_that_says_nothing_was_quantised(sublight: Sublight, tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    write(tmp_path, {"quantization": {"quant_algo": None, "kv_cache_quant_algo": None}}, "hf_quant_config.json")
    assert sublight("limit", ".", *GPUS).code == 0


def test_an_empty_quantization_config_is_told(sublight: Sublight, tmp_path: Path) -> None:
    done = sublight("limit", write(tmp_path, SMALL | {"quantization_config": {}}), *GPUS)
    assert done.code == 0
    assert "Warning: quantisation: config.json has a quantization_config that is empty" in done.out


def test_an_index_that_leads_nowhere(sublight: Sublight, tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    (tmp_path / "model.safetensors.index.json").symlink_to("nowhere")
    refused(sublight("limit", ".", *GPUS), "model.safetensors.index.json", "a link to a file that is not there")


def test_a_configuration_that_is_a_folder(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    refused(sublight("limit", ".", *GPUS), "it is a folder, not a regular file")


@pytest.mark.parametrize(
    "arguments",
    [
        ("limit", "pipe.json", *GPUS),
        ("limit", "glm-5-nvfp4", *GPUS, "--experts", "pipe.json"),
        ("limit", "glm-5-nvfp4", *GPUS, "--measured-gpu", "pipe.json"),
        ("limit", "glm-5-nvfp4", "--gpus", "8xpipe.toml"),
        ("gap", "glm-5-nvfp4", *GPUS, "--measured", "pipe.json"),
        ("show", "pipe.json"),
    ],
)
def test_pipes_are_not_waited_for(sublight: Sublight, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.toml")
    refused(sublight(*arguments), "pipe.", "it is a pipe, not a regular file")


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_json_and_toml_nested_too_deep(sublight: Sublight, tmp_path: Path, depth: int) -> None:
    path = write(tmp_path, nested(depth), "deep.json")
    (tmp_path / "deep.toml").write_text("a = " + "[" * depth + "]" * depth)
    refused(sublight("limit", path, *GPUS), "not whole JSON")
    refused(sublight("show", path), "not a record")
    refused(sublight("limit", "glm-5-nvfp4", *GPUS, "--measured-gpu", path), "recursion")
    refused(sublight("limit", "glm-5-nvfp4", "--gpus", "8x./deep.toml"), "not TOML")


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_hidden_layers", 10**7), ("num_experts", 10**7), ("num_hidden_layers", 10_001), ("num_experts", 65_537)],
)
def test_more_layers_and_experts_than_any_model(sublight: Sublight, tmp_path: Path, field: str, value: int) -> None:
    refused(sublight("limit", write(tmp_path, SMALL | {field: value}), *GPUS), f"{field} is {value}, beyond any model")


def test_many_layers_of_many_experts(sublight: Sublight, tmp_path: Path) -> None:
    config = SMALL | {"num_hidden_layers": 10_000, "num_experts": 51}
    refused(sublight("limit", write(tmp_path, config), *GPUS), "10,000 layers of 51 experts")
    rules = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.0.mlp.experts.3.*"]}
    config = SMALL | {"num_hidden_layers": 100, "num_experts": 1001, "quantization_config": rules}
    refused(sublight("limit", write(tmp_path, config), *GPUS), "100 layers of 1,001 experts")


@pytest.mark.parametrize(
    "arguments",
    [
        ("limit", "a" * 300, *GPUS),
        ("limit", "./" + "a" * 5000, *GPUS),
        ("gap", "glm-5-nvfp4", *GPUS, "--measured", "a" * 300),
        ("show", "a" * 300),
        ("gap", "--save", "a" * 300),
    ],
)
def test_names_longer_than_a_system_takes(sublight: Sublight, arguments: tuple[str, ...]) -> None:
    done = sublight(*arguments)
    refused(done)
    assert max(map(len, done.err.splitlines())) < 900


def card(tmp_path: Path, pattern: str, instead: str) -> str:
    text, found = re.subn(pattern, instead, (CARDS / "h200.toml").read_text(), flags=re.DOTALL)
    assert found == 1
    (tmp_path / "card.toml").write_text(text)
    return "8x./card.toml"


def test_a_card_without_the_rate_that_every_step_needs(sublight: Sublight, tmp_path: Path) -> None:
    gpus = card(tmp_path, r"\[bf16_flops_per_s\].*?(?=\n\[)", "")
    refused(sublight("limit", "glm-5-nvfp4", "--gpus", gpus), "its bf16_flops_per_s is not known", "--measured-gpu")
    write(tmp_path, {"bf16_flops_per_s": 9e14}, "measured.json")
    assert sublight("limit", "glm-5-nvfp4", "--gpus", gpus, "--measured-gpu", "measured.json").code == 0


@pytest.mark.parametrize("value", ["1e-308", "4.8", "1e300"])
def test_a_card_in_other_units(sublight: Sublight, tmp_path: Path, value: str) -> None:
    gpus = card(tmp_path, r"(\[memory_bandwidth_bytes_per_s\]\s*value = )\S+", rf"\g<1>{value}")
    refused(sublight("limit", "glm-5-nvfp4", "--gpus", gpus), "memory_bandwidth_bytes_per_s", "in another unit?")


@pytest.mark.parametrize("model", ["cache/models--org--some-name/snapshots/0123abc", "link"])
def test_a_download_cache_is_titled_by_the_model(sublight: Sublight, tmp_path: Path, model: str) -> None:
    cache = tmp_path / "cache" / "models--org--some-name"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots" / "0123abc").mkdir(parents=True)
    (cache / "blobs" / "feed").write_text(json.dumps(SMALL))
    (cache / "snapshots" / "0123abc" / "config.json").symlink_to("../../blobs/feed")
    (tmp_path / "link").symlink_to(cache / "snapshots" / "0123abc")
    for path in (f"./{model}", f"./{model}/config.json"):
        done = sublight("limit", path, *GPUS)
        assert "org/some-name" in done.out.splitlines()[0], done.err


def test_upper_and_lower_case_of_models(sublight: Sublight) -> None:
    assert sublight("limit", "GLM-5-NVFP4", *GPUS).out == sublight("limit", "glm-5-nvfp4", *GPUS).out


def test_an_unknown_card_is_told_where_the_names_are(sublight: Sublight) -> None:
    refused(sublight("limit", "glm-5-nvfp4", "--gpus", "8xzzzz"), "sublight limit --list")


def test_a_folder_whose_name_is_no_utf8(sublight: Sublight, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(folder)).mkdir()
    Path(os.fsdecode(folder), "config.json").write_text(json.dumps(SMALL))
    done = sublight("limit", os.fsdecode(b"./caf\xe9"), *GPUS, "--save", "saved.json")
    assert (done.code, done.err) == (0, "")
    assert json.loads((tmp_path / "saved.json").read_text())["record"]["model"]["name"] == r"caf\xe9"
    assert sublight("show", "saved.json").code == 0
