"""The cards: every figure against literals typed from the published tables; names that match exactly or not at all."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.errors import InputFileError, SublightError, UnknownNameError, UsageError
from sublight.facts import gpu as gpu_module
from sublight.facts.catalogue.gpus import FIGURES, card_names, catalogue_card, read_card
from sublight.facts.gpu import (
    Gpu,
    ReadCurve,
    get_gpu,
    gpu_names,
    parse_gpus,
    read_gpu,
    with_bandwidth,
    with_measurements,
)
from sublight.records import Evidence

# name: memory (GB, or MiB where nvidia-smi was read), GB/s, target, dense TFLOPS in BF16, FP8, FP4 (0: no such unit),
# SMs, L2 MiB, KiB a block, NVLink GB/s both ways, PCIe GB/s one way, PCIe generation, W, interconnect
CARDS: dict[str, tuple[Any, ...]] = {
    "rtx-pro-6000-workstation": (
        *("97887 MiB", 1792, "sm_120", 503.8, 1007.6, 2015),
        *(188, 128, 99, 0, 63.0, 5, 600, "pcie5-switch"),
    ),
    "rtx-pro-6000-server": (
        *("97887 MiB", 1597, "sm_120", 467.8, 935.6, 1871.2),
        *(188, 128, 99, 0, 63.0, 5, 600, "pcie5-switch"),
    ),
    "rtx-pro-6000-max-q": (
        *("97887 MiB", 1792, "sm_120", 439, 878, 1755),
        *(188, 128, 99, 0, 63.0, 5, 300, "pcie5-switch"),
    ),
    "rtx-5090": (32, 1792, "sm_120", 209.5, 419, 1676, 170, 96, 99, 0, 63.0, 5, 575, "pcie5"),
    "gb10": (128, 273, "sm_121", 125, 250, 500, 48, 24, 99, 0, 0, 0, 140, "none"),
    "b200": (180, 7700, "sm_100", 2250, 4500, 9000, 148, 126, 227, 1800, 128, 6, 1000, "nvlink5"),
    "b300": (288, 7750, "sm_103", 2250, 4500, 14000, 148, 126, 227, 1800, 128, 6, 1100, "nvlink5"),
    "gb200": (186, 8000, "sm_100", 2500, 5000, 10000, 152, 126, 227, 1800, 63.0, 5, 1200, "nvlink5"),
    "h100-sxm": (80, 3350, "sm_90", 989, 1979, 0, 132, 50, 227, 900, 63.0, 5, 700, "nvlink4"),
    "h100-pcie": (80, 2000, "sm_90", 756.5, 1513, 0, 114, 50, 227, 600, 63.0, 5, 350, "pcie5"),
    "h100-nvl": (94, 3900, "sm_90", 835.5, 1671, 0, 132, 50, 227, 600, 63.0, 5, 400, "pcie5"),
    "h200": (141, 4800, "sm_90", 989, 1979, 0, 132, 50, 227, 900, 63.0, 5, 700, "nvlink4"),
    "h20": (96, 4000, "sm_90", 148, 296, 0, 78, 60, 227, 900, 63.0, 5, 400, "nvlink4"),
    "a100-80gb-sxm": (80, 2039, "sm_80", 312, 0, 0, 108, 40, 163, 600, 31.5, 4, 400, "nvlink3"),
    "a100-80gb-pcie": (80, 1935, "sm_80", 312, 0, 0, 108, 40, 163, 600, 31.5, 4, 300, "pcie4"),
    "a100-40gb": (40, 1555, "sm_80", 312, 0, 0, 108, 40, 163, 600, 31.5, 4, 400, "nvlink3"),
    "l40s": (48, 864, "sm_89", 362.05, 733, 0, 142, 96, 99, 0, 31.5, 4, 350, "pcie4"),
    "l4": (24, 300, "sm_89", 121, 242, 0, 58, 48, 99, 0, 31.5, 4, 72, "pcie4"),
    "rtx-4090": (24, 1008, "sm_89", 165.2, 330.3, 0, 128, 72, 99, 0, 31.5, 4, 450, "pcie4"),
    "mi300x": (192, 5300, "gfx942", 1307, 2615, 0, 304, 32, 64, 896, 63.0, 5, 750, "infinity-fabric"),
    "mi355x": (288, 8000, "gfx950", 2516, 5033, 10066, 256, 32, 160, 1075, 63.0, 5, 1400, "infinity-fabric"),
}
MEASURED_GBPS = {"rtx-pro-6000-server": 1551, "gb10": 232, "b200": 6837, "h200": 4254}
SERVER = "rtx-pro-6000-server"


@pytest.mark.parametrize("name", CARDS)
def test_every_figure_of_every_card(name: str) -> None:
    card = get_gpu(name)
    memory, bandwidth, target, bf16, fp8, fp4, sms, l2, shared, nvlink, pcie, generation, watts, link = CARDS[name]
    memory_bytes = 97887 * 2**20 if memory == "97887 MiB" else memory * 1e9
    assert card.memory_bytes.value == memory_bytes
    assert card.memory_bandwidth_bytes_per_s.value == bandwidth * 1e9
    assert (card.target, card.interconnect) == (target, link)
    peaks = [card.bf16_flops_per_s.value, card.fp8_flops_per_s.value, card.fp4_flops_per_s.value]
    assert peaks == pytest.approx([bf16 * 1e12, fp8 * 1e12, fp4 * 1e12], rel=1e-12)
    assert (card.sm_count.value, card.l2_bytes.value) == (sms, l2 * 2**20)
    assert card.shared_memory_per_block_bytes.value == shared * 1024
    assert card.nvlink_bytes_per_s_bidirectional.value == nvlink * 1e9
    assert (card.pcie_bytes_per_s.value, card.pcie_generation.value) == (pcie * 1e9, generation)
    assert card.tdp_w.value == watts
    measured = MEASURED_GBPS.get(name)
    assert card.measured_bandwidth_bytes_per_s.value == (None if measured is None else measured * 1e9)


def test_the_catalogue_has_these_cards_and_no_others() -> None:
    assert sorted(CARDS) == list(card_names()) == gpu_names()


def test_the_figures_only_some_cards_have() -> None:
    clocks = {name: get_gpu(name).max_sm_clock_hz.value for name in CARDS}
    assert {name: clock for name, clock in clocks.items() if clock is not None} == {
        "rtx-pro-6000-workstation": 3090e6,
        "rtx-pro-6000-server": 2430e6,
    }
    assert get_gpu(SERVER).bar1_bytes.value == 128 * 2**30
    assert [name for name in CARDS if get_gpu(name).read_curve is not None] == ["h200"]


@pytest.mark.parametrize("name", CARDS)
def test_every_figure_has_evidence_and_a_source(name: str) -> None:
    card = get_gpu(name)
    assert (card.name, card.title != "", card.vendor) == (name, True, "AMD" if name.startswith("mi") else "NVIDIA")
    assert len(card.target_source) > 10
    for field in FIGURES:
        figure = getattr(card, field)
        if figure.value is None:
            assert figure.evidence is Evidence.NOT_KNOWN, field
            assert figure.note, field
        else:
            assert len(figure.source) > 10, f"{field} has no source"
            assert " " in figure.source or "/" in figure.source, f"{field}: {figure.source} was not looked up"
        if figure.value == 0:
            assert "no " in figure.note, f"{field} = 0 does not say what is absent"


def test_the_file_form_and_the_struct_have_the_same_figures() -> None:
    figures = [field for field in Gpu.__struct_fields__ if field in FIGURES]
    assert figures == list(FIGURES)
    others = set(Gpu.__struct_fields__) - set(FIGURES)
    assert others == {
        *("name", "title", "vendor", "target", "target_source", "interconnect"),
        *("read_curve", "replaced"),
    }


@pytest.mark.parametrize(
    ("name", "field", "evidence"),
    [
        ("rtx-pro-6000-workstation", "memory_bandwidth_bytes_per_s", Evidence.DATA_SHEET),
        ("rtx-pro-6000-server", "memory_bandwidth_bytes_per_s", Evidence.DATA_SHEET),
        ("rtx-pro-6000-server", "measured_bandwidth_bytes_per_s", Evidence.PUBLISHED),
        ("rtx-pro-6000-server", "fp4_flops_per_s", Evidence.COMPUTED),
        ("rtx-pro-6000-max-q", "fp4_flops_per_s", Evidence.UNCERTAIN),
        ("rtx-pro-6000-max-q", "memory_bandwidth_bytes_per_s", Evidence.PUBLISHED),
        ("h200", "shared_memory_per_block_bytes", Evidence.DATA_SHEET),
        ("h100-sxm", "l2_bytes", Evidence.PUBLISHED),
        ("gb10", "bf16_flops_per_s", Evidence.UNCERTAIN),
        ("mi300x", "sm_count", Evidence.DATA_SHEET),
    ],
)
def test_the_class_of_evidence(name: str, field: str, evidence: Evidence) -> None:
    assert getattr(get_gpu(name), field).evidence is evidence


def test_weaker_classes_say_so_in_the_note() -> None:
    assert "no data sheet was checked" in get_gpu("h20").sm_count.note
    assert "no page of the maker was checked" in get_gpu("l40s").sm_count.note
    assert get_gpu("b200").memory_bytes.note.startswith("as marketed, 1 GB = 1e9 B")
    assert "97,887 MiB" in get_gpu(SERVER).memory_bytes.note


def test_the_three_rtx_pro_6000_differ() -> None:
    cards = [get_gpu(f"rtx-pro-6000-{edition}") for edition in ("workstation", "server", "max-q")]
    assert [card.memory_bandwidth_bytes_per_s.value for card in cards] == [1792e9, 1597e9, 1792e9]
    assert [card.tdp_w.value for card in cards] == [600, 600, 300]
    assert [card.bf16_flops_per_s.value for card in cards] == [503.8e12, 467.8e12, 439e12]


def test_an_absent_unit_is_not_an_unknown_rate() -> None:
    h200, b200 = get_gpu("h200"), get_gpu("b200")
    assert (h200.has_unit("fp4"), h200.peak("fp4").value) == (False, 0)
    assert h200.peak("fp4").note.startswith("no FP4 tensor cores")
    assert (b200.has_unit("fp4"), b200.peak("fp4").value) == (True, 9000e12)
    assert (b200.has_unit("fp32"), b200.peak("fp32").value) == (None, None)
    assert "no fp32 rate" in b200.peak("fp32").note
    assert get_gpu("a100-40gb").has_unit("fp8") is False


# Names


@pytest.mark.parametrize(
    ("spoken", "name"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("nvidia h200", "h200"),
        ("  H200 ", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("4090", "rtx-4090"),
        ("AMD Instinct MI355X", "mi355x"),
    ],
)
def test_what_people_type_and_nvidia_smi_prints(spoken: str, name: str) -> None:
    assert get_gpu(spoken).name == name


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H200 NVL",
        "NVIDIA L40",
        "NVIDIA H20-3e",
        "RTX PRO 6000 Blackwell Server",
        "RTX 4090 D",
        "b20",
        "",
        "sources",
    ],
)
def test_a_part_of_a_name_or_more_than_it_is_another_card(name: str) -> None:
    with pytest.raises(UnknownNameError):
        get_gpu(name)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("rtx-pro-6000-servr", "rtx-pro-6000-server"), ("h200sxm", "h200-sxm"), ("mi300", "mi300x"), ("gb-10", "gb10")],
)
def test_an_unknown_name_is_answered_with_the_near_ones(wrong: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        get_gpu(wrong)
    assert near in caught.value.near


def test_a_name_that_is_no_file_name_reaches_no_file() -> None:
    with pytest.raises(UnknownNameError):
        get_gpu("../gpus/h200")


@pytest.mark.parametrize(
    ("shared", "cards"),
    [
        (
            "rtx-pro-6000",
            [
                "rtx-pro-6000-max-q (1,792 GB/s, 300 W)",
                "rtx-pro-6000-server (1,597 GB/s, 600 W)",
                "rtx-pro-6000-workstation (1,792 GB/s, 600 W)",
            ],
        ),
        (
            "H100",
            ["h100-nvl (3,900 GB/s, 400 W)", "h100-pcie (2,000 GB/s, 350 W)", "h100-sxm (3,350 GB/s, 700 W)"],
        ),
        ("NVIDIA A100", ["a100-40gb (1,555 GB/s", "a100-80gb-pcie (1,935 GB/s", "a100-80gb-sxm (2,039 GB/s"]),
        ("a100-80gb", ["a100-80gb-pcie", "a100-80gb-sxm"]),
    ],
)
def test_a_shared_name_is_refused_with_what_sets_the_cards_apart(shared: str, cards: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        get_gpu(shared)
    assert f"{len(cards)} cards go by that name" in caught.value.found
    for card in cards:
        assert card in caught.value.found
    assert caught.value.hint.count(" or ") == len(cards) - 1


def test_an_alias_names_one_card() -> None:
    owners: dict[str, list[str]] = {}
    for name in card_names():
        for alias in catalogue_card(name).aliases:
            owners.setdefault(alias.lower(), []).append(name)
    shared = {other.lower() for name in card_names() for other in catalogue_card(name).also_called}
    assert {alias: names for alias, names in owners.items() if len(names) > 1} == {}
    assert owners.keys() & (shared | set(card_names())) == set()


# Counts


@pytest.mark.parametrize(
    ("text", "count", "name"),
    [
        ("8xrtx-pro-6000-server", 8, "rtx-pro-6000-server"),
        ("h200", 1, "h200"),
        ("8 x h200", 8, "h200"),
        ("8*h200", 8, "h200"),
        ("8X NVIDIA H200", 8, "h200"),
        ("2x4090", 2, "rtx-4090"),
        ("5090", 1, "rtx-5090"),
        ("4096xgb10", 4096, "gb10"),
        ("8xmi300x", 8, "mi300x"),
    ],
)
def test_counts_and_names(text: str, count: int, name: str) -> None:
    counted, card = parse_gpus(text)
    assert (counted, card.name) == (count, name)


@pytest.mark.parametrize(
    "text", ["0xh200", "-1xh200", "+8xh200", "4097xh200", "1.5xh200", "1_0xh200", f"{'9' * 400}xh200"]
)
def test_a_count_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="whole number from 1 to 4,096"):
        parse_gpus(text)


@pytest.mark.parametrize("text", ["", "   ", "8x", "x", "8", "8 h200"])
def test_a_count_without_a_card(text: str) -> None:
    with pytest.raises(SublightError):
        parse_gpus(text)


@given(st.integers(1, 4096), st.sampled_from(sorted(CARDS)), st.sampled_from(["x", "X", " x ", "*", " * ", "×"]))
def test_any_count_of_any_card(count: int, name: str, times: str) -> None:
    assert parse_gpus(f"{count}{times}{name}") == (count, get_gpu(name))


@given(st.text(max_size=40))
def test_any_text_is_a_card_or_an_error_that_says_what_to_try(text: str) -> None:
    try:
        count, card = parse_gpus(text)
    except SublightError as error:
        assert error.hint
    else:
        assert (1 <= count <= 4096, isinstance(card, Gpu)) == (True, True)


# Cards of the user's and of other packages

MY_CARD = """
name = "my-card"
title = "My card"
vendor = "Somebody"
target = "sm_120"
interconnect = "pcie5"
memory_bytes = { value = 48e9, status = "given" }
memory_bandwidth_bytes_per_s = { value = 960e9, status = "data sheet", source = "a sheet, p. 1" }
fp4_flops_per_s = { value = 0, status = "given", note = "no FP4 tensor cores" }
bf16_flops_per_s = { value = 100e12, status = "uncertain", source = "mine" }

