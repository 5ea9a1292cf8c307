"""Records of benchmarks that were changed after they were written: refused when they are read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sublight.bench.record.comm import CommBench, Message, Way
from sublight.bench.record.kernels import Ceilings
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.records import encode
from tests.bench.test_records import WHERE, bench, measurement
from tests.cli.conftest import Run
from tests.cli.test_edited_records import Edit, at, changed, refused

Sublight = Callable[..., Run]
SEEN = at("environment", "clocks_mhz", value={"sm": -1})
TIMING = ("measurement", "timing")
KERNELS: list[tuple[Edit, str]] = [
    (SEEN, "$.environment.clocks_mhz[...]"),
    (at("environment", "sm_count", value=0), "$.environment.sm_count"),
    (at("ceilings", "copy_bytes_per_s", value=0), "$.ceilings.copy_bytes_per_s"),
    (at("ceilings", "read_s", value=[]), "$.ceilings.read_s"),
    (at("ceilings", "read_s", value=[[3e6, 3e-6], [1e6, 2e-6]]), "times of reads rise with their sizes"),
    (at("ceilings", "read_s", 0, value=[0, 2e-6]), "$.ceilings.read_s[0][0]"),
    (at("shapes", value=[]), "$.shapes"),
    (at("shapes", 0, "tokens", value=0), "$.shapes[0].tokens"),
    (at("shapes", 0, "floor_s", value=0), "$.shapes[0].floor_s"),
    (at("shapes", 0, "bytes", value=0), "$.shapes[0].bytes"),
    (at("shapes", 0, "results", value=[]), "there is no result at "),
    (at("shapes", 0, "results", 0, "measurement", "sets", value=0), ".measurement.sets"),
    (at("shapes", 0, "results", 0, "measurement", "sets", value=-1), ".measurement.sets"),
    (at("shapes", 0, "results", 0, *TIMING, "rounds", value=0), ".timing.rounds"),
    (at("shapes", 0, "results", 0, *TIMING, "calls", value=10**29), ".timing.calls"),
    (at("shapes", 0, "results", 0, *TIMING, "median_s", value=1.0), "quartiles are above zero and in order"),
    (at("shapes", 0, "results", 0, "measurement", "agreed", "runs", value=0), ".agreed.runs"),
    (at("shapes", 0, "results", 0, "measurement", "agreed", "relative_error", value=0.5), "does not agree within"),
    (at("shapes", 0, "results", 0, "measurement", "agreed", "modes", value=["eager"]), "nothing was compared"),
    (at("shapes", 0, "results", 0, "measurement", "clock", value="stopwatch"), ".measurement.clock"),
    (at("environment", "driver", value="1.0"), "a time of environment"),
]
OPS: list[tuple[Edit, str]] = [
    (SEEN, "$.environment.clocks_mhz[...]"),
    (at("tokens", value=0), "$.tokens"),
    (at("context", value=0), "$.context"),
    (at("rows", value=[]), "$.rows"),
    (at("rows", 0, "parts", value=[]), "$.rows[0].parts"),
    (at("rows", 0, "parts", 0, "count", value=0), ".parts[0].count"),
    (at("rows", 0, "parts", 0, "bytes", value=-1), ".parts[0].bytes"),
    (at("ceilings", "read_s", value=[]), "$.ceilings.read_s"),
]
COMM: list[tuple[Edit, str]] = [
    (at("tokens", value=0), "$.tokens"),
    (at("processes", value=1), "$.processes"),
    (at("messages", value=[]), "$.messages"),
    (at("messages", 0, "rows", "comm.mlp", value=-1), "$.messages[0].rows[...]"),
    (at("messages", 0, "rows", value={}), "$.messages[0].rows"),
    (at("messages", 0, "ways", value=[]), "$.messages[0].ways"),
    (at("messages", 0, "payload_bytes", value=0), "$.messages[0].payload_bytes"),
]
CEILINGS = Ceilings(copy_bytes_per_s=4.2e12, read_s=((1e6, 2e-6), (3e6, 3e-6)), read_by="a kernel")


def made(kind: str) -> bytes:
    if kind == "kernels":
        return encode(bench())
    if kind == "ops":
        part = Part(what="x", library="cuBLAS", count=78, bytes=32e6, measurement=measurement(30e-6))
        rows = (OpRow(id="attn.o", parts=(part,)),)
        return encode(
            OpsBench(
                environment=WHERE,
                seed=0,
                model="glm-5-nvfp4",
                layout="TP8",
                tokens=1,
                context=1024,
                kv_dtype="bf16",
                ceilings=CEILINGS,
                rows=rows,
            )
        )
    ways = (Way(name="NCCL", measurement=measurement(20e-6)),)
    message = Message(operation="all-reduce", payload_bytes=12288, rows={"comm.mlp": 78}, ways=ways)
    return encode(
        CommBench(
            environment=WHERE,
            seed=0,
            model="glm-5-nvfp4",
            layout="TP8",
            processes=8,
            tokens=1,
            topology="",
            messages=(message,),
        )
    )


@pytest.mark.parametrize(
    ("kind", "edit", "found"),
    [(kind, *case) for kind, cases in (("kernels", KERNELS), ("ops", OPS), ("comm", COMM)) for case in cases],
)
def test_numbers_that_cannot_be(sublight: Sublight, tmp_path: Path, kind: str, edit: Edit, found: str) -> None:
    (tmp_path / "b.json").write_bytes(made(kind))
    assert sublight("show", "b.json").code == 0
    changed(tmp_path, "b.json", edit)
    refused(sublight("show", "b.json", "--width", "400"), "b.json", found)
