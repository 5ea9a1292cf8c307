"""Scanning scales: those nobody calibrated and those of the other convention."""

import struct
from pathlib import Path

import pytest

from sublight.errors import InputFileError
from sublight.facts.checkpoint import read_checkpoint
from sublight.facts.quantization import scalars
from sublight.facts.quantization.base import Finding
from sublight.facts.scales import scan_scales

from .test_checkpoint import Spec, scalar, write_index, write_safetensors

STACK = "model.layers.4.mlp.experts"


def scan(folder: Path, tensors: dict[str, Spec]) -> list[Finding]:
    write_safetensors(folder / "model.safetensors", tensors)
    return scan_scales(read_checkpoint(folder))


def texts(findings: list[Finding], level: str = "error") -> list[str]:
    return [f.text for f in findings if f.level == level]


def test_scales_nobody_calibrated(tmp_path: Path):
    values = {0: 0.012, 1: 0.011, 3: 0.0, 4: float("inf"), 5: 1e-42, 6: 0.010, 7: float("nan")}
    tensors = {f"layers.4.mlp.experts.{e}.gate_proj.input_scale": scalar(v) for e, v in values.items()}
    findings = scan(tmp_path, tensors)
    assert [f.level for f in findings] == ["error"] * 5
    starts = [text.partition(".")[0] for text in texts(findings)]
    assert starts == [
        "layer 4 expert 2: input_scale missing",
        "layer 4 expert 5: input_scale denormal",
        "layer 4 expert 4: input_scale inf",
        "layer 4 expert 7: input_scale nan",
        "layer 4 expert 3: input_scale zero",
    ]
    assert all("CUTLASS, TensorRT-LLM and CuTe DSL backends need" in text for text in texts(findings))
    assert all("Marlin and humming ignore them" in text for text in texts(findings))


def experts(number: int, *, without: tuple[int, ...] = (), layer: int = 4) -> dict[str, Spec]:
    tensors: dict[str, Spec] = {}
    for expert in range(number):
        for name in ("gate_proj", "up_proj", "down_proj"):
            module = f"model.layers.{layer}.mlp.experts.{expert}.{name}"
            tensors |= {f"{module}.weight": ("U8", (2, 8)), f"{module}.weight_scale": ("F8_E4M3", (2, 1))}
            tensors[f"{module}.weight_scale_2"] = scalar(2.79e-4)
            if expert not in without:
                tensors[f"{module}.input_scale"] = scalar(0.01)
    return tensors


def test_a_sound_checkpoint_gives_no_finding(tmp_path: Path):
    assert scan(tmp_path, experts(8)) == []


def test_places_are_named_compactly(tmp_path: Path):
    tensors = experts(100, without=(3, 90), layer=17) | experts(12, without=(4, 5, 6, 7, 11), layer=2)
    (text,) = texts(scan(tmp_path, tensors))
    assert text.startswith("layer 2 experts 4-7, 11; layer 17 experts 3, 90: input_scale missing. ")


def test_projections_are_named_where_it_is_not_all_of_them(tmp_path: Path):
    tensors = experts(4)
    del tensors[f"{STACK}.1.down_proj.input_scale"]
    tensors["model.layers.4.mlp.shared_experts.up_proj.weight_scale_2"] = scalar(-1.0)
    missing, negative = texts(scan(tmp_path, tensors))
    assert missing.startswith("layer 4 expert 1: input_scale of down_proj missing")
    assert negative == "model.layers.4.mlp.shared_experts.up_proj: weight_scale_2 of up_proj negative"


def test_experts_in_missing_shards_are_not_called_uncalibrated(tmp_path: Path):
    tensors = {name: spec for name, spec in experts(4).items() if ".experts.2." not in name}
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", tensors)
    assert scan_scales(read_checkpoint(tmp_path)) == []
    shard = "model-00002-of-00002.safetensors"
    index = dict.fromkeys(tensors, "model-00001-of-00002.safetensors")
    write_index(tmp_path, index | {name: shard for name in experts(4) if ".experts.2." in name})
    assert scan_scales(read_checkpoint(tmp_path)) == []


def test_gate_and_up_with_scales_of_their_own(tmp_path: Path):
    tensors = experts(4)
    tensors[f"{STACK}.2.up_proj.weight_scale_2"] = scalar(3.0e-4)
    tensors[f"{STACK}.3.up_proj.weight_scale_2"] = scalar(2.79e-4 * (1 + 1e-7))  # equal as far as float32 goes
    (text,) = texts(scan(tmp_path, tensors), "warn")
    assert text.startswith("layer 4 expert 2: weight_scale_2 of gate_proj and up_proj differ")


def test_a_weight_only_checkpoint(tmp_path: Path):
    (text,) = texts(scan(tmp_path, experts(2, without=(0, 1))), "warn")
    assert text.startswith("weight-only checkpoint: none of its 6 NVFP4 matrices has an activation scale")
    assert "W4A4 backends (CUTLASS, TensorRT-LLM, CuTe DSL) do not apply" in text


