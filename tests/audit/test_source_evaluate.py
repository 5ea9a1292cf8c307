"""What the evaluator makes of the shapes in which engines choose their kernels, each in a small program of our own."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sublight.audit.source.evaluate import Evaluator, Outcome
from sublight.audit.source.facts import Facts
from sublight.audit.source.values import MISSING, Choice, External, Instance, Unknown
from tests.audit.reading import written


def walk(folder: Path, files: Mapping[str, str], **facts: object) -> Evaluator:
    return Evaluator(written(folder, files), Facts(follow=("engine",), **facts))  # type: ignore[arg-type]


def called(outcome: Outcome) -> list[str]:
    return [event.name for event in outcome.of("call") if not event.name.startswith("engine.")]


TAIL = """
    class Method:
        def __init__(self, name):
            self.name = name

        @property
        def wants_trtllm(self):
            return self.name == "trtllm"

        def apply(self, layer, x):
            if self.wants_trtllm:
                from flashinfer.fused_moe import trtllm_moe
                return trtllm_moe(x)
            if hasattr(layer, "cutlass_ready"):
                from flashinfer.fused_moe import cutlass_moe
                return cutlass_moe(x)
            from sgl_kernel import fallback_moe
            return fallback_moe(x)

    class Layer:
        def __init__(self, ready):
            if ready:
                prepare(self)

    def prepare(layer):
        layer.cutlass_ready = 1
    """


@pytest.mark.parametrize(
    ("name", "ready", "kernel"),
    [
        ("trtllm", False, "flashinfer.fused_moe.trtllm_moe"),
        ("cutedsl", False, "sgl_kernel.fallback_moe"),
        ("cutedsl", True, "flashinfer.fused_moe.cutlass_moe"),
    ],
)
def test_silent_substitution_and_attributes_set_elsewhere(tmp_path: Path, name: str, ready: bool, kernel: str) -> None:
    e = walk(tmp_path, {"engine/method.py": TAIL})
    method = e.call_name("engine.method.Method", [name]).value
    layer = e.call_name("engine.method.Layer", [ready]).value
    outcome = e.call_method(method, "apply", [layer, Unknown("x")])
    assert called(outcome) == [kernel]
    assert all(event.certain for event in outcome.events)
    assert outcome.of("branch")[0].text == "self.wants_trtllm"


def test_replacement_with_a_log(tmp_path: Path) -> None:
    text = """
        import logging
        logger = logging.getLogger(__name__)

        def choose(name):
            if name in ("cutlass", "cutedsl"):
                logger.info("%s is replaced by %s", name, "triton")
                name = "triton"
            return name
        """
    outcome = walk(tmp_path, {"engine/fp8.py": text}).call_name("engine.fp8.choose", ["cutedsl"])
    assert outcome.value == "triton"
    assert [event.text for event in outcome.of("log")] == ["cutedsl is replaced by triton"]


GUARDED = """
    from engine.card import is_sm120
    quantize = None
    try:
        if is_sm120():
            try:
                from flashinfer import quantize
            except ImportError:
                from sgl_kernel import other_quantize as quantize
        else:
            from sgl_kernel import other_quantize as quantize
    except ImportError:
        quantize = None
    """
CARD = """
    from functools import lru_cache, partial
    import torch

    def _check(majors):
        return torch.cuda.get_device_capability()[0] in majors

    is_sm120 = is_blackwell_consumer = lru_cache(maxsize=1)(partial(_check, majors=[12]))
    is_sm100 = lru_cache(maxsize=1)(partial(_check, majors=[10]))
    """


@pytest.mark.parametrize(
    ("capability", "missing", "value"),
    [
        ((12, 0), (), External("flashinfer.quantize")),
        ((12, 0), ("flashinfer",), External("sgl_kernel.other_quantize")),
        ((10, 0), (), External("sgl_kernel.other_quantize")),
        ((10, 0), ("sgl_kernel",), None),
        ((12, 0), ("flashinfer", "sgl_kernel"), None),
    ],
)
def test_nested_guard_with_two_providers(
    tmp_path: Path, capability: tuple[int, int], missing: tuple[str, ...], value: object
) -> None:
    e = walk(
        tmp_path,
        {"engine/quant.py": GUARDED, "engine/card.py": CARD},
        calls={"torch.cuda.get_device_capability": capability},
        importable=lambda symbol: symbol.partition(".")[0] not in missing,
    )
    assert e.name("engine.quant.quantize") == value


def test_a_guarded_import_nobody_knows_of_goes_both_ways(tmp_path: Path) -> None:
    e = walk(
        tmp_path,
        {"engine/quant.py": GUARDED, "engine/card.py": CARD},
        calls={"torch.cuda.get_device_capability": (10, 0)},
        importable=lambda _: None,
    )
    found = e.name("engine.quant.quantize")
    assert isinstance(found, Choice)
    assert set(found.options) == {External("sgl_kernel.other_quantize"), None}


def test_an_import_under_run_time_state(tmp_path: Path) -> None:
    files = {
        "engine/state.py": "BACKEND = None\ndef get():\n    return BACKEND or 'auto'\n",
        "engine/layer.py": """
            from engine.state import get
            kernel = None
            if get() == "trtllm":
                from flashinfer.fused_moe import trtllm_moe as kernel
            """,
    }
    assert walk(tmp_path, files).name("engine.layer.kernel") is None
    other = walk(tmp_path, files, values={"engine.state.BACKEND": "trtllm"})
    assert other.name("engine.layer.kernel") == External("flashinfer.fused_moe.trtllm_moe")


def test_suppressed_import_drops_what_comes_after(tmp_path: Path) -> None:
    text = """
        import contextlib
        with contextlib.suppress(ImportError):
            from vendor.a import first
            from vendor.b import second
            from vendor.c import third
        """
    e = walk(tmp_path, {"engine/names.py": text}, importable=lambda symbol: symbol != "vendor.b.second")
    assert e.name("engine.names.first") == External("vendor.a.first")
    assert e.name("engine.names.second") is MISSING
    assert e.name("engine.names.third") is MISSING


def test_gates_in_a_table_of_strings(tmp_path: Path) -> None:
    text = """
        _PROBES = {"is_sm100": "is_sm100", "is_small": "is_sm120"}

        class Platform:
            def __getattr__(self, name):
                probe = _PROBES.get(name)
                if probe is None:
                    raise AttributeError(name)
                from engine import card
                return getattr(card, probe)()

        _PLATFORM = Platform()

        def get_platform():
            return _PLATFORM

        def choose():
            return "trtllm" if get_platform().is_sm100 else "cutlass" if get_platform().is_small else "marlin"
        """
    for capability, kernel in (((10, 3), "trtllm"), ((12, 1), "cutlass"), ((9, 0), "marlin")):
        files = {"engine/platform.py": text, "engine/card.py": CARD}
        e = walk(tmp_path, files, calls={"torch.cuda.get_device_capability": capability})
        assert e.call_name("engine.platform.choose").value == kernel


REGISTRY = {
    "engine/pool.py": """
        _FUSED = {}

        def register(a2a, name):
            def decorator(function):
                _FUSED[(a2a, name)] = function
                return function
            return decorator

        def find(a2a, name):
            return _FUSED.get((a2a, name))
        """,
    "engine/triton.py": """
        from engine.pool import register

        @register("none", "triton")
        @register("none", "triton_again")
        def fused_triton(x):
            return x
        """,
    "engine/cutedsl.py": """
        from engine.pool import register

        @register("none", "cutedsl")
        def fused_cutedsl(x):
            return x
        """,
    "engine/orphan.py": """
        from engine.pool import register

        @register("none", "orphan")
        def fused_orphan(x):
            return x
        """,
    "engine/runner.py": """
        import engine.triton
        from engine.pool import find

        def run(name):
            if name == "cutedsl":
                import engine.cutedsl  # noqa: F401
            return find("none", name)
        """,
}


@pytest.mark.parametrize(
    ("name", "function"),
    [("triton", "fused_triton"), ("triton_again", "fused_triton"), ("cutedsl", "fused_cutedsl"), ("orphan", None)],
)
def test_registration_by_side_effect_import(tmp_path: Path, name: str, function: str | None) -> None:
    e = walk(tmp_path, REGISTRY, registers=frozenset(("register",)))
    found = e.call_name("engine.runner.run", [name]).value
    assert (found.qualified if found is not None else None) == function


def test_string_imports_are_told_from_their_look_alikes(tmp_path: Path) -> None:
    text = """
        import importlib

        def load(logger):
            logger.warning("flashinfer.comm is not there")
            pair("flashinfer", "cutedsl")
            return importlib.import_module("flashinfer.gemm")

        def pair(a2a, name):
            return a2a + name
        """
    outcome = walk(tmp_path, {"engine/strings.py": text}).call_name("engine.strings.load", [Unknown("logger")])
    assert [(event.name, event.how) for event in outcome.of("import") if event.how == "string"] == [
        ("flashinfer.gemm", "string")
    ]


def test_gates_at_different_depths(tmp_path: Path) -> None:
    text = """
        class Kernel:
            def __init__(self, sm):
                assert sm in ("sm_100", "sm_103"), f"{sm} is not supported"

        def wrapper(major, minor):
            if major >= 10:
                return Kernel(f"sm_{major}{minor}")
            raise ValueError("too old")
        """
    e = walk(tmp_path, {"engine/gemm.py": text})
    assert isinstance(e.call_name("engine.gemm.wrapper", [10, 0]).value, Instance)
    outside = e.call_name("engine.gemm.wrapper", [12, 0])
    assert outside.refusal is not None
    assert (outside.refusal.kind, outside.refusal.message) == ("AssertionError", "sm_120 is not supported")
    assert outside.refused_at is not None
    assert outside.refused_at.where == "engine/gemm.py:4"
    old = e.call_name("engine.gemm.wrapper", [9, 0])
    assert old.refusal is not None
    assert old.refusal.kind == "ValueError"


def test_ordered_lists_that_are_edited(tmp_path: Path) -> None:
    text = """
        from enum import Enum

        class Backend(Enum):
            TRTLLM = "trtllm"
            CUTLASS = "cutlass"
            MARLIN = "marlin"
            HUMMING = "humming"

        CHOICES = ["trtllm", "cutlass"]
        add_choices = CHOICES.extend
        add_choices(["marlin"])

        def order(major, limit):
            names = [Backend.TRTLLM, Backend.CUTLASS, Backend.MARLIN, Backend.HUMMING]
            if major == 9:
                names.remove(Backend.HUMMING)
                names.insert(names.index(Backend.MARLIN), Backend.HUMMING)
            if limit:
                names = [name for name in names if name.value.startswith(("c", "m"))]
            return [name.value for name in names]
        """
    e = walk(tmp_path, {"engine/order.py": text})
    assert e.call_name("engine.order.order", [9, False]).value == ["trtllm", "cutlass", "humming", "marlin"]
    assert e.call_name("engine.order.order", [12, True]).value == ["cutlass", "marlin"]


def test_an_enumeration_by_value_and_its_predicates(tmp_path: Path) -> None:
    text = """
        from enum import Enum

        class Backend(Enum):
            TRITON_KERNELS = "triton_kernel"
            NONE = "none"

            @classmethod
            def _missing_(cls, value):
                if value is None:
                    return cls.NONE
                raise ValueError(f"no member for {value}")

            def is_triton_kernels(self):
                return self == Backend.TRITON_KERNELS

        def ask(value):
            return Backend(value).is_triton_kernels()
        """
    e = walk(tmp_path, {"engine/names.py": text})
    assert e.call_name("engine.names.ask", ["triton_kernel"]).value is True
    assert e.call_name("engine.names.ask", [None]).value is False
    refused = e.call_name("engine.names.ask", ["TRITON_KERNELS"]).refusal
    assert refused is not None
    assert refused.message == "no member for TRITON_KERNELS"


# -- what is unknown --------------------------------------------------------------------------------------------


def test_both_sides_of_an_unknown_decision_are_walked_and_joined(tmp_path: Path) -> None:
    text = """
        def choose(x, state):
            state["seen"] = 1
            if x.big:
                state["seen"] = 2
                state["only"] = 3
                kernel = "a"
            else:
                kernel = "b"
            return kernel
        """
    e = walk(tmp_path, {"engine/m.py": text})
    state: dict[str, object] = {}
    outcome = e.call_name("engine.m.choose", [Unknown("x"), state])
    assert isinstance(outcome.value, Choice)
    assert set(outcome.value.options) == {"a", "b"}
    assert isinstance(state["seen"], Choice)
    assert set(state["seen"].options) == {1, 2}
    assert isinstance(state["only"], Choice)
    assert MISSING in state["only"].options


def test_what_follows_an_early_return_hangs_on_its_condition(tmp_path: Path) -> None:
    text = """
        from vendor import first, second

        def choose(x):
            if x.small:
                return first(x)
            return second(x)
        """
    outcome = walk(tmp_path, {"engine/m.py": text}).call_name("engine.m.choose", [Unknown("x")])
    conditions = {event.name: [each.text for each in event.conditions] for event in outcome.of("call")}
    assert conditions["vendor.first"] == ["x.small"]
    assert conditions["vendor.second"] == ["not (x.small)"]


def test_a_refusal_under_something_unknown_is_no_certain_refusal(tmp_path: Path) -> None:
    text = """
        def check(x):
            if x.odd:
                raise ValueError("odd")
            return 7
        """
    outcome = walk(tmp_path, {"engine/m.py": text}).call_name("engine.m.check", [Unknown("x")])
    assert (outcome.value, outcome.refusal) == (7, None)
    assert [event.certain for event in outcome.of("raise")] == [False]


def test_loops_over_unknown_things_end(tmp_path: Path) -> None:
    text = """
        def spin(x):
            total = 0
            while x.more:
                total = total + 1
            for item in x.items:
                total = item
            return total

        def itself(n):
            return itself(n + 1)
        """
    e = walk(tmp_path, {"engine/m.py": text})
    assert isinstance(e.call_name("engine.m.spin", [Unknown("x")]).value, (Choice, Unknown))
    outcome = e.call_name("engine.m.itself", [0])
    assert isinstance(outcome.value, Unknown)
    assert [event.text for event in outcome.of("not followed")] == ["it calls itself"]


def test_a_walk_is_given_up_after_so_many_steps(tmp_path: Path) -> None:
    text = "def count():\n    return [i * j for i in range(1000) for j in range(1000)]\n"
    outcome = walk(tmp_path, {"engine/m.py": text}, steps_at_most=10_000).call_name("engine.m.count")
    assert outcome.gave_up == "more than 10000 steps"


def test_nothing_of_that_name(tmp_path: Path) -> None:
    e = walk(tmp_path, {"engine/m.py": "x = 1\n", "engine/bad.py": "def (:\n"})
    assert e.call_name("engine.m.gone").gave_up == "engine.m.gone is not in the sources"
    assert e.call_name("engine.bad.gone").gave_up.startswith("engine/bad.py cannot be parsed by this Python: ")


def test_coming_back_to_a_checkpoint(tmp_path: Path) -> None:
    text = """
        STATE = None
        LIST = []

        def put(value):
            global STATE
            STATE = value
            LIST.append(value)
            return [STATE, list(LIST)]
        """
    e = walk(tmp_path, {"engine/m.py": text})
    e.name("engine.m.put")
    start = e.checkpoint()
    assert e.call_name("engine.m.put", ["a"]).value == ["a", ["a"]]
    e.back(start)
    assert e.call_name("engine.m.put", ["b"]).value == ["b", ["b"]]


def test_keywords_that_may_be_missing_leave_the_others_alone(tmp_path: Path) -> None:
    e = walk(
        tmp_path,
        {
            "engine/steps.py": """
            STASH = []

            def declare(source, **fields):
                STASH.append((source, dict(fields)))

            def decided(vendor):
                return {"page_size": 64} if vendor.asks() else {}

            def read(name, vendor):
                declared = decided(vendor)
                if declared:
                    declare("decided", **declared)
                for _, each in reversed(STASH):
                    if name in each:
                        return each[name]
                return "as it was"
            """
        },
    )
    vendor = Unknown("something outside")
    assert e.run(e.name("engine.steps.read"), ["backend", vendor], {}).value == "as it was"
    found = e.run(e.name("engine.steps.read"), ["page_size", vendor], {}).value
    assert isinstance(found, Choice)
    assert set(found.options) == {64, "as it was"}
