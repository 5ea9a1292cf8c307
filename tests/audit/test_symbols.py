"""Dotted names, resolved from source: where they lead, where they live, and why they are not there."""

from pathlib import Path

import pytest

from sublight.audit.source.failing import explain
from sublight.audit.source.symbols import Existence, resolve
from sublight.audit.source.tree import Sources
from sublight.audit.source.whereabouts import modules, whereabouts
from tests.audit.reading import written

PACKAGE = {
    "pack/__init__.py": """
        import contextlib
        from .ops import fast as fast
        from . import tools
        with contextlib.suppress(ImportError):
            from .extra import Wrapper, Other
        from .stars import *
        """,
    "pack/ops.py": """
        from .impl.kernels import fast
        class Runner:
            LIMIT: int = 3
            def run(self): ...
            class Options:
                depth = 2
        alias = Runner
        """,
    "pack/impl/kernels.py": "def fast(x):\n    return x\n",
    "pack/tools.py": "import helper\nLIMIT = 3\n",
    "pack/extra.py": """
        from .probe import is_available
        if is_available():
            from .deep.inner import Wrapper
            from .deep.inner import Other
        """,
    "pack/probe.py": """
        import importlib.util
        def is_available() -> bool:
            \"\"\"Whether it is there.\"\"\"
            return importlib.util.find_spec("dsl") is not None
        """,
    "pack/deep/inner.py": "from .side import x\nclass Wrapper: ...\nclass Other: ...\n",
    "pack/deep/side.py": "import triton\nx = 1\n",
    "pack/stars.py": "__all__ = ['star', '_hidden']\ndef star(): ...\ndef _hidden(): ...\ndef _private(): ...\n",
    "pack/lazy.py": """
        _TABLE = {"made": ".impl.kernels", "fast": ".impl.kernels"}
        def __getattr__(name):
            if name in _TABLE:
                return getattr(__import__(_TABLE[name]), name)
            raise AttributeError(name)
        """,
    "pack/open.py": "def __getattr__(name):\n    return object()\n",
    "pack/cute_dsl/__init__.py": "from .gemm import grouped\n",
    "pack/cute_dsl/gemm.py": "def grouped(): ...\n",
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return written(tmp_path, PACKAGE)


def test_a_chain_of_re_exports(sources: Sources) -> None:
    answer = resolve(sources, "pack.fast")
    assert (answer.existence, answer.home, answer.kind) == (Existence.FOUND, "pack.impl.kernels.fast", "function")
    assert [proof.where for proof in answer.chain] == ["pack/__init__.py:3", "pack/ops.py:2", "pack/impl/kernels.py:1"]


@pytest.mark.parametrize(
    ("name", "home", "kind"),
    [
        ("pack.tools", "pack.tools", "module"),
        ("pack.tools.LIMIT", "pack.tools.LIMIT", "value"),
        ("pack.ops.Runner.run", "pack.ops.Runner.run", "function"),
        ("pack.ops.Runner.LIMIT", "pack.ops.Runner.LIMIT", "value"),
        ("pack.ops.Runner.Options.depth", "pack.ops.Runner.Options.depth", "value"),
        ("pack.ops.alias", "pack.ops.Runner", "class"),
        ("pack.impl", "pack.impl", "module"),
        ("pack.impl.kernels", "pack.impl.kernels", "module"),
        ("pack.star", "pack.stars.star", "function"),
        ("pack._hidden", "pack.stars._hidden", "function"),
        ("pack.lazy.fast", "pack.impl.kernels.fast", "function"),
        ("pack.lazy.made", "pack.lazy.made", "lazy name"),
    ],
)
def test_found(sources: Sources, name: str, home: str, kind: str) -> None:
    answer = resolve(sources, name)
    assert (answer.existence, answer.home, answer.kind) == (Existence.FOUND, home, kind)


def test_what_hangs_on_a_guard_is_conditional(sources: Sources) -> None:
    answer = resolve(sources, "pack.Wrapper")
    assert answer.existence is Existence.CONDITIONAL
    assert answer.conditions == (
        "nothing under pack/__init__.py:5 fails to import",
        "is_available() (pack/extra.py:4)",
    )


@pytest.mark.parametrize(
    "name", ["pack._private", "pack.nothing", "pack.lazy.other", "pack.tools.helpers", "pack.impl.nothing"]
)
def test_missing(sources: Sources, name: str) -> None:
    answer = resolve(sources, name)
    assert answer.existence is Existence.MISSING
    assert answer.prefix == name.rpartition(".")[0]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pack.open.anything", "pack.open makes names in a __getattr__ that lists none"),
        ("elsewhere.x", "the source of elsewhere is not here"),
        ("pack.ops.Runner.walk", "pack.ops.Runner does not define walk itself"),
        ("pack.ops.Runner.Options.width", "pack.ops.Runner.Options does not define width itself"),
        ("pack.ops.Runner.run.deep.er", "pack.ops.Runner.run (pack/ops.py:5) gets its attributes at run time"),
    ],
)
def test_what_cannot_be_seen_is_not_known(sources: Sources, name: str, why: str) -> None:
    answer = resolve(sources, name)
    assert (answer.existence, answer.why) == (Existence.NOT_KNOWN, why)


