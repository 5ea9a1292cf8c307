"""A gap from outside: which measurement it is of, what it is compared with, and how it is worded."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.decode import MODEL

Sublight = Callable[..., Run]
SERVER = ("gap", "glm-5-nvfp4", "--gpus", "8xrtx-pro-6000-server")


def words(text: str) -> str:
    return " ".join(re.sub("[▌┃]", "", text).split())


def refused(done: Run, *parts: str) -> None:
    assert (done.code, done.out) == (2, ""), done.out + done.err
    lines = done.err.splitlines()
    assert len(lines) == 3 and [line[:9] for line in lines[1:]] == ["  found: ", "  try:   "], done.err
    for part in parts:
        assert part in done.err, done.err


def row(text: str, title: str) -> list[str]:
    """Cells of a row of the first table that has it."""
    return str(re.findall(rf"^{re.escape(title)} +(.*)$", text, re.MULTILINE)[0]).split()


def test_bf16_timings_stand_beside_bf16_rows_only(sublight: Sublight) -> None:
    fp8 = sublight("gap", "glm-5-fp8", "--gpus", "8xrtx-pro-6000-server", "--measured", "30ms").out
    assert row(fp8, "q_a + kv_a") == ["78", "0.788", "memory"]
    assert row(fp8, "o_proj") == ["78", "0.615", "memory"]
    assert row(fp8, "router") == ["75", "0.148", "0.667", "memory"]
    assert row(fp8, "floor of the step")[-1] == "5.06"
    nvfp4 = sublight(*SERVER, "--measured", "30ms").out
    assert row(nvfp4, "q_a + kv_a") == ["78", "1.575", "1.966", "memory"]
    assert row(nvfp4, "routed experts") == ["75", "0.997", "5.348", "memory"]
    assert row(nvfp4, "floor of the step")[-1] == "18.28"


def test_messages_timed_over_one_link_say_nothing_of_another(sublight: Sublight) -> None:
    usual = sublight(*SERVER, "--measured", "30ms").out
    assert row(usual, "all-reduce after attention") == ["78", "0.718", "2.098", "latency"]
    other = sublight(*SERVER, "--measured", "30ms", "--interconnect", "nvlink4").out
    assert row(other, "all-reduce after attention")[2:] == ["latency"]
    assert row(other, "o_proj") == ["78", "1.229", "1.318", "memory"]
    unknown = sublight(*SERVER, "--measured", "30ms", "--interconnect", "pcie4-switch")
    assert unknown.code == 0 and row(unknown.out, "all-reduce after attention")[:3] == ["78", "not", "known"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--context", "32k"), "--context without a model"),
        (("--context", "1024"), "--context without a model"),
        (("--batch", "8"), "--batch without a model"),
        (("--tp", "4", "--pp", "2"), "--tp --pp without a model"),
        (("--ep", "8", "--dp", "8"), "--dp --ep without a model"),
        (("--kv-dtype", "fp8"), "--kv-dtype without a model"),
        (("--draft", "1", "--accepted", "1.9"), "--draft --accepted without a model"),
        (("--bandwidth", "1500GB/s"), "--bandwidth without a model"),
        (("--allreduce-us", "12"), "--allreduce-us without a model"),
        (("--trace", "x.json"), "--trace without a model"),
    ],
)
def test_the_bundled_measurement_is_of_its_own_step(
    sublight: Sublight, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    done = sublight("gap", *options, "--save", "gap.json")
    refused(done, told, "of one step only: glm-5-nvfp4 on 8xrtx-pro-6000-workstation, batch 1, context 1,024")
    assert list(tmp_path.iterdir()) == []


def test_the_bundled_case_takes_other_claims(sublight: Sublight) -> None:
    done = sublight("gap", "--claimed-floor", "7ms", "--claimed-part", "lm-head=1ms")
    assert done.code == 0
    assert '"7ms" is 7.00 ms.' in words(done.out) and '"lm-head=1ms" names: lm_head.' in words(done.out)


def test_the_bundled_measurement_says_where_it_stands(sublight: Sublight) -> None:
    done = sublight("gap", "--json")
    gap = json.loads(done.out)["record"]
    stated = {"evidence": "published", "source": "bundled glm-5-campaign.toml"}
    assert {key: gap["measured_s"][key] for key in stated} == stated
    assert {key: gap["beside"]["measured_s"][key] for key in stated} == stated
    assert "--measured)" not in sublight("gap").out
    assert "33 tok/s (given: --measured)" in words(sublight(*SERVER, "--measured", "30ms", columns=200).out)


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        (("--gpus", "8xrtx-pro-6000-workstation"), "card: rtx-pro-6000-server, asked is rtx-pro-6000-workstation"),
        (("--gpus", "8xb200"), "card: rtx-pro-6000-server, asked is b200; link: pcie5-switch, asked is nvlink5"),
        (("--gpus", "4xrtx-pro-6000-server"), "cards: 8, asked is 4; layout: TP8, asked is TP4"),
        (("--context", "32k"), "context: 1,024, asked is 32,768"),
        (("--ep", "8"), "layout: TP8, asked is TP8 + EP8"),
        (("--dp", "8"), "layout: TP8, asked is TP8 + DP attention 8"),
        (("--pp", "2"), "layout: TP8, asked is TP4 + PP2"),
        (("--kv-dtype", "fp8"), "KV cache: bf16, asked is fp8"),
        (("--draft", "1"), "speculation: none (verify width 1), asked is draft 1, verify width 2"),
        (("--batch", "4"), "batch: 1, asked is 4"),
    ],
)
def test_a_saved_step_is_a_measurement_of_no_other(sublight: Sublight, options: tuple[str, ...], differs: str) -> None:
    sublight(*SERVER, "--measured", "30ms", "--save", "rec.json")
    refused(sublight(*SERVER, *options, "--measured", "rec.json"), f"it was measured in another step: {differs}\n")


def test_the_newest_measurement_of_a_campaign_is_of_its_own_step(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sublight(*SERVER, "--measured", "30ms", "--campaign", "c")
    refused(sublight(*SERVER, "--campaign", "c", "--context", "32k"), "context: 1,024, asked is 32,768")
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["gap-001.json"]


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        (("int4=3ms",), "no row of this step is 'int4': glm-5-nvfp4 is stored in BF16, NVFP4"),
        (("linear-attention=3ms",), "no row of this step is 'linear-attention'"),
        (("bf16=3ms", "bf16=3ms"), "it names the rows of 'bf16=3ms' again"),
        (("bf16=30s",), "longer than the whole step"),
    ],
)
def test_claimed_parts_that_say_nothing(sublight: Sublight, claims: tuple[str, ...], told: str) -> None:
    options = [word for claim in claims for word in ("--claimed-part", claim)]
    refused(sublight(*SERVER, "--measured", "30ms", *options), told)


def test_claimed_parts_that_cannot_be_together(sublight: Sublight) -> None:
    claims = ("--claimed-part", "bf16=20ms", "--claimed-part", "allreduce=15ms")
    beyond = words(sublight(*SERVER, "--measured", "30ms", *claims).out)
    assert "Together the claimed parts take 35.00 ms, more than the measured step of 30.00 ms" in beyond
    within = words(sublight(*SERVER, "--measured", "36ms", *claims).out)
    assert "Together the claimed parts" not in within
    shared = words(
        sublight(*SERVER, "--measured", "30ms", "--claimed-part", "bf16=20ms", "--claimed-part", "lm-head=15ms").out
    )
    assert "The claimed parts share rows, so that their times do not add up: lm_head." in shared
    floor = words(sublight("gap").out)
    assert re.search(
        r"floor of the claimed part alone, \d\.\d\d ms, is more than the claimed floor of .* 3\.24 ms", floor
    )


@pytest.mark.parametrize("text", ["1ns", "1e9s", "1e30s", "99999999 tok/s"])
def test_times_that_no_step_takes(sublight: Sublight, text: str) -> None:
    refused(sublight(*SERVER, "--measured", text), "no decode step takes less than 1 us or more than 1 hour")
    refused(sublight(*SERVER, "--measured", "30ms", "--claimed-floor", text), "--claimed-floor")


def test_ratios_say_of_what_they_are(sublight: Sublight) -> None:
    """14.5 times a floor is not "14.5x above" it, and a time below a floor is not above it at all."""
    over = words(sublight(*SERVER, "--measured", "30ms", columns=200).out)
    assert "4.12x" in over and "the floor; 24 % of its speed" in over
    assert "measured is 2.98x that floor" in over
    under = words(sublight(*SERVER, "--measured", "3ms", columns=200).out)
    assert "0.412x" in under and "of the floor: below it" in under
    assert "measured is 0.298x that floor: below it" in under
    assert "x above" not in over + under


def test_findings_say_of_what_a_ratio_is(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sublight(*SERVER, "--measured", "3ms", "--campaign", "c")
    text = words(sublight("report", "c", columns=200).out)
    assert "the step is 0.412x that floor: below it" in text and "x above" not in text


def test_a_rate_under_speculation_counts_the_tokens_of_a_step(sublight: Sublight) -> None:
    drafted = (*SERVER, "--measured", "20ms", "--draft", "1", "--claimed-floor", "10ms")
    text = words(sublight(*drafted, "--accepted", "1.9").out)
    assert "95 tok/s is one request's rate, 1.9 tokens a step over the step time" in text
    plain = words(sublight(*SERVER, "--measured", "20ms", "--claimed-floor", "10ms").out)
    assert "50 tok/s is one request's rate, one over the step time" in plain
    assert "one request's rate" not in words(sublight(*drafted).out)


@pytest.mark.parametrize(("text", "ms"), [("1e2 tok/s", 10.0), ("1,000 tok/s", 1.0), ("50tokens/s", 20.0)])
def test_rates_as_people_write_them(sublight: Sublight, text: str, ms: float) -> None:
    done = sublight("gap", "glm-5-nvfp4", "--gpus", "8xh200", "--measured", text, "--json")
    assert json.loads(done.out)["record"]["measured_s"]["value"] == pytest.approx(ms * 1e-3)


def test_a_terminal_names_what_the_pages_show(sublight: Sublight) -> None:
    text, markdown = sublight("gap").out, sublight("gap", "--markdown").out
    left_out = ["Kernels", "How the steps were found", "Over batch sizes"]
    assert not [name for name in left_out if f"\n{name}\n" in text]
    assert all(f"## {name}\n" in markdown for name in left_out)
    assert "Left out here, shown by --html FILE and --markdown: Where the floor comes from, What the" in text


def test_each_kernel_is_timed_by_one_next_step(sublight: Sublight, tmp_path: Path) -> None:
    """What the experts, the other kernels and the messages explain are different milliseconds, by three benchmarks."""
    gap = json.loads(sublight(*SERVER, "--measured", "97ms", "--json").out)["record"]
    steps = {step["id"]: step for step in gap["steps"]}
    floors = {r["id"]: r["time_s"] for r in gap["limit"]["rows"] if r["stage"] == "main"}
    above = {p["id"]: p["seconds"] - floors[p["id"]] for p in gap["published"] if p["id"] in floors}
    assert steps["kernels"]["explains_high_s"] == pytest.approx(above.pop("moe.experts"))
    assert steps["ops"]["explains_high_s"] == pytest.approx(sum(above.values()))
    assert steps["kernels"]["command"] == "sublight bench kernels glm-5-nvfp4 --tp 8"
    assert steps["ops"]["command"] == "sublight bench ops glm-5-nvfp4 --tp 8 --batch 1 --context 1024"
    assert steps["all-reduce"]["command"] == "sublight bench comm glm-5-nvfp4 --tp 8 --batch 1"
    assert "`sublight gap glm-5-nvfp4 --gpus 8xrtx-pro-6000-server --trace FILE`" in steps["trace"]["why"]
    (tmp_path / "my model").mkdir()
    (tmp_path / "my model" / "config.json").write_text(json.dumps(MODEL))
    own = sublight("gap", "./my model", "--gpus", "2xh200", "--measured", "9ms", "--json")
    why = json.loads(own.out)["record"]["steps"][0]["why"]
    assert "`sublight gap 'my model/config.json' --gpus 2xh200 --trace FILE`" in why
    assert "MODEL" not in sublight(*SERVER, "--measured", "97ms").out
