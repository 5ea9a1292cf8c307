"""`sublight audit` from outside: an engine of a page in an environment made for the test, and what can go wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit.elves import library
from tests.audit.machines import Environment, Site
from tests.audit.tiny import SOURCE
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
QUESTION = ("--model", "glm-5-nvfp4", "--gpu", "rtx-pro-6000-server", "--tp", "8")
Sublight = Callable[..., Run]


@pytest.fixture(autouse=True)
def _an_engine_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines come in by the public door, an entry point; the cache is this test's own."""
    plugin = Site(tmp_path / "plugin")
    info = plugin.install("tiny-adapter", "1", {})
    (info / "entry_points.txt").write_text("[sublight.engines]\ntiny = tests.audit.tiny:TINY\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(plugin.folder), str(ROOT)]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    env = Environment(tmp_path / "env")
    env.install("tiny-engine", "2.0", {"tiny/__init__.py": "", "tiny/backends.py": SOURCE}, ["some-kernels==1.4"])
    kernels: dict[str, str | bytes] = {
        "kernels/__init__.py": "",
        "kernels/sturdy.py": "def run(): ...\n",
        "kernels/deadly.py": "import ctypes\nctypes.string_at(0)\n",
        "kernels/ops.abi3.so": library([["sm_90a", "sm_120a"]]),
    }
    env.install("some-kernels", "1.4", kernels)
    env.write({"banner.pth": "import sys; print('WELCOME TO THE CLUSTER')\n"})
    return env


def error(run: Run) -> list[str]:
    assert run.code == 2, run.out + run.err
    assert "Traceback" not in run.err
    lines = run.err.splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["sublight", "found", "try"]
    return [line.partition(":")[2].strip() for line in lines]


def test_the_table_and_the_reasons(sublight: Sublight, environment: Environment) -> None:
    run = sublight("audit", "tiny", "--python", environment.python, *QUESTION)
    assert run.code == 0, run.err
    rows = {line.split()[0]: line.split()[1:] for line in run.out.splitlines() if " ✓ " in line or " ✗ " in line}
    assert rows["sturdy"] == [*"✓✓✓✓✓???", "unproven"]
    assert rows["picky"] == [*"✓✓✓✓✗???", "not", "capable"]
    assert rows["rerouted"] == [*"✓✗??????", "runs", "run"]
    assert rows["deadly"] == [*"✓✓✓✗✓???", "not", "importable"]
    assert "importing kernels.deadly ended the process by SIGSEGV" in " ".join(run.out.split())
    assert run.out.rstrip().rpartition("Flags worth trying")[2].count("--moe") == 1
    assert "WELCOME" not in run.out


def test_a_package_that_no_distribution_owns_is_there_when_it_is_imported(
    sublight: Sublight, environment: Environment
) -> None:
    """A folder that a .pth file leads to has no metadata; only importing from it shows that it is there."""
    Site(environment.folder.parent / "aside").write({"loose/__init__.py": "", "loose/fast.py": "def run(): ...\n"})
    environment.write(
        {
            "aside.pth": f"{environment.folder.parent / 'aside'}\n",
            "tiny/backends.py": 'BACKENDS = {\n    "loose": ("loose.fast.run", [(12, 0)]),\n}\n',
        }
    )
    ask = ("audit", "tiny", "--python", environment.python, *QUESTION, "--json")
    steps = json.loads(sublight(*ask).out)["record"]["engines"][0]["ladders"][0]["steps"]
    assert [step["answer"] for step in steps[2:4]] == ["pass", "pass"]
    assert steps[2]["proofs"][-1]["text"] == "imported, but in no distribution's RECORD"
    assert steps[2]["proofs"][-1]["where"].endswith("aside/loose/fast.py")
    unseen = json.loads(sublight(*ask, "--no-import").out)["record"]["engines"][0]["ladders"][0]["steps"]
    assert (unseen[2]["answer"], unseen[2]["why"]) == ("fail", "loose is not installed")


def test_what_ran_is_not_called_uninstalled(sublight: Sublight, tmp_path: Path) -> None:
    """A record of before: "installed" was read as a no, and trials of the same backends passed."""
    record = ROOT / "docs" / "measured" / "2026-11-30-h200-audit-sglang-0.5.23-glm-5-tp8.json"
    stored = {x["name"]: x["steps"] for x in json.loads(record.read_text())["record"]["engines"][0]["ladders"]}
    assert [stored["marlin"][place]["answer"] for place in (2, 5)] == ["fail", "pass"]
    page = tmp_path / "audit.html"
    for width in ("80", "100"):
        out = sublight("show", str(record), "--html", str(page), "--width", width).out
        assert "not installed" not in out.partition("Why not")[0]
        assert "sgl_kernel is not installed, as far as was read; the trial that ran it here contradicts that." in (
            " ".join(out.split())
        )
        assert "3 of 22" in out
        assert "  --moe-runner-backend marlin\n" in out.partition("Seen running:")[2]
    assert "the trial that ran it here contradicts that" in page.read_text()
    again = json.loads(sublight("show", str(record), "--json").out)["record"]
    steps = {x["name"]: x["steps"] for x in again["engines"][0]["ladders"]}["marlin"]
    assert [step["answer"] for step in steps] == ["pass", "pass", "not known", *["pass"] * 5]


def test_record_page_and_the_saved_machine(sublight: Sublight, environment: Environment, tmp_path: Path) -> None:
    saved, page = tmp_path / "audit.json", tmp_path / "audit.html"
    first = sublight(
        "audit", "tiny", "--python", environment.python, *QUESTION, "--save", "audit.json", "--html", "audit.html"
    )
    assert first.code == 0, first.err
    text = page.read_text()
    assert "Every rung of tiny" in text
    assert "tiny/backends.py:4" in text
    assert "<script" not in text or "WELCOME" not in text
    shown = sublight("show", str(saved))
    assert shown.out == first.out
    record = json.loads(saved.read_text())
    assert record["schema"] == "sublight/audit"
    again = sublight("audit", "tiny", "--snapshot", str(saved), *QUESTION, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["record"]["engines"] == record["record"]["engines"]
    other = sublight("audit", "--snapshot", str(saved), "--model", "glm-5-nvfp4", "--gpu", "b200", "--json")
    ladders = json.loads(other.out)["record"]["engines"][0]["ladders"]
    assert [step["answer"] for step in ladders[1]["steps"]][4] == "fail"
    host = sublight("host", "--snapshot", str(saved))
    assert host.code == 0, host.err


def test_a_folder_and_markdown(sublight: Sublight, environment: Environment) -> None:
    run = sublight("audit", "--path", str(environment.folder), *QUESTION, "--markdown", "--area", "moe")
    assert run.code == 0, run.err
    assert "no interpreter was named, only a folder" in run.out
    row = next(line for line in run.out.splitlines() if line.startswith("| **sturdy**"))
    assert [cell.strip() for cell in row.split("|")[2:10]] == [*"✓✓✓?✓???"]


def test_symbols(sublight: Sublight, environment: Environment) -> None:
    run = sublight("audit", "--python", environment.python, "--symbol", "kernels.run", "--symbol", "kernels.sturdy.run")
    assert run.code == 0, run.err
    assert "✗ asked kernels.run, found AttributeError: module 'kernels' has no 'run'" in run.out
    assert "✓ kernels.sturdy.run is there" in run.out
    assert "import kernels.sturdy.run" in run.out


def test_nothing_is_written_into_the_audited_environment(sublight: Sublight, environment: Environment) -> None:
    before = sorted(environment.folder.rglob("*"))
    assert sublight("audit", "tiny", "--python", environment.python, *QUESTION).code == 0
    assert sorted(environment.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("audit",), "no model was named"),
        (("audit", "tiny", "--model", "glm-5-nvfp4", "--python", "{python}"), "the machine's own is not known"),
        (("audit", "tinny", *QUESTION, "--python", "{python}"), "no such name is known"),
        (("audit", "vllm", *QUESTION, "--python", "{python}"), "found there: tiny"),
        (("audit", *QUESTION, "--python", "/no/such/python"), "there is no such program"),
        (("audit", *QUESTION, "--python", "true"), "it ended well, but without an answer"),
        (("audit", *QUESTION, "--path", "/no/such/folder"), "there is no such folder"),
        (("audit", *QUESTION, "--path", "."), "no engine is there"),
        (("audit", *QUESTION, "--path", ".", "--python", "{python}"), "each of them says where the packages are"),
        (("audit", *QUESTION, "--host", "me@127.0.0.1:1"), "refused"),
        (("audit", *QUESTION, "--host", "-oProxyCommand=x"), "that is not how a host is named"),
        (("audit", *QUESTION, "--snapshot", "/no/such/file"), "No such file"),
        (("audit", "tiny", *QUESTION, "--symbol", "a.b"), "a symbol is asked for without one"),
        (("audit", *QUESTION, "--area", "everything", "--python", "{python}"), "'everything' is not one of"),
        (("audit", *QUESTION, "--tp", "3", "--ep", "2", "--python", "{python}"), "2 does not divide 3"),
        (("audit", *QUESTION, "--tp", "3", "--python", "{python}"), "64 attention heads do not divide over 3 ranks"),
        (("audit", *QUESTION, "--tp", "100000", "--python", "{python}"), "do not divide over 100,000 ranks"),
        (("audit", *QUESTION, "--tp", "8", "--dp", "8", "--ep", "8", "--gpu", "4xb200", "--python", "{python}"),
         "it names 4 cards, the layout takes 8"),
        (("audit", "--symbol", "a.b", "--gpu", "8xb200", "--python", "{python}"), "it names 8 cards, and a name is"),
        (("audit", "--symbol", "..", "--python", "{python}"), "no dotted name"),
        (("audit", "--symbol", "a.b", "--symbol", "a..b", "--python", "{python}"), "no dotted name"),
        (("audit", "--symbol", "a b", "--python", "{python}"), "no dotted name"),
        (("audit", "tiny", *QUESTION, "--log", "/no/such/log", "--python", "{python}"), "No such file"),
        (("audit", "tiny", *QUESTION, "--trace", "/no/such/trace", "--python", "{python}"), "no such file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_error(
    sublight: Sublight, environment: Environment, arguments: tuple[str, ...], found: str
) -> None:
    run = sublight(*(text.replace("{python}", environment.python) for text in arguments))
    assert found.lower() in error(run)[1].lower()


def test_a_layout_is_refused_with_the_error_of_limit(sublight: Sublight, environment: Environment) -> None:
    run = sublight("audit", "tiny", "--python", environment.python, *QUESTION, "--tp", "3")
    assert error(run) == error(sublight("limit", "glm-5-nvfp4", "--gpus", "3xrtx-pro-6000-server"))


def test_a_count_of_cards_is_no_layout(sublight: Sublight, environment: Environment) -> None:
    ask = ("audit", "tiny", "--python", environment.python, "--model", "glm-5-nvfp4", "--gpu", "8xh200")
    said = error(sublight(*ask))
    assert said[1:] == ["it names 8 cards, the layout takes 1", "--gpu h200 --tp 8"]
    assert sublight(*ask, "--tp", "8").code == 0


def test_an_all_to_all_that_the_engine_does_not_have_is_refused(sublight: Sublight, environment: Environment) -> None:
    arguments = (
        "from typing import Literal\nclass ServerArgs:\n    moe_a2a_backend: Literal['none', 'deepep'] = 'none'\n"
    )
    environment.install("sglang", "1", {"sglang/__init__.py": "", "sglang/srt/server_args.py": arguments})
    parallel = "from typing import Literal\nAll2AllBackend = Literal['pplx', 'mori']\n"
    environment.install("vllm", "1", {"vllm/__init__.py": "", "vllm/config/parallel.py": parallel})
    ask = ("--python", environment.python, *QUESTION, "--a2a")
    said = error(sublight("audit", "sglang", *ask, "foo"))
    assert said[:2] == ["--a2a foo for sglang", "its all-to-all backends are none, deepep"]
    assert sublight("audit", "sglang", *ask, "deepep").code == 0
    assert error(sublight("audit", "vllm", *ask, "foo"))[1] == "its all-to-all backends are pplx, mori"


def test_an_all_to_all_that_is_not_used_is_a_finding(sublight: Sublight, environment: Environment) -> None:
    ask = ("audit", "tiny", "--python", environment.python, *QUESTION)
    told = "tiny: --a2a foo was not used: no all-to-all option of this engine is known."
    assert told in " ".join(sublight(*ask, "--a2a", "foo").out.split())
    assert "was not used" not in sublight(*ask).out


def test_one_of_a_kind_is_counted_as_one(sublight: Sublight, environment: Environment, tmp_path: Path) -> None:
    run = sublight("audit", "--python", environment.python, "--symbol", "kernels.sturdy.run", "--no-cache")
    assert "1 symbol imported in" in run.out
    alone = Site(tmp_path / "alone")
    alone.install("one", "1", {"one.py": ""})
    said = error(sublight("audit", *QUESTION, "--path", str(alone.folder)))
    assert said[1] == "no engine is there (1 distribution was seen)"


def test_an_interpreter_that_dies(sublight: Sublight, environment: Environment) -> None:
    environment.write({"sitecustomize.py": "import os\nprint('licence expired', flush=True)\nos._exit(9)\n"})
    said = error(sublight("audit", "tiny", "--python", environment.python, *QUESTION))
    assert said[1].endswith("left with exit code 9: licence expired")


def test_a_snapshot_of_a_newer_form(sublight: Sublight, environment: Environment, tmp_path: Path) -> None:
    saved = tmp_path / "audit.json"
    sublight("audit", "tiny", "--python", environment.python, *QUESTION, "--save", str(saved))
    saved.write_text(saved.read_text().replace('"version": 1,', '"version": 7,', 1))
    said = error(sublight("audit", "--snapshot", str(saved), *QUESTION))
    assert "version 7" in said[1]
    assert "at least as new" in said[2]


def test_a_record_without_a_machine_is_no_snapshot(
    sublight: Sublight, environment: Environment, tmp_path: Path
) -> None:
    saved = tmp_path / "audit.json"
    run = sublight("audit", "tiny", "--python", environment.python, *QUESTION, "--json")
    saved.write_text(run.out)
    assert "it holds no answers of a machine" in error(sublight("audit", "--snapshot", str(saved), *QUESTION))[1]


def test_broken_metadata_is_a_finding_and_the_rest_goes_on(sublight: Sublight, environment: Environment) -> None:
    info = environment.install("half", "1", {"half.py": ""})
    (info / "METADATA").unlink()
    run = sublight("audit", "tiny", "--python", environment.python, *QUESTION)
    assert run.code == 0, run.err
    assert "half 1: its metadata is broken: METADATA cannot be read" in " ".join(run.out.split())
    assert "sturdy" in run.out


def test_source_that_is_newer_than_this_python(sublight: Sublight, environment: Environment) -> None:
    environment.write({"tiny/backends.py": SOURCE + "\nx = yield from ()) until dawn\n"})
    run = sublight("audit", "tiny", "--python", environment.python, *QUESTION)
    assert run.code == 0, run.err
    text = " ".join(run.out.split())
    assert "1 of its files cannot be parsed by this Python: tiny/backends.py" in text
    assert "MoE backends: not known" in text
