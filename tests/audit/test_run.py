"""The join: ladders of a small engine in a real environment, with packages that are fine, lost and deadly."""

from pathlib import Path

import msgspec
import pytest

from sublight import records
from sublight.audit import cache as caching
from sublight.audit.auditor import Auditor, Options
from sublight.audit.cache import Cache
from sublight.audit.doors import Door, FolderDoor, InterpreterDoor
from sublight.audit.engines.base import Gate, Pin
from sublight.audit.ladder import Answer, Rung
from sublight.audit.question import Question, ask, card
from sublight.audit.record import Audit
from sublight.audit.routes import symbol_gates
from sublight.audit.snapshot import KeepingDoor, SnapshotDoor
from sublight.audit.source.tree import Sources
from sublight.audit.summary import audit, audit_symbols
from sublight.errors import RecordError, UsageError
from sublight.facts.workload import Layout
from sublight.hosts.local import LocalHost
from sublight.registry import Registry
from sublight.report.text import render_text
from sublight.report.views.audit import audit_document
from tests.audit.elves import library
from tests.audit.machines import Environment
from tests.audit.tiny import SOURCE
from tests.audit.wheels import Disk

P, F, Q = Answer.PASS, Answer.FAIL, Answer.NOT_KNOWN


@pytest.fixture(autouse=True)
def _one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Registry("engine", "sublight.no_such_group", {"tiny": "tests.audit.tiny:TINY"})
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", engines)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    env = Environment(tmp_path / "env")
    env.install("tiny-engine", "2.0", {"tiny/__init__.py": "", "tiny/backends.py": SOURCE}, ["some-kernels==1.4"])
    env.install(
        "some-kernels",
        "1.4",
        {
            "kernels/__init__.py": "",
            "kernels/sturdy.py": "def run(): ...\n",
            "kernels/deadly.py": "import os\nos.abort()\n",
            "kernels/ops.abi3.so": library([["sm_90a", "sm_120a"]] * 3 + [["sm_90a"]]),
        },
    )
    return env


def question(gpu: str = "rtx-pro-6000-server") -> Question:
    return ask("glm-5-nvfp4", card(gpu, None), Layout(tp=8))


def door(env: Environment) -> InterpreterDoor:
    return InterpreterDoor(LocalHost(), env.python, here=True)


def audited(through: Door, cache: Cache | None = None, gpu: str = "rtx-pro-6000-server", **options: object) -> Audit:
    return audit(Auditor(through, Options(**options), cache or Cache(None)), question(gpu))


def answers(made: Audit) -> dict[str, list[Answer]]:
    return {ladder.name: [step.answer for step in ladder.steps] for ladder in made.engines[0].ladders}


def step(made: Audit, name: str, rung: Rung):
    ladder = next(ladder for ladder in made.engines[0].ladders if ladder.name == name)
    return next(step for step in ladder.steps if step.rung is rung)


def test_every_backend_gets_its_own_verdict(environment: Environment) -> None:
    made = audited(door(environment))
    assert (made.engines[0].version, made.engines[0].place) == ("2.0", str(environment.folder))
    assert answers(made) == {
        "sturdy": [P, P, P, P, P, Q, Q, Q],
        "picky": [P, P, P, P, F, Q, Q, Q],
        "rerouted": [P, F, Q, Q, Q, Q, Q, Q],
        "deadly": [P, P, P, F, P, Q, Q, Q],
        "lost": [P, P, P, F, P, Q, Q, Q],
    }
    assert step(made, "deadly", Rung.IMPORTABLE).why == (
        "asked kernels.deadly.run, found importing kernels.deadly ended the process by SIGABRT"
    )
    lost = step(made, "lost", Rung.IMPORTABLE)
    assert lost.why.startswith(
        "asked kernels.nowhere.run, found ModuleNotFoundError: No module named 'kernels.nowhere'"
    )
    assert "it really lives at kernels.sturdy.run" in lost.why
    assert step(made, "sturdy", Rung.CAPABLE).why == "some-kernels: 3 of 4 units are built for sm_120 (75.0 %)"
    assert step(made, "sturdy", Rung.EXECUTED).why.startswith("no GPU was there to run it on")
    assert [flag.flag for flag in made.flags] == ["--moe sturdy"]
    assert made.flags[0].proven == ()
    crashed = [found for found in made.findings if found.subject == "kernels.deadly"]
    assert [found.level for found in crashed] == ["error"]


