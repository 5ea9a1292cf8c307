"""What comes back in several areas of a page stands once: sentences, things to try, and what a package ships."""

import msgspec

from sublight.audit.code import Coverage
from sublight.audit.ladder import Ladder, Rung, failed, passed, unknown
from sublight.audit.record import (
    Audit,
    BackendCode,
    Capability,
    CodeSet,
    EngineAudit,
    MachineSummary,
    Timings,
)
from sublight.report.text import render_text
from sublight.report.views.audit import audit_document
from tests.audit.scenes import target

NOT_TRIED = "importing {} was not tried: no interpreter was named, only a folder"
ALL_THERE = f"the sources have every symbol that it imports; {NOT_TRIED.format('them')}"
ONE = f"triton: the source of triton is not here; {NOT_TRIED.format('it')}; and 3 more symbols alike"
NVCC = "built here by nvcc; what there is, is not known: nobody looked"
TRY = "the same with --python"


def ladder(area: str, name: str, imports: str, capable: str = NVCC) -> Ladder:
    return Ladder(
        area=area,
        name=name,
        flag=f"--{area} {name}",
        steps=(
            passed(Rung.DECLARED, "in the list"),
            passed(Rung.REACHABLE, "it runs"),
            passed(Rung.INSTALLED, "it is there"),
            unknown(Rung.IMPORTABLE, imports, hint=TRY),
            unknown(Rung.CAPABLE, capable, hint="a small call"),
            *(unknown(rung, "no GPU") for rung in (Rung.EXECUTED, Rung.CORRECT, Rung.FAST)),
        ),
    )


def page(*ladders: Ladder, code: tuple[BackendCode, ...] = ()) -> tuple[str, list[str]]:
    """The text, and its lists' items, each on one line."""
    engine = EngineAudit(name="tiny", version="1", distribution="tiny", place="", ladders=ladders, code=code)
    audit = Audit(
        machine=MachineSummary(name="here", python=""),
        target=target(),
        engines=(engine,),
        timings=Timings(asking_s=0.1, reading_s=0.1, importing_s=0.0, imported=0, cached=False),
    )
    text = render_text(audit_document(audit), width=120, colour=False)
    return text, [" ".join(item.partition("\n\n")[0].split()) for item in text.split("• ")[1:]]


def test_what_is_not_known_in_several_areas_stands_once_with_the_backends_by_area() -> None:
    text, items = page(
        *(ladder("moe", name, ALL_THERE) for name in ("a", "b", "c", "d")),
        ladder("attention", "e", ALL_THERE, "its gate could not be decided"),
        ladder("attention", "f", ONE, "its gate could not be decided"),
        ladder("all-reduce", "g", ALL_THERE),
    )
    assert items == [
        "e, f: capable: its gate could not be decided.",
        "f: importable: triton: the source of triton is not here; and 3 more symbols alike.",
        "importable: the sources have every symbol that it imports. (4 MoE backends; attention: e; all-reduce: g)",
        "importable: importing was not tried: no interpreter was named, only a folder. (4 MoE backends; attention: e, "
        "f; all-reduce: g)",
        "capable: built here by nvcc; what there is, is not known: nobody looked. (4 MoE backends; all-reduce: g)",
        "for importable: the same with --python.",
        "for capable: a small call.",
    ]
    assert text.count("was not tried") == text.count("built here by nvcc") == text.count(TRY) == 1


def test_what_is_of_one_area_stays_there() -> None:
    text, items = page(ladder("moe", "one", ALL_THERE), ladder("moe", "two", ALL_THERE))
    assert "several areas" not in text
    assert items[0] == f"one, two: importable: {ALL_THERE}. Try: {TRY}."


def test_words_that_many_refusals_end_in_stand_below_them() -> None:
    end = ", for a cache of BF16"
    refused = [
        msgspec.structs.replace(made, steps=(made.steps[0], failed(Rung.REACHABLE, why, hint="no"), *made.steps[2:]))
        for why, made in (
            (f"refused: {why}{tail}", ladder("attention", f"n{number}", ALL_THERE))
            for number, (why, tail) in enumerate((("x", end), ("y", end), ("z", end), ("x", end), ("w", "")))
        )
    ]
    text, items = page(*refused)
    assert [item.partition(" Try")[0] for item in items] == [
        "n0, n3: not reachable: refused: x.",
        "n1: not reachable: refused: y.",
        "n2: not reachable: refused: z.",
        "n4: not reachable: refused: w.",
    ]
    assert "This is for a cache of BF16." in text


def test_what_a_package_ships_stands_once_whatever_areas_use_it() -> None:
    found = CodeSet(package="tiny", coverage=Coverage(targets=("sm_90", "sm_120"), units=4, runs=2, exact=2))
    code = tuple(
        BackendCode(area=area, name=name, capability=Capability(code=(found,)))
        for area, name in (("moe", "a"), ("attention", "e"))
    )
    text, _ = page(ladder("moe", "a", ALL_THERE), ladder("attention", "e", ALL_THERE), code=code)
    assert text.count("tiny ships sm_90, sm_120") == 1
    assert text.count("2 of 4 units run, 2 exact") == 2
