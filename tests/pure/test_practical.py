"""The practical prediction of a row is never below the row's floor, and the total is the sum of its rows."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublight.errors import UsageError
from sublight.facts.gpu import get_gpu, gpu_names, with_bandwidth
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Speculation, Workload, check_fit
from sublight.limits.closing import limit_flaws
from sublight.limits.decode import DecodeLimit, decode_limit

MEASURED = [name for name in gpu_names() if get_gpu(name).read_curve is not None]
MODELS = ["gpt-oss-120b", "glm-5-nvfp4", "qwen3-next-80b-a3b", "qwen3-30b-a3b", "deepseek-v3.2", "llama-4-maverick"]


def closes(found: DecodeLimit) -> None:
    for row in found.rows:
        assert row.practical_s is not None and row.practical_s >= row.time_s, row.id
    messages = found.totals.best_s.known - found.totals.rows_s
    rows_s = sum(row.practical_s or 0.0 for row in found.rows)
    assert found.totals.practical_s.known == pytest.approx(rows_s + messages, rel=1e-9)
    assert found.totals.practical_s.known >= found.totals.best_s.known * (1 - 1e-9)
    assert list(limit_flaws(found)) == []


def test_logits_that_do_not_fit_in_l2_are_read_in_practice_too() -> None:
    """250 sequences of 201,088 FP32 logits are 201 MB: past the L2 of an H200, so the floor reads them from memory."""
    card = get_gpu("h200")
    work = Workload(batch=500, context=131072, layout=Layout(tp=2, dp=2))
    found = decode_limit(read_model("gpt-oss-120b"), card, work, interconnect_for(card))
    row = found.row("sampling")
    moved = row.cost.bytes.activations
    assert moved == 250 * 201_088 * 4
    assert row.time_s == pytest.approx(moved / 4.8e12)
    assert card.read_curve is not None
    assert row.practical_s == max(card.read_curve.seconds(moved), row.time_s)
    closes(found)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_row_is_predicted_below_its_floor(data: st.DataObject) -> None:
    card = get_gpu(data.draw(st.sampled_from(MEASURED)))
    if data.draw(st.booleans()):
        # Below, and above, what the curve was measured at.
        card = with_bandwidth(card, data.draw(st.sampled_from([2e11, 1e12, 9e12])), source="test")
    tp = data.draw(st.sampled_from([1, 2, 4, 8]))
    layout = Layout(tp=tp, dp=data.draw(st.sampled_from([1, tp])), ep=data.draw(st.sampled_from([1, tp])))
    options: dict[str, Any] = {}
    if data.draw(st.booleans()):
        options["speculation"] = Speculation(draft_length=2, verify_width=3)
    work = Workload(
        batch=data.draw(st.integers(1, 4096)) * tp, context=data.draw(st.integers(1, 200_000)), layout=layout, **options
    )
    model = read_model(data.draw(st.sampled_from(MODELS)))
    try:
        check_fit(model, work)
    except UsageError:
        return  # a cut that this model does not allow
    closes(decode_limit(model, card, work, call_s=1e-5))
