"""Reasons on the page of an audit: what is true of several backends is said once, with their names in front."""

from sublight.audit.code import Coverage
from sublight.audit.ladder import Answer, Ladder, Proof, Rung, failed, passed, unknown
from sublight.audit.record import Audit, Auto, BackendCode, Capability, CodeSet, EngineAudit, MachineSummary, Timings
from sublight.report.text import render_text
from sublight.report.views.audit import audit_document
from tests.audit.scenes import target


def ladder(name: str, why: str, *, hint: str = "", destination: str = "", where: tuple[str, ...] = ()) -> Ladder:
    proofs = tuple(Proof("source", place, "") for place in where)
    rest = (unknown(rung, "nobody asked") for rung in tuple(Rung)[2:])
    steps = (
        passed(Rung.DECLARED, "in the list"),
        failed(Rung.REACHABLE, why, *proofs, hint=hint or "another one"),
        *rest,
    )
    return Ladder(area="moe", name=name, flag=f"--moe {name}", destination=destination, steps=steps)


def page(*ladders: Ladder, auto: str = "", code: tuple[BackendCode, ...] = (), width: int = 100) -> str:
    autos = (Auto(area="moe", answer=Answer.PASS, why=auto, destination="engine.run"),) if auto else ()
    engine = EngineAudit(
        name="tiny", version="1", distribution="tiny", place="", ladders=ladders, autos=autos, code=code
    )
    timings = Timings(asking_s=0.1, reading_s=0.1, importing_s=0.0, imported=0, cached=False)
    machine = MachineSummary(name="here", python="")
    audit = Audit(machine=machine, target=target(), engines=(engine,), timings=timings)
    return render_text(audit_document(audit), width=width, colour=False)


def why_not(text: str) -> list[str]:
    """The items of the list, each on one line."""
    part = text.partition("Why not\n")[2].partition("\n\nWhat ")[0].partition("\n\nFlags")[0]
    return [" ".join(item.split()) for item in part.split("• ")[1:]]


def test_a_name_is_its_own_in_every_spelling() -> None:
    """As a value, in quotes, and as a member of an enumeration, whose name may have a plural."""
    said = "Unsupported backend for NVFP4: Backend.{}. Use flashinfer_cutlass instead"
    text = page(
        ladder("deep_gemm", said.format("DEEP_GEMM"), where=("a.py:3", "a.py:9")),
        ladder("triton_kernel", said.format("TRITON_KERNELS"), where=("a.py:4", "a.py:9")),
        ladder("cutlass", "'cutlass' is not supported. Use flashinfer_cutlass instead"),
    )
    assert why_not(text) == [
        "deep_gemm, triton_kernel: not reachable: Unsupported backend for NVFP4: (its name). Use flashinfer_cutlass "
        "instead. [a.py:9] Try: another one.",
        "cutlass: not reachable: 'cutlass' is not supported. Use flashinfer_cutlass instead. Try: another one.",
    ]


def test_a_place_that_ends_like_the_name_is_no_name() -> None:
    text = page(ladder("marlin", "no kernels.marlin here"), ladder("triton", "no kernels.triton here"))
    assert [item.partition(" Try")[0] for item in why_not(text)] == [
        "marlin: not reachable: no kernels.marlin here.",
        "triton: not reachable: no kernels.triton here.",
    ]


def test_what_all_can_try_stands_once_below() -> None:
    reasons = {"one": "first", "two": "second", "three": "third"}
    alike = [ladder(name, f"refused: {reason}", hint="another layout") for name, reason in reasons.items()]
    text = page(*alike, ladder("four", "refused: fourth", hint="another card"))
    assert why_not(text)[:3] == [f"{name}: not reachable: refused: {reason}." for name, reason in reasons.items()]
    assert why_not(text)[3].startswith("four: not reachable: refused: fourth. Try: another card.")
    assert text.count("another layout") == 1
    assert "\nTry for reachable, where nothing else is named: another layout.\n" in text


