"""Gates on the card in code: where they stand, and which capabilities each lets through."""

import ast
from pathlib import Path

import pytest

from sublight.audit.source.cards import CAPABILITIES, Capability, answered, questions
from sublight.audit.source.tree import Sources
from tests.audit.reading import written


def asked(sources: Sources, name: str) -> dict[str, tuple[str, str, bool, list[Capability], list[Capability]]]:
    """ "pack/a.py:5" -> kind, condition, whether it is asked for certain, who passes, who is refused."""
    module_name, _, function = name.rpartition(".")
    module = sources.module(module_name)
    assert module is not None
    node = next(node for node in module.tree.body if getattr(node, "name", "") == function)
    return {
        question.where: (question.kind, question.text, question.sure, list(passing), list(refused))
        for question, passing, refused in questions(sources, module, node)
    }


def test_a_wrapper_and_the_constructor_behind_it(tmp_path: Path) -> None:
    """The wrapper lets newer cards through, the kernel's constructor does not."""
    sources = written(
        tmp_path,
        {
            "pack/wrapper.py": """
                from .device import get_compute_capability
                def run(x, **options):
                    major, minor = get_compute_capability(x.device)
                    if major == 11 and minor == 0:
                        raise ValueError("not this one")
                    if major >= 10:
                        from .kernel import compiled
                        return compiled(version=f"sm_{major}{minor}", size=options.get("size"))(x)
                    else:
                        raise ValueError("too old")
                """,
            "pack/device.py": "def get_compute_capability(device): ...\n",
            "pack/kernel.py": """
                import dsl
                class Kernel:
                    def __init__(self, version):
                        supported = ["sm_100", "sm_103"]
                        assert version in supported, "no"
                class Host:
                    def __init__(self, version, size):
                        self._version = version
                        self.size = size
                    def __call__(self, x):
                        return Kernel(version=self._version)
                def compiled(version, size):
                    return dsl.compile(Host(version=version, size=size), 1)
                """,
        },
    )
    found = asked(sources, "pack.wrapper.run")
    assert found["pack/wrapper.py:5"][1] == "not (major == 11 and minor == 0)"
    assert found["pack/wrapper.py:5"][4] == [(11, 0)]
    kind, text, sure, passing, refused = found["pack/wrapper.py:7"]
    assert (kind, text, sure) == ("raise", "major >= 10", True)
    assert passing == [(10, 0), (10, 3), (10, 7), (12, 0), (12, 1)]
    assert (9, 0) in refused
    assert found["pack/kernel.py:6"] == (
        "assert",
        "version in supported",
        True,
        [(10, 0), (10, 3)],
        [(10, 7), (12, 0), (12, 1)],
    )


def test_a_dispatch_by_name_and_the_build_behind_it(tmp_path: Path) -> None:
    sources = written(
        tmp_path,
        {
            "pack/a.py": """
                def module(backend="100", fast=False):
                    if backend in ("120", "121"):
                        return flags([12])
                    elif backend == "90":
                        return flags([9])
                    else:
                        raise ValueError(backend)
                def flags(majors):
                    return context.get_nvcc_flags_list(supported_major_versions=majors)
                def run(x):
                    major, minor = torch.cuda.get_device_capability(x)
                    return module(f"{major * 10 + minor}")
                """
        },
    )
    found = asked(sources, "pack.a.run")
    assert found["pack/a.py:3"][3] == [(12, 0), (12, 1)]
    assert found["pack/a.py:5"][3] == [(9, 0)]
    assert (10, 0) in found["pack/a.py:5"][4]
    assert found["pack/a.py:10"][0] == "flags"


@pytest.mark.parametrize(
    ("condition", "sure"),
    [("quant == 'w4a8'", False), ("True", True)],
)
def test_what_hangs_on_something_else_is_not_sure(tmp_path: Path, condition: str, sure: bool) -> None:
    text = f"""
        def run(x, quant):
            major, _ = get_compute_capability(x)
            if {condition}:
                if major != 9:
                    raise ValueError("only Hopper")
        """
    found = asked(written(tmp_path, {"pack/a.py": text}), "pack.a.run")
    assert found["pack/a.py:5"][2:4] == (sure, [(9, 0)])


def test_a_helper_that_looks_at_the_toolkit_only_asks_for_no_card(tmp_path: Path) -> None:
    """ "Is FP4 supported", answered from the version of CUDA: no capability is asked for anywhere."""
    text = """
        import torch
        def fp4_supported(capability):
            return torch.version.cuda >= "12.8"
        def run(x):
            if not fp4_supported(get_compute_capability(x)):
                raise RuntimeError("no FP4")
        """
    assert asked(written(tmp_path, {"pack/a.py": text}), "pack.a.run") == {}


def test_a_part_that_decides_is_enough(tmp_path: Path) -> None:
    text = """
        def is_sm100(device):
            major, _ = get_compute_capability(device)
            return major == 10 and newer_than(torch.version.cuda, "12.8")
        def run(x):
            if not is_sm100(x):
                raise ValueError("needs sm100")
        """
    found = asked(written(tmp_path, {"pack/a.py": text}), "pack.a.run")
    assert found["pack/a.py:6"][3] == []
    assert found["pack/a.py:6"][4] == [card for card in CAPABILITIES if card[0] != 10]


def test_a_class_that_is_asked_for_an_architecture(tmp_path: Path) -> None:
    text = """
        _ARCHS = (100, 103)
        class Config:
            @classmethod
            def supported(cls, arch):
                return arch in _ARCHS
        """
    sources = written(tmp_path, {"pack/a.py": text})
    module = sources.module("pack.a")
    assert module is not None
    method = next(node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef))
    assert [answered(sources, module, method, [None, arch]) for arch in (90, 100, 103, 120)] == [
        False,
        True,
        True,
        False,
    ]


