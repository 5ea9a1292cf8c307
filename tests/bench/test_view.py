"""What a page says of a benchmark: the limit first, ratios to the best peer, and every doubt beside its number."""

from typing import Any

import msgspec

from sublight.bench.record.comm import CommBench, Message, Way
from sublight.bench.record.kernels import Ceilings, Checked, KernelBench, Result, Shape
from sublight.bench.record.measurement import Timing
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.report.blocks import Curves, Document, Headline, Table
from sublight.report.text import render_text
from sublight.report.views import document
from tests.bench.test_records import WHERE, measurement

CEILINGS = Ceilings(
    copy_bytes_per_s=4.247e12,
    read_s=((10485760, 4.31e-6), (20971520, 6.63e-6), (41943040, 11.1e-6)),
    read_by="a kernel",
)
COMMON: dict[str, Any] = {"environment": WHERE, "seed": 0, "model": "glm-5-nvfp4", "layout": "TP8"}


def result(name: str, us: float, kind: str = "peer", byte_count: float = 21e6, **changes: Any) -> Result:
    return Result(name=name, kind=kind, bytes=byte_count, measurement=measurement(us * 1e-6, **changes))


def shape(tokens: int, *results: Result) -> Shape:
    return Shape(
        tokens=tokens, experts_hit=8, bytes=21e6, copy_s=5e-6, floor_s=6.6e-6, routing="uniform", results=results
    )


def kernels(*shapes: Shape, **changes: Any) -> KernelBench:
    fields = COMMON | {"problem": "p", "weight_format": "nvfp4", "ceilings": CEILINGS, "absent": {}, "shapes": shapes}
    return KernelBench(**(fields | changes))


def table(page: Document) -> list[list[str]]:
    found = next(b for b in page.blocks if isinstance(b, Table))
    return [[cell.text for cell in line.cells] for line in found.lines]


def test_a_shape_begins_with_its_limit_and_ours_come_first() -> None:
    page = document(
        kernels(shape(1, result("humming", 24.0), result("marlin", 23.6), result("decode", 13.2, "kernel")))
    )
    limit, ours, *peers = table(page)
    assert limit[:3] == ["1", "limit: one read of 21.0 MB", "6.60"]
    # 6.6 us of reading over 13.2, 5 us of copying over 13.2, 23.6 over 13.2.
    assert ours[1:3] == ["decode", "13.2"]
    assert ours[5:8] == ["38 %", "50 %", "1.79x"]
    assert [line[1] for line in peers] == ["marlin", "humming"]
    assert peers[0][7] == "1.00x"


def test_doubts_stand_beside_their_numbers() -> None:
    loose = Timing(median_s=10e-6, low_s=9e-6, high_s=11e-6, rounds=60, calls=32, settled=False)
    doubtful = result("a", 10.0, timing=loose, cold=False, warning="faster than memory allows, cache-hot")
    own = result("b", 20.0, byte_count=75e6)
    wrong = Result(name="c", kind="kernel", bytes=21e6, reason="graph: output all zero")
    lines = {line[1]: line[-1] for line in table(document(kernels(shape(1, doubtful, own, wrong))))}
    assert lines["a"] == (
        "faster than memory allows, cache-hot; part of its weights may lie in the cache; spread 20 % when time was up"
    )
    assert lines["b"] == "75.0 MB in its format"
    assert lines["c"] == "graph: output all zero"


def test_the_chart_has_the_limits_in_it() -> None:
    page = document(kernels(shape(1, result("decode", 13.0, "kernel")), shape(2, result("decode", 20.0, "kernel"))))
    chart = next(b for b in page.blocks if isinstance(b, Curves))
    assert [c.name for c in chart.curves] == ["limit: one read", "limit: copy rate", "decode"]
    assert chart.curves[2].points == ((1.0, 13.0), (2.0, 20.0))


def test_a_sweep_that_found_a_hole() -> None:
    swept = (Checked(name="decode", tokens=3), Checked(name="decode", tokens=6, reason="output all zero"))
    text = render_text(
        document(kernels(shape(1, result("decode", 13.0, "kernel")), swept=swept)), width=100, colour=False
    )
    assert "decode at 6 tokens: output all zero" in text
    assert "at 2 more numbers of tokens, 3 to 6: 1 does not" in text


def test_two_that_are_wrong_alike_point_at_what_they_share() -> None:
    swept = tuple(Checked(name=name, tokens=3072, reason="eager: output all zero; x") for name in ("a", "b"))
    text = render_text(document(kernels(shape(1), swept=swept)), width=200, colour=False)
    assert "a and b are wrong at the same numbers of tokens (3072): look at what they share" in text
    alone = (*swept[:1], Checked(name="b", tokens=3072))
    assert "what they share" not in render_text(document(kernels(shape(1), swept=alone)), width=200, colour=False)


def test_rows_of_a_step_and_their_sum() -> None:
    parts = (
        Part(
            what="[1, 6144] x [2624, 6144] BF16", library="cuBLAS", count=78, bytes=32e6, measurement=measurement(1e-5)
        ),
    )
    none = (Part(what="x", library="", count=78, bytes=0, reason="not in torch"),)
    rows = (OpRow(id="attn.qkv_a", parts=parts), OpRow(id="attn.core", parts=none))
    bench = OpsBench(**COMMON, tokens=1, context=1024, kv_dtype="bf16", ceilings=CEILINGS, rows=rows)
    qkv, core, total = table(document(bench))
    assert qkv[:5] == ["q_a + kv_a", "78", "10.0", "0.780", "3,200"]
    assert (core[2], core[-1]) == ("not timed", "not in torch")
    assert total[3] == "0.780"
    assert "cuBLAS: q_a + kv_a" in render_text(document(bench), width=100, colour=False)


def test_collectives_and_a_rehearsal() -> None:
    ways = (Way(name="NCCL", measurement=measurement(10e-6)), Way(name="one-shot", reason="not offered"))
    message = Message(operation="all-reduce", payload_bytes=12288, rows={"comm.mlp": 78}, ways=ways)
    bench = CommBench(**COMMON, processes=8, tokens=1, topology="8 GPUs", messages=(message,))
    message_line, nccl, one_shot = table(document(bench))
    assert message_line == ["all-reduce of 12,288 B, 78 calls a step: all-reduce after MLP/MoE", "", "", ""]
    assert nccl[:3] == ["NCCL", "10.0", "0.780"]
    assert (one_shot[1], one_shot[-1]) == ("not timed", "not offered")
    assert "rehearsal" not in render_text(document(bench), width=100, colour=False)
    rehearsed = msgspec.structs.replace(bench, environment=msgspec.structs.replace(WHERE, device="cpu"))
    assert "A rehearsal on a CPU" in render_text(document(rehearsed), width=100, colour=False)


def test_who_ran_and_which_peer_is_the_best() -> None:
    results = (result("a", 24.0), result("b", 23.6), result("decode", 11.8, "kernel"))
    bench = kernels(shape(1, *results), ran={"a": "humming-kernels 0.1.20 with the small kernels of SGLang 0.5.23"})
    assert bench.shapes[0].best_peer is not None
    assert bench.shapes[0].best_peer.name == "b"
    page = document(bench)
    headline = next(b for b in page.blocks if isinstance(b, Headline))
    assert headline.figures[0][2].endswith("; 2.00x the speed of b, the best peer")
    text = " ".join(render_text(page, width=200, colour=False).split())
    assert "a: humming-kernels 0.1.20 with the small kernels of SGLang 0.5.23" in text
    assert shape(1, result("decode", 11.8, "kernel")).best_peer is None
