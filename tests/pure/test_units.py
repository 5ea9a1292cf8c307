"""Text to numbers and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight import units
from sublight.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("97ms", 0.097),
        ("97 ms", 0.097),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("0.1s", 0.1),
        ("5000 ns", 5e-6),
        ("1e-3 s", 1e-3),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert units.parse_time_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["97", "", "ms", "-3ms", "0ms", "97 minutes", "nan ms", "inf s", "1e999s", "9 7ms", "3.2.1ms"]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_time_s(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("1551GB/s", 1551e9), ("1.5 TB/s", 1.5e12), ("1400 GiB/s", 1400 * 2**30), ("900GBps", 900e9)]
)
def test_bandwidths(text: str, rate: float) -> None:
    assert units.parse_bandwidth_bytes_per_s(text) == rate


@pytest.mark.parametrize("text", ["1551", "1551GB", "0GB/s", "fast", "1551 GHz/s", "-5GB/s"])
def test_bandwidths_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_bandwidth_bytes_per_s(text)


@pytest.mark.parametrize(
    ("text", "count"), [("8192", 8192), ("8k", 8192), ("128K", 131072), ("1m", 2**20), ("1,024", 1024), ("1.5k", 1536)]
)
def test_counts(text: str, count: int) -> None:
    assert units.parse_count(text) == count


@pytest.mark.parametrize("text", ["1.5", "k", "12q", "1.3k"])
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_count(text)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (6.6432, 3, "6.64"),
        (96.53, 3, "96.5"),
        (9.996, 3, "10.0"),
        (0.0234, 3, "0.0234"),
        (1234.5, 3, "1,234"),
        (0, 3, "0"),
        (999.96, 4, "1,000"),
    ],
)
def test_significant(value: float, digits: int, text: str) -> None:
    assert units.significant(value, digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(6.6432e-3, "6.64 ms"), (9.2e-6, "9.20 us"), (1.2, "1.20 s"), (0.99999e-3, "1.00 ms"), (3e-10, "0.300 ns")],
)
def test_show_time(seconds: float, text: str) -> None:
    assert units.show_time(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(9.1937e9, "9.19 GB"), (999.96e6, "1.00 GB"), (132, "132 B"), (0, "0 B"), (440.9e9, "441 GB")]
)
def test_show_bytes(count: float, text: str) -> None:
    assert units.show_bytes(count) == text


@pytest.mark.parametrize(("fraction", "text"), [(0.034, "3.4 %"), (0.58, "58 %"), (0.0996, "10 %"), (1.0, "100 %")])
def test_show_percent(fraction: float, text: str) -> None:
    assert units.show_percent(fraction) == text


@given(st.floats(1e-9, 1e3))
def test_what_is_shown_reads_back(seconds: float) -> None:
    text = units.show_time(seconds).replace(",", "")
    assert units.parse_time_s(text) == pytest.approx(seconds, rel=6e-3)


def test_one_is_one() -> None:
    assert [units.counted(n, "token") for n in (0, 1, 2, 1471)] == ["no tokens", "1 token", "2 tokens", "1,471 tokens"]
    assert units.counted(1, "copy is", "copies are") == "1 copy is"
    assert units.counted(3, "copy is", "copies are") == "3 copies are"
