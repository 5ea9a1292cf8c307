"""Paths that are for other vendors' machines, by the library they need or the name the engine gives them."""

from pathlib import Path

import pytest

from sublight.audit.engines.base import Route
from sublight.audit.ladder import Answer, Proof
from sublight.audit.vendors import foreign, machine_of
from tests.audit.reading import written


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("XPUMLASparseBackend", "Intel's XPU"),
        ("XPUAttentionBackend", "Intel's XPU"),
        ("AscendAttnBackend", "Huawei's Ascend"),
        ("npu_fused_experts", "Huawei's Ascend"),
        ("IntelAMXAttnBackend", "CPUs"),
        ("CPUAttentionBackend", "CPUs"),
        ("RocmAttentionBackend", "AMD's ROCm"),
        ("AiterCustomAllreduce", "AMD's ROCm"),
        ("copy_to_cpu", ""),
        ("cutlass_moe_fp4", ""),
        ("FlashInferMLASparseBackend", ""),
        ("DeepGemmInputSuperposition", ""),
    ],
)
def test_machines_that_names_say(name: str, machine: str) -> None:
    assert machine_of(name) == machine


def test_a_class_named_after_another_vendors_machine_is_refused_with_its_line(tmp_path: Path) -> None:
    sources = written(tmp_path, {"engine/backends.py": "class XPUSparseBackend: ...\nclass PlainBackend: ...\n"})
    (gate,) = foreign(sources, Route(answer=Answer.PASS, why="", destination="engine.backends.XPUSparseBackend"))
    assert (gate.answer, gate.proof.where) == (Answer.FAIL, "engine/backends.py:1")
    assert gate.text == "XPUSparseBackend is, by the name it has in the engine, for Intel's XPU"
    assert foreign(sources, Route(answer=Answer.PASS, why="", destination="engine.backends.PlainBackend")) == ()


def test_a_kernel_that_lies_in_another_vendors_library_is_refused_where_it_is_called(tmp_path: Path) -> None:
    sources = written(tmp_path, {"engine/moe.py": "x = 1\n"})
    called = Proof("source", "engine/moe.py:7", "output = fused_moe(")
    route = Route(answer=Answer.PASS, why="", destination="aiter.fused_moe.fused_moe", proofs=(called,))
    (gate,) = foreign(sources, route)
    assert (gate.answer, gate.proof.where) == (Answer.FAIL, "engine/moe.py:7")
    assert gate.text == "it needs aiter, which is for AMD's ROCm"
