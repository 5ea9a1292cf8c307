"""The probe in real interpreters: what it answers, what it survives, and that it stays within Python 3.9."""

import ast
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import msgspec
import pytest

from sublight.audit.doors import InterpreterDoor
from sublight.audit.installation import Installation, look
from sublight.audit.replies import Imported
from sublight.audit.script import script
from sublight.errors import HostError
from sublight.hosts.local import LocalHost
from tests.audit.machines import Environment

PROBE = Path(__file__).parents[2] / "src" / "sublight" / "audit" / "probe"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("venv") / "env")


def door(python: str) -> InterpreterDoor:
    return InterpreterDoor(LocalHost(), python, here=True)


def imported(python: str, *symbols: str, limit_s: float = 30) -> dict[str, Imported]:
    reply = door(python).ask({"import": {"symbols": list(symbols), "timeout_s": limit_s}}, timeout_s=120)
    return msgspec.json.decode(reply["import"].answer, type=dict[str, Imported])


@pytest.mark.parametrize("path", sorted(PROBE.glob("*.py")), ids=lambda path: path.name)
def test_syntax_and_modules_of_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    newer = {"match_case", "TryStar", "TypeAlias"}
    assert not newer & {type(node).__name__ for node in ast.walk(tree)}
    tops = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    tops |= {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    assert tops - {"sublight"} <= set(sys.stdlib_module_names)


def old_interpreter() -> str | None:
    """A Python 3.9, where there is one."""
    kept = sorted(Path.home().glob(".pyenv/versions/3.9*/bin/python"))
    for candidate in (*map(str, kept), "python3.9"):
        try:
            done = subprocess.run(
                [candidate, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False
            )
        except OSError:
            continue
        if done.stdout.strip() == b"(3, 9)":
            return candidate
    return None


def test_the_oldest_python_it_is_written_for() -> None:
    python = old_interpreter()
    if python is None:
        pytest.skip("no Python 3.9 on this machine")
    found = look(door(python))
    assert found.interpreter is not None
    assert found.interpreter.version.startswith("3.9.")
    assert set(found.reasons) <= {"gpus"}
    done = imported(python, "json.decoder.JSONDecoder", "json.nothing")
    assert done["json.decoder.JSONDecoder"].home == "json.decoder.JSONDecoder"
    assert done["json.nothing"].message == "AttributeError: module 'json' has no 'nothing'"


def test_a_python_that_is_too_old_says_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "the probe needs Python 3.9 or newer, this is 3.6.15" >&2\nexit 1\n')
    python.chmod(0o755)
    with pytest.raises(HostError) as caught:
        look(door(str(python)))
    assert "3.6.15" in caught.value.found


def test_what_is_installed(environment: Environment) -> None:
    environment.install(
        "some-kernels", "1.2", {"some_kernels/__init__.py": "", "some_kernels/ops.py": "X = 1\n"}, ["torch"]
    )
    found = look(door(environment.python))
    distribution = found.distribution("Some_Kernels")
    assert distribution is not None
    assert (str(distribution), distribution.requires, distribution.files) == ("some-kernels 1.2", ("torch",), 3)
    assert [(owner.distribution, owner.files) for owner in found.owners("some_kernels")] == [("some-kernels", 2)]
    place = look(door(environment.python), packages=("some_kernels", "absent")).places
    assert place.keys() == {"some_kernels"}
    assert place["some_kernels"].folder == str(environment.folder)
    again = look(door(environment.python), found.found)
    assert again.found.unchanged
    assert again.found.distributions == found.found.distributions


def test_a_licence_with_paragraphs_does_not_end_the_metadata(tmp_path: Path) -> None:
    env = Environment(tmp_path / "env")
    info = env.install("licensed", "1.0", {"licensed.py": ""})
    text = "Metadata-Version: 2.1\nName: licensed\nVersion: 1.0\nLicense: Apache\n        \n   1. Terms: none\n"
    (info / "METADATA").write_text(f"{text}Requires-Dist: cutlass==4.8.0\n\nRequires-Dist: not-this\n")
    (distribution,) = look(door(env.python)).found.distributions
    assert distribution.requires == ("cutlass==4.8.0",)


def test_banners_around_the_answer_do_not_hurt(tmp_path: Path) -> None:
    env = Environment(tmp_path / "env")
    noise = "import sys, atexit\nprint('WELCOME', flush=True)\natexit.register(print, 'BYE')\nsys.stderr.write('!')\n"
    env.write({"sitecustomize.py": noise, "chatty.pth": "import sys; print('=' * 40)\n"})
    found = look(door(env.python))
    assert found.interpreter is not None
    assert [file.code for file in found.found.pth] == [("import sys; print('=' * 40)",)]
    assert imported(env.python, "json.loads")["json.loads"].outcome == "found"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.abort()", "SIGABRT"),
        ("raise SystemExit('no licence')", "no licence"),
    ],
)
def test_an_interpreter_that_dies_is_an_error_that_says_how(tmp_path: Path, code: str, said: str) -> None:
    env = Environment(tmp_path / "env")
    env.write({"sitecustomize.py": code + "\n"})
    with pytest.raises(HostError) as caught:
        look(door(env.python))
    assert said in caught.value.found
    assert caught.value.hint


