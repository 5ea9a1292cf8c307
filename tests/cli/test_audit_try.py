"""`sublight audit --try` from outside: made kernels in processes of their own, and what --try does not go with."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit.adapters import with_torch
from tests.audit.machines import Environment, Site
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
QUESTION = ("--model", "glm-5-nvfp4", "--tp", "8")
NAMES = ("good", "wrong", "hangs", "segfaults")
CARD = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
# Answers what the probe asks, and what a trial asks before it takes a card.
NVIDIA_SMI = f"""\
#!/bin/sh
case "$1" in
  *compute_cap*) echo "0, {CARD}, 12.0, 97887, 580.95, [N/A]";;
  *) echo "GPU-aa, {CARD}, 0, 90000";;
esac
"""
Sublight = Callable[..., Run]


@pytest.fixture(autouse=True)
def _trials_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = Site(tmp_path / "plugin")
    info = plugin.install("tiny-adapter", "1", {})
    trials = "".join(f"tiny.moe.{name} = tests.audit.adapters:{name.upper()}\n" for name in NAMES)
    (info / "entry_points.txt").write_text(
        f"[sublight.engines]\ntiny = tests.audit.tiny:TINY\n[sublight.trials]\n{trials}"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(plugin.folder), str(ROOT)]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    env = with_torch(tmp_path_factory.mktemp("try") / "env")
    table = "".join(f'    "{name}": ("made.kernels.{name}", [(12, 0)]),\n' for name in NAMES)
    table += '    "twin": ("made.kernels.good", [(12, 0)]),\n    "rerouted": None,\n'
    table += '    "other": ("made.kernels.other", [(12, 0)]),\n    "listed": ("made.kernels.good", [(9, 0)]),\n'
    env.install("tiny-engine", "2.0", {"tiny/__init__.py": "", "tiny/backends.py": f"BACKENDS = {{\n{table}}}\n"})
    return env


def test_each_backend_is_tried_by_itself(sublight: Sublight, environment: Environment, tmp_path: Path) -> None:
    saved = tmp_path / "audit.json"
    ask = ("audit", "tiny", "--python", environment.python, *QUESTION, "--try", "--try-limit", "25", "--save", saved)
    run = sublight(*map(str, ask), limit_s=200)
    assert run.code == 0, run.err
    rows = {line.split()[0]: line.split()[1:] for line in run.out.splitlines() if "✓✓" in line.replace(" ", "")}
    shown = {name: "".join(cells[:8]) for name, cells in rows.items() if name in (*NAMES, "twin", "other")}
    assert {name: cells[5:] for name, cells in shown.items()} == {
        "good": "✓✓?",
        "twin": "✓✓?",
        "wrong": "✓✗?",
        "hangs": "✗??",
        "segfaults": "✗??",
        "other": "???",
    }
    assert rows["good"][8:] == ["correct", "here"]
    section = run.out.partition("Tried on this GPU")[2].partition("Why not")[0]
    assert "good, twin" in section
    assert "✓ correct: relative error 0.0018 at the most, 0.003 allowed" in " ".join(section.split())
    assert "? fast: not timed: a rehearsal on a CPU has no time of a GPU" in section
    why_not = " ".join(run.out.partition("Why not")[2].split())
    assert "segfaults: not executed: calling it with 1 token: its process was ended by SIGSEGV." in why_not
    assert "hangs: not executed: calling it with 1 token: no answer within 25 s." in why_not
    assert "Try: --try-limit with more seconds, if it only compiles." in why_not
    assert "wrong: not correct: at 1 token: eager: relative error 0.0994, allowed 0.003" in why_not
    assert "tried in " in run.out

    # Reading says that the code refuses the card, and there it ran: then the reading is not the whole of it.
    listed = next(line for line in run.out.splitlines() if line.startswith("listed "))
    assert listed.split()[1:] == [*"✓✓✓✓?✓✓?", "correct", "here"]
    open_ones = " ".join(run.out.partition("What is not known")[2].split())
    assert (
        "listed: capable: the code refuses sm_120: cc in [(9, 0)] (tiny/backends.py:9), as far as was read; the trial "
        "that ran it here contradicts that." in open_ones
    )
    seen = run.out.partition("Seen running:")[2]
    assert "--moe listed" in seen.partition("Nobody has proved")[0]

    record = json.loads(saved.read_text())["record"]
    ladders = {ladder["name"]: ladder["steps"] for ladder in record["engines"][0]["ladders"]}
    assert [step["answer"] for step in ladders["good"][5:]] == ["pass", "pass", "not known"]
    assert ladders["good"][5]["proofs"][0] == {
        "kind": "trial",
        "where": "made 1.0",
        "text": "made.kernels.good on a CPU",
    }
    assert ladders["rerouted"][5]["why"] == "not tried, because it is not reachable"
    assert ladders["other"][5]["why"] == "no small call is known for this backend, which leads to made.kernels.other"
    assert record["timings"]["trying_s"] > 25
    # The saved record shows the same again, also as a page.
    assert "✓ correct: relative error 0.0018" in " ".join(sublight("show", str(saved)).out.split())
    page = tmp_path / "audit.html"
    assert sublight("show", str(saved), "--html", str(page)).code == 0
    assert "its process was ended by SIGSEGV" in page.read_text()


def test_nothing_is_tried_unless_it_is_asked_for(sublight: Sublight, environment: Environment) -> None:
    run = sublight("audit", "tiny", "--python", environment.python, *QUESTION, "--json")
    (engine,) = json.loads(run.out)["record"]["engines"]
    steps = {ladder["name"]: ladder["steps"][5] for ladder in engine["ladders"]}
    assert steps["segfaults"]["why"] == "not tried: --try was not given"
    assert steps["segfaults"]["hint"].startswith("--try, which makes a small call on this GPU; or --log")
    assert engine["ladders"][0]["steps"][7]["why"] == "not tried: --try was not given"


def test_another_card_than_the_machines_own_is_not_tried(sublight: Sublight, environment: Environment) -> None:
    ask = ("audit", "tiny", "--python", environment.python, *QUESTION, "--gpu", "rtx-pro-6000-workstation", "--try")
    run = sublight(*ask, "--json")
    (engine,) = json.loads(run.out)["record"]["engines"]
    assert {ladder["steps"][5]["why"] for ladder in engine["ladders"]} == {
        f"no GPU was there to run it on: the machine has {CARD}, which is no rtx-pro-6000-workstation"
    }


def test_trying_without_a_gpu_says_so_on_the_page(sublight: Sublight, environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    ask = ("audit", "tiny", "--python", environment.python, *QUESTION, "--gpu", "rtx-pro-6000-server")
    run = sublight(*ask, "--try")
    assert run.code == 0, run.err
    text = " ".join(run.out.split())
    assert text.count("nothing was tried: no GPU was there to run it on") == 1
    assert "nothing was tried" not in sublight(*ask).out


@pytest.mark.parametrize(
    ("more", "found", "hint"),
    [
        (("--host", "box"), "kernels are called on this machine alone", "Sublight installed there"),
        (("--snapshot", "x.json"), "a recorded machine runs nothing", "on the machine itself"),
        (("--path", "."), "a folder has no interpreter to call them in", "--python with"),
        (("--no-import",), "a call imports the engine", "one of the two"),
        (("--symbol", "a.b"), "a name is no backend", "an engine instead"),
    ],
)
def test_what_trying_does_not_go_with(sublight: Sublight, more: tuple[str, ...], found: str, hint: str) -> None:
    run = sublight("audit", *QUESTION, "--try", *more)
    assert run.code == 2
    assert f"--try with {more[0]}" in run.err
    assert found in run.err
    assert hint in run.err
    assert "Traceback" not in run.err