def test_a_compiled_module(tmp_path: Path) -> None:
    sources = written(tmp_path, {"pack/sm90/__init__.py": ""})
    (tmp_path / "pack" / "sm90" / "ops.abi3.so").write_bytes(b"")
    assert resolve(sources, "pack.sm90.ops").kind == "compiled module"
    inside = resolve(sources, "pack.sm90.ops.gemm")
    assert inside.existence is Existence.NOT_KNOWN
    assert inside.chain[-1].where == "pack/sm90/ops.abi3.so"


def test_a_folder_without_init_is_a_package_unless_a_file_of_the_name_comes_first(tmp_path: Path) -> None:
    files = {
        "pack/__init__.py": "",
        "pack/srt/utils.py": "class Backend: ...\n",
        "pack/both.py": "x = 1\n",
        "pack/both/inner.py": "y = 2\n",
        "pack/built/inner.py": "y = 2\n",
        "pack/data/table.json": "{}",
        "pack/deep/kernels/a.py": "from ..b import z\n",
        "pack/deep/b.py": "z = 1\n",
    }
    sources = written(tmp_path, files)
    for folder in ("srt", "both", "built", "data", "deep", "deep/kernels"):
        (tmp_path / "pack" / folder / "__init__.py").unlink(missing_ok=True)
    (tmp_path / "pack" / "built.abi3.so").write_bytes(b"")
    found = resolve(sources, "pack.srt.utils.Backend")
    assert (found.existence, found.home) == (Existence.FOUND, "pack.srt.utils.Backend")
    folder = resolve(sources, "pack.srt")
    assert [proof.where for proof in folder.chain] == ["pack/srt/"]
    missing = resolve(sources, "pack.srt.nothing")
    assert (missing.existence, missing.why) == (Existence.MISSING, "pack.srt (pack/srt/) has no nothing")
    assert resolve(sources, "pack.both.y").existence is Existence.MISSING
    assert resolve(sources, "pack.both.x").found
    assert resolve(sources, "pack.built").kind == "compiled module"
    assert resolve(sources, "pack.data").existence is Existence.MISSING
    assert resolve(sources, "pack.deep.kernels.a.z").home == "pack.deep.b.z"


def test_the_last_certain_statement_decides(tmp_path: Path) -> None:
    files = {"a/__init__.py": "import sys\nx = 1\nif sys:\n    x = 2\nx = 3\nb = 4\n", "a/b.py": "c = 1\n"}
    sources = written(tmp_path, files)
    answer = resolve(sources, "a.x")
    assert (answer.existence, [proof.where for proof in answer.chain]) == (Existence.FOUND, ["a/__init__.py:5"])
    assert resolve(sources, "a.b").kind == "value"  # the name the package binds, not the file beside it
    assert resolve(sources, "a.b.c").home == "a.b.c"


def test_a_relative_import_is_counted_from_the_package_itself(tmp_path: Path) -> None:
    files = {"a/__init__.py": "", "a/b/__init__.py": "from .c import x\n", "a/b/c.py": "x = 1\n", "a/c.py": "y = 1\n"}
    sources = written(tmp_path, files)
    module, inner = sources.module("a.b"), sources.module("a.b.c")
    assert module is not None
    assert inner is not None
    assert sources.absolute(module, "c", 1) == "a.b.c"
    assert sources.absolute(inner, "c", 1) == "a.b.c"
    assert sources.absolute(module, "c", 2) == "a.c"
    assert sources.absolute(inner, "c", 2) == "a.c"
    assert sources.absolute(inner, None, 1) == "a.b"


def test_imports_in_a_circle(tmp_path: Path) -> None:
    sources = written(tmp_path, {"a/__init__.py": "from .b import x", "a/b.py": "from a import x"})
    assert resolve(sources, "a.x").existence is Existence.NOT_KNOWN


def test_names_made_at_run_time(tmp_path: Path) -> None:
    sources = written(tmp_path, {"a/__init__.py": "import sys\nsys.modules[__name__] = object()\n"})
    answer = resolve(sources, "a.x")
    assert (answer.existence, answer.chain[-1].where) == (Existence.NOT_KNOWN, "a/__init__.py:2")


@pytest.mark.parametrize("asked", ["pack.cute", "pack.cutedsl", "pack.ops.cutedsl"])
def test_where_it_really_lives(sources: Sources, asked: str) -> None:
    places = whereabouts(sources, resolve(sources, asked))
    assert [place.symbol for place in places] == ["pack.cute_dsl", "pack.cute_dsl.gemm.grouped"]
    assert places[1].proof.where == "pack/cute_dsl/gemm.py:1"


