"""Decimal microseconds become whole nanoseconds without a digit lost, whichever way a row is read."""

import json
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.trace import kineto
from sublight.trace.kineto import decode, exact_ns

from .samples import Literal, Sample, dumps, found, gpu_rows, read
from .samples import kineto as written


def text_of(ts: str, dur: str = "1.5", extra: str = "") -> bytes:
    return f'[{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur}{extra}}}]'.encode()


@pytest.mark.parametrize(
    ("literal", "ns"),
    [
        ("5209612345678.123", 5209612345678123),
        ("5150409276814.109", 5150409276814109),
        ("4450000000000.999", 4450000000000999),  # between 2**42 us and 2**52 ns a product in doubles is off by one
        ("8796093022207.999", 8796093022207999),  # the last below 2**43
        ("8796093022208.001", 8796093022208001),
        ("1759449600123456.789", 1759449600123456789),  # since 1970: a double is good to a quarter of a microsecond
        ("1650000000000000", 1650000000000000000),
        ("12", 12000),
        ("0.001", 1),
        ("-3", -3000),
        ("-0.25", -250),
        ("1.5e3", 1500000),
        ("2.5E-2", 25),
        ('"12.345"', 12345),
        ('" 12 "', 12000),
    ],
)
def test_a_time_is_exact(literal: str, ns: int) -> None:
    assert exact_ns(literal.encode()) == ns
    assert decode(text_of(literal)).start.tolist() == [ns]


@pytest.mark.parametrize(
    "literal",
    ["null", '"N/A"', '"NaN"', '"Infinity"', "true", "[]", "{}", '""', "1e400", "1e30", "9223372036854775807"],
)
def test_what_is_no_time_is_said_so(literal: str) -> None:
    batch = decode(text_of(literal))
    assert exact_ns(literal.encode()) is None
    assert batch.bad == [("a time that is no number; the event was left out", f"\"ts\": {literal[:40]} of 'k'")]


@given(st.integers(-(2**40), 2**61))
def test_any_whole_nanosecond_survives(ns: int) -> None:
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    literal = f"{sign}{size // 1000}.{size % 1000:03d}"
    assert exact_ns(literal.encode()) == ns
    assert decode(text_of(literal)).start.tolist() == [ns]


@given(st.decimals(0, 2**43 - 1, places=6))
def test_digits_beyond_a_nanosecond_are_rounded_alike_by_every_reading(value: Decimal) -> None:
    text = text_of(f"{value:f}")
    quick = decode(text).start.tolist()
    assert quick == kineto.loosely(kineto._LOOSE.decode(text)).start.tolist()
    near = (value * 1000).to_integral_value(ROUND_HALF_EVEN)
    assert abs(quick[0] - int(near)) <= 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 2**40)), min_size=1, max_size=8), st.booleans())
def test_quick_exact_and_careful_agree(times: list[tuple[int, int]], spoiled: bool) -> None:
    sample = Sample()
    for start, duration in times:
        sample.kernel(start, duration)
    if spoiled:  # one row of another type sends the whole stretch the careful way
        sample.kernel(5, 5)["pid"] = None
    batch = decode(dumps(sample.events).encode())
    assert batch.start.tolist()[: len(times)] == [start for start, _ in times]
    assert batch.duration.tolist()[: len(times)] == [duration for _, duration in times]


def test_rows_since_1970_and_small_ones_may_stand_side_by_side() -> None:
    sample = Sample()
    sample.kernel(1759449600123456789, 1001)
    sample.kernel(1759449600123456789 + 5000, 999)
    assert [row[2:] for row in gpu_rows(read(written(sample)))] == [
        (1759449600123456789, 1001),
        (1759449600123461789, 999),
    ]


def test_an_argument_that_is_no_number_is_left_out_and_the_event_kept() -> None:
    sample = Sample()
    sample.kernel(1000, 5, grid=["N/A", 1, 1], correlation="12")
    sample.kernel(2000, 5, block=[1, 2], **{"registers per thread": Literal("1e2"), "shared memory": {}})
    sample.kernel(3000, 5, correlation=2**70, stream_priority=None)
    trace = read(written(sample))
    assert len(trace.gpu) == 3
    assert trace.gpu.correlation.tolist() == [12, 0, 0]
    assert [trace.gpu.launches[n].grid for n in trace.gpu.launch.tolist()] == [None, (4, 1, 1), (4, 1, 1)]
    assert [trace.gpu.launches[n].registers for n in trace.gpu.launch.tolist()] == [None, 100, None]
    assert found(trace) == {"bad number": 4}


def test_identities_of_any_type_are_taken() -> None:
    rows = [("Spans", "PyTorch Profiler"), (-1, 0), ("", ""), (None, None), (1.5, True)]
    sample = Sample()
    for number, (pid, tid) in enumerate(rows):
        sample.put("X", "cpu_op", "op", pid, tid, 1000 + number, 5)
    places = read(written(sample)).ops.places
    assert [(p.pid, p.tid) for p in places if hasattr(p, "pid")] == [
        ("Spans", "PyTorch Profiler"), ("-1", "0"), ("", ""), ("1.5", "True"),
    ]  # fmt: skip


def test_the_last_of_two_equal_keys_counts() -> None:
    text = text_of("1.0").replace(b'"dur":1.5', b'"dur":7,"dur":2.5')
    assert json.loads(text)[0]["dur"] == 2.5
    assert decode(text).duration.tolist() == [2500]
