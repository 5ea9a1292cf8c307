"""A small engine laid out as vLLM is: what a choice comes to, candidate by candidate, without any wheel."""

from pathlib import Path

import pytest

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.vllm import VLLM
from sublight.audit.engines.vllm.walk import Assumed
from sublight.audit.ladder import Answer
from sublight.audit.source.tree import Sources
from tests.audit.reading import target, written

FUSED = "vllm/model_executor/layers/fused_moe"

ENGINE = {
    "vllm/config/kernel.py": """
        from typing import Literal
        MoEBackend = Literal["auto", "native", "fallback", "other"]
        """,
    "vllm/engine/arg_utils.py": 'parser.add_argument("--moe-backend")\n',
    "vllm/envs.py": """
        import os
        environment_variables = {"VLLM_HAS_CUBIN": lambda: bool(int(os.getenv("VLLM_HAS_CUBIN", "0")))}
        def __getattr__(name):
            if name in environment_variables:
                return environment_variables[name]()
            raise AttributeError(name)
        """,
    "vllm/platforms/interface.py": """
        from typing import NamedTuple
        class DeviceCapability(NamedTuple):
            major: int
            minor: int
            def to_int(self) -> int:
                return self.major * 10 + self.minor
        """,
    "vllm/platforms/cuda.py": """
        class CudaPlatformBase:
            device_name = "cuda"
            @classmethod
            def get_device_capability(cls):
                raise NotImplementedError
            @classmethod
            def family(cls, number):
                return cls.get_device_capability().to_int() // 10 == number // 10
            @classmethod
            def at_least(cls, capability):
                return cls.get_device_capability() >= capability
        """,
    "vllm/platforms/__init__.py": """
        _current = None
        def __getattr__(name):
            if name == "current_platform":
                return detect()
            raise AttributeError(name)
        """,
    "vllm/utils/flashinfer.py": """
        import importlib, importlib.util, shutil
        import vllm.envs as envs
        def has_cubin():
            return envs.VLLM_HAS_CUBIN or importlib.util.find_spec("flashinfer_cubin") is not None
        def has_flashinfer():
            if importlib.util.find_spec("flashinfer") is None:
                return False
            return has_cubin() or shutil.which("nvcc") is not None
        def _get_submodule(name):
            try:
                return importlib.import_module(name)
            except ImportError:
                return None
        def has_native():
            if not has_flashinfer():
                return False
            for module_name, attr_name in [("flashinfer.fused_moe", "native_moe"), ("flashinfer", "fp4_quantize")]:
                mod = _get_submodule(module_name)
                if not mod or not hasattr(mod, attr_name):
                    return False
            return True
        """,
    "vllm/model_executor/layers/quantization/utils/quant_utils.py": """
        from dataclasses import dataclass
        @dataclass(frozen=True)
        class QuantKey:
            name: str
        kNvfp4Static = QuantKey("weights")
        kNvfp4Dynamic = QuantKey("activations")
        """,
    f"{FUSED}/config.py": """
        from dataclasses import dataclass
        @dataclass
        class FusedMoEParallelConfig:
            tp_size: int
            use_ep: bool
        @dataclass
        class FusedMoEConfig:
            hidden_dim: int
            moe_parallel_config: FusedMoEParallelConfig
            moe_backend: str = "auto"
        """,
    f"{FUSED}/experts.py": """
        from vllm.platforms import current_platform
        from vllm.utils.flashinfer import has_native
        from vllm.model_executor.layers.quantization.utils.quant_utils import kNvfp4Dynamic, kNvfp4Static
        class Experts:
            @staticmethod
            def is_supported_config(cls, config, weight_key, activation_key):
                if not cls._supports_current_device():
                    return False, f"kernel does not support current device {current_platform.device_name}"
                elif not cls._supports_scheme(weight_key, activation_key):
                    return False, f"kernel does not support quantization scheme {weight_key}x{activation_key}"
                elif not cls._supports_shape(config.hidden_dim):
                    return False, f"kernel does not support {config.hidden_dim}"
                return True, None
            @staticmethod
            def _supports_shape(hidden):
                return hidden % 128 == 0
        class Native(Experts):
            @staticmethod
            def _supports_current_device():
                p = current_platform
                return (p.family(100) or p.family(120)) and has_native()
            @staticmethod
            def _supports_scheme(weight_key, activation_key):
                return (weight_key, activation_key) == (kNvfp4Static, kNvfp4Dynamic)
        class Fallback(Experts):
            @staticmethod
            def _supports_current_device():
                return current_platform.at_least((7, 5))
            @staticmethod
            def _supports_scheme(weight_key, activation_key):
                return weight_key == kNvfp4Static
        """,
    f"{FUSED}/oracle/nvfp4.py": """
        from enum import Enum
        from vllm.logger import init_logger
        logger = init_logger(__name__)
        class Backend(Enum):
            NATIVE = "NATIVE"
            FALLBACK = "FALLBACK"
            SPARE = "SPARE"
        def classes(backend):
            from vllm.model_executor.layers.fused_moe.experts import Fallback, Native
            return {Backend.NATIVE: [Native], Backend.FALLBACK: [Fallback]}[backend]
        def map_nvfp4_backend(name):
            mapping = {"native": Backend.NATIVE, "fallback": Backend.FALLBACK}
            if backend := mapping.get(name):
                return backend
            raise ValueError(f"moe_backend={name!r} is not supported for NvFP4")
        def select_nvfp4_moe_backend(config, weight_key, activation_key):
            asked = config.moe_backend
            order = [map_nvfp4_backend(asked)] if asked != "auto" else [Backend.NATIVE, Backend.FALLBACK]
            for backend in order:
                for cls in classes(backend):
                    supported, reason = cls.is_supported_config(cls, config, weight_key, activation_key)
                    if supported:
                        logger.info("Using %s backend", backend.value)
                        return backend, cls
            raise ValueError(f"no backend since {reason}")
        """,
}