def test_the_view_says_what_runs_instead(environment: Environment) -> None:
    made = audited(door(environment))
    text = render_text(audit_document(made), width=110, colour=False)
    table = text.partition("What gates claim")[0]
    shown = [line for line in table.splitlines() if line.startswith(("sturdy ", "rerouted ", "deadly "))]
    lines = {line.split()[0]: line for line in shown}
    assert "runs run" in lines["rerouted"]
    assert "not importable" in lines["deadly"]
    assert "accepted, but runs sturdy" in text
    assert "the code refuses sm_120: cc in [(10, 0)] (tiny/backends.py:3)." in text
    assert "--moe sturdy" in text.partition("Flags worth trying")[2]


def test_without_imports_nothing_is_imported(environment: Environment) -> None:
    made = audited(door(environment), imports=False)
    assert step(made, "sturdy", Rung.IMPORTABLE).answer is Q
    assert "--no-import was given" in step(made, "sturdy", Rung.IMPORTABLE).why
    assert made.timings.imported == 0
    assert step(made, "lost", Rung.IMPORTABLE).answer is F  # its source shows as much


def test_a_folder_has_no_interpreter(environment: Environment) -> None:
    made = audited(FolderDoor([environment.folder]))
    assert answers(made)["sturdy"] == [P, P, P, Q, P, Q, Q, Q]
    assert made.machine.python == ""
    assert made.machine.reasons["gpus"] == "no interpreter was named, only a folder"


def test_another_card_gets_other_answers(environment: Environment) -> None:
    made = audited(door(environment), gpu="b200")
    assert step(made, "picky", Rung.CAPABLE).answer is F
    assert "none of it runs on sm_100" in step(made, "picky", Rung.CAPABLE).why
    assert "claimed, not proven on sm_100" in step(made, "picky", Rung.CAPABLE).why