AMAX = 0.75


def convention(folder: Path, leaf: str, value: float, *, count: int = 3) -> list[Finding]:
    shape = (1,) if "global" in leaf else ()
    code = "weight_packed" if "global" in leaf else "weight"
    other = "input_global_scale" if "global" in leaf else "input_scale"
    tensors: dict[str, Spec] = {}
    for i in range(count):
        module = f"model.layers.{i}.mlp.down_proj"
        tensors[f"{module}.{code}"] = ("U8", (16, 8))
        tensors[f"{module}.{leaf}"] = ("F32", shape, struct.pack("<f", value))
        tensors[f"{module}.{other}"] = ("F32", shape, struct.pack("<f", 90.0 if "global" in leaf else 0.011))
    return scan(folder, tensors)


def test_the_multiplier_of_modelopt(tmp_path: Path):
    assert convention(tmp_path, "weight_scale_2", AMAX / 2688) == []


def test_the_divisor_of_compressed_tensors(tmp_path: Path):
    (finding,) = convention(tmp_path, "weight_global_scale", 2688 / AMAX)
    assert finding.level == "info"
    assert (
        finding.text == "weight_global_scale (median 3584 over 3 matrices) is a divisor, which engines invert on load"
    )


def test_a_mislabelled_file(tmp_path: Path):
    (text,) = texts(convention(tmp_path, "weight_global_scale", AMAX / 2688))
    assert text.startswith("convention looks reversed, stop: weight_global_scale (median 0.000279 over 3 matrices)")
    (text,) = texts(convention(tmp_path, "weight_scale_2", 2688 / AMAX))
    assert text.startswith("convention looks reversed, stop: weight_scale_2 (median 3584 over 3 matrices)")


def test_large_activations_of_fp8_are_no_reversed_convention(tmp_path: Path):
    module = "model.layers.0.mlp.down_proj"
    tensors: dict[str, Spec] = {f"{module}.weight": ("F8_E4M3", (2, 2)), f"{module}.weight_scale": scalar(0.002)}
    assert scan(tmp_path, tensors | {f"{module}.input_scale": scalar(3.5)}) == []


@pytest.mark.parametrize(("dtype", "form"), [("F32", "<f"), ("F16", "<e"), ("BF16", None)])
def test_scales_of_other_dtypes(tmp_path: Path, dtype: str, form: str | None):
    data = struct.pack(form, -0.5) if form else struct.pack("<f", -0.5)[2:]
    (text,) = texts(scan(tmp_path, {"a.up_proj.input_scale": (dtype, (1,), data)}))
    assert text.startswith("a.up_proj: input_scale negative")


def test_a_shard_that_changed_after_its_header(tmp_path: Path):
    path = write_safetensors(tmp_path / "model.safetensors", {"a.input_scale": scalar(0.5)})
    checkpoint = read_checkpoint(tmp_path)
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(InputFileError, match="the file ends inside the 4 bytes"):
        scan_scales(checkpoint)
    path.unlink()
    with pytest.raises(InputFileError) as error:
        scan_scales(checkpoint)
    assert error.value.hint


def test_no_more_is_read_than_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scalars, "BYTES_PER_SHARD", 8)
    findings = scan(tmp_path, {f"a{i}.input_scale": scalar(0.5) for i in range(5)})
    assert [f.level for f in findings] == ["info"]
    assert findings[0].text.startswith("3 scales were not read")


def test_a_hundred_thousand_tensors(tmp_path: Path):
    header_names: dict[str, Spec] = {}
    for layer in range(20):
        for expert in range(256):
            for name in ("gate_proj", "up_proj", "down_proj"):
                module = f"model.layers.{layer}.mlp.experts.{expert}.{name}"
                header_names[f"{module}.weight"] = ("U8", (1, 8))
                header_names[f"{module}.weight_scale"] = ("F8_E4M3", (1, 1))
                header_names[f"{module}.weight_scale_2"] = scalar(2.79e-4)
                header_names[f"{module}.input_scale"] = scalar(0.01)
    for i in range(100_000 - len(header_names)):
        header_names[f"other.{i}"] = ("U8", (1,))
    items = list(header_names.items())
    for shard in range(4):
        write_safetensors(tmp_path / f"m{shard}.safetensors", dict(items[shard * 25_000 : (shard + 1) * 25_000]))
    checkpoint = read_checkpoint(tmp_path)
    findings = scan_scales(checkpoint)
    assert len(checkpoint.tensors) == 100_000
    assert findings == []


def test_absurd_numbers_in_names_are_names(tmp_path: Path):
    digits = "9" * 5000
    tensors = {f"layers.{digits}.experts.{digits}.up_proj.input_scale": scalar(0.0)}
    (text,) = texts(scan(tmp_path, tensors))
    assert "input_scale zero" in text
