"""Labels of GPU events: once per name, refined by place."""

from collections import Counter

import numpy as np

from sublight.trace.classify import classify as builtin
from sublight.trace.labels import label

from .small import TO_HOST, Small
from .test_breakdown import Said, classify


def trace_of(*names: str) -> Small:
    small = Small()
    for place, name in enumerate(names):
        small.run(10 * place, 10, name)
    return small


def test_each_name_is_asked_for_once() -> None:
    asked: Counter[str] = Counter()

    def counting(name: str) -> Said:
        asked[name] += 1
        return classify(name)

    labels = label(trace_of("gemm", "experts", "gemm", "gemm").trace(), counting)
    assert asked == {"gemm": 1, "experts": 1}
    assert [labels.rows[row] for row in labels.row] == ["attn.o", "moe.experts", "attn.o", "attn.o"]
    assert [labels.backends[one] for one in labels.backend] == ["cuBLAS", "Marlin", "cuBLAS", "cuBLAS"]
    assert len(labels) == 4


def test_known_names_without_a_row_and_unknown_ones_are_told_apart() -> None:
    labels = label(trace_of("add", "no such kernel").trace(), classify)
    assert [labels.rows[row] for row in labels.row] == ["", "unknown"]
    assert [labels.categories[one] for one in labels.category] == ["compute", "unknown"]
    number, names = labels.shown()
    assert [names[one] for one in number] == ["elementwise", "unknown"]


def test_rows_are_refined_by_place() -> None:
    labels = label(trace_of("gemm", "gemm", "gemm", "experts").trace(), classify)
    refined = labels.with_rows([0, 2], "attn.qkv").with_rows(np.array([1]), "moe.experts")
    assert [refined.rows[row] for row in refined.row] == ["attn.qkv", "moe.experts", "attn.qkv", "moe.experts"]
    assert [labels.rows[row] for row in labels.row] == ["attn.o"] * 3 + ["moe.experts"]
    assert refined.rows == ("attn.o", "moe.experts", "attn.qkv")
    number, names = refined.shown()
    assert names == ("moe.experts", "attn.qkv")
    assert [names[one] for one in number] == ["attn.qkv", "moe.experts", "attn.qkv", "moe.experts"]


def test_one_row_may_hold_what_has_it_and_what_is_only_of_that_kind() -> None:
    """A kernel that is sampling by its kind and one that is sampling by its row are counted together."""
    says = {"argmax": Said("sampling", "compute", "sampling"), "top_p": Said("sampling", "compute")}
    labels = label(trace_of("argmax", "top_p").trace(), says.__getitem__)
    number, names = labels.shown()
    assert (list(number), names) == ([0, 0], ("sampling",))


def test_more_rows_than_a_byte_counts() -> None:
    names = [f"row {number}" for number in range(300)]
    labels = label(trace_of(*names).trace(), lambda name: Said("gemm", "compute", name))
    assert labels.with_rows([299], "one more").row.tolist() == [*range(299), 300]


def test_the_built_in_rules_fit() -> None:
    labels = label(trace_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", TO_HOST, "no such kernel").trace(), builtin)
    assert [labels.categories[one] for one in labels.category] == ["communication", "memory", "unknown"]
    assert [labels.rows[row] for row in labels.row][2] == "unknown"


def test_an_empty_trace() -> None:
    labels = label(Small().trace(), classify)
    assert (len(labels), labels.rows, labels.shown()[1]) == (0, (), ())
