"""Eight cards that are busy and wait: a step of 25.3 ms with 156 all-reduces of 110 us, and what each card drew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublight.facts.gpu import get_gpu
from sublight.facts.interconnect import collective_time, interconnect_for
from tests.cli.conftest import Run
from tests.cli.decode import NVJET, Launch, kineto, length_us

Sublight = Callable[..., Run]
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CARD = {"id": 0, "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "numSms": 188, "computeMajor": 12,
        "computeMinor": 0}  # fmt: skip
CALLS, STEP_US = 156, 25_300.0


def of_rank(rank: int) -> dict[str, Any]:
    """700 products of 10 us and 156 all-reduces; rank 3 comes 2 us later to each, and all leave it together."""
    late = 2.0 if rank == 3 else 0.0
    launches: list[Launch] = []
    for call in range(CALLS):
        launches += [(NVJET, [188, 1, 1], 10.0, 1.2)] * (5 if call < 76 else 4)
        launches.append((REDUCE, [8, 1, 1], 110.0 - late, 1.2 + late))
    # The last all-reduce comes behind a longer gap, which fills the step up.
    name, grid, us, gap = launches[-1]
    launches[-1] = (name, grid, us, gap + STEP_US - length_us(launches))
    distributed = {"backend": "nccl", "rank": rank, "world_size": 8}
    return kineto(steps=4, launches=launches) | {"deviceProperties": [CARD], "distributedInfo": distributed}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("eight")
    (made / "ranks").mkdir()
    for rank in range(8):
        (made / "ranks" / f"rank{rank}.json").write_text(json.dumps(of_rank(rank)))
    (made / "power.csv").write_text("index,util,power_w,limit_w\n" + "".join(f"{n},100,140,600\n" for n in range(8)))
    return made


def published_us() -> float:
    """What the catalogue has for NCCL on eight of these cards; the trace of a graph does not tell the size."""
    link = interconnect_for(get_gpu(CARD["name"]))  # type: ignore[arg-type]
    return collective_time(link, "all-reduce", "nccl", 8, 0).seconds.known * 1e6


def test_a_step_that_waits_in_its_all_reduces(sublight: Sublight, folder: Path) -> None:
    done = sublight("trace", str(folder / "ranks" / "rank0.json"), "--power", str(folder / "power.csv"), "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)["record"]
    assert record["breakdown"]["end_ns"] - record["breakdown"]["start_ns"] == STEP_US * 1e3
    assert record["power"] | {"source": ""} == {
        "source": "", "index": 0, "moments": 1, "busy": 1, "utilization": 100.0, "power_w": 140.0, "limit_w": 600.0,
        "clock_mhz": None, "most_clock_mhz": None, "rated": False, "held_down": [],
    }  # fmt: skip
    found = {odd["id"]: odd for odd in record["oddities"]}
    assert found["spinning"]["title"] == "busy 100 % at 140 W of 600 W: waiting, not working"
    assert found["spinning"]["ns"] == CALLS * 110_000
    assert "156 collectives stand alone for 17.2 ms, 68 % of the step" in found["spinning"]["evidence"]
    slow = found["slow-collectives"]
    assert slow["title"] == "all-reduce calls wait: 110 us each"
    more_us = 110 - published_us()
    assert 70 < more_us < 100
    assert slow["ns"] == pytest.approx(CALLS * more_us * 1e3, abs=1)
    assert f"{more_us:.1f} us more each, {CALLS * more_us / 1e3:.1f} ms a step" in slow["evidence"]
    assert "NCCL all-reduce on 8 GPUs" in slow["evidence"]


def test_the_text_says_it(sublight: Sublight, folder: Path) -> None:
    done = sublight("trace", str(folder / "ranks" / "rank5.json"), "--power", str(folder / "power.csv"))
    text = " ".join(done.out.split())
    assert "busy 100 % at 140 W of 600 W: waiting, not working" in text
    assert "17.160 68 %" in text


def test_all_ranks_wait_and_one_is_late_by_2_us(sublight: Sublight, folder: Path) -> None:
    done = sublight("trace", str(folder / "ranks"), "--power", str(folder / "power.csv"), "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)["record"]
    assert sorted(map(int, record["power"])) == list(range(8))
    assert [rank["late_ns"] for rank in record["ranks"]] == [0, 0, 0, CALLS * 2000, 0, 0, 0, 0]
    notes = "\n".join(record["notes"])
    assert "ranks 0, 1, 2, 3, 4, 5, 6, 7: busy 100 % at 140 W of 600 W: waiting, not working; 17.2 ms" in notes
    more_us = 108 - published_us()
    assert "156 all-reduces a step take 108 us each after the last rank has come" in notes
    assert f"{more_us:.1f} us more each, {CALLS * more_us / 1e3:.1f} ms a step" in notes


def test_a_rank_that_the_log_does_not_have(sublight: Sublight, folder: Path) -> None:
    (folder / "few.csv").write_text("index,util,power_w,limit_w\n0,100,140,600\n1,100,390,600\n")
    done = sublight("trace", str(folder / "ranks"), "--power", str(folder / "few.csv"), columns=120)
    assert "busy 100 % at 390 W of 600 W" in done.out and done.out.count("not in the log") == 6
    assert "rank 0: busy 100 % at 140 W of 600 W: waiting, not working" in " ".join(done.out.split())


def test_power_has_no_use_beside_two_traces(sublight: Sublight, folder: Path) -> None:
    ranks = folder / "ranks"
    done = sublight("trace", str(ranks / "rank0.json"), str(ranks / "rank1.json"), "--power", str(folder / "power.csv"))
    assert (done.code, done.out) == (2, "")
    assert "--power with two traces" in done.err


def test_a_file_that_is_no_power_log(sublight: Sublight, folder: Path) -> None:
    (folder / "other.csv").write_text("a,b\n1,2\n")
    trace = str(folder / "ranks" / "rank0.json")
    for name, said in (("other.csv", "names no power and no clock"), ("nowhere.csv", "No such file")):
        done = sublight("trace", trace, "--power", str(folder / name))
        assert (done.code, done.out) == (2, "")
        assert said in done.err and "nvidia-smi --query-gpu" in done.err and "Traceback" not in done.err
