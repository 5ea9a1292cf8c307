"""Imports that crash, hang, leave or take too long: each in a process that takes nothing along, and then is gone."""

import time
import zipfile
from pathlib import Path

import msgspec
import pytest

from sublight.audit.doors import InterpreterDoor
from sublight.audit.replies import Imported
from sublight.errors import HostError
from sublight.hosts.local import LocalHost
from tests.audit.machines import Environment, door, imported


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("venv") / "env")


def test_each_way_an_import_can_go_wrong(environment: Environment) -> None:
    environment.write(
        {
            "bad/__init__.py": "",
            "bad/fine.py": "def kernel(): ...\n",
            "bad/segfault.py": "import ctypes\nctypes.string_at(0)\n",
            "bad/aborts.py": "import os\nos.abort()\n",
            "bad/hangs.py": "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n",
            "bad/leaves.py": "import os\nos._exit(7)\n",
            "bad/exits.py": "raise SystemExit('no GPU')\n",
            "bad/raises.py": "raise RuntimeError('driver too old')\n",
            "bad/lacks.py": "import not_there_at_all\n",
            "bad/noisy.py": "import sys\nprint('x' * 100000)\nsys.stdout.flush()\nY = 2\n",
        }
    )
    asked = [
        "fine.kernel",
        "fine.nothing",
        "segfault.x",
        "aborts.x",
        "hangs.x",
        "leaves.x",
        "exits.x",
        "raises.x",
        "lacks.x",
        "noisy.Y",
    ]
    found = imported(environment.python, *(f"bad.{name}" for name in asked), limit_s=2)
    outcomes = {name: found[f"bad.{name}"].outcome for name in asked}
    assert outcomes == {
        "fine.kernel": "found",
        "fine.nothing": "error",
        "segfault.x": "crash",
        "aborts.x": "crash",
        "hangs.x": "hang",
        "leaves.x": "exit",
        "exits.x": "error",
        "raises.x": "error",
        "lacks.x": "error",
        "noisy.Y": "found",
    }
    assert found["bad.segfault.x"].message == "importing bad.segfault ended the process by SIGSEGV"
    assert "Segmentation fault" in found["bad.segfault.x"].output
    assert found["bad.segfault.x"].frames[-2].endswith("bad/segfault.py:2")  # the last one is in ctypes
    assert found["bad.aborts.x"].message == "importing bad.aborts ended the process by SIGABRT"
    assert found["bad.hangs.x"].message == "importing bad.hangs did not end within 2 s"
    assert found["bad.hangs.x"].frames[-1].endswith("bad/hangs.py:3")
    assert found["bad.leaves.x"].message == "importing bad.leaves ended the process with exit code 7"
    assert {name: found[f"bad.{name}"].inside for name in asked if found[f"bad.{name}"].inside} == {
        "segfault.x": "bad.segfault",
        "aborts.x": "bad.aborts",
        "hangs.x": "bad.hangs",
        "leaves.x": "bad.leaves",
    }
    assert found["bad.raises.x"].message == "RuntimeError: driver too old"
    assert found["bad.raises.x"].frames[-1].endswith("bad/raises.py:1")
    assert found["bad.lacks.x"].message == "ModuleNotFoundError: No module named 'not_there_at_all'"
    assert found["bad.fine.nothing"].message == "AttributeError: module 'bad.fine' has no 'nothing'"
    assert (found["bad.fine.kernel"].kind, found["bad.fine.kernel"].line) == ("function", 1)


def test_one_crash_does_not_take_its_module_along(environment: Environment) -> None:
    """Names of one module share a process; where it dies each is tried again alone."""
    environment.write(
        {
            "lazy/__init__.py": """\
                import os
                GOOD = 1
                def __getattr__(name):
                    if name == "DEADLY":
                        os.abort()
                    raise AttributeError(name)
                """
        }
    )
    found = imported(environment.python, "lazy.GOOD", "lazy.DEADLY", "lazy.MISSING")
    assert {name: done.outcome for name, done in found.items()} == {
        "lazy.GOOD": "found",
        "lazy.DEADLY": "crash",
        "lazy.MISSING": "error",
    }


HANGS = "import time\ntime.sleep(600)\n"


def left_running(marker: str) -> list[str]:
    """Command lines of processes that have `marker` among their arguments."""
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [line.decode(errors="replace")[-200:] for line in lines if marker.encode() in line]


def test_a_package_that_hangs_costs_one_limit(environment: Environment) -> None:
    """Twelve names in six modules, and two modules of another package that import it: one limit, one answer each."""
    environment.write(
        {
            "stuck/__init__.py": HANGS,
            **{f"stuck/part{number}.py": "a = b = 1\n" for number in range(6)},
            "fine/__init__.py": "",
            "fine/one.py": "import stuck\nx = 1\n",
            "fine/two.py": "import stuck.part1\nx = 1\n",
            "fine/three.py": "x = 1\n",
        }
    )
    stuck = [f"stuck.part{number}.{name}" for number in range(6) for name in "ab"]
    started = time.monotonic()
    found = imported(environment.python, *stuck, "fine.one.x", "fine.two.x", "fine.three.x", limit_s=4)
    seconds = time.monotonic() - started
    said = "importing stuck did not end within 4 s"
    behind = [*stuck, "fine.one.x", "fine.two.x"]
    assert {(found[name].outcome, found[name].message, found[name].inside) for name in behind} == {
        ("hang", said, "stuck")
    }
    assert all(found[name].frames[-1].endswith("stuck/__init__.py:2") for name in behind)
    assert found["fine.three.x"].outcome == "found"
    assert seconds < 2 * 4  # and the time to start an interpreter a few times
    assert not left_running("stuck.part0.a")


