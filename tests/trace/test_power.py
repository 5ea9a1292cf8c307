"""Power logs in the forms that nvidia-smi and loggers write, and what is found in them beside a trace."""

from pathlib import Path

import pytest

from sublight.errors import InputFileError
from sublight.trace.oddity import Oddity
from sublight.trace.powerlog import GpuPower, HeldDown, power_of, read_power_log

from .test_oddities import Decode

LOOP = """timestamp, index, name, utilization.gpu [%], power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], clocks_event_reasons.active
2026/03/01 10:00:00.000, 0, NVIDIA H200, 3 %, 90.11 W, 700.00 W, 345 MHz, 1980 MHz, 0x0000000000000001
2026/03/01 10:00:00.000, 1, NVIDIA H200, 100 %, 690.00 W, 700.00 W, 1500 MHz, 1980 MHz, 0x0000000000000004
2026/03/01 10:00:00.200, 0, NVIDIA H200, 100 %, 300.50 W, 700.00 W, 1980 MHz, 1980 MHz, 0x0000000000000000
2026/03/01 10:00:00.200, 1, NVIDIA H200, 100 %, 699.00 W, 700.00 W, 1410 MHz, 1980 MHz, 0x0000000000000024
2026/03/01 10:00:00.400, 0, NVIDIA H200, 99 %, 310.50 W, 700.00 W, 1980 MHz, 1980 MHz, 0x0000000000000000
2026/03/01 10:00:00.400, 1, NVIDIA H200, 100 %, 70"""  # noqa: E501
SINGLE = """index, utilization.gpu [%], power.draw [W], power.limit [W], clocks_throttle_reasons.sw_power_cap, clocks_throttle_reasons.hw_thermal_slowdown, clocks_throttle_reasons.gpu_idle
0, 100, 350.0, 600.0, Not Active, Active, Active
"""  # noqa: E501


def read(folder: Path, text: str) -> tuple[GpuPower, ...]:
    (folder / "power.csv").write_text(text)
    return read_power_log(folder / "power.csv")


def test_a_loop_of_nvidia_smi(tmp_path: Path) -> None:
    """Medians of the busy moments by hand: 300.5 and 310.5 W of card 0; the cut line counts nowhere."""
    first, second = read(tmp_path, LOOP)
    assert (first.index, first.moments, first.busy, first.utilization) == (0, 3, 2, 99.5)
    assert (first.power_w, first.limit_w, first.clock_mhz, first.most_clock_mhz) == (305.5, 700, 1980, 1980)
    assert (first.rated, first.held_down) == (True, ())
    assert (second.index, second.moments, second.power_w, second.clock_mhz) == (1, 2, 694.5, 1455)
    assert second.held_down == (HeldDown("sw_power_cap", 1.0), HeldDown("sw_thermal_slowdown", 0.5))


def test_columns_of_single_reasons(tmp_path: Path) -> None:
    (card,) = read(tmp_path, SINGLE)
    assert card.held_down == (HeldDown("hw_thermal_slowdown", 1.0),)


def test_the_short_form_and_missing_values(tmp_path: Path) -> None:
    (card, other) = read(tmp_path, "\ufeffindex,util,power_w,limit_w\n0,100,140,600\n1,[N/A],N/A,600\n")
    assert (card.utilization, card.power_w, card.limit_w, card.clock_mhz) == (100, 140, 600, None)
    assert (other.utilization, other.power_w, other.limit_w, other.busy) == (None, None, 600, 1)


def test_lines_without_an_index_are_of_one_card_or_refused(tmp_path: Path) -> None:
    """Lines of one time are several cards, or one card looked at several times a second."""
    with pytest.raises(InputFileError, match="lines of one time and no index"):
        read(tmp_path, "timestamp, power.draw [W]\nt1, 1 W\nt1, 2 W\nt2, 3 W\nt2, 4 W\n")
    (card,) = read(tmp_path, "timestamp, power.draw [W]\nt1, 1 W\nt2, 4 W\n")
    assert (card.index, card.moments, card.power_w) == (0, 2, 2.5)
    (only,) = read(tmp_path, "power.draw [W]\n5 W\n7 W\n")
    assert (only.index, only.moments, only.power_w) == (0, 2, 6)