def test_variables_that_nobody_reads(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublight.audit.installation.VARIABLES", ("TINY_",))
    monkeypatch.setenv("TINY_KNOWN", "1")
    monkeypatch.setenv("TINY_KNOWM", "latency")
    found = [item for item in audited(door(environment)).findings if item.subject.startswith("TINY_")]
    assert [(item.subject, item.hint) for item in found] == [("TINY_KNOWM", "TINY_KNOWN")]


def test_no_engine_is_an_error_that_says_where_it_looked(tmp_path: Path) -> None:
    env = Environment(tmp_path / "env")
    with pytest.raises(UsageError) as caught:
        audited(door(env))
    assert caught.value.found == "no engine is there (no distributions were seen)"
    assert env.python in caught.value.asked
    with pytest.raises(UsageError):
        audited(door(env), engines=("tiny",))


def test_an_engine_that_reading_runs_into_degrades(environment: Environment) -> None:
    """The table is written in a way nobody has seen: not known, with the reason, and no traceback."""
    environment.write({"tiny/backends.py": "import os\nBACKENDS = make()\n"})
    made = audited(door(environment))
    assert made.engines[0].ladders == ()
    assert made.engines[0].not_read["moe"].startswith("reading the engine's source ran into ValueError")
    assert made.flags == ()


def test_a_question_that_reading_runs_into_is_told(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version checks that could not be read are none that passed."""

    def pins(self: object, sources: Sources) -> tuple[Pin, ...]:
        raise KeyError("layout")

    monkeypatch.setattr("tests.audit.tiny.Tiny.pins", pins)
    made = audited(door(environment))
    what = "versions that its code checks"
    assert made.engines[0].not_read == {what: "reading the engine's source ran into KeyError: 'layout'"}
    assert f"{what}: not known, reading the engine's source" in " ".join(
        render_text(audit_document(made), width=200, colour=False).split()
    )


def test_a_gate_that_reading_runs_into_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def gates(*asked: object) -> tuple[Gate, ...]:
        raise RecursionError("too deep")

    monkeypatch.setattr("sublight.audit.engines.flashinfer.gates.gates", gates)
    (gate,) = symbol_gates(Sources(Disk(), {"flashinfer": "/nowhere"}), "flashinfer.fused_moe.run", (12, 0))
    assert gate.answer is Answer.NOT_KNOWN
    assert gate.text == "reading the engine's source ran into RecursionError: too deep"
    assert symbol_gates(Sources(Disk(), {}), "flashinfer.fused_moe.run", (12, 0)) == ()


def test_a_description_that_cannot_be_loaded_is_left_out(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"tiny": "tests.audit.tiny:TINY", "torn": "tests.audit.no_such_module:TORN"}
    monkeypatch.setattr("sublight.audit.auditor.ENGINES", Registry("engine", "sublight.no_such_group", known))
    made = audited(door(environment))
    assert [engine.name for engine in made.engines] == ["tiny"]
    (found,) = (found for found in made.findings if found.subject == "torn")
    assert "No module named 'tests.audit.no_such_module'" in found.text
    with pytest.raises(UsageError) as caught:
        audited(door(environment), engines=("torn",))
    assert "cannot be loaded" in caught.value.found


def test_an_area_that_an_engine_does_not_have(environment: Environment) -> None:
    made = audited(door(environment), areas=("attention",))
    assert made.engines[0].ladders == ()
    assert made.engines[0].not_read == {"attention": "Sublight does not read those of tiny"}


def test_of_a_model_without_experts_no_backend_for_them_is_judged(environment: Environment, tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
              "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    dense = ask(str(tmp_path), card("rtx-pro-6000-server", None), Layout())
    made = audit(Auditor(door(environment), Options(), Cache(None)), dense)
    assert (made.engines[0].ladders, made.engines[0].autos, made.flags, made.findings) == ((), (), (), ())
    assert made.engines[0].not_read == {"moe": "the model has no experts"}
    page = " ".join(render_text(audit_document(made), width=200, colour=False).split())
    assert "MoE backends: the model has no experts" in page
    assert "BF16 weights, no experts, activations BF16" in page
    assert "not known, the model" not in page


def test_what_takes_long_is_said_beforehand(environment: Environment) -> None:
    said: list[str] = []
    audit(Auditor(door(environment), Options(), Cache(None), say=said.append), question())
    assert [text.split()[0] for text in said] == ["asking", "reading", "importing"]


def test_warm_answers_hold_until_a_file_changes(environment: Environment, tmp_path: Path) -> None:
    cold, warm = Cache(tmp_path / "cache"), Cache(tmp_path / "cache")
    first = audited(door(environment), cold)
    again = audited(door(environment), warm)
    assert warm.misses == 0
    assert again.timings.cached
    assert again.engines == first.engines
    # An edited file, as large as before, seen by its time alone.
    edited = SOURCE.replace("(9, 0), (12, 0)", "(9, 0), (10, 0)")
    assert len(edited) == len(SOURCE)
    environment.write({"tiny/backends.py": edited})
    changed = audited(door(environment), Cache(tmp_path / "cache"))
    assert step(changed, "sturdy", Rung.CAPABLE).answer is F
    # Another version beside it changes the fingerprint.
    environment.install("third", "1", {"third.py": ""})
    assert audited(door(environment), Cache(tmp_path / "cache")).engines[0].ladders == changed.engines[0].ladders


def test_a_mended_package_is_imported_again(environment: Environment, tmp_path: Path) -> None:
    before = audited(door(environment), Cache(tmp_path / "cache"))
    assert step(before, "deadly", Rung.IMPORTABLE).answer is F
    environment.write({"kernels/deadly.py": "def run(): ...\n"})
    assert step(audited(door(environment), Cache(tmp_path / "cache")), "deadly", Rung.IMPORTABLE).answer is P


def test_a_damaged_cache_is_only_slow(environment: Environment, tmp_path: Path) -> None:
    first = audited(door(environment), Cache(tmp_path / "cache"))
    for path in (tmp_path / "cache").glob("*.json"):
        path.write_bytes(path.read_bytes()[:-20])
    assert audited(door(environment), Cache(tmp_path / "cache")).engines == first.engines
    blocked = tmp_path / "a file"
    blocked.write_text("")
    assert audited(door(environment), Cache(blocked / "cache")).engines == first.engines


def test_old_entries_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_KEPT", 3)
    cache = Cache(tmp_path)
    for number in range(6):
        cache.put("kind", (number,), number, FolderDoor([tmp_path]))
    assert len(list(tmp_path.glob("*.json"))) == 3


def test_a_snapshot_answers_for_the_machine(environment: Environment) -> None:
    kept = KeepingDoor(door(environment))
    made = audited(kept)
    assert made.recording is not None
    saved = records.decode(records.encode(made), {"audit": Audit})
    assert isinstance(saved, Audit)
    assert saved.engines == made.engines
    recorded = SnapshotDoor(saved.recording)
    again = audited(recorded)
    assert again.engines == made.engines
    assert {(f.subject, f.text) for f in again.findings} == {(f.subject, f.text) for f in made.findings}
    elsewhere = audited(SnapshotDoor(saved.recording), gpu="b200")
    assert answers(elsewhere) == answers(audited(door(environment), gpu="b200"))


def test_a_snapshot_holds_no_secrets(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "hunter2")
    monkeypatch.setenv("MY_PASSWORD", "hunter2")
    kept = KeepingDoor(door(environment))
    audited(kept)
    from sublight.hosts.recording import completed_of

    everything = b"".join(completed_of(answer).stdout for answer in kept.recording().answers)
    assert b"VLLM_API_KEY" in everything
    assert b"hunter2" not in everything


def test_what_a_snapshot_lacks_is_said(environment: Environment) -> None:
    kept = KeepingDoor(door(environment))
    audit_symbols(Auditor(kept, Options(), Cache(None), ["kernels"]), ["kernels.sturdy.run"])
    recorded = Auditor(SnapshotDoor(kept.recording()), Options(), Cache(None), ["kernels"])
    made = audit_symbols(recorded, ["kernels.deadly.run"])
    assert made.symbols[0].answer is Q
    assert any(found.subject == "snapshot" for found in made.findings)


def test_a_snapshot_of_a_newer_form_is_refused(environment: Environment) -> None:
    data = records.encode(audited(KeepingDoor(door(environment))))
    newer = data.replace(b'"version": 1', b'"version": 99', 1)
    with pytest.raises(RecordError) as caught:
        records.decode(newer, {"audit": Audit})
    assert "version 99" in caught.value.found


def test_an_edited_record_is_refused(environment: Environment) -> None:
    made = audited(door(environment))
    engine = made.engines[0]
    twice = msgspec.structs.replace(engine, ladders=(*engine.ladders, engine.ladders[0]))
    with pytest.raises(RecordError):
        records.decode(records.encode(msgspec.structs.replace(made, engines=(twice,))), {"audit": Audit})


def test_symbols_without_an_engine(environment: Environment) -> None:
    asked = ["kernels.sturdy.run", "kernels.run", "kernels.nowhere", "absent.thing"]
    made = audit_symbols(Auditor(door(environment), Options(), Cache(None), ["kernels", "absent"]), asked)
    found = {answer.symbol: answer for answer in made.symbols}
    assert [found[name].answer for name in asked] == [P, F, F, F]
    assert "kernels.sturdy.run" in found["kernels.run"].instead
    assert found["absent.thing"].why == "asked absent.thing, found ModuleNotFoundError: No module named 'absent'"
