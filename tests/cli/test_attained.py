"""What benchmarks attained, in the report of a campaign."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from sublight.bench.record.comm import CommBench
from sublight.bench.record.kernels import KernelBench
from sublight.records import decode, encode
from tests.bench.test_records import bench
from tests.cli.conftest import Run
from tests.cli.test_edited_bench import made

Sublight = Callable[..., Run]


def rows(done: Run) -> str:
    assert (done.code, done.err) == (0, "")
    return " ".join(done.out.split())


def test_a_peer_in_another_format_is_no_share_of_a_read(sublight: Sublight, tmp_path: Path) -> None:
    """As in `bench kernels`: its bytes are not those that the read was of."""
    (tmp_path / "c").mkdir()
    kernels = bench()
    (tmp_path / "c" / "k.json").write_bytes(encode(kernels))
    assert "%" in rows(sublight("report", "c", "--width", "200"))
    (shape,) = kernels.shapes
    other = tuple(msgspec.structs.replace(r, bytes=r.bytes * 4) for r in shape.results)
    wider: KernelBench = msgspec.structs.replace(kernels, shapes=(msgspec.structs.replace(shape, results=other),))
    (tmp_path / "c" / "k.json").write_bytes(encode(wider))
    assert "%" not in rows(sublight("report", "c", "--width", "200"))


def test_records_that_are_not_shown_are_named(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    data = made("comm")
    full = decode(data, {"bench-comm": CommBench})
    (tmp_path / "c" / "b.json").write_bytes(data)
    small = msgspec.structs.replace(full, processes=2, tokens=16)
    (tmp_path / "c" / "a.json").write_bytes(encode(small))
    said = rows(sublight("report", "c", "--width", "200"))
    assert "collectives, time of a call: glm-5-nvfp4, TP8, batch 1, over 8 processes, NVIDIA H200 (b.json)" in said
    assert "Not shown, as b.json is shown of collectives: a.json (glm-5-nvfp4, TP8, batch 16, over 2 processes)" in said


def test_a_row_says_its_unit_and_its_share(sublight: Sublight, tmp_path: Path) -> None:
    """78 calls of 30 us take 2.34 ms; 32 MB past the last read, 3 MB in 3 us, take 32 us each."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "o.json").write_bytes(made("ops"))
    said = rows(sublight("report", "c", "--width", "200"))
    assert "rows of a step, time of all calls of a step: glm-5-nvfp4, TP8, batch 1, context 1,024" in said
    assert "2.34 ms 107 % cuBLAS" in said.replace("\u2502", "").replace("  ", " "), said