def test_no_such_interpreter(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        look(door(str(tmp_path / "python")))
    assert caught.value.found.startswith("there is no program")


def test_a_text_that_may_be_run_and_is_no_program(tmp_path: Path) -> None:
    plain = tmp_path / "python"
    plain.write_text("print(1)\n")
    plain.chmod(0o755)
    with pytest.raises(HostError) as caught:
        look(door(str(plain)))
    assert caught.value.found.startswith(f"{plain} is there and cannot be run as a program: ")


def test_a_program_that_is_no_python() -> None:
    with pytest.raises(HostError) as caught:
        look(door("true"))
    assert "without an answer" in caught.value.found


def test_an_owner_that_only_a_pth_file_puts_on_the_path(tmp_path: Path) -> None:
    """Its import name is in no top level of any metadata; RECORD has the files."""
    env = Environment(tmp_path / "env")
    files = {
        "vendor_dsl/__init__.py": "",
        "vendor_dsl/packages/cutlass/__init__.py": "",
        "vendor_dsl/packages/cutlass/cute.py": "",
        "vendor_dsl.pth": "import sys, vendor_dsl; sys.path.insert(0, vendor_dsl.__path__[0] + '/packages')\n",
    }
    env.install("vendor-dsl", "4.8", files)
    found = look(door(env.python))
    (owner,) = found.owners("cutlass")
    assert (owner.distribution, owner.files) == ("vendor-dsl", 2)
    assert owner.folder == str(env.folder / "vendor_dsl" / "packages")
    assert [o.distribution for o in found.owners("vendor_dsl")] == ["vendor-dsl"]
    assert look(door(env.python), packages=("cutlass",)).places["cutlass"].folder == owner.folder


def test_two_distributions_own_the_same_files(tmp_path: Path) -> None:
    """168 paths, two contents; one of them lies on disk. Files that both list alike are no clash."""
    env = Environment(tmp_path / "env")
    mine = {f"dsl/f{number}.py": f"base {number}\n" for number in range(168)}
    other = {name: text.replace("base", "cu13") for name, text in mine.items()}
    alike = {"dsl/__init__.py": "# the same\n"}
    env.install("dsl-libs-base", "4.5.0", {**mine, **alike})
    env.install("dsl-libs-cu13", "4.5.0", {**other, **alike}, only_listed=[*other, *alike])
    (clash,) = look(door(env.python)).found.clashes
    assert clash.paths == 168
    assert clash.matches == {"dsl-libs-base 4.5.0": 168, "dsl-libs-cu13 4.5.0": 0}


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("METADATA", "", "METADATA has no Name and no Version"),
        ("RECORD", None, "RECORD cannot be read"),
        ("RECORD", "a,b\nc\n", "RECORD has 2 lines"),
    ],
)
def test_broken_metadata_is_said(tmp_path: Path, name: str, content: str | None, error: str) -> None:
    env = Environment(tmp_path / "env")
    info = env.install("half", "1.0", {"half.py": ""})
    if content is None:
        (info / name).unlink()
    else:
        (info / name).write_text(content)
    found: Installation = look(door(env.python))
    (distribution,) = found.found.distributions
    assert distribution.error.startswith(error)
    assert (distribution.name, distribution.version) == ("half", "1.0")


