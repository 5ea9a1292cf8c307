"""Layers of a step, counted on steps short enough to see."""

from sublight.trace.events import Trace
from sublight.trace.labels import Labels, label
from sublight.trace.layers import Layers, LayerTimes, find_layers, layer_times
from sublight.trace.phases import Phase
from sublight.trace.steps import Step

from .small import Small
from .test_breakdown import Said

SAYS = {
    "plan": Said("attention", "compute", "attn.core", "FlashAttention 3"),
    "attention": Said("attention", "compute", "attn.core", "FlashAttention 3"),
    "combine": Said("attention", "compute", "attn.core", "FlashAttention 3"),
    "cache": Said("kv-write", "compute", "attn.core", "vLLM"),
    "mamba": Said("state", "compute", "mamba.state", "Triton"),
    "gemm": Said("gemm", "compute", "attn.o", "cuBLAS"),
    "product": Said("gemm", "compute", "", "cuBLAS"),
    "dense": Said("gemm", "compute", "mlp.dense", "cuBLAS"),
    "experts": Said("moe-gemm", "compute", "moe.experts", "Marlin"),
    "head": Said("gemm", "compute", "head", "cuBLAS"),
    "norm": Said("norm", "compute", "norms", "PyTorch"),
}


def layers(*names: str, device: int = 0) -> Layers | None:
    return find_layers(*made(*names, device=device))


def times(*names: str) -> LayerTimes | None:
    return layer_times(*made(*names))


def made(*names: str, device: int = 0) -> tuple[Trace, Step, Labels]:
    small = Small()
    for place, name in enumerate(names):
        small.run(10 * place, 5, name)
        small.run(10 * place, 5, "elsewhere", device=1)
    trace = small.trace()
    step = Step(0, 0, 10 * len(names), 0, len(trace.gpu), 0, Phase.DECODE, replayed=False, device=device)
    return trace, step, label(trace, lambda name: SAYS.get(name, Said("unknown", "unknown")))


LAYER = ("norm", "gemm", "attention", "combine", "gemm")


def test_attention_marks_the_layers() -> None:
    """One dense layer and two of experts. The first norm stands before the first attention, the last one after all."""
    found = layers(*LAYER, "dense", *LAYER, "experts", *LAYER, "experts", "norm", "head")
    assert found is not None
    assert (found.count, found.how) == (3, "runs of attention")
    assert found.with_row == {"norms": 3, "attn.o": 3, "attn.core": 3, "mlp.dense": 1, "moe.experts": 2, "head": 1}
    assert (found.of("moe.experts"), found.of("not there")) == (2, 1)


def test_what_prepares_attention_once_is_no_layer() -> None:
    found = layers("cache", "plan", *LAYER, "cache", *LAYER, "head")
    assert found is not None
    assert (found.count, found.with_row["attn.core"]) == (2, 2)


def test_mixers_of_other_kinds_are_layers_too() -> None:
    found = layers("mamba", "gemm", "attention", "gemm", "mamba", "gemm", "attention", "gemm")
    assert found is not None
    assert (found.count, found.with_row) == (4, {"mamba.state": 2, "attn.o": 4, "attn.core": 2})


def test_without_attention_the_commonest_count_decides() -> None:
    """Three names come three times, one six times, one once."""
    found = layers(*["norm", "x", "x", "y", "z"] * 3, "head")
    assert found is not None
    assert (found.count, found.how) == (3, "kernels that come equally often")
    assert found.with_row == {"norms": 3, "unknown": 3, "head": 1}


def test_a_step_in_which_nothing_repeats_has_no_layers() -> None:
    assert layers("norm", "gemm", "head") is None
    assert layers("attention", "gemm") is None


def test_other_devices_do_not_count() -> None:
    found = layers(*LAYER, *LAYER, device=1)
    assert found is not None
    assert found.with_row == {"unknown": 10}


def test_a_layer_is_drawn_from_the_end_of_the_mlp_before_it() -> None:
    """Events are 10 apart and 5 long: the first layer begins with its first product, the others behind the experts."""
    found = times("norm", *LAYER, "experts", "experts", *LAYER, "dense", *LAYER, "dense", "norm", "head")
    assert found == LayerTimes((20, 80, 140), 195, "runs of attention")


def test_a_layer_of_unknown_products_is_drawn_from_its_attention() -> None:
    after = ("product", "product")
    found = times("norm", "product", "attention", *after, "product", "attention", *after, "head")
    assert found == LayerTimes((20, 60), 95, "runs of attention")


def test_layers_without_attention_are_drawn_from_the_kernel_that_marks_them() -> None:
    assert times(*["norm", "x", "x", "y"] * 3) == LayerTimes((0, 40, 80), 115, "kernels that come equally often")
    assert times("norm", "gemm", "head") is None