def test_the_class_of_each_is_left_open_and_one_destination_of_all_is_named() -> None:
    own = "refused: {}: head_size not supported"
    text = page(
        ladder("ONE", own.format("OneBackend"), destination="engine.one.OneBackend"),
        ladder("TWO", own.format("made.TwoBackend"), destination="engine.two.TwoBackend"),
        ladder("three", "accepted, but three runs Fallback", destination="engine.Fallback"),
        ladder("four", "accepted, but four runs Fallback", destination="engine.Fallback"),
    )
    assert [item.partition(" Try")[0] for item in why_not(text)] == [
        "ONE, TWO: not reachable: refused: (its class): head_size not supported.",
        "three, four: not reachable: accepted, but (its name) runs Fallback.",
    ]


def test_words_that_name_no_card_are_completed_from_the_gates() -> None:
    why = "refused: kernel does not support current device cuda"
    claims = {"a": ("10.0", "9.0"), "b": ("9.0", "10.0"), "c": ("10.3",), "d": ("12.0",)}
    code = tuple(
        BackendCode(area="moe", name=name, capability=Capability(claimed=claimed)) for name, claimed in claims.items()
    )
    text = page(*(ladder(name, why) for name in claims), ladder("e", "refused: it is Monday"), code=code)
    assert [item.partition(" Try")[0] for item in why_not(text)] == [
        f"a, b: not reachable: {why}. Gates list compute capability 9.0, 10.0.",
        f"c: not reachable: {why}. Gates list compute capability 10.3.",
        f"d: not reachable: {why}.",
        "e: not reachable: refused: it is Monday.",
    ]


def test_what_auto_passed_over_for_one_reason_is_told_once() -> None:
    text = page(ladder("a", "no"), auto="C (Run); before it: A: not this device; B: not this device; D: not built")
    assert "C (Run); before it: A, B: not this device; D: not built" in " ".join(text.split())
    other = page(ladder("a", "no"), auto="C; before it: nothing; A: no")
    assert "C; before it: nothing; A: no" in " ".join(other.split())


LONG = ("flashinfer_moe_ep_mega_deep_gemm", "flashinfer_trtllm_routed", "marlin")
SHORT = ("flashinfer_cutlass", "marlin")


def test_no_name_is_broken_at_80_columns() -> None:
    """The rungs are then headed by their numbers, which the line below explains."""
    why = "accepted, but it runs a kernel"
    ladders = [ladder(name, why, destination="engine.FlashInferB12xNvFp4LinearKernel") for name in SHORT]
    lines = page(*ladders, width=80).splitlines()
    head = next(line.split() for line in lines if line.startswith("backend "))
    assert head == ["backend", *"12345678", "verdict"]
    rows = [line.split() for line in lines if line.startswith(SHORT) and "✓" in line]
    assert rows == [[name, "✓", "✗", *"??????", "runs", "FlashInferB12xNvFp4LinearKernel"] for name in SHORT]
    assert "✓ yes, ✗ no, ? not known: 1\N{NO-BREAK SPACE}declared, 2\N{NO-BREAK SPACE}reachable" in "".join(lines)
    wide = page(*ladders, width=130).splitlines()
    assert next(line.split() for line in wide if line.startswith("backend "))[1:4] == ["decl", "reach", "inst"]
    longest = page(ladder(LONG[0], "refused: no"), width=80).splitlines()
    assert [line.split()[-1] for line in longest if line.startswith(f"{LONG[0]} ")] == ["refused"]


def test_targets_of_a_package_are_told_once_below_the_table() -> None:
    def code(name: str, package: str, *targets: str) -> BackendCode:
        sets = (CodeSet(package=package, coverage=Coverage(targets=targets, units=2)),)
        return BackendCode(area="moe", name=name, capability=Capability(claimed=("9.0",), code=sets))

    kernels = ("sm_75", "compute_80", "sm_90a")
    codes = (code(LONG[0], "kernels", *kernels), code(LONG[1], "kernels", *kernels), code(LONG[2], "other", "sm_80"))
    text = page(*(ladder(name, f"refused: {name[-1]}") for name in LONG), code=codes, width=80)
    table = text.partition("What gates claim")[2]
    assert table.count("sm_75, PTX 80, sm_90a") == 1
    assert "• kernels ships sm_75, PTX 80, sm_90a" in table
    assert all(f"{name}" in table for name in LONG)