def test_a_module_of_that_name_far_away_is_not_meant(tmp_path: Path) -> None:
    """Neither it nor what it offers is named beside the one that is near; of that one, a few names."""
    names = [f"kernel_{number}" for number in range(40)]
    table = "".join(f"def {name}(): ...\n" for name in names)
    files = {"p/__init__.py": "", "p/cute_dsl/__init__.py": f"from .gemm import make_ptr, {', '.join(names)}\n"}
    files |= {
        "p/cute_dsl/gemm.py": f"def make_ptr(): ...\n{table}",
        "p/data/__init__.py": "",
        "p/data/lib/__init__.py": "",
    }
    files |= {
        "p/data/lib/cute/__init__.py": "from .core import other\n",
        "p/data/lib/cute/core.py": "def other(): ...\n",
    }
    wide = written(tmp_path, files)
    places = [place.symbol for place in whereabouts(wide, resolve(wide, "p.cute"))]
    assert places == ["p.cute_dsl", *(f"p.cute_dsl.gemm.{name}" for name in names[:5])]


def test_the_definition_of_the_last_name_wins(sources: Sources) -> None:
    places = whereabouts(sources, resolve(sources, "pack.cute.grouped"))
    assert [place.symbol for place in places] == ["pack.cute_dsl.gemm.grouped"]


def test_nothing_of_the_kind(sources: Sources) -> None:
    assert whereabouts(sources, resolve(sources, "pack.utterly_unlike")) == ()
    assert whereabouts(sources, resolve(sources, "pack.fast")) == ()


def test_a_name_is_found_in_folders_without_init_and_not_among_data(tmp_path: Path) -> None:
    """`spaces` has no `__init__.py` and holds code; `outer` holds nothing but such a folder; `data` holds headers."""
    sources = written(tmp_path, {"pack/__init__.py": ""})
    for path, text in {
        "pack/spaces/kernels.py": "def grouped(): ...\n",
        "pack/outer/inner/deeper.py": "def masked(): ...\n",
        "pack/data/include/table.h": "int grouped;\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert modules(sources, "pack") == ["pack", "pack.spaces.kernels", "pack.outer.inner.deeper"]
    (place,) = whereabouts(sources, resolve(sources, "pack.jit.grouped"))
    assert (place.symbol, place.proof.where) == ("pack.spaces.kernels.grouped", "pack/spaces/kernels.py:1")
    (place,) = whereabouts(sources, resolve(sources, "pack.jit.masked"))
    assert place.symbol == "pack.outer.inner.deeper.masked"


def test_a_swallowed_import_is_named_modules_away(sources: Sources) -> None:
    cause = explain(sources, "pack.Other", lambda name: not name.startswith("triton"))
    assert cause is not None
    assert (cause.missing, cause.certain) == ("triton", True)
    assert [proof.where for proof in cause.chain] == [
        "pack/__init__.py:6",
        "pack/extra.py:4",
        "pack/deep/inner.py:1",
        "pack/deep/side.py:1",
    ]
    assert [proof.where for proof in cause.swallowed] == ["pack/__init__.py:5"]


def test_a_probe_that_says_no(sources: Sources) -> None:
    cause = explain(sources, "pack.Wrapper", lambda name: not name.startswith("dsl"))
    assert cause is not None
    assert cause.missing == "dsl"
    assert cause.swallowed[0].where == "pack/extra.py:3"


def test_nothing_stands_against_it(sources: Sources) -> None:
    assert explain(sources, "pack.Wrapper", lambda name: True) is None
    assert explain(sources, "pack.fast", lambda name: not name.startswith("triton")) is None


def test_an_import_that_is_not_guarded(sources: Sources) -> None:
    cause = explain(sources, "pack.tools", lambda name: name != "helper")
    assert cause is not None
    assert (cause.missing, cause.swallowed) == ("helper", ())
    assert cause.chain[-1].where == "pack/tools.py:1"


def test_a_test_nobody_can_tell_leaves_it_open(tmp_path: Path) -> None:
    files = {
        "a/__init__.py": "import os\nif os.environ.get('X'):\n    from .b import y\n",
        "a/b.py": "import gone\ny = 1",
    }
    cause = explain(written(tmp_path, files), "a.y", lambda name: name != "gone")
    assert cause is not None
    assert (cause.missing, cause.certain) == ("gone", False)


def test_a_flag_that_an_import_would_have_set_is_not_lost(tmp_path: Path) -> None:
    """The name was there before; what asks for it fails for another reason, which is the one that is told."""
    files = {
        "a/__init__.py": "import contextlib\nwith contextlib.suppress(ImportError):\n    from .b import y\n",
        "a/b.py": "from .flags import AVAILABLE\nimport kit\ny = 1\n",
        "a/flags.py": "AVAILABLE = False\ntry:\n    import gone\n    AVAILABLE = True\nexcept ImportError:\n    pass\n",
    }
    cause = explain(written(tmp_path, files), "a.y", lambda name: name not in ("gone", "kit"))
    assert cause is not None
    assert (cause.missing, cause.chain[-1].where) == ("kit", "a/b.py:2")
    assert explain(written(tmp_path, files), "a.y", lambda name: name != "gone") is None