@pytest.fixture
def engine(tmp_path: Path) -> Sources:
    return written(tmp_path, ENGINE)


def asked(engine: Sources, name: str, capability: tuple[int, int], assumed: Assumed | None = None) -> Route:
    return VLLM.route(engine, Declaration("moe", name, "", True, None, ()), target(capability), assumed)


def test_declared_names_and_members_without_one(engine: Sources) -> None:
    declared = {item.name: item for item in VLLM.declared(engine, "moe")}
    assert list(declared) == ["auto", "native", "fallback", "other", "SPARE"]
    assert (declared["native"].selectable, declared["native"].in_enum) == (True, True)
    assert [proof.where for proof in declared["native"].proofs] == [
        "vllm/config/kernel.py:3",
        "vllm/engine/arg_utils.py:1",
        f"{FUSED}/oracle/nvfp4.py:13",
    ]
    assert (declared["other"].in_enum, declared["SPARE"].selectable) == (False, False)
    assert VLLM.known_variables(engine) == {"VLLM_HAS_CUBIN"}


@pytest.mark.parametrize(
    ("capability", "cls"), [((10, 0), "Native"), ((12, 1), "Native"), ((9, 0), "Fallback"), ((7, 5), "Fallback")]
)
def test_auto(engine: Sources, capability: tuple[int, int], cls: str) -> None:
    route = VLLM.auto(engine, "moe", target(capability))
    assert (route.answer, route.destination) == (Answer.PASS, f"vllm.model_executor.layers.fused_moe.experts.{cls}")


def test_nothing_takes_the_card(engine: Sources) -> None:
    route = VLLM.auto(engine, "moe", target((7, 0)))
    assert route.answer is Answer.FAIL
    assert route.why.startswith("refused: no backend since kernel does not support current device cuda")


