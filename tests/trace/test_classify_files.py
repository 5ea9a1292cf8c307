"""Rules of a user's own: a file is consulted first, and one that is wrong gives one clear error."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from sublight.errors import InputFileError
from sublight.trace.classify import Category, Kind, Rules, read_rules

AMD = """
about = "AITER on AMD"

[[rule]]
id = "paged-attention"
match.prefix = ["paged_attention_ll4mi_", "aiter::pa_"]
kind = "attention"
category = "compute"
row = "attn.core"
backend = "AITER"
example = ["void paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16>(int)"]
seen = "source: vLLM csrc/rocm/attention.cu"

[[rule]]
id = "gemm"
match.regex = 'Cijk_\\w+_MT\\d+x'
match.in = "whole"
kind = "gemm"
category = "compute"
backend = "hipBLASLt"
example = ["Cijk_Alik_Bljk_BBS_BH_Bias_MT64x16x64_MI16x16x1"]
seen = "a trace"
"""


def written(folder: Path, text: str, name: str = "40-amd.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_the_user_adds_rules(tmp_path: Path) -> None:
    rules = Rules.load(written(tmp_path, AMD))

    answer = rules.classify("void paged_attention_ll4mi_reduce_kernel<int>(int)")
    assert (answer.kind, answer.row, answer.backend) == (Kind.ATTENTION, "attn.core", "AITER")
    assert answer.rule == "amd.paged-attention"
    assert rules.classify("Cijk_Ailk_Bljk_SB_MT32x32x8").category is Category.COMPUTE
    assert rules.classify("fused_moe_kernel") == Rules.load().classify("fused_moe_kernel")


def test_a_file_of_the_user_comes_before_the_built_in_rules(tmp_path: Path) -> None:
    mine = AMD.replace("paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16>(int)", "fused_moe_kernel")
    mine = mine.replace('"aiter::pa_"', '"fused_moe_kernel"')
    other = mine.replace("AITER", "another").replace('"paged-attention"', '"another"')

    first = Rules.load(written(tmp_path, mine), written(tmp_path, other, "other.toml"))
    assert first.classify("fused_moe_kernel").backend == "AITER"
    assert Rules.load().classify("fused_moe_kernel").backend == "Triton fused MoE"


def installed(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("amd", value, "sublight.trace_rules")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == point.group else [])


def test_an_installed_package_adds_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, AMD)
    (tmp_path / "rules_of_amd.py").write_text(f"from pathlib import Path\nRULES = Path({str(path)!r})\nNONE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)

    installed(monkeypatch, "rules_of_amd:RULES")
    assert Rules.load().classify("aiter::pa_decode").backend == "AITER"

    for value in ("rules_of_amd:NONE", "rules_of_amd:MISSING", "no_such_module_of_amd:RULES"):
        installed(monkeypatch, value)
        with pytest.raises(InputFileError, match=r"installed package 'amd'"):
            Rules.load()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("about =", "about", "at line 2"),
        ('id = "gemm"', 'id = "paged-attention"', "two rules have the id 'paged-attention'"),
        ('id = "gemm"', "", "missing required field `id`"),
        ('kind = "gemm"', 'kind = "gem"', "Invalid enum value 'gem'"),
        ('kind = "gemm"', 'kind = "unknown"', "what no rule matches is unknown"),
        ('kind = "gemm"', 'kind = "copy"', "kind copy is memory, not compute"),
        ('row = "attn.core"', 'row = "attn.kore"', "there is no row 'attn.kore'"),
        ('backend = "AITER"', 'backend = "AITER"\nrows = "x"', "unknown field `rows`"),
        ('backend = "AITER"', "backend = 3", "Expected `str`, got `int`"),
        ("match.prefix =", "match.suffix =", "unknown field `suffix`"),
        ('["paged_attention_ll4mi_", "aiter::pa_"]', "[]", "a match needs a text"),
        ('"aiter::pa_"', '"pa"', "'pa' is too short"),
        ("'Cijk_\\w+_MT\\d+x'", "'Cijk_(\\w+_MT\\d+x'", "regex"),
        ("'Cijk_\\w+_MT\\d+x'", "'Cijk_\\w+_MX\\d+x'", "rule 'gemm' does not match its own example 'Cijk_Alik"),
        ('match.in = "whole"', 'match.in = "part"', "Invalid enum value 'part'"),
        ('example = ["Cijk_Alik_Bljk_BBS_BH_Bias_MT64x16x64_MI16x16x1"]', "example = []", "rule 'gemm' has no example"),
    ],
)
def test_a_wrong_file_is_one_error(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in AMD
    path = written(tmp_path, AMD.replace(old, new, 1))

    with pytest.raises(InputFileError) as caught:
        Rules.load(path)
    assert str(path) in caught.value.asked
    assert said in caught.value.found
    assert "\n" not in str(caught.value)


def test_a_file_that_can_not_be_read_is_one_error(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b'about = "\xff\xfe"')

    for path in (tmp_path / "none.toml", tmp_path, binary):
        with pytest.raises(InputFileError) as caught:
            read_rules(path)
        assert str(path) in caught.value.asked
        assert "\n" not in str(caught.value)


def test_a_file_may_have_no_rules_yet(tmp_path: Path) -> None:
    assert read_rules(written(tmp_path, 'about = "mine"\nrule = []\n')) == ()