def test_one_module_that_hangs_does_not_take_its_package_along(environment: Environment) -> None:
    environment.write(
        {
            "partly/__init__.py": "",
            "partly/inner.py": HANGS,
            "partly/kernels.py": "from partly.inner import x\n",
            "partly/good.py": "y = 1\n",
            "partly/later.py": """\
                good = 1
                def __getattr__(name):
                    if name == "slow":
                        import partly.inner
                    raise AttributeError(name)
                """,
        }
    )
    asked = ["kernels.x", "kernels.y", "good.y", "later.slow", "later.good"]
    found = imported(environment.python, *(f"partly.{name}" for name in asked), limit_s=3)
    said = {name: (found[f"partly.{name}"].outcome, found[f"partly.{name}"].inside) for name in asked}
    hang = ("hang", "partly.inner")
    assert said == {
        "kernels.x": hang,
        "kernels.y": hang,
        "good.y": ("found", ""),
        "later.slow": hang,
        "later.good": ("found", ""),
    }


def test_a_crash_in_a_package_is_one_answer_for_its_names(environment: Environment) -> None:
    """Nobody crashes twice: the second process that comes to the module stops before it."""
    environment.write(
        {
            "falls/__init__.py": "import os\nopen(__file__ + '.log', 'a').write('x')\nos.abort()\n",
            "falls/a.py": "x = 1\n",
            "falls/b.py": "x = 1\n",
        }
    )
    found = imported(environment.python, "falls.a.x", "falls.a.y", "falls.b.x", "falls.b.y")
    assert {done.message for done in found.values()} == {"importing falls ended the process by SIGABRT"}
    assert len((environment.folder / "falls/__init__.py.log").read_text()) <= 2  # of four names; two ran side by side
    assert [Path(file).name for file in found["falls.b.y"].loaded] in ([], ["__init__.py"])


def test_a_package_in_an_archive_is_imported_all_the_same(environment: Environment) -> None:
    modules = {f"packed/part{number}.py": "x = 1\n" for number in range(30)}
    init = "".join(f"import packed.part{number}\n" for number in range(30))
    with zipfile.ZipFile(environment.folder / "packed.zip", "w") as archive:
        for name, text in {"packed/__init__.py": init, "packed/stays.py": HANGS, **modules}.items():
            archive.writestr(name, text)
    environment.write({"packed.pth": str(environment.folder / "packed.zip")})
    found = imported(environment.python, "packed.part29.x", "packed.part3.y", "packed.stays.x", limit_s=2)
    assert [found[name].outcome for name in ("packed.part29.x", "packed.part3.y", "packed.stays.x")] == [
        "found",
        "error",
        "hang",
    ]
    assert found["packed.stays.x"].message == "importing packed.stays.x did not end within 2 s"


def test_a_slow_import_is_not_called_a_hang_of_the_module_it_was_at(environment: Environment) -> None:
    parts = {f"slowly/part{number}.py": "import time\ntime.sleep(0.3)\n" for number in range(20)}
    init = "".join(f"import slowly.part{number}\n" for number in range(20))
    environment.write({"slowly/__init__.py": init, **parts})
    done = imported(environment.python, "slowly.x", limit_s=2)["slowly.x"]
    assert done.message == "importing slowly did not end within 2 s, and was busy importing until then"


def test_the_time_for_all_together_drops_nothing_that_was_told(environment: Environment) -> None:
    environment.write({"quick/__init__.py": "x = 1\n", **{f"late{n}/__init__.py": HANGS for n in range(3)}})
    arguments = {"symbols": ["quick.x", "late0.x", "late1.x", "late2.x"], "timeout_s": 30, "total_s": 3, "workers": 1}
    reply = door(environment.python).ask({"import": arguments}, timeout_s=60)
    found = msgspec.json.decode(reply["import"].answer, type=dict[str, Imported])
    assert {name: done.outcome for name, done in found.items()} == {
        "quick.x": "found",
        "late0.x": "untried",
        "late1.x": "untried",
        "late2.x": "untried",
    }
    assert found["late1.x"].message == "the 3 s for all imports together were over before"
    assert not left_running("late0.x")


def test_no_import_outlives_a_probe_that_is_ended(environment: Environment) -> None:
    environment.write({"orphan/__init__.py": HANGS})
    arguments = {"symbols": ["orphan.x"], "timeout_s": 60}
    with pytest.raises(HostError):
        InterpreterDoor(LocalHost(), environment.python, here=True, first_s=2).ask({"import": arguments})
    time.sleep(0.5)
    assert not left_running("orphan.x")
