"""A campaign with audits and a look at the machine: what the findings say of them, and which steps they close."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.audit.machines import Environment
from tests.cli.conftest import Run
from tests.cli.test_audit import QUESTION, _an_engine_of_another_package, environment  # noqa: F401 - fixtures
from tests.cli.test_bad_input import refused
from tests.cli.test_campaign import words
from tests.tuning.machines import Server, folder

Sublight = Callable[..., Run]
GAP = ("gap", "glm-5-nvfp4", "--gpus", "4xrtx-pro-6000-server", "--measured", "97ms", "--campaign", "c")


@pytest.fixture
def campaign(sublight: Sublight, environment: Environment, tmp_path: Path) -> Path:  # noqa: F811
    """A gap, two audits between which a kernel was installed, a look at the machine, a note."""
    (tmp_path / "c").mkdir()
    assert sublight(*GAP).code == 0
    audit = ("audit", "tiny", "--python", environment.python, *QUESTION, "--campaign", "c", "--no-cache")
    assert sublight(*audit).err == "saved as c/audit-001.json\n"
    environment.write({"kernels/nowhere.py": "def run(): ...\n"})
    second = sublight(*audit, "--save", "snapshot.json")
    assert second.err == "saved as c/audit-002.json\n", second.err
    folder(tmp_path / "box", Server(acs="+").texts())
    assert sublight("host", "--folder", "box", "--campaign", "c").err == "saved as c/host-001.json\n"
    assert sublight("note", "c", "deadly changes nothing", "--negative").code == 0
    return tmp_path / "c"


def test_what_the_findings_say_of_them(sublight: Sublight, campaign: Path) -> None:
    found = json.loads(sublight("report", "c", "--json").out)
    assert found["version"] == 2
    record = found["record"]
    (audit,) = record["audits"]
    assert audit["file"] == "audit-002.json"
    (engine,) = audit["engines"]
    assert (engine["name"], engine["version"], engine["before"]) == ("tiny", "2.0", "audit-001.json")
    assert engine["asked_otherwise"] == []
    assert [change["name"] for change in engine["changes"]] == ["lost"]
    assert {ladder["name"] for ladder in engine["ladders"]} == {"sturdy", "picky", "rerouted", "deadly", "lost"}
    assert [flag["flag"] for flag in engine["flags"]] == ["--moe sturdy", "--moe lost"]
    host = record["host"]
    assert (host["file"], host["cards"]) == ("host-001.json", {"NVIDIA RTX PRO 6000 Blackwell Server Edition": 4})
    assert "ACS on the way between GPUs" in {f["knob"] for f in host["to_do"] if f["verdict"] == "change"}
    assert {f["verdict"] for f in host["to_do"]} == {"change", "check"}
    closed = {c["step"]: (c["file"], c["evidence"]) for c in record["closed"]}
    assert closed["p2p"] == ("host-001.json", "P2P is OK for all 6 pairs")
    assert "p2p" not in {s["id"] for s in record["open"]}


def test_as_text(sublight: Sublight, campaign: Path) -> None:
    done = sublight("report", "c", columns=140)
    assert (done.code, done.err) == (0, "")
    lines = {line.split()[0]: line.split() for line in done.out.splitlines() if line.strip()}
    assert lines["MoE"][1:4] == ["2", "of", "5"]
    assert lines["sturdy"][1] == "unproven"
    assert lines["picky"][1:3] == ["not", "capable"]
    assert lines["deadly"][1:3] == ["not", "importable"]
    text = words(done.out)
    assert "Backends of tiny 2.0" in text and "(audit-002.json)" in text
    assert "Asked for nothing, MoE runs kernels.sturdy.run: the first of the table" in text
    assert "Since audit-001.json (the same version, asked the same):" in text
    assert "MoE lost: not importable, now unproven" in text
    assert "--moe sturdy" in text and "--moe picky" not in text
    assert "✗ ACS on the way between GPUs" in text and "2.06x bandwidth" in text
    assert "P2P is OK for all 6 pairs (host-001.json)" in text
    assert "What did not help" in text and "deadly changes nothing (note-001.json)" in text


def test_as_markdown_and_page_without_the_machine_s_answers(sublight: Sublight, campaign: Path, tmp_path: Path) -> None:
    done = sublight("report", "c", "--markdown", "--html", "page.html", "--save", "findings.json")
    assert done.code == 0, done.err
    assert "| **sturdy** | unproven |" in done.out
    page = (tmp_path / "page.html").read_text()
    assert "Backends of tiny 2.0" in page and "ACS on the way between GPUs" in page
    saved = (tmp_path / "findings.json").read_text()
    for name in ("audit-002.json", "host-001.json"):
        answers = json.loads((campaign / name).read_text())["record"]["recording"]["answers"]
        longest = max((answer.get("stdout", "") for answer in answers), key=len)
        assert len(longest) > 100 and longest not in page and longest not in saved
    assert sublight("show", "findings.json", "--markdown").out == done.out


def test_another_question_is_said_beside_what_changed(
    sublight: Sublight,
    campaign: Path,
    environment: Environment,  # noqa: F811
) -> None:
    other = ("--model", "glm-5-nvfp4", "--gpu", "b200", "--tp", "4")
    assert sublight("audit", "tiny", "--python", environment.python, *other, "--campaign", "c").code == 0
    (audit,) = json.loads(sublight("report", "c", "--json").out)["record"]["audits"]
    (engine,) = audit["engines"]
    assert (audit["file"], engine["before"]) == ("audit-003.json", "audit-002.json")
    assert engine["asked_otherwise"] == [
        "card b200, asked before was rtx-pro-6000-server",
        "layout TP4, asked before was TP8",
    ]
    assert "MoE sturdy: unproven, now not capable (the code refuses sm_100" in words(sublight("report", "c").out)


def test_another_machine_closes_nothing(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sublight(*(text.replace("4xrtx", "8xrtx") for text in GAP))
    folder(tmp_path / "box", Server().texts())
    assert sublight("host", "--folder", "box", "--campaign", "c").code == 0
    record = json.loads(sublight("report", "c", "--json").out)["record"]
    assert record["closed"] == [] and "p2p" in {s["id"] for s in record["open"]}


def test_pairs_that_do_not_reach_each_other_are_an_answer(sublight: Sublight, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sublight(*GAP)
    folder(tmp_path / "box", Server(peers="CNS").texts())
    assert sublight("host", "--folder", "box", "--campaign", "c").code == 0
    closed = json.loads(sublight("report", "c", "--json").out)["record"]["closed"]
    assert {c["step"]: c["evidence"] for c in closed}["p2p"] == "P2P is not OK: CNS for 4 of 6 pairs"


def test_a_folder_that_is_not_there_is_said_before_any_work(sublight: Sublight, tmp_path: Path) -> None:
    for command in (("host",), ("audit", *QUESTION)):
        refused(sublight(*command, "--campaign", "none"), "there is no such folder")
    assert list(tmp_path.glob("none*")) == []


def test_findings_of_the_first_version_can_be_shown(sublight: Sublight, campaign: Path, tmp_path: Path) -> None:
    sublight("report", "c", "--save", "findings.json")
    saved: dict[str, Any] = json.loads((tmp_path / "findings.json").read_text())
    saved["version"] = 1
    for name in ("audits", "host", "benches"):
        del saved["record"][name]
    (tmp_path / "old.json").write_text(json.dumps(saved))
    done = sublight("show", "old.json")
    assert done.code == 0, done.err
    assert "Measured steps" in done.out and "Backends of" not in done.out


def test_an_audit_of_a_newer_form_is_left_out(sublight: Sublight, campaign: Path) -> None:
    file = campaign / "audit-002.json"
    file.write_text(file.read_text().replace('"version": 1,', '"version": 7,', 1))
    record = json.loads(sublight("report", "c", "--json").out)["record"]
    assert [audit["file"] for audit in record["audits"]] == ["audit-001.json"]
    assert record["left_out"][0].startswith("audit-002.json: it has version 7")