def test_functions_that_call_each_other(tmp_path: Path) -> None:
    text = """
        def a(x):
            return b(x)
        def b(x):
            assert get_compute_capability(x) >= (9, 0)
            return a(x)
        """
    found = asked(written(tmp_path, {"pack/a.py": text}), "pack.a.a")
    assert found["pack/a.py:5"][4] == [card for card in CAPABILITIES if card < (9, 0)]


def test_objects_that_hold_each_other(tmp_path: Path) -> None:
    text = """
        def get_compute_capability(device): ...
        class Tactics:
            def __init__(self, space):
                self.space = space
        class Space:
            def __init__(self, device):
                self.tactics = Tactics(self)
                self.check(device)
            def check(self, device):
                major, _ = get_compute_capability(device)
                if major < 9:
                    raise ValueError("too old")
        def run(device):
            return Space(device)
        """
    found = asked(written(tmp_path, {"pack/space.py": text}), "pack.space.run")
    assert [(kind, condition) for kind, condition, *_ in found.values()] == [("raise", "not (major < 9)")]


_DEVICE = {"pack/device.py": "def get_compute_capability(device): ...\n"}
_KERNEL = """
                from .device import get_compute_capability
                def reason(x, fused=False):
                    cc = get_compute_capability(x)
                    return None if cc[0] == 10 else f"no kernel for {cc[0]}"
"""


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            """
                def run(x, backend="auto"):
                    if backend == "dsl":
                        if reason(x) is not None:
                            raise ValueError("no")
                """,
            id="a test of a parameter",
        ),
        pytest.param(
            """
                def effective(backend, fused):
                    if not fused:
                        return backend
                    return "dsl"
                def run(x, backend="auto", fused=False):
                    backend = effective(backend, fused)
                    if backend == "dsl":
                        if reason(x) is not None:
                            raise ValueError("no")
                """,
            id="one of two returned values",
        ),
        pytest.param(
            """
                def effective(names):
                    for name in names:
                        return name
                    return "dsl"
                def run(x, names):
                    if effective(names) == "dsl":
                        if reason(x) is not None:
                            raise ValueError("no")
                """,
            id="returned in a loop, or after it",
        ),
        pytest.param(
            """
                def effective(asked):
                    try:
                        return asked.name
                    except AttributeError:
                        pass
                    return "dsl"
                def run(x, asked):
                    if effective(asked) == "dsl":
                        if reason(x) is not None:
                            raise ValueError("no")
                """,
            id="returned in a try, or after it",
        ),
        pytest.param(
            """
                def run(x, candidates):
                    backend = "auto"
                    for each in candidates:
                        backend = "dsl"
                    if backend == "dsl":
                        if reason(x) is not None:
                            raise ValueError("no")
                """,
            id="set in a loop that may not run",
        ),
        pytest.param(
            """
                class Runner:
                    def __init__(self, backend):
                        self.kind = "auto"
                        if backend == "dsl":
                            self.kind = "dsl"
                    def __call__(self, x):
                        if self.kind == "dsl":
                            if reason(x) is not None:
                                raise ValueError("no")
                def run(x, backend="auto"):
                    return Runner(backend)(x)
                """,
            id="an attribute that was set under the test",
        ),
        pytest.param(
            """
                def run(x, backend="auto"):
                    try:
                        return fast(x)
                    except ImportError:
                        pass
                    if reason(x) is not None:
                        raise ValueError("no")
                """,
            id="what follows a try that may have returned",
        ),
    ],
)
def test_what_one_way_leaves_behind_is_no_fact_for_all(tmp_path: Path, way: str) -> None:
    """A refusal that only some callers meet is not sure, however the choice comes to where it stands."""
    sources = written(tmp_path, {**_DEVICE, "pack/wrapper.py": _KERNEL + way})
    ((kind, _, sure, passing, refused),) = asked(sources, "pack.wrapper.run").values()
    assert (kind, sure) == ("raise", False)
    assert passing == [(10, 0), (10, 3), (10, 7)]
    assert (12, 0) in refused


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            """
                def effective(fused):
                    if fused:
                        return "dsl"
                    return "dsl"
                def run(x, fused=False):
                    if effective(fused) == "dsl":
                        if reason(x) is not None:
                            raise ValueError("no")
                """,
            id="both ways return it",
        ),
        pytest.param(
            """
                class Runner:
                    def __init__(self, backend):
                        if backend == "dsl":
                            self.kind = "dsl"
                        else:
                            self.kind = "dsl"
                    def __call__(self, x):
                        if self.kind == "dsl":
                            if reason(x) is not None:
                                raise ValueError("no")
                def run(x, backend="auto"):
                    return Runner(backend)(x)
                """,
            id="both sides set it",
        ),
        pytest.param(
            """
                def run(x, backend="auto"):
                    backend = "dsl"
                    if backend == "dsl":
                        if reason(x) is not None:
                            raise ValueError("no")
                """,
            id="nobody's choice",
        ),
    ],
)
def test_what_all_ways_agree_on_is_known(tmp_path: Path, way: str) -> None:
    sources = written(tmp_path, {**_DEVICE, "pack/wrapper.py": _KERNEL + way})
    (kind, _, sure, passing, refused), *rest = asked(sources, "pack.wrapper.run").values()
    assert (kind, sure, rest) == ("raise", True, [])
    assert passing == [(10, 0), (10, 3), (10, 7)]
    assert (12, 0) in refused
