"""Imports of other packages: which, under what, and what a failing one does."""

from sublight.audit.source.imports import Import, imports
from tests.audit.reading import module


def found(text: str, *packages: str) -> dict[str, Import]:
    return {item.symbol: item for item in imports(module(text), packages or ("flashinfer", "sgl_kernel"))}


def test_where_an_import_stands() -> None:
    items = found("""
        import flashinfer.comm as comm
        from flashinfer import mm_fp4 as gemm

        class Method:
            def apply(self):
                if self.fast:
                    from flashinfer.fused_moe import cutlass_fused_moe
                else:
                    from sgl_kernel import cutlass_fp4
        """)
    assert items["flashinfer.comm"].how == "module level"
    assert items["flashinfer.mm_fp4"].bound == "gemm"
    assert items["flashinfer.mm_fp4"].where == "engine/part.py:3"
    lazy = items["flashinfer.fused_moe.cutlass_fused_moe"]
    assert (lazy.how, lazy.scope, lazy.conditions) == ("lazy", "Method.apply", ("self.fast",))
    assert items["sgl_kernel.cutlass_fp4"].conditions == ("not (self.fast)",)


def test_one_name_from_two_owners_by_card() -> None:
    items = found("""
        quantize = None
        try:
            if is_sm120():
                try:
                    from flashinfer import quantize
                except ImportError:
                    from sgl_kernel import scaled_quant as quantize
            else:
                from sgl_kernel import scaled_quant as quantize
        except ImportError:
            quantize = None
        """)
    first = items["flashinfer.quantize"]
    assert first.guard is not None
    assert (first.on_failure, first.guard.fallbacks) == (
        "falls back to sgl_kernel.scaled_quant",
        ("sgl_kernel.scaled_quant",),
    )
    assert first.guard.where == "engine/part.py:5"
    second = items["sgl_kernel.scaled_quant"]
    assert (second.on_failure, second.conditions) == ("quantize is None", ("not (is_sm120())",))


def test_one_guard_takes_all_that_it_holds() -> None:
    """One `try` round several imports and one flag: any of them clears it."""
    items = found(
        """
        try:
            from fi import decode
            from fi import prefill
            from fi import state_sm100
            AVAILABLE = True
        except ImportError:
            AVAILABLE = False
        """,
        "fi",
    )
    guards = {item.guard for item in items.values()}
    assert len(guards) == 1
    guard = guards.pop()
    assert guard is not None
    assert guard.together == ("fi.decode", "fi.prefill", "fi.state_sm100")
    assert guard.flags == ("AVAILABLE = False",)
    assert guard.on_failure == "AVAILABLE is False"


def test_suppress_is_a_guard_too() -> None:
    items = found("""
        import contextlib
        with contextlib.suppress(ImportError):
            from flashinfer import a, b
        with contextlib.suppress(ValueError):
            from flashinfer import c
        """)
    assert items["flashinfer.a"].guard is not None
    assert items["flashinfer.a"].guard.together == ("flashinfer.a", "flashinfer.b")
    assert items["flashinfer.c"].guard is None


def test_what_lets_the_error_through_is_no_guard() -> None:
    items = found("""
        try:
            from flashinfer import a
        except ImportError as error:
            raise RuntimeError("install it") from error
        try:
            from flashinfer import b
        except ValueError:
            b = None
        def f():
            try:
                def g():
                    from flashinfer import c
            except ImportError:
                pass
        """)
    assert [items[f"flashinfer.{name}"].guard for name in "abc"] == [None, None, None]
    assert items["flashinfer.c"].scope == "f.g"


def test_for_type_checkers_only() -> None:
    items = found("""
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from flashinfer import a
        else:
            from flashinfer import b
        """)
    assert list(items) == ["flashinfer.b"]


def test_names_in_strings() -> None:
    items = found("""
        import importlib, importlib.util

        def _get(module_name):
            return importlib.import_module(module_name)

        def _wrapped(where, what, instead=None):
            def inner():
                return getattr(_get(where), what, None)
            return inner

        moe = _wrapped("flashinfer.fused_moe", "cutlass_fused_moe")
        present = importlib.util.find_spec("flashinfer") is not None
        spec = KernelSpec(op="gemm", target="sgl_kernel:fused_gemm")

        def has_all():
            required = [("flashinfer", "fp4_quantize"), ("flashinfer.comm", "Mapping")]
            for module_name, attr_name in required:
                if not hasattr(_get(module_name), attr_name):
                    return False
            mod = _get("flashinfer.moe_ep")
            return hasattr(mod, "Config") and all(hasattr(mod, name) for name in ("One", "Two"))
        """)
    assert set(items) == {
        "flashinfer.fused_moe.cutlass_fused_moe",
        "flashinfer",
        "sgl_kernel.fused_gemm",
        "flashinfer.fp4_quantize",
        "flashinfer.comm.Mapping",
        "flashinfer.moe_ep",
        "flashinfer.moe_ep.Config",
        "flashinfer.moe_ep.One",
        "flashinfer.moe_ep.Two",
    }
    assert all(item.how == "string" for item in items.values())


def test_strings_that_only_look_like_names() -> None:
    assert not found("""
        logger.warning("flashinfer.comm is not available, falling back")
        register_fused_func("flashinfer", "flashinfer_cutedsl")
        PAIRS = [("flashinfer", "comm")]
        for a, b in PAIRS:
            print(a, b)
        url = "flashinfer:not a name"
        """)


def test_attributes_of_an_imported_module() -> None:
    items = found("""
        import flashinfer
        import flashinfer.comm as comm
        flashinfer.gemm.mm_fp4(x)
        comm.Mapping()
        other.flashinfer.nothing
        """)
    assert items["flashinfer.gemm.mm_fp4"].kind == "attribute"
    assert items["flashinfer.gemm.mm_fp4"].on_failure == "AttributeError"
    assert "flashinfer.comm.Mapping" in items
    assert len(items) == 4


def test_imported_for_its_side_effect() -> None:
    items = found("""
        def create():
            import flashinfer.fused  # registers
            import flashinfer.used
            return flashinfer.used.x
        """)
    assert not items["flashinfer.used"].side_effect
    alone = found("def create():\n    import sgl_kernel.registered\n")
    assert alone["sgl_kernel.registered"].side_effect


def test_a_file_that_cannot_be_parsed_names_the_reason() -> None:
    broken = module("import flashinfer\ndef f(:\n")
    assert imports(broken, ["flashinfer"]) == ()
    assert broken.error.startswith("engine/part.py cannot be parsed by this Python")
