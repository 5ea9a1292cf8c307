"""One guard around several imports: the one that fails takes the others along, and is named."""

from pathlib import Path

import msgspec

from sublight.audit.doors import InterpreterDoor
from sublight.audit.guarded import guards, of_guards
from sublight.audit.replies import Imported
from sublight.hosts.local import LocalHost
from tests.audit.machines import Environment
from tests.audit.wheels import tree

TOGETHER = """\
try:
    from fi.decode import run as decode
    from fi.prefill import run as prefill
    from fi.verify import run as verify
    from fi.state_sm100 import run as state
    AVAILABLE = True
except ImportError:
    AVAILABLE = False
"""


def environment(folder: Path, cutlass: bool) -> Environment:
    env = Environment(folder / "env")
    env.write(
        {
            "fi/__init__.py": "",
            "fi/decode.py": "def run(): ...\n",
            "fi/prefill.py": "def run(): ...\n",
            "fi/verify.py": "def run(): ...\n",
            "fi/state_sm100.py": "import cutlass\ndef run(): ...\n",
            "eng/__init__.py": "",
            "eng/gdn.py": TOGETHER,
            **({"cutlass.py": ""} if cutlass else {}),
        }
    )
    return env


def imported(env: Environment, symbols: tuple[str, ...]) -> dict[str, Imported]:
    reply = InterpreterDoor(LocalHost(), env.python, True).ask({"import": {"symbols": symbols}})
    return msgspec.json.decode(reply["import"].answer, type=dict[str, Imported])


def test_three_of_four_succeed_and_all_are_given_up(tmp_path: Path) -> None:
    env = environment(tmp_path, cutlass=False)
    (guard,) = guards(tree(env.folder), ["eng.gdn"], ["fi.decode.run"])
    assert guard.symbols == ("fi.decode.run", "fi.prefill.run", "fi.verify.run", "fi.state_sm100.run")
    assert guard.where == "eng/gdn.py:1"
    (found,) = of_guards([guard], imported(env, guard.symbols))
    assert found.text.startswith(
        "3 of the 4 imports under one guard succeed here, and all are given up, and AVAILABLE ="
    )
    assert found.text.endswith("fi.state_sm100.run fails with ModuleNotFoundError: No module named 'cutlass'")
    assert found.proofs[0].where.endswith("fi/state_sm100.py:1")
    assert found.hint.startswith("install what ships cutlass, or")


def test_nothing_to_say_where_all_succeed(tmp_path: Path) -> None:
    env = environment(tmp_path, cutlass=True)
    found = guards(tree(env.folder), ["eng.gdn"], ["fi.decode.run"])
    assert list(of_guards(found, imported(env, found[0].symbols))) == []


def test_a_guard_over_other_names_is_nobodys_business(tmp_path: Path) -> None:
    env = environment(tmp_path, cutlass=True)
    assert guards(tree(env.folder), ["eng.gdn"], ["fi.nothing"]) == ()
