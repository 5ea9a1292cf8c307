import math
from typing import Any

import pytest

from sublight.report import render
from sublight.report.blocks import (
    Band,
    Bar,
    Bars,
    Block,
    Curve,
    Curves,
    Document,
    EventRow,
    Events,
    Mark,
    Segment,
    Step,
    Timeline,
    Waterfall,
)
from sublight.report.check import check, running_sums

FORMS: list[tuple[str, dict[str, Any]]] = [("text", {"width": 80, "colour": False}), ("markdown", {}), ("html", {})]


def waterfall(*steps: tuple[str, float]) -> Waterfall:
    return Waterfall("w", tuple(Step(f"step {i}", value, "", kind) for i, (kind, value) in enumerate(steps)))  # type: ignore[arg-type]


def test_steps_hang_on_the_sum_and_totals_stand_on_the_ground() -> None:
    steps = waterfall(("delta", 5.0), ("delta", -2.0), ("total", 3.0), ("unknown", 1.5), ("total", 4.5))
    assert running_sums(steps) == [(0, 5), (5, 3), (0, 3), (3, 4.5), (0, 4.5)]


@pytest.mark.parametrize("error", [2e-6, -2e-6])
@pytest.mark.parametrize(("form", "options"), FORMS)
def test_every_form_refuses_a_total_that_is_not_the_sum(form: str, options: dict[str, Any], error: float) -> None:
    page = Document("d", (waterfall(("delta", 6.64), ("delta", 26.86), ("total", 33.5 * (1 + error))),))
    with pytest.raises(ValueError, match=r"'w': the total 'step 2' is 33\.[45].*sum to 33\.5"):
        render(page, form, **options)


@pytest.mark.parametrize("error", [5e-7, -5e-7])
def test_rounding_within_a_millionth_is_let_through(error: float) -> None:
    spans = running_sums(waterfall(("delta", 6.64), ("delta", 26.86), ("total", 33.5 * (1 + error))))
    assert spans[-1] == (0.0, 33.5)


def test_deltas_that_cancel_leave_a_total_of_zero() -> None:
    assert running_sums(waterfall(("delta", 0.1), ("delta", 0.2), ("delta", -0.3), ("total", 0.0)))[-1][1] < 1e-15


def test_a_waterfall_does_not_start_with_a_total() -> None:
    with pytest.raises(ValueError, match=r"the steps before it sum to 0\.0"):
        running_sums(waterfall(("total", 6.64)))


def bars(value: float, series: str = "a") -> Bars:
    return Bars("b", ("a",), (Bar("bar", (Segment(series, value, ""),), ""),))


def curves(x: float, y: float, *, log_x: bool = False, log_y: bool = False, mark: float = 1.0) -> Curves:
    return Curves("c", "x", "y", (Curve("one", ((1.0, 1.0), (x, y))),), (Mark(mark, "m"),), log_x, log_y)


def timeline(*events: tuple[float, float, int, int, int], span: float = 10.0, **more: Any) -> Timeline:
    columns = tuple(zip(*events, strict=True)) or ((),) * 5
    return Timeline("t", "us", span, ("lane",), (EventRow("row", "group"),), ("name",), Events(*columns), **more)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (bars(-1.0), "a segment of 'bar' is below zero: -1.0"),
        (bars(1.0, "other"), "'bar' has a segment of no series: 'other'"),
        (bars(math.nan), "nan cannot be drawn to scale"),
        (waterfall(("delta", math.inf)), "inf cannot be drawn to scale"),
        (waterfall(("delta", 9e299), ("delta", 9e299)), "1.8e\\+300 cannot be drawn to scale"),
        (curves(math.nan, 1.0), "nan cannot be drawn to scale"),
        (curves(0.0, 1.0, log_x=True), "0.0 cannot stand on a logarithmic x axis"),
        (curves(2.0, -3.0, log_y=True), "-3.0 cannot stand on a logarithmic y axis"),
        (curves(2.0, 2.0, log_x=True, mark=0.0), "0.0 cannot stand on a logarithmic x axis"),
        (timeline((2.0, 1.0, 0, 0, 0), (1.0, 1.0, 0, 0, 0)), "event 1 starts at 1.0, before the one that precedes it"),
        (timeline((9.0, 1.1, 0, 0, 0)), r"event 0, from 9.0 to 10.1, is not within 0 to 10.0"),
        (timeline((-1.0, 1.0, 0, 0, 0)), r"event 0, from -1.0 to 0.0, is not within"),
        (timeline((1.0, -0.5, 0, 0, 0)), r"event 0, from 1.0 to 0.5, is not within"),
        (timeline((math.nan, 1.0, 0, 0, 0)), r"event 0, from nan to nan, is not within"),
        (timeline((1.0, 1.0, 1, 0, 0)), "event 0 has the lane 1, of 1"),
        (timeline((1.0, 1.0, 0, -1, 0)), "event 0 has the row -1, of 1"),
        (timeline((1.0, 1.0, 0, 0, 7)), "event 0 has the name 7, of 1"),
        (timeline(span=0.0), "a span of 0.0 is no axis"),
        (timeline(span=math.inf), "inf cannot be drawn to scale"),
        (timeline(bands=(Band(0.0, 6.0, "a"), Band(5.0, 8.0, "b"))), "the band 'b' starts before"),
        (timeline(bands=(Band(8.0, 11.0, "a"),)), "the band 'a', from 8.0 to 11.0, is not within"),
        (timeline(marks=(Mark(10.5, "m"),)), "the mark 'm', from 10.5 to 10.5, is not within"),
    ],
)
def test_a_chart_that_cannot_be_drawn_honestly_is_refused(block: Block, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check(Document("d", (block,)))


def test_events_that_end_with_the_axis_may_round_and_overlap() -> None:
    check(Document("d", (timeline((0.1, 9.9 + 5e-10, 0, 0, 0), (0.1, 0.0, 0, 0, 0), span=10.0),)))


def test_columns_of_events_have_one_length() -> None:
    with pytest.raises(ValueError, match="the columns of events have 1, 2, 1, 1, 1 places"):
        Events((0.0,), (1.0, 1.0), (0,), (0,), (0,))
