"""Why an import failed and what to try: the cause that keeps the asked name out, and no other that was swallowed."""

import pytest

from sublight.audit.auditor import Auditor, Options
from sublight.audit.cache import Cache
from sublight.audit.doors import InterpreterDoor
from sublight.audit.record import SymbolAnswer
from sublight.audit.summary import audit_symbols
from sublight.hosts.local import LocalHost
from tests.audit.machines import Environment

FILES = {
    # An import that has nothing to do with any name, and one that a test keeps from being tried.
    "flash/__init__.py": """\
        from contextlib import suppress
        try:
            import cudnn
        except ImportError:
            cudnn = None
        with suppress(ImportError):
            from .moe import Wrapper
        with suppress(Exception):
            from .old import driven
        """,
    "flash/moe.py": """\
        import importlib.util
        if importlib.util.find_spec("cutlass") is not None:
            from .inner import Wrapper
        """,
    "flash/inner.py": "import cutlass\nclass Wrapper: ...\n",
    "flash/old.py": "raise RuntimeError('driver too old')\ndef driven(): ...\n",
    "flash/cute_dsl/__init__.py": "def masked(): ...\n",
    "broken/__init__.py": "from broken import tools\n",
    "broken/tools.py": "import pynvml\n",
    "broken/cute_dsl.py": "def masked(): ...\n",
    "leaves/__init__.py": "import sys\nsys.exit(3)\n",
    "heavy/__init__.py": "from heavy.load import ops\n",
    "heavy/load.py": """\
        try:
            import heavy_ops as ops
        except ImportError as first:
            raise ImportError("could not load: libnvrtc.so.12: cannot open shared object file: no such file")
        """,
    "renamed/__init__.py": "from flash.cute_dsl import gone\n",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    env = Environment(tmp_path_factory.mktemp("venv") / "env")
    flash = {name: text for name, text in FILES.items() if name.startswith("flash/")}
    env.install("flash", "1.0", flash, ["nvidia-cutlass-dsl>=4.6", "numpy"])
    env.install("broken", "1.0", {name: text for name, text in FILES.items() if name.startswith("broken/")})
    env.install("heavy-kernels", "2.0", {name: text for name, text in FILES.items() if name.startswith("heavy/")})
    env.write({name: text for name, text in FILES.items() if name.startswith(("leaves/", "renamed/"))})
    return env


def asked(env: Environment, symbol: str) -> SymbolAnswer:
    through = InterpreterDoor(LocalHost(), env.python, here=True)
    made = audit_symbols(Auditor(through, Options(), Cache(None), [symbol.partition(".")[0]]), [symbol])
    return made.symbols[0]


def test_a_name_that_a_missing_package_keeps_out(environment: Environment) -> None:
    """The version has it: another one would not help."""
    answer = asked(environment, "flash.Wrapper")
    assert answer.why == (
        "asked flash.Wrapper, found AttributeError: module 'flash' has no 'Wrapper'; its source has it "
        "(flash.inner.Wrapper), and it is left out because cutlass is not there (flash/moe.py:2)"
    )
    assert answer.hint == "pip install 'nvidia-cutlass-dsl>=4.6'"
    assert answer.home == "flash.inner.Wrapper"


def test_a_name_that_an_error_keeps_out(environment: Environment) -> None:
    answer = asked(environment, "flash.driven")
    assert answer.why.endswith("; inside, flash asked for .old and met RuntimeError: driver too old")
    assert answer.proofs[-1].where.endswith("flash/__init__.py:9")


def test_what_was_swallowed_elsewhere_is_no_cause(environment: Environment) -> None:
    answer = asked(environment, "flash.cute")
    assert answer.why == (
        "asked flash.cute, found AttributeError: module 'flash' has no 'cute'; it really lives at flash.cute_dsl"
    )
    assert answer.hint == "import flash.cute_dsl"
    assert asked(environment, "flash.cute_dsl.nothing").hint == "a version of flash that has it"


def test_a_package_that_does_not_import_is_mended_first(environment: Environment) -> None:
    answer = asked(environment, "broken.cute")
    assert answer.why == (
        "asked broken.cute, found ModuleNotFoundError: No module named 'pynvml', before the name was looked for: "
        "broken itself does not import, and broken (broken/__init__.py) has no cute; it would live at broken.cute_dsl"
    )
    assert answer.hint == "install what ships pynvml"


def test_an_error_on_the_way_says_what_to_try(environment: Environment) -> None:
    library = asked(environment, "heavy.ops")
    assert "a version of" not in library.hint
    assert library.hint == "a build of heavy-kernels for this machine, or what ships libnvrtc.so.12"
    left = asked(environment, "leaves.run")
    assert "found SystemExit: 3" in left.why
    assert left.hint.startswith(f"{environment.python} -c 'import leaves', which ends at ")
    assert left.hint.endswith("leaves/__init__.py:2")
    assert asked(environment, "renamed.gone").hint == "a version of flash whose flash.cute_dsl has gone"