def test_a_refusal_has_its_lines_and_the_cards_it_would_take(engine: Sources) -> None:
    route = asked(engine, "native", (9, 0))
    assert route.answer is Answer.FAIL
    assert [proof.where for proof in route.proofs[:2]] == [f"{FUSED}/experts.py:20", f"{FUSED}/experts.py:8"]
    gate = route.gates[0]
    assert (gate.answer, gate.targets) == (Answer.FAIL, ("10.0", "10.3", "10.7", "12.0", "12.1"))
    assert gate.text == "(p.family(100) or p.family(120)) and has_native()"
    assert asked(engine, "other", (12, 0)).why == "refused: moe_backend='other' is not supported for NvFP4"


def test_needs_are_what_it_cannot_do_without(engine: Sources) -> None:
    route = asked(engine, "native", (12, 0))
    assert [need.symbol for need in route.needs] == [
        "flashinfer",
        "flashinfer.fused_moe",
        "flashinfer.fused_moe.native_moe",
        "flashinfer.fp4_quantize",
    ]
    assert route.needs[2].where == "vllm/utils/flashinfer.py:18"


def test_weight_only_falls_to_the_other(engine: Sources) -> None:
    route = VLLM.auto(engine, "moe", target((12, 0), "NVFP4 (W4A16)", "BF16"))
    assert route.destination.endswith(".Fallback")
    assert "Native: kernel does not support quantization scheme kNvfp4Static x none" in route.why


def test_hidden_without_compiler_or_prebuilt_code(engine: Sources) -> None:
    def no_cubin(name: str) -> bool | None:
        return False if name == "flashinfer_cubin" else None

    bare = Assumed(importable=no_cubin, commands=frozenset())
    route = asked(engine, "native", (10, 0), bare)
    assert route.answer is Answer.FAIL
    assert route.why.startswith(
        "native is not offered here: flashinfer_cubin cannot be imported, the command nvcc is not there."
    )
    assert route.hint.endswith("VLLM_HAS_CUBIN=1 where its code is there")
    told = Assumed(importable=no_cubin, commands=frozenset(), environment={"VLLM_HAS_CUBIN": "1"})
    assert asked(engine, "native", (10, 0), told).answer is Answer.PASS


def test_a_symbol_read_beside_it(tmp_path: Path) -> None:
    beside = {**ENGINE, "flashinfer/__init__.py": "def fp4_quantize(): ...\n", "flashinfer/fused_moe.py": "x = 1\n"}
    sources = written(tmp_path, beside)
    assert asked(sources, "native", (12, 0)).hint == "not there: flashinfer.fused_moe.native_moe"
    (tmp_path / "flashinfer" / "fused_moe.py").write_text("def native_moe(): ...\n")
    assert asked(Sources(sources.reader, sources.roots), "native", (12, 0)).answer is Answer.PASS


def test_a_helper_that_looks_at_the_toolkit_only(tmp_path: Path) -> None:
    """The gate names no card: every one passes, which is what is wrong with it."""
    experts = ENGINE[f"{FUSED}/experts.py"].replace(
        "return (p.family(100) or p.family(120)) and has_native()", "return CUDA >= 12080"
    )
    changed = {
        **ENGINE,
        f"{FUSED}/experts.py": experts.replace("class Experts:", "CUDA = 13000\n        class Experts:"),
    }
    route = asked(written(tmp_path, changed), "native", (12, 0))
    assert (route.gates[0].text, len(route.gates[0].targets)) == ("CUDA >= 12080", 12)


def test_newer_syntax_is_not_known(tmp_path: Path) -> None:
    broken = {**ENGINE, f"{FUSED}/oracle/nvfp4.py": "def select_x_backend(a) ->> b: ...\n"}
    route = VLLM.auto(written(tmp_path, broken), "moe", target((12, 0)))
    assert route.answer is Answer.NOT_KNOWN


