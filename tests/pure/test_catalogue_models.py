"""The models known by name: every entry reads, says where it is from, and gives the sizes of its release."""

from pathlib import Path

import pytest

from sublight.errors import UnknownNameError
from sublight.facts.catalogue import models
from sublight.facts.catalogue.models import catalogue_model, model_names
from sublight.facts.model import Model, read_model

NAMES = model_names()
FOLDER = Path(models.__file__).parent

# name -> (parameters with MTP layers, bytes of the checkpoint with MTP layers in GB, quantisation method)
RELEASES = {
    "deepseek-r1": (682_636_487_424, 684.9, "fp8"),
    "deepseek-v3": (682_636_487_424, 684.9, "fp8"),
    "deepseek-v3.1-nvfp4": (682_636_487_424, 409.6, "modelopt"),
    "deepseek-v3.2": (683_501_971_712, 685.8, "fp8"),
    "deepseek-v3.2-nvfp4": (683_501_971_712, 411.3, "modelopt"),
    "gemma-4-26b-a4b": (25_233_141_790, 50.5, "none"),
    "gemma-4-26b-a4b-nvfp4": (25_233_141_790, 17.6, "modelopt"),
    "glm-4.5": (356_785_898_816, 713.6, "none"),
    "glm-4.6": (356_785_898_816, 713.6, "none"),
    "glm-4.7": (356_785_898_816, 713.6, "none"),
    "glm-5": (753_864_139_008, 1507.7, "none"),
    "glm-5-fp8": (753_864_139_008, 756.2, "fp8"),
    "glm-5-nvfp4": (753_864_139_008, 460.8, "modelopt"),
    "glm-5.1": (753_864_139_008, 1507.7, "none"),
    "glm-5.1-nvfp4": (753_864_139_008, 465.9, "modelopt"),
    "glm-5.2": (753_329_940_480, 1506.7, "none"),
    "glm-5.2-nvfp4": (753_329_940_480, 464.8, "modelopt"),
    "gpt-oss-120b": (116_829_156_672, 65.2, "mxfp4"),
    "gpt-oss-20b": (20_914_757_184, 13.8, "mxfp4"),
    "kimi-k2": (1_026_408_232_448, 1029.2, "fp8"),
    "kimi-k2.5": (1_026_408_232_448, 594.2, "compressed-tensors"),
    "kimi-k2.5-nvfp4": (1_026_408_232_448, 589.8, "modelopt"),
    "kimi-k2.6-nvfp4": (1_026_408_232_448, 594.2, "modelopt"),
    "llama-4-maverick": (400_711_848_960, 801.4, "none"),
    "minimax-m2": (228_689_764_864, 230.1, "fp8"),
    "minimax-m2.5": (228_689_764_864, 230.1, "fp8"),
    "minimax-m2.5-nvfp4": (228_689_764_864, 134.5, "modelopt"),
    "mixtral-8x7b": (46_702_792_704, 93.4, "none"),
    "nemotron-3-nano-30b-a3b-nvfp4": (31_577_940_288, 19.3, "modelopt"),
    "nemotron-3.5-lightning-30b-a3b-nvfp4": (32_913_266_240, 21.5, "modelopt"),
    "qwen3-235b-a22b": (235_093_634_560, 470.2, "none"),
    "qwen3-235b-a22b-fp8": (235_093_634_560, 236.4, "fp8"),
    "qwen3-235b-a22b-nvfp4": (235_093_634_560, 134.1, "modelopt"),
    "qwen3-30b-a3b": (30_532_122_624, 61.1, "none"),
    "qwen3-coder-480b": (480_154_875_392, 960.3, "none"),
    "qwen3-next-80b-a3b": (79_674_391_296, 159.3, "none"),
    "qwen3-vl-235b": (235_093_634_560, 470.2, "none"),
    "qwen3.5-35b-a3b": (35_505_251_456, 71.0, "none"),
    "qwen3.5-397b-a17b": (402_941_918_464, 805.9, "none"),
    "qwen3.5-397b-a17b-nvfp4": (402_941_918_464, 250.2, "modelopt"),
    "qwen3.6-35b-a3b-nvfp4": (35_505_251_456, 22.5, "modelopt"),
}


def formats(model: Model) -> dict[str, set[str]]:
    """Formats of the matrices of each row."""
    found: dict[str, set[str]] = {}
    for t in model.main:
        if t.is_matrix:
            found.setdefault(t.row, set()).add(t.format.name)
    return found


