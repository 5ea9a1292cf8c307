"""Whose code a kernel is: an engine's shipped objects count where its libraries have the operators that are called."""

from pathlib import Path

import pytest

from sublight.audit.capable import capable
from sublight.audit.engines.base import Gate
from sublight.audit.ladder import Answer, Step
from sublight.audit.packages import holds
from sublight.audit.replies import CodeObject
from tests.audit.scenes import code, distribution, gate, installation, route, scene, toolchain
from tests.audit.test_source_evaluate import walk

Code = dict[str, list[CodeObject]]
SHIPPED = [code("/site/engine/_C_stable.abi3.so", (["sm_120a"], 3)), code("/site/engine/_moe_C.so", (["sm_90a"], 1))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An engine whose modules call its own operators, another package's, and those of nobody who is here."""
    for name, text in {
        "engine/__init__.py": "",
        "engine/ops.py": "import torch\ndef product(x):\n    return torch.ops._C_products.product(x)\n",
        "engine/keeps.py": "import torch\ndef keep(x):\n    torch.ops._C_cache_ops.keep(x)\n",
        "engine/own.py": "from engine import ops\nclass Own:\n    def apply(self, x): return ops.product(x)\n",
        "engine/theirs.py": "import torch\nclass Theirs:\n    def apply(self, x):\n        torch.ops.fbgemm.f(x)\n",
        "engine/torchs.py": "import torch\ndef reduce(x):\n    return torch.ops.symm_mem.sum_(x)\n",
        "engine/wrapped.py": "import torch\ndef call(x):\n    return torch.ops.engine.call(x)\n",
        "engine/library.py": "from engine import ops\nfrom library import product\nclass Library:\n"
        "    def apply(self, x): ops.product(x)\n",
        "engine/rocm_own.py": "import torch\nclass RocmOwn:\n    def f(x): torch.ops._C.f(x)\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def answered(
    folder: Path, destination: str, *symbols: str, gates: tuple[Gate, ...] = (), more: Code | None = None
) -> Step:
    distributions, owners = [distribution("engine", "1")], {"engine": ["engine"]}
    objects: Code = {"engine": SHIPPED}
    for name, found in (more or {}).items():
        distributions.append(distribution(name, "1"))
        owners[name], objects[name] = [name], found
    made = scene(installation(distributions, owners, toolchain()), folder, objects=objects)
    return capable(made, route(*symbols, gates=gates, destination=destination))[0]


def test_operators_of_its_own_libraries_count(folder: Path) -> None:
    step = answered(folder, "engine.own.Own")
    assert (step.answer, step.why) == (Answer.PASS, "engine: 3 of 4 units are built for sm_120 (75.0 %)")


@pytest.mark.parametrize(
    "destination", ["engine.theirs.Theirs", "engine.torchs.reduce", "engine.wrapped.call", "engine.keeps.keep"]
)
def test_operators_of_others_are_no_code_of_the_engines(folder: Path, destination: str) -> None:
    """Another package's, torch's own, a name that Python code is registered under, and what only writes the cache."""
    step = answered(folder, destination)
    assert step.answer is Answer.NOT_KNOWN
    assert step.why == "neither a gate nor shipped code was found on the way to the kernel"


def test_a_kernel_of_a_package_that_is_not_there_is_not_known(folder: Path) -> None:
    """What the engine ships beside it, for scales or for a cache, does not stand in for it."""
    step = answered(folder, "engine.library.Library", "library.product")
    assert step.answer is Answer.NOT_KNOWN
    assert step.why == (
        "it needs library, not here to be looked into; beside it engine: 3 of 4 units are built for sm_120 (75.0 %)"
    )
    claimed = answered(folder, "engine.theirs.Theirs", "fbgemm.f", gates=(gate(Answer.PASS, "is_sm120()", "12.0"),))
    assert claimed.answer is Answer.NOT_KNOWN
    assert claimed.why == ("gates let sm_120 through, which is a claim; it needs fbgemm, not here to be looked into")
    there = {"library": [code("/site/library/k.so", (["sm_120"], 2))]}
    assert answered(folder, "engine.library.Library", "library.product", more=there).answer is Answer.PASS
    other = {"library": [code("/site/library/k.so", (["sm_90a"], 2))]}
    assert answered(folder, "engine.library.Library", "library.product", more=other).answer is Answer.FAIL


def test_what_a_kernel_takes_besides_holds_none(folder: Path) -> None:
    """Neither what every engine stands on, nor a helper of a kernel that lies in the engine or in another package."""
    assert answered(folder, "engine.own.Own", "torch.empty").answer is Answer.PASS
    assert answered(folder, "engine.own.Own", "engine.own.Own", "loader.load").answer is Answer.PASS
    there = {"library": [code("/site/library/k.so", (["sm_120"], 2))]}
    assert answered(folder, "library.product", "library.product", "loader.load", more=there).answer is Answer.PASS
    gone = answered(folder, "library.product", "library.product")
    assert (gone.answer, gone.why) == (Answer.NOT_KNOWN, "it needs library, not here to be looked into")


def test_what_runs_on_no_card_of_nvidias_has_none_of_its_code(folder: Path) -> None:
    made = scene(
        installation([distribution("engine", "1")], {"engine": ["engine"]}, toolchain()),
        folder,
        objects={"engine": SHIPPED},
    )
    step, sets = capable(made, route(destination="engine.rocm_own.RocmOwn"))
    assert (step.answer, sets.code) == (Answer.FAIL, ())
    closed = capable(made, route(destination="engine.own.Own", gates=(gate(Answer.FAIL, "made only on others"),)))
    assert (closed[0].answer, closed[1].code) == (Answer.FAIL, ())


@pytest.mark.parametrize(
    ("namespace", "held"),
    [("_C", True), ("_C_cache", True), ("_moe_C", True), ("_xpu_C", False), ("engine", False), ("aten", False)],
)
def test_a_library_has_the_operators_of_its_name(namespace: str, held: bool) -> None:
    assert holds([found.path for found in SHIPPED], namespace) is held
    assert holds(["/site/engine/deep_gemm.so"], "deep_gemm")


def test_a_library_of_the_engines_own_is_there_when_it_is_imported(tmp_path: Path) -> None:
    """Nothing in it can be read, and it is no missing module; one that is not shipped is."""
    text = """
        try:
            import engine._fast_C
            FAST = True
        except ImportError:
            FAST = False
        try:
            import engine._slow_C
            SLOW = True
        except ImportError:
            SLOW = False

        def work():
            from engine._fast_C import product
            return FAST, SLOW
        """
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "_fast_C.abi3.so").write_bytes(b"")
    assert walk(tmp_path, {"engine/__init__.py": "", "engine/ops.py": text}).call_name("engine.ops.work").value == (
        True,
        False,
    )