@pytest.mark.parametrize(
    "text",
    [
        "index,power_w\n" + "x" * 200_000 + "\n",
        "",
        "\n",
        "a,b\n1,2\n",
        "index,util\n0,100\n",
        "index,power_w\n",
        "index,power_w\n0\n",
    ],
)
def test_what_is_no_log(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputFileError) as error:
        read(tmp_path, text)
    assert "nvidia-smi --query-gpu" in error.value.hint


@pytest.mark.parametrize("name", ["pci.bus_id", "uuid"])
def test_cards_are_told_by_their_bus_address_or_uuid(tmp_path: Path, name: str) -> None:
    """Looked at a millisecond apart, the second one first."""
    lines = [f"t{t}.{i}, 0000000{i}:C1:00.0, {100 + 500 * i}.00 W" for t in range(3) for i in (1, 0)]
    found = read(tmp_path, f"timestamp, {name}, power.draw [W]\n" + "\n".join(lines) + "\n")
    assert [(card.index, card.moments, card.power_w) for card in found] == [(0, 3, 100), (1, 3, 600)]


def test_logs_that_were_appended_keep_their_own_columns(tmp_path: Path) -> None:
    (card,) = read(
        tmp_path,
        "index, utilization.gpu [%], power.draw [W]\n0, 100 %, 200.00 W\n"
        "index, power.draw [W], utilization.gpu [%], power.limit [W]\n0, 650.00 W, 100 %, 700.00 W\n",
    )
    assert (card.moments, card.utilization, card.power_w, card.limit_w) == (2, 100, 425, 700)


def test_values_that_can_not_be_are_none(tmp_path: Path) -> None:
    (card,) = read(tmp_path, "index,util,power_w,limit_w\n" + "9" * 400 + ",100,3,3\n0,100,-5.00 W,700000 mW\n")
    assert (card.index, card.moments, card.power_w, card.limit_w) == (0, 1, None, None)
    (card,) = read(tmp_path, "index,util,power_w\n0,650,200\n")
    assert (card.busy, card.power_w) == (0, None)


def test_what_the_busy_moments_say_and_what_all_say(tmp_path: Path) -> None:
    """The limit while busy; the highest clock at any time; reasons as a share of the busy moments."""
    columns = "index,util,power_w,limit_w,sm_mhz,max_sm_mhz,clocks_event_reasons.active\n"
    lines = ["0,0,50,700,300,1980,0x4"] + ["0,0,50,700,300,1980,0x0"] * 3 + ["0,100,400,500,1800,1900,0x4"]
    lines += ["0,100,400,500,1800,1900,0x44", "0,100,400,500,1800,1900,0x0"]
    (card,) = read(tmp_path, columns + "\n".join(lines) + "\n")
    assert (card.moments, card.busy, card.limit_w, card.most_clock_mhz, card.rated) == (7, 3, 500, 1980, True)
    assert card.held_down == (HeldDown("sw_power_cap", 2 / 3), HeldDown("hw_thermal_slowdown", 1 / 3))


def test_which_card_is_meant() -> None:
    cards = [GpuPower(source="", index=n, moments=1, busy=1) for n in (4, 5)]
    assert (power_of(cards, 5), power_of(cards, 0), power_of(cards[:1], 0)) == (cards[1], None, cards[0])
    # Of several ranks the only card of a log is that of one at most.
    assert [power_of(cards[1:], number, several=True) for number in (0, 5)] == [None, cards[1]]


REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "nvjet_sm90_tst_64x8_64x16_1x1_v_bz_TNT"


def odd(tmp_path: Path, card: GpuPower, kernels: list[tuple[str, float, int]]) -> dict[str, Oddity]:
    decode = Decode()
    for _ in range(6):
        decode.step(kernels)
    return {one.id: one for one in decode.analysed(tmp_path, power=[card]).oddities}