def test_linear_kernels_of_a_version_that_returns_a_member(tmp_path: Path) -> None:
    older = {
        **ENGINE,
        "vllm/envs.py": """
            import os
            environment_variables = {
                "VLLM_NVFP4_GEMM_BACKEND": lambda: os.getenv("VLLM_NVFP4_GEMM_BACKEND"),
                "VLLM_HAS_CUBIN": lambda: False,
            }
            def __getattr__(name):
                return environment_variables[name]()
            """,
        "vllm/model_executor/layers/quantization/utils/nvfp4_utils.py": """
            from enum import Enum
            import vllm.envs as envs
            from vllm.platforms import current_platform
            class NvFp4LinearBackend(Enum):
                NATIVE = "native"
                COMPILED = "compiled"
                FALLBACK = "fallback"
            def select_nvfp4_linear_backend():
                if envs.VLLM_NVFP4_GEMM_BACKEND is None:
                    if current_platform.at_least((10, 0)):
                        return NvFp4LinearBackend.NATIVE
                    return NvFp4LinearBackend.FALLBACK
                backend = NvFp4LinearBackend(envs.VLLM_NVFP4_GEMM_BACKEND)
                if backend == NvFp4LinearBackend.COMPILED:
                    assert ops.compiled_for_this_card(), "not compiled"
                elif backend == NvFp4LinearBackend.NATIVE:
                    assert current_platform.at_least((10, 0)), "native needs 10.0"
                return backend
            """,
    }
    sources = written(tmp_path, older)
    declared = {item.name: item for item in VLLM.declared(sources, "fp4-gemm")}
    assert [item.flag for item in declared.values()] == [
        f"VLLM_NVFP4_GEMM_BACKEND={name}" for name in ("native", "compiled", "fallback")
    ]
    assert VLLM.auto(sources, "fp4-gemm", target((9, 0))).destination.endswith("NvFp4LinearBackend.FALLBACK")
    newer = VLLM.auto(sources, "fp4-gemm", target((12, 0)))
    assert (newer.answer, newer.why, newer.gates[0].targets[0]) == (Answer.PASS, "native", "10.0")
    refused = VLLM.route(sources, declared["native"], target((9, 0)))
    assert (refused.answer, refused.why) == (Answer.FAIL, "refused: native needs 10.0")
    unsure = VLLM.route(sources, declared["compiled"], target((9, 0)))
    assert unsure.answer is Answer.NOT_KNOWN
    assert unsure.why.startswith("compiled, if ops.compiled_for_this_card()")


def test_a_name_that_no_option_takes_is_none_of_another_formats_or_of_an_options_own(tmp_path: Path) -> None:
    other = """
        from enum import Enum

        class OtherBackend(Enum):
            NONE = "NONE"
            LEFT = "LEFT"
            GIVEN = "GIVEN"
            ALONE = "ALONE"

        def map_fp8_backend(name):
            return {"left": OtherBackend.LEFT}[name]
        """
    own = """
        from enum import Enum

        class OwnBackend(Enum):
            LEFT = "LEFT"
            GIVEN = "GIVEN"
            INSIDE = "INSIDE"

        def map_nvfp4_backend(name):
            return {"given": OwnBackend.GIVEN}[name]
        """
    files = {
        "vllm/config/kernel.py": """
            from typing import Literal

            MoEBackend = Literal["auto", "left", "given"]
            """,
        "vllm/engine/arg_utils.py": 'parser.add_argument("--moe-backend")\n',
        f"{FUSED}/oracle/fp8.py": other,
        f"{FUSED}/oracle/nvfp4.py": own,
    }
    sources = written(tmp_path, files)
    found = VLLM.declared(sources, "moe")
    assert [item.name for item in found if item.selectable] == ["auto", "left", "given"]
    assert [item.name for item in found if not item.selectable] == ["ALONE", "INSIDE"]
    four, eight = target((12, 0)), target((12, 0), expert_format="FP8", activation_format="FP8")
    assert [item.name for item in found if not item.selectable and VLLM.concerns(item, four)] == ["INSIDE"]
    assert [item.name for item in found if not item.selectable and VLLM.concerns(item, eight)] == ["ALONE"]
    assert all(VLLM.concerns(item, four) for item in found if item.selectable)
