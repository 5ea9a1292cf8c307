"""The probe in real interpreters: what it answers, what it survives, and that it stays within Python 3.9."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sublight.audit.doors import InterpreterDoor
from sublight.audit.installation import Installation, look
from sublight.audit.script import script
from sublight.errors import HostError
from sublight.hosts.local import LocalHost
from tests.audit.machines import Environment, door, imported

PROBE = Path(__file__).parents[2] / "src" / "sublight" / "audit" / "probe"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("venv") / "env")


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