def drawn(power_w: float | None, **more: object) -> GpuPower:
    given = {"source": "power.csv", "index": 0, "moments": 9, "busy": 8, "utilization": 100.0, "limit_w": 700.0}
    return GpuPower(power_w=power_w, **(given | more))  # type: ignore[arg-type]


WAITING: list[tuple[str, float, int]] = [(GEMM, 20.0, 132), (REDUCE, 60.0, 8), (GEMM, 20.0, 132)]


def test_busy_and_waiting(tmp_path: Path) -> None:
    found = odd(tmp_path, drawn(200.0), WAITING)["spinning"]
    assert (found.title, found.ns) == ("busy 100 % at 200 W of 700 W: waiting, not working", 60_000)
    assert "power.csv, GPU 0: medians of 8 busy moments" in found.evidence


def test_busy_and_working(tmp_path: Path) -> None:
    assert not {"spinning", "low-power", "held-down"} & odd(tmp_path, drawn(400.0), WAITING).keys()
    assert "spinning" not in odd(tmp_path, drawn(200.0, utilization=40.0), WAITING)


def test_collectives_that_are_less_than_the_idle_time_are_not_what_it_waits_for(tmp_path: Path) -> None:
    """20 us of all-reduce, and more between the steps."""
    found = odd(tmp_path, drawn(200.0), [(GEMM, 20.0, 132), (REDUCE, 20.0, 8)])
    assert "spinning" not in found
    assert found["low-power"].ns > 20_000


def test_a_card_of_unknown_utilisation_is_not_said_to_wait(tmp_path: Path) -> None:
    found = odd(tmp_path, drawn(150.0, utilization=None), WAITING)
    assert not {"spinning", "low-power"} & found.keys()
    assert found["power-log"].evidence == "power.csv: it tells no utilisation in per cent of GPU 0"


@pytest.mark.parametrize(
    ("cards", "why"),
    [
        (
            [drawn(200.0, index=4), drawn(200.0, index=5)],
            "it has GPU 4, 5, and none of them is told to be GPU 0",
        ),
        ([drawn(200.0, busy=0)], "GPU 0 is busy in none of its 9 moments"),
        ([drawn(None, limit_w=None)], "it tells no power in watts and no power limit in watts of GPU 0"),
        ([drawn(600.0)], ""),
        ([], ""),
    ],
)
def test_a_log_that_tells_nothing_is_named(tmp_path: Path, cards: list[GpuPower], why: str) -> None:
    decode = Decode()
    for _ in range(6):
        decode.step(WAITING)
    found = {one.id: one for one in decode.analysed(tmp_path, power=cards).oddities}
    assert [one.evidence for one in found.values() if one.id == "power-log"] == [f"power.csv: {why}"] * bool(why)


def test_little_power_without_collectives(tmp_path: Path) -> None:
    found = odd(tmp_path, drawn(150.0), [(GEMM, 20.0, 4)])["low-power"]
    assert found.title == "busy 100 % at 150 W of 700 W: most of the card does not work"


@pytest.mark.parametrize(
    ("more", "title"),
    [
        ({"held_down": (HeldDown("sw_power_cap", 0.5),)}, "the card is held down"),
        ({"held_down": (HeldDown("hw_thermal_slowdown", 0.2),)}, "the card is held down: it is too hot"),
        ({"clock_mhz": 1500.0, "most_clock_mhz": 1980.0}, "the card is held down"),
        ({"power_w": 695.0}, "the card is held down by its power limit"),
        ({"power_w": 600.0}, ""),
        ({"held_down": (HeldDown("sw_power_cap", 0.05),)}, ""),
        ({"clock_mhz": 1900.0, "most_clock_mhz": 1980.0}, ""),
    ],
)
def test_clocks_that_are_held_down(tmp_path: Path, more: dict[str, object], title: str) -> None:
    found = odd(tmp_path, drawn(**({"power_w": 400.0} | more)), WAITING)  # type: ignore[arg-type]
    assert found["held-down"].title == title if title else "held-down" not in found
