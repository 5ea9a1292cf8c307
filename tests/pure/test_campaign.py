"""What a campaign makes of benchmarks and audits: which next steps they close, and what of them it keeps."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sublight.audit.ladder import Answer, Ladder, Proof, Rung, Step, failed, passed, unknown
from sublight.audit.record import Audit, AuditFinding, EngineAudit, MachineSummary, Timings
from sublight.audit.target import Target
from sublight.bench.record.comm import CommBench, Message, Way
from sublight.bench.record.kernels import Ceilings, KernelBench, Result, Shape
from sublight.bench.record.ops import OpRow, OpsBench, Part
from sublight.campaign.attained import benches
from sublight.campaign.backends import audits
from sublight.campaign.closing import close_steps
from sublight.campaign.folder import Entry, Folder
from sublight.facts.workload import Layout
from sublight.gap.compare import Gap, compare
from sublight.limits.decode import DecodeLimit
from sublight.records import Record, decode, encode
from tests.bench.test_records import WHERE, measurement
from tests.pure.test_gap import given, limit

HERE = msgspec.structs.replace(WHERE, card="rtx-pro-6000-workstation", title="RTX PRO 6000")
CEILINGS = Ceilings(copy_bytes_per_s=1.5e12, read_s=((1e6, 2e-6), (1.6e9, 1e-3)), read_by="a kernel")
COMMON: dict[str, Any] = {"environment": HERE, "seed": 0, "model": "glm-5-nvfp4", "layout": "TP8"}
CPU = msgspec.structs.replace(HERE, device="cpu")


def timed(us: float, **changes: Any) -> Any:
    return measurement(us * 1e-6, **({"environment": HERE.key} | changes))


@pytest.fixture(scope="module")
def gap() -> Gap:
    return compare(limit(), given(0.02), "20ms")


def folder(*records: Record) -> Folder:
    return Folder(Path("c"), tuple(Entry(f"{n}.json", f"2026-01-0{n}", r) for n, r in enumerate(records, 1)), ())


def closed(*records: Record) -> dict[str, str]:
    return {c.step: f"{c.evidence} ({c.file})" for c in close_steps(folder(*records))[0]}


def comm(floor: DecodeLimit, **changes: Any) -> CommBench:
    calls = {c.id: c.calls for c in floor.collectives if c.operation == "all-reduce"}
    ways = (Way(name="NCCL", measurement=timed(20)), Way(name="one-shot", measurement=timed(9)))
    message = Message(operation="all-reduce", payload_bytes=12288, rows=calls, ways=ways)
    fields = COMMON | {"processes": 8, "tokens": 1, "topology": "", "messages": (message,)}
    return CommBench(**(fields | changes))


def ops(**changes: Any) -> OpsBench:
    hot = Part(what="x", library="cuBLAS", count=78, bytes=1.0, measurement=timed(1, warning="cache-hot"))
    cold = Part(what="x", library="cuBLAS", count=78, bytes=32e6, measurement=timed(30))
    rows = (OpRow(id="attn.qkv_a", parts=(cold,)), OpRow(id="attn.o", parts=(hot,)))
    fields = {"tokens": 1, "context": 1024, "kv_dtype": "bf16", "ceilings": CEILINGS, "rows": rows}
    return OpsBench(**(COMMON | fields | changes))


def test_an_all_reduce_of_this_step(gap: Gap) -> None:
    bench = comm(gap.limit)
    assert closed(gap, bench) == {"all-reduce": "an all-reduce was timed: 9.0 us for 12,288 bytes by one-shot (2.json)"}
    assert closed(bench, gap) == {}, "what was measured before did not answer"
    for changes in ({"processes": 4}, {"layout": "TP4"}, {"tokens": 2}, {"model": "glm-5"}, {"environment": CPU}):
        assert closed(gap, comm(gap.limit, **changes)) == {}
    (message,) = bench.messages
    some = msgspec.structs.replace(message, rows=dict(list(message.rows.items())[:1]))
    assert closed(gap, comm(gap.limit, messages=(some,))) == {}, "another all-reduce of the step was not timed"


def test_what_memory_delivers() -> None:
    gap = compare(limit("rtx-pro-6000-server"), given(0.02), "20ms")
    assert "bandwidth" in {step.id for step in gap.steps}
    server = msgspec.structs.replace(HERE, card="rtx-pro-6000-server")
    rehearsal = msgspec.structs.replace(server, device="cpu")
    answer = "1,600 GB/s were read from memory by one launch (2.json)"
    assert closed(gap, ops(environment=server)) == {"bandwidth": answer}
    assert closed(gap, ops(environment=rehearsal)) == closed(gap, ops(environment=WHERE)) == {}


def audit(*engines: EngineAudit, cards: dict[str, int] | None = None, **changes: Any) -> Audit:
    target = Target(
        model="glm-5-nvfp4",
        model_type="glm_moe_dsa",
        architecture="",
        method="modelopt",
        expert_format="NVFP4",
        activation_format="NVFP4",
        shape=None,
        gpu="rtx-pro-6000-workstation",
        compute_capability=(12, 0),
        layout=Layout(tp=8),
    )
    return Audit(
        machine=MachineSummary(name="box", python="", cards=cards or {}),
        engines=engines,
        timings=Timings(asking_s=0, reading_s=0, importing_s=0, imported=0, cached=False),
        **({"target": target} | changes),
    )


def test_the_edition_of_the_card(gap: Gap) -> None:
    assert "edition" in {step.id for step in gap.steps}
    name = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
    assert closed(gap, audit(cards={name: 8})) == {"edition": f"the driver calls all of its cards {name} (2.json)"}
    for cards in ({name: 4}, {"NVIDIA RTX PRO 6000 Blackwell Server Edition": 8}, {name: 7, "NVIDIA H200": 1}, {"": 8}):
        assert closed(gap, audit(cards=cards)) == {}


def ladder(name: str, **steps: Step) -> Ladder:
    declared = passed(Rung.DECLARED, "it is", Proof("source", "a.py:1", name))
    given_steps = {Rung.DECLARED: declared} | {step.rung: step for step in steps.values()}
    every = tuple(given_steps.get(rung) or unknown(rung, "nobody looked") for rung in Rung)
    return Ladder(area="moe", name=name, flag=f"--moe {name}", steps=every)


LINE = Proof("log", "server.log:12", "Using TRITON")
RAN = passed(Rung.EXECUTED, "the log says so", LINE, Proof("log", "server.log:13", "again"))
REFUSED = failed(Rung.REACHABLE, "refused: no", Proof("source", "a.py:9", "raise"), hint="another")
INSIDE = failed(Rung.DECLARED, "in an enumeration only", hint="none")


def engine(name: str, *ladders: Ladder, version: str = "1") -> EngineAudit:
    return EngineAudit(name=name, version=version, distribution=name, place="", ladders=ladders)


def test_the_newest_audit_of_each_engine() -> None:
    fallback = AuditFinding(level="info", subject="experts", text="not what was asked for", proofs=(LINE, LINE))
    other = AuditFinding(level="warn", subject="nvcc", text="it is missing")
    quiet = AuditFinding(level="info", subject="x", text="of no weight")
    first = audit(engine("vllm", ladder("a"), ladder("gone")), engine("sglang", ladder("s")), findings=(other,))
    later = engine("vllm", ladder("a", e=RAN), ladder("b", r=REFUSED), ladder("c", d=INSIDE), version="2")
    second = audit(later, findings=(other, quiet, fallback))
    old, new = audits(folder(first, second))
    assert (old.file, [e.name for e in old.engines]) == ("1.json", ["sglang"])
    assert (new.file, [e.name for e in new.engines]) == ("2.json", ["vllm"])
    (vllm,) = new.engines
    assert (vllm.before, vllm.before_version, vllm.version, vllm.asked_otherwise) == ("1.json", "1", "2", ())
    changes = {c.name: (c.was is not None, c.now is not None) for c in vllm.changes}
    assert changes == {"a": (True, True), "b": (False, True), "gone": (True, False)}
    assert [x.name for x in vllm.ladders] == ["a", "b"], "what only an enumeration has is left out"
    proofs = {(x.name, s.rung): s.proofs for x in vllm.ladders for s in x.steps if s.proofs}
    assert proofs == {("a", Rung.EXECUTED): (LINE,)}
    assert vllm.ladders[1].verdict is not None and vllm.ladders[1].verdict.answer is Answer.FAIL
    assert [(f.subject, len(f.proofs)) for f in new.odd] == [("experts", 1), ("nvcc", 0)]


def test_a_long_list_of_changes_is_cut_and_counted(gap: Gap) -> None:
    from sublight.campaign.findings import findings
    from sublight.report.markdown import render_markdown
    from sublight.report.views import document

    before = audit(engine("vllm", ladder("a")))
    after = audit(engine("vllm", ladder("a"), *(ladder(f"n{number:02}", r=REFUSED) for number in range(20))))
    text = render_markdown(document(findings(folder(gap, before, after), "title")))
    changed = text.partition("What changed in vllm")[2].partition("\n#")[0]
    assert changed.count(": not there, now") == 12
    assert "8 more changes: 8 of MoE; --json has them all." in changed


def test_an_audit_is_held_against_one_that_asked_the_same() -> None:
    one, two = engine("vllm", ladder("a"), version="1"), engine("vllm", ladder("a"), version="2")
    asked = audit().target
    assert asked is not None
    elsewhere = msgspec.structs.replace(asked, layout=Layout(tp=4))
    (found,) = audits(folder(audit(one), audit(two, target=elsewhere), audit(two)))
    assert (found.engines[0].before, found.engines[0].asked_otherwise) == ("1.json", ())
    (found,) = audits(folder(audit(one), audit(two, target=elsewhere)))
    assert found.engines[0].asked_otherwise == ("layout TP4, asked before was TP8",)
    assert audits(folder(audit(target=None))) == ()


def test_what_was_attained(gap: Gap) -> None:
    results = (
        Result(name="ours", kind="kernel", bytes=21e6, measurement=timed(14)),
        Result(name="hot", kind="peer", bytes=21e6, measurement=timed(2, warning="cache-hot")),
        Result(name="oracle", kind="reference", bytes=21e6, measurement=timed(3)),
        Result(name="peer", kind="peer", bytes=21e6, reason="not installed"),
    )
    shape = Shape(tokens=1, experts_hit=8, bytes=21e6, copy_s=13e-6, floor_s=12e-6, routing="uniform", results=results)
    fields = COMMON | {"problem": "p", "weight_format": "nvfp4", "ceilings": CEILINGS, "absent": {}}
    kernels = KernelBench(**fields, shapes=(shape,))
    rehearsal = ops(environment=CPU)
    found = {b.kind: b for b in benches(folder(kernels, ops(), comm(gap.limit), rehearsal))}
    assert {kind: b.file for kind, b in found.items()} == {
        "bench-kernels": "1.json", "bench-ops": "2.json", "bench-comm": "3.json",
    }  # fmt: skip
    (best,) = found["bench-kernels"].attained
    assert (best.by, best.time_s, best.read_s) == ("ours", pytest.approx(14e-6), 12e-6)
    (row,) = found["bench-ops"].attained
    assert (row.row, row.time_s, found["bench-ops"].without_time) == ("attn.qkv_a", pytest.approx(78 * 30e-6), 1)
    assert found["bench-ops"].read_bytes_per_s == pytest.approx(1.6e12)
    (message,) = found["bench-comm"].attained
    assert (message.by, message.time_s) == ("one-shot", pytest.approx(9e-6))
    assert [b.rehearsal for b in benches(folder(rehearsal))] == [True]


def test_the_record_and_its_page(gap: Gap) -> None:
    from sublight.campaign.findings import Findings, findings
    from sublight.report.markdown import render_markdown
    from sublight.report.views import document

    refused = [ladder(f"{letter}{letter}", r=REFUSED) for letter in "cdef"]
    vllm = engine("vllm", ladder("a", e=RAN), ladder("b", i=failed(Rung.INSTALLED, "it is absent", hint="x")), *refused)
    made = findings(folder(gap, comm(gap.limit), ops(), audit(vllm)), "title")
    assert decode(encode(made), {"findings": Findings}) == made
    assert list(made.flaws()) == []
    cut = msgspec.structs.replace(vllm.ladders[0], steps=vllm.ladders[0].steps[:3])
    (kept,) = made.audits
    edited = msgspec.structs.replace(kept.engines[0], ladders=(cut,))
    audits_ = (msgspec.structs.replace(kept, engines=(edited,)),)
    assert "has not each rung once" in next(iter(msgspec.structs.replace(made, audits=audits_).flaws()))
    text = render_markdown(document(made))
    assert "| **a** | executed here | log: server.log:12 |" in text
    assert "| b | not installed |  | it is absent |" in text
    assert "- MoE, refused: cc, dd, ee, ff" in text and "| cc |" not in text
    assert "all-reduce, 12.3 kB | 9.00 us |  | one-shot |" in text
    assert "| q_a + kv_a | 2.34 ms | 71 % | cuBLAS |" in text
    assert "memory read at 1,600 GB/s, 1 without a time" in text