[sources]
mine = "a note of mine"
"""


def test_a_card_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text(MY_CARD)
    count, card = parse_gpus(f"8x{path}")
    assert (count, card.name, card.target, card.target_source) == (8, "my-card", "sm_120", "card.toml")
    assert (card.memory_bytes.value, card.memory_bytes.evidence) == (48e9, Evidence.GIVEN)
    assert card.memory_bytes.source == "card.toml"
    assert card.memory_bandwidth_bytes_per_s.source == "a sheet, p. 1"
    assert card.bf16_flops_per_s.source == "a note of mine"
    assert card.has_unit("fp4") is False
    assert card.has_unit("fp8") is None
    assert card.fp8_flops_per_s.note == "no figure for it was found"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("memory_bytes = ", "memory_byte = ", "memory_byte: a GPU has no such field"),
        ('{ value = 48e9, status = "given" }', "48e9", "memory_bytes: Expected `object`"),
        ("48e9", '"48 GB"', "memory_bytes: Expected `float | null`, got `str` - at `$.value`"),
        ("48e9", "nan", "memory_bytes: value = nan"),
        ("48e9", "-1", "memory_bytes: value = -1"),
        ("48e9", "0", "memory_bytes: value = 0 says that the hardware is absent"),
        ('status = "given" }', 'status = "sure" }', "memory_bytes: Invalid enum value 'sure'"),
        ("value = 48e9, ", "", "memory_bytes: a figure has no value exactly when"),
        ('source = "mine"', 'source = "mime"', "bf16_flops_per_s: source = 'mime' is no known source (mine?)"),
        ('"sm_120"', '"Blackwell"', "target: 'Blackwell' is no exact architecture"),
        ('target = "sm_120"\n', "", "missing required field `target`"),
        ("memory_bandwidth_bytes_per_s", "l2_bytes", "memory_bandwidth_bytes_per_s: a card needs a value above 0"),
        ("name = ", "name ", "it is not TOML"),
    ],
)
def test_a_card_file_that_is_wrong_names_file_and_field(tmp_path: Path, old: str, new: str, found: str) -> None:
    path = tmp_path / "card.toml"
    assert old in MY_CARD
    path.write_text(MY_CARD.replace(old, new, 1))
    with pytest.raises(InputFileError) as caught:
        get_gpu(str(path))
    assert str(path) in caught.value.asked
    assert found in caught.value.found


def test_a_card_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="No such file"):
        parse_gpus(f"8x{tmp_path}/absent.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputFileError, match="not TOML"):
        read_gpu(binary)


def test_the_bundled_files_have_the_form_of_a_users(tmp_path: Path) -> None:
    folder = Path(gpu_module.__file__).parent / "catalogue" / "gpus"
    path = tmp_path / "copy.toml"
    path.write_text((folder / "h200.toml").read_text())
    assert read_gpu(path) == get_gpu("h200")
    assert read_card(path).aliases[0] == "NVIDIA H200"


def test_cards_of_installed_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "card.toml").write_text(MY_CARD)
    (tmp_path / "their_cards.py").write_text(
        "from pathlib import Path\nfrom sublight.facts.gpu import get_gpu\n"
        f"A = Path({str(tmp_path / 'card.toml')!r})\nB = get_gpu('h200')\nC = 42\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [EntryPoint(f"their-{letter.lower()}", f"their_cards:{letter}", "sublight.gpus") for letter in "ABC"]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == "sublight.gpus" else [])
    monkeypatch.setattr(gpu_module, "_PLUGINS", type(gpu_module._PLUGINS)("GPU", "sublight.gpus", {}))
    assert parse_gpus("2xtheir-a")[1].name == "my-card"
    assert get_gpu("their-b") is get_gpu("h200")
    assert {"their-a", "their-b"} < set(gpu_names())
    with pytest.raises(UsageError, match="adds it as int"):
        get_gpu("their-c")


# The read curve


def test_the_read_curve_of_the_h200() -> None:
    curve = get_gpu("h200").read_curve
    assert curve is not None
    mib = [1, 2, 5, 10, 20, 40, 80, 160, 320, 640]
    us = [1.81, 2.11, 3.08, 4.31, 6.63, 11.1, 20.2, 38.5, 74.6, 147]
    assert [size for size, _ in curve.points] == [0, *(size * 2**20 for size in mib)]
    assert [seconds * 1e6 for _, seconds in curve.points] == pytest.approx([0.70, *us], rel=1e-12)
    assert curve.evidence is Evidence.PUBLISHED
    assert curve.source.startswith("Sublight measurement, 1x H200")
    # Half way from 10 to 20 MiB, half way from 4.31 to 6.63 us.
    assert curve.seconds(15 * 2**20) == pytest.approx(5.47e-6)
    assert curve.seconds(0) == pytest.approx(0.70e-6)
    # From 320 to 640 MiB 72.4 us; the same again for the next 320.
    assert curve.seconds(960 * 2**20) == pytest.approx(219.4e-6)


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_read_of_more_bytes_takes_no_less_time(a: float, b: float) -> None:
    curve = get_gpu("h200").read_curve
    assert curve is not None
    small, large = sorted((a, b))
    assert curve.seconds(small) <= curve.seconds(large) * (1 + 1e-12)


def test_before_its_first_point_a_curve_is_flat() -> None:
    curve = ReadCurve(((100, 2e-6), (200, 3e-6)), Evidence.MEASURED, "x")
    assert [curve.seconds(size) for size in (0, 100, 150, 300)] == pytest.approx([2e-6, 2e-6, 2.5e-6, 4e-6])


# Figures replaced by the user or by a measurement


def test_a_bandwidth_given_keeps_the_data_sheet(tmp_path: Path) -> None:
    card = with_bandwidth(get_gpu("gb10"), 250e9, source="--bandwidth")
    assert card.memory_bandwidth_bytes_per_s.value == 250e9
    assert (card.memory_bandwidth_bytes_per_s.evidence, card.memory_bandwidth_bytes_per_s.source) == (
        Evidence.GIVEN,
        "--bandwidth",
    )
    assert card.catalogued("memory_bandwidth_bytes_per_s").value == 273e9
    again = with_bandwidth(card, 240e9)
    assert again.catalogued("memory_bandwidth_bytes_per_s").value == 273e9
    assert again.as_catalogued == get_gpu("gb10")
    assert msgspec.json.decode(msgspec.json.encode(again), type=Gpu) == again


@pytest.mark.parametrize("bytes_per_s", [0.0, -1.0, float("nan"), float("inf"), 547e9, 232.0])
def test_a_bandwidth_that_no_such_card_has(bytes_per_s: float) -> None:
    with pytest.raises(UsageError, match="another bandwidth for gb10"):
        with_bandwidth(get_gpu("gb10"), bytes_per_s)


def test_a_bandwidth_probe_stands_beside_the_data_sheet(tmp_path: Path) -> None:
    """A GB10 whose read kernel gets 232 GB/s of 273: the floor at the measured rate is 1.18 times the one at spec."""
    path = tmp_path / "bw_probe.json"
    path.write_text('{"read_gbs": 232}')
    card = with_measurements(get_gpu("NVIDIA GB10"), path)
    measured, spec = card.memory_bandwidth_bytes_per_s, card.catalogued("memory_bandwidth_bytes_per_s")
    assert (measured.value, measured.evidence, measured.source) == (232e9, Evidence.MEASURED, "bw_probe.json")
    assert (spec.value, spec.evidence) == (273e9, Evidence.PUBLISHED)
    assert card.as_catalogued.memory_bandwidth_bytes_per_s.value == 273e9
    assert spec.known / measured.known == pytest.approx(1.18, abs=0.005)


def test_everything_a_file_of_measurements_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(
            {
                "gpu": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                "memory_bandwidth_bytes_per_s": 1551e9,
                "bf16_flops_per_s": 459e12,
                "fp8_flops_per_s": 864e12,
                "fp4_flops_per_s": 1537e12,
                "read_curve": [[0, 1e-6], [1e6, 2e-6], [1e9, 650e-6]],
                "source": "read loop, 1 GiB, median of 50",
            }
        )
    )
    card = with_measurements(get_gpu(SERVER), path)
    rates = {
        "memory_bandwidth_bytes_per_s": (1551e9, 1597e9),
        "bf16_flops_per_s": (459e12, 467.8e12),
        "fp8_flops_per_s": (864e12, 935.6e12),
        "fp4_flops_per_s": (1537e12, 1871.2e12),
    }
    for field, (measured, sheet) in rates.items():
        assert (getattr(card, field).value, card.catalogued(field).value) == (measured, sheet)
        assert getattr(card, field).note == "read loop, 1 GiB, median of 50"
    assert card.read_curve is not None
    assert (card.read_curve.evidence, card.read_curve.source) == (Evidence.MEASURED, "mine.json")
    assert card.read_curve.seconds(0.5e6) == pytest.approx(1.5e-6)
    assert [replaced.field for replaced in card.replaced] == sorted(rates)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"read_gbs": 232, "gpu": "h200"}', "gpu: it was made on h200"),
        ('{"read_gbs": NaN}', "JSON is malformed"),
        ('{"read_gbs": -232}', "read_gbs: -2.32e+11 is not finite and above 0"),
        ('{"read_gbs": 0}', "is not finite and above 0"),
        ('{"read_gbs": 232e9}', "times the catalogue's"),
        ('{"read_gbs": 600}', "times the catalogue's 2.73e+11"),
        ('{"memory_bandwidth_bytes_per_s": 232}', "times the catalogue's"),
        ('{"memory_bandwidth_bytes_per_s": "232 GB/s"}', "Expected `float | null`, got `str`"),
        ('{"read_gbs": true}', "Expected `float | null`, got `bool`"),
        ('{"read_gps": 232}', "read_gps: no such measurement"),
        ('{"read_gbs": 232, "memory_bandwidth_bytes_per_s": 232e9}', "both say the bandwidth"),
        ('{"gpu": "gb10", "source": "me"}', "it measures nothing"),
        ('{"read_gbs": null}', "it measures nothing"),
        ("{}", "it measures nothing"),
        ("[232]", "Expected `object`, got `array`"),
        ("read_gbs = 232", "JSON is malformed"),
        ("", "truncated"),
        ('{"read_curve": [[1, 1]]}', "read_curve: a curve needs two points"),
        ('{"read_curve": [[2e6, 9e-6], [1e6, 8e-6]]}', "read_curve: bytes and seconds both rise"),
        ('{"read_curve": [[1e6, -1], [2e6, 1]]}', "read_curve: sizes are finite"),
        ('{"read_curve": [[1e6, 1e-6], [2e6, 5e-6]]}', "read_curve: 1e-06 s for 1e+06 B; at the catalogue's"),
        ('{"read_curve": [[1e6, 6.1], [2e6, 9.7]]}', "read_curve: 6.1 s for 1e+06 B"),
        ('{"read_curve": [1, 2]}', "$.read_curve[0]"),
    ],
)
def test_a_file_of_measurements_that_is_wrong(tmp_path: Path, content: str, found: str) -> None:
    path = tmp_path / "probe.json"
    path.write_text(content)
    with pytest.raises(InputFileError) as caught:
        with_measurements(get_gpu("gb10"), path)
    assert str(path) in caught.value.asked
    assert found in caught.value.found


def test_a_misspelt_measurement_is_answered_with_the_near_one(tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    path.write_text('{"read_gps": 232}')
    with pytest.raises(InputFileError) as caught:
        with_measurements(get_gpu("gb10"), path)
    assert "read_gbs" in caught.value.hint


def test_a_rate_measured_for_a_unit_the_card_lacks(tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    path.write_text('{"fp4_flops_per_s": 1e15}')
    with pytest.raises(InputFileError, match="fp4_flops_per_s: h200 has no such unit: no FP4 tensor cores"):
        with_measurements(get_gpu("h200"), path)


def test_reading_one_card_opens_its_own_file_and_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a start quick: no other card is read for a name that is a file."""
    code = (
        "import io, pathlib\nopened = []\nread = pathlib.Path.open\n"
        "pathlib.Path.open = lambda self, *a, **k: opened.append(self.name) or read(self, *a, **k)\n"
        "from sublight.facts.gpu import get_gpu\nget_gpu('h200')\nprint(*sorted(opened))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["h200.toml", "sources.toml"]