def test_secrets_stay(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "hunter2")
    monkeypatch.setenv("SGLANG_WHATEVER", "1")
    monkeypatch.setenv("HOME_ADDRESS", "somewhere")
    hidden = {"SGLANG_SKIP_X": "sekrit456", "SGLANG_URL": "https://me:pw@there", "VLLM_HOST": "10.a9f3bc21d4"}
    shown = {
        "VLLM_ATTENTION_BACKEND": "FLASHINFER",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas",
        "TORCH_CUDA_ARCH_LIST": "9.0a;10.0+PTX",
        "VLLM_USE_DEEP_GEMM": "false",
        "NCCL_BUFFSIZE": "8388608",
        "SGLANG_CHUNK": "",
    }
    for name, value in {**hidden, **shown}.items():
        monkeypatch.setenv(name, value)
    told = look(door(environment.python)).environment
    assert told["SGLANG_WHATEVER"] == "1"
    assert told["VLLM_API_KEY"] == "(set, not shown)"
    assert "HOME_ADDRESS" not in told
    assert {name: told[name] for name in hidden} == dict.fromkeys(hidden, "(set, not shown)")
    assert {name: told[name] for name in shown} == shown


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


def test_a_swallowed_import_is_found_modules_away(environment: Environment) -> None:
    environment.write(
        {
            "quiet/__init__.py": """\
                import contextlib
                with contextlib.suppress(ImportError):
                    from .moe import Wrapper, fused
                """,
            "quiet/moe/__init__.py": "from .route import pack\nclass Wrapper: ...\ndef fused(): ...\n",
            "quiet/moe/route.py": "import no_triton_here\ndef pack(): ...\n",
        }
    )
    done = imported(environment.python, "quiet.Wrapper")["quiet.Wrapper"]
    assert done.outcome == "error"
    first = done.swallowed[0]
    assert (first.name, first.by) == ("no_triton_here", "quiet.moe.route")
    assert first.message == "ModuleNotFoundError: No module named 'no_triton_here'"
    assert first.where.endswith("quiet/moe/route.py:1")


def test_where_a_name_really_lives(environment: Environment) -> None:
    environment.write({"front/__init__.py": "from front.inner import call\n", "front/inner.py": "\ndef call(): ...\n"})
    done = imported(environment.python, "front.call")["front.call"]
    assert (done.home, done.line) == ("front.inner.call", 2)
    assert done.file == str(environment.folder / "front" / "inner.py")


def test_the_folder_it_is_started_in_is_not_part_of_the_installation(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "stray.py").write_text("X = 1\n")
    monkeypatch.chdir(tmp_path)
    assert look(door(environment.python)).interpreter is not None
    assert imported(environment.python, "stray.X")["stray.X"].outcome == "error"


def test_one_question_that_fails_takes_no_other_along() -> None:
    request = {"read": {"nonsense": 1}, "interpreter": {"prefixes": []}}
    done = subprocess.run([sys.executable, "-"], input=script(request), capture_output=True, check=True)
    answers = json.loads(done.stdout.decode().splitlines()[2])
    assert answers["read"]["error"].startswith("TypeError")
    assert answers["interpreter"]["answer"]["prefix"] == sys.prefix


def test_gpus_of_a_fake_driver_tool(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that nvidia-smi does not tell are None; a query that an old driver refuses is asked again without."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        '#!/bin/sh\ncase "$1" in *mig*) echo "Field mig is not a valid field" >&2; exit 2;; esac\n'
        'echo "0, NVIDIA GB10, 12.1, [N/A], 580.95"\necho "1, NVIDIA GB10, [N/A], [Not Supported], 580.95"\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cards = look(door(environment.python)).cards
    assert cards is not None
    assert [(c.name, c.major, c.minor, c.memory_bytes, c.driver) for c in cards.smi] == [
        ("NVIDIA GB10", 12, 1, None, "580.95"),
        ("NVIDIA GB10", None, None, None, "580.95"),
    ]


def test_an_interpreter_that_hangs_is_given_up_soon(tmp_path: Path) -> None:
    hangs = tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 600\n")
    hangs.chmod(0o755)
    with pytest.raises(HostError, match="did not end within 1 s") as refused:
        InterpreterDoor(LocalHost(), str(hangs), here=True, first_s=1.0).ask({"interpreter": {}})
    assert "--wait SECONDS" in refused.value.hint


def test_later_answers_have_the_time_they_take() -> None:
    reader = InterpreterDoor(LocalHost(), sys.executable, here=True, first_s=30.0)
    assert reader.ask({"names": {"folders": ["/"]}})["names"].answer
    reader._first_s = 0.001
    assert reader.ask({"names": {"folders": ["/"]}})["names"].answer
