"""An engine that refuses what it takes by itself does not start: the record says so, and the page at its top."""

import pytest

from sublight.audit.ladder import Answer, Ladder, Proof, Rung, failed, passed, unknown
from sublight.audit.record import Audit, Auto, EngineAudit, MachineSummary, Timings
from sublight.records import decode, encode
from sublight.report.text import render_text
from sublight.report.views.audit import audit_document
from tests.audit.scenes import target

REFUSED = "refused: SparseBackend: compute capability not supported"
OTHERS = "for another backend is needed"


def ladder(area: str, name: str, usable: bool = True, ran: bool = False) -> Ladder:
    reach = passed(Rung.REACHABLE, "it runs") if usable else failed(Rung.REACHABLE, REFUSED, hint="another one")
    executed = (
        passed(Rung.EXECUTED, "it ran", Proof("log", "a.log:3", "x")) if ran else unknown(Rung.EXECUTED, "no GPU")
    )
    rest = (unknown(rung, "nobody asked") for rung in (Rung.CORRECT, Rung.FAST))
    read = (passed(rung, "found") for rung in (Rung.INSTALLED, Rung.IMPORTABLE, Rung.CAPABLE))
    return Ladder(
        area=area, name=name, flag=f"--{area} {name}",
        steps=(passed(Rung.DECLARED, "in the list"), reach, *read, executed, *rest),
    )  # fmt: skip


def audit(*ladders: Ladder, why: str = REFUSED, answer: Answer = Answer.FAIL) -> Audit:
    auto = Auto(area="attention", answer=answer, why=why, destination="x.Sparse")
    made = Audit(
        machine=MachineSummary(name="here", python=""),
        target=target(),
        engines=(EngineAudit(name="tiny", version="1", distribution="tiny", place="", ladders=ladders, autos=(auto,)),),
        timings=Timings(asking_s=0.1, reading_s=0.1, importing_s=0.0, imported=0, cached=False),
    )
    saved = decode(encode(made), {Audit.schema: Audit})
    assert isinstance(saved, Audit)
    return saved


def page(made: Audit) -> str:
    """Its words, each line after the next."""
    return " ".join(render_text(audit_document(made), width=200, colour=False).replace("┃", " ").split())


def test_where_each_backend_has_a_no_the_page_begins_with_it_and_no_flag_reads_as_if_it_started() -> None:
    made = audit(ladder("moe", "fine"), ladder("attention", "sparse", usable=False))
    assert [(stop.engine, stop.area, stop.why, stop.instead) for stop in made.stops] == [
        ("tiny", "attention", REFUSED, ())
    ]
    text = page(made)
    top = text.partition("machine here")[0]
    assert "tiny does not start" in top
    assert "attention backend has a no" in top
    assert "Flags worth trying" not in text
    said = text.partition("Flags once it starts")[2]
    assert (
        "tiny does not start so: it refuses what it takes for attention by itself; each attention backend has a no, "
        "and none of these flags changes that." in said
    )
    assert "--moe fine" in said


def test_where_another_backend_is_left_its_flag_is_needed() -> None:
    made = audit(ladder("moe", "fine"), ladder("attention", "sparse", usable=False), ladder("attention", "dense"))
    assert [stop.instead for stop in made.stops] == [("--attention dense",)]
    text = page(made)
    assert OTHERS in text.partition("machine here")[0]
    assert "by itself; it needs one of these: --attention dense." in text.partition("Flags worth trying")[2]


@pytest.mark.parametrize(
    ("why", "answer", "stops"),
    [
        ("accepted, but the server stops when the group of ranks is made: KeyError: 12", Answer.FAIL, 1),
        ("accepted, but fails when a layer is made: 'NoneType' object has no attribute 'x'", Answer.FAIL, 1),
        ("no product of this checkpoint is FP4: it is BF16", Answer.FAIL, 0),
        ("nothing is summed: one rank holds every layer", Answer.FAIL, 0),
        ("Sparse decodes", Answer.PASS, 0),
        (REFUSED, Answer.NOT_KNOWN, 0),
    ],
)
def test_only_what_ends_the_start_stops_it(why: str, answer: Answer, stops: int) -> None:
    made = audit(ladder("attention", "dense"), why=why, answer=answer)
    assert len(made.stops) == stops
    assert ("does not start" in page(made)) is bool(stops)


def test_what_was_seen_running_started() -> None:
    assert audit(ladder("attention", "dense", ran=True)).stops == ()