def test_releases_are_all_there() -> None:
    assert sorted(RELEASES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_gives_the_sizes_of_its_release(name: str) -> None:
    parameters, gigabytes, method = RELEASES[name]
    model = read_model(name)
    assert model.parameters(None) == parameters
    assert model.checkpoint_bytes(None) == pytest.approx(gigabytes * 1e9, abs=0.06e9)
    assert model.quantization.method == method
    assert model.name == name


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_says_where_it_is_from(name: str) -> None:
    entry = catalogue_model(name)
    assert entry.title
    assert entry.source.startswith("huggingface.co/")
    assert read_model(name).source == entry.source


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_has_no_idle_rule_and_no_contradiction(name: str) -> None:
    for finding in read_model(name).findings:
        assert finding.level == "info"
        assert finding.subject in ("multimodal", "MTP", "indexer")


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_is_small(name: str) -> None:
    assert (FOLDER / f"{name}.toml").stat().st_size < 3000


def test_glm_5_nvfp4_keeps_attention_in_bf16() -> None:
    assert formats(read_model("glm-5-nvfp4")) == {
        "attn.qkv_a": {"bf16"},
        "attn.q_b": {"bf16"},
        "attn.absorb_k": {"bf16"},
        "attn.absorb_v": {"bf16"},
        "attn.o": {"bf16"},
        "indexer.q": {"bf16"},
        "indexer.k": {"bf16"},
        "mlp.dense": {"nvfp4"},
        "moe.router": {"bf16"},
        "moe.experts": {"nvfp4"},
        "moe.shared": {"nvfp4"},
        "head": {"bf16"},
    }
    assert read_model("glm-5-nvfp4").quantization.kv_cache == "fp8"
    later = formats(read_model("glm-5.1-nvfp4"))
    assert (later["mlp.dense"], later["moe.shared"], later["moe.experts"]) == ({"bf16"}, {"bf16"}, {"nvfp4"})


def test_mixed_precision_differs_by_layer_and_part() -> None:
    qwen = formats(read_model("qwen3.6-35b-a3b-nvfp4"))
    assert qwen["linear.in"] == {"fp8", "bf16"}  # in_proj_b and in_proj_a are small, and stay
    assert qwen["attn.qkv"] == qwen["attn.o"] == qwen["linear.out"] == {"fp8"}
    assert qwen["moe.experts"] == qwen["head"] == {"nvfp4-w4a16"}
    assert qwen["moe.shared"] == {"nvfp4-w4a16", "bf16"}  # the gate
    nano = read_model("nemotron-3-nano-30b-a3b-nvfp4")
    by_format = {t.format.name: t.layers for t in nano.main if t.module.endswith("mixer.in_proj")}
    assert by_format["bf16"] == (4, 11, 18, 25, 32, 41)
    assert len(by_format["nvfp4"]) == 17
    lightning = formats(read_model("nemotron-3.5-lightning-30b-a3b-nvfp4"))
    assert lightning["mamba.in"] == lightning["mamba.out"] == {"fp8"}
    assert lightning["attn.qkv"] == {"bf16"}


def test_a_quantised_release_takes_over_sizes_and_not_the_scheme() -> None:
    assert read_model("deepseek-v3.1-nvfp4").quantization.method == "modelopt"
    assert "quantization_config" not in catalogue_model("deepseek-v3.1-nvfp4").config
    assert catalogue_model("glm-5.1").hf_quant is None
    base, quantised = catalogue_model("glm-5").config, catalogue_model("glm-5-nvfp4").config
    assert base == quantised
    nested = catalogue_model("kimi-k2.6-nvfp4").config
    assert nested["text_config"] == catalogue_model("kimi-k2.5").config["text_config"] | {"model_type": "deepseek_v3"}


def test_a_list_may_be_written_as_a_pattern() -> None:
    indexers = catalogue_model("glm-5.2").config["indexer_types"]
    assert len(indexers) == 78
    assert [i for i, kind in enumerate(indexers) if kind == "full"] == [0, 1, *range(2, 78, 4)]
    assert catalogue_model("gpt-oss-20b").config["layer_types"] == ["sliding_attention", "full_attention"] * 12
    inside = catalogue_model("gemma-4-26b-a4b-nvfp4").config["text_config"]["layer_types"]
    assert [i for i, kind in enumerate(inside) if kind == "full_attention"] == [5, 11, 17, 23, 29]
    for name in NAMES:
        assert not [v for v in catalogue_model(name).config.values() if isinstance(v, dict) and "repeat" in v]


@pytest.mark.parametrize(
    ("wrong", "near"), [("GLM5", "glm-5"), ("glm-5-nvfp", "glm-5-nvfp4"), ("qwen3-235b", "qwen3-235b-a22b")]
)
def test_an_unknown_name_names_its_neighbours(wrong: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        read_model(wrong)
    assert near in caught.value.near
