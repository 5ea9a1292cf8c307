"""The timeline that a trace's page and a gap's page hold: each event of the shown step where it was."""

import json
from pathlib import Path

import msgspec
import pytest

from sublight.errors import RecordError
from sublight.records import decode, encode
from sublight.report import render
from sublight.report.blocks import Band, Document, EventRow, Mark, Timeline
from sublight.report.check import check
from sublight.report.views import stepline
from sublight.report.views.stepline import step_timeline
from sublight.report.views.trace import trace_document
from sublight.rows import ROWS
from sublight.trace.analysis import Analysis, analyse
from sublight.trace.kernels import Moment, StepEvents
from sublight.trace.read import read_trace
from tests.cli.decode import BETWEEN_US, FLASH, LAYER, NORM, STEP, STEP_US, kineto


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    (tmp_path / "trace.json").write_text(json.dumps(kineto()))
    return analyse(read_trace(tmp_path / "trace.json"))


def timeline(analysis: Analysis) -> Timeline:
    (block,) = step_timeline(analysis)
    assert isinstance(block, Timeline)
    check(Document("", (block,)))
    return block


def with_events(analysis: Analysis, *moments: Moment, rows: tuple[str, ...] = ("norms",)) -> Analysis:
    lanes = tuple(f"stream {number}" for number in range(1 + max((moment.lane for moment in moments), default=0)))
    return msgspec.structs.replace(analysis, events=StepEvents(lanes, rows, ("a", "b"), moments), layers=None)


def test_every_event_is_where_it_was_to_the_nanosecond(analysis: Analysis) -> None:
    block = timeline(analysis)
    assert (block.unit, block.span, block.lanes) == ("ms", STEP_US / 1e3, ("stream 7",))
    assert block.title == f"The step on the GPU: {len(STEP)} events" and not block.marks
    at, starts = 0.0, []
    for _, _, us, gap in STEP:
        starts.append(round(at / 1e3, 6))
        at += us + gap
    assert block.events.start == tuple(starts)
    assert block.events.duration == tuple(us / 1e3 for _, _, us, _ in STEP)
    assert [block.names[number] for number in block.events.name] == [name for name, *_ in STEP]
    rows = [block.rows[number] for number in block.events.row]
    assert rows[0] == EventRow("norms", "norms and elementwise") and STEP[0][0] == NORM
    assert rows[1] == EventRow("unknown", "unknown", known=False)  # a product, without a model
    assert rows[2] == EventRow("attention", "attention core") and STEP[2][0] == FLASH


def test_layers_are_bands(analysis: Analysis, tmp_path: Path) -> None:
    """Without a model the products stay unknown, so that a layer is drawn from its attention on."""
    block = timeline(analysis)
    layer_us = sum(us + gap for _, _, us, gap in LAYER)
    attention_us = sum(us + gap for _, _, us, gap in LAYER[:2])
    end_us = STEP_US - BETWEEN_US
    assert block.bands == (
        Band(attention_us / 1e3, (attention_us + layer_us) / 1e3, "layer 0"),
        Band((attention_us + layer_us) / 1e3, end_us / 1e3, "layer 1"),
    )
    assert block.caption == "2 layers, told by runs of attention."
    document = Document("t", (block,))
    assert "layer 1" in render(document, "html") and "told by runs of attention" in render(document, "markdown")
    assert "┬" in render(document, "text", width=100, colour=False)


def test_a_record_of_version_1_has_no_layers_and_still_loads(analysis: Analysis) -> None:
    saved = json.loads(encode(analysis))
    assert saved["version"] == 2 and decode(encode(analysis), {"trace": Analysis}) == analysis
    del saved["record"]["layers"]
    old = decode(json.dumps({**saved, "version": 1}).encode(), {"trace": Analysis})
    assert isinstance(old, Analysis) and old == msgspec.structs.replace(analysis, layers=None)
    assert timeline(old).bands == ()


def test_layers_that_were_edited_are_refused(analysis: Analysis) -> None:
    assert analysis.layers is not None
    edited = msgspec.structs.replace(analysis.layers, starts_ns=analysis.layers.starts_ns[::-1])
    data = encode(msgspec.structs.replace(analysis, layers=edited))
    with pytest.raises(RecordError, match="its layers do not follow each other"):
        decode(data, {"trace": Analysis})


def test_rows_have_the_reports_order_whatever_the_step_has(analysis: Analysis) -> None:
    few = with_events(analysis, *(Moment(row, 1, 0, row, 0) for row in range(4)),
                      rows=("unknown", "copy", "head", "attn.core"))  # fmt: skip
    names = [row.name for row in timeline(few).rows]
    assert names == [*(row.title for row in ROWS.values()), "copy", "unknown"]
    assert [names[row] for row in timeline(few).events.row] == ["unknown", "copy", "lm_head", "attention"]
    assert [row.known for row in timeline(few).rows[-2:]] == [True, False]
    assert timeline(analysis).rows[: len(ROWS)] == timeline(few).rows[: len(ROWS)]


def test_an_event_that_outlasts_the_step_is_whole(analysis: Analysis) -> None:
    wall_ns = analysis.breakdown.wall_ns
    block = timeline(with_events(analysis, Moment(0, 10, 0, 0, 0), Moment(wall_ns - 500, 2500, 1, 0, 1)))
    assert block.span == round((wall_ns + 2000) / 1e6, 6)
    assert block.events.duration == (0.00001, 0.0025)
    assert block.marks == (Mark(wall_ns / 1e6, "the next step begins"),)


def test_events_of_a_record_are_put_in_order(analysis: Analysis) -> None:
    block = timeline(with_events(analysis, Moment(2000, 10, 0, 0, 1), Moment(1000, 20, 0, 0, 0)))
    assert (block.events.start, block.events.name) == ((0.001, 0.002), (0, 1))


def test_a_page_is_bounded_and_says_so(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepline, "MOST_EVENTS", 3)
    moments = [Moment(number * 10_000, 4000, 0, 0, 0) for number in range(5)]
    block = timeline(with_events(analysis, *moments))
    assert block.events.start == (0.0, 0.01, 0.02) and block.span == 0.03 and not block.marks
    wall = f"{analysis.breakdown.wall_ns / 1e6:,.3f}"
    assert block.caption == f"The first 3 of 5 events: 0.030 of the step's {wall} ms. Shares are of that."
    moments[1] = Moment(10_000, 50_000, 1, 0, 0)
    block = timeline(with_events(analysis, *moments))
    assert block.span == 0.06 and block.marks == (Mark(0.03, "events that begin later are left out"),)
    assert "The first 3 of 5 events" in render(Document("", (block,)), "text", width=100, colour=False)


def test_a_long_step_makes_a_page_of_a_megabyte_or_so(analysis: Analysis) -> None:
    wall_ns = analysis.breakdown.wall_ns
    moments = [Moment(number * wall_ns // 70_000, 2, number % 3, 0, number % 2) for number in range(70_000)]
    page = render(trace_document(with_events(analysis, *moments)), "html")
    assert "The first 20,000 of 70,000 events" in page
    assert 300_000 < len(page) < 1_000_000


def test_a_record_without_events_has_no_timeline(analysis: Analysis) -> None:
    assert step_timeline(with_events(analysis)) == []


def test_a_form_that_has_no_room_leaves_it_out(analysis: Analysis) -> None:
    (block,) = step_timeline(analysis, terminal=False)
    document = Document("t", (block,))
    assert "stream 7" not in render(document, "text", width=100, colour=False)
    assert "stream 7" in render(document, "markdown") and "stream 7" in render(document, "html")
