"""Attention classes of vLLM's collect objections in a list; what they say is told in their words."""

from pathlib import Path

import pytest

from sublight.audit.engines.vllm.judge import judge
from sublight.audit.engines.vllm.needs import used
from sublight.audit.engines.vllm.walk import Assumed, Walk, walking
from sublight.audit.source.values import Class
from tests.audit.reading import target, written
from tests.audit.test_vllm_small import ENGINE

ASKED = "validate_configuration"
PLACE = "vllm.v1.attention.backends"

BACKENDS = {
    "vllm/v1/attention/backends/base.py": """
        class Backend:
            @classmethod
            def validate_configuration(cls, use_mla):
                objections = []
                if use_mla != cls.is_mla():
                    if use_mla:
                        objections.append("MLA not supported")
                    else:
                        objections.append("non-MLA not supported")
                reason = cls.together(use_mla)
                if reason is not None:
                    objections.append(reason)
                return objections
            @classmethod
            def is_mla(cls):
                return False
            @classmethod
            def together(cls, use_mla):
                return None
        """,
    "vllm/v1/attention/backends/some.py": """
        import library.kernels
        from vllm.v1.attention.backends.base import Backend
        class Plain(Backend): ...
        class Together(Backend):
            @classmethod
            def together(cls, use_mla):
                return "needs widths of 128" if use_mla else None
        class Open(Backend):
            @classmethod
            def together(cls, use_mla):
                return f"needs {library.kernels.NAME}"
        class Unread(Backend):
            @classmethod
            def together(cls, use_mla):
                return " ".join(["needs", library.kernels.name()])
        """,
}


def made(folder: Path, name: str) -> tuple[Walk, Class]:
    walk = walking(written(folder, {**ENGINE, **BACKENDS}), target((12, 0)), Assumed())
    cls = walk.evaluator.name(f"{PLACE}.some.{name}")
    assert isinstance(cls, Class)
    return walk, cls


@pytest.mark.parametrize(
    ("name", "use_mla", "says"),
    [
        ("Plain", True, "MLA not supported"),
        ("Together", True, "MLA not supported, needs widths of 128"),
        ("Open", False, "needs library.kernels.NAME"),
        ("Unread", False, "needs ?"),
    ],
)
def test_an_objection_is_quoted_where_it_is_known(tmp_path: Path, name: str, use_mla: bool, says: str) -> None:
    walk, cls = made(tmp_path, name)
    verdict = judge(walk, cls, ASKED, [cls, use_mla], {})
    assert (verdict.passes, verdict.reason) == (False, says)


def test_no_objection_passes(tmp_path: Path) -> None:
    walk, cls = made(tmp_path, "Plain")
    assert judge(walk, cls, ASKED, [cls, False], {}).passes is True


def test_what_a_module_cannot_be_loaded_without_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublight.audit.engines.vllm.needs.OPTIONAL", ("library",))
    assert [(need.symbol, need.how) for need in used(*made(tmp_path, "Plain"))] == [("library.kernels", "module level")]
