"""Scanning the scales of a checkpoint: headers, and the few bytes of each scalar, never a weight.

Calibration leaves traces. An expert that no calibration prompt reached has no activation scale, or zero, or infinity,
and the model then answers well until a prompt reaches it (vllm#45212, #54189; compressed-tensors#595). A weight-only
export has none at all. And the two conventions for the scale of a whole tensor are reciprocals of each other
(modular#6600):

| | ModelOpt | compressed-tensors |
|---|---|---|
| weights | `weight_scale_2` = amax / 2688, a multiplier | `weight_global_scale` = 2688 / amax, a divisor |
| activations | `input_scale`, a multiplier | `input_global_scale`, a divisor |

2688 is 6 (largest E2M1) x 448 (largest E4M3), so a multiplier lies far below 1 and a divisor far above it.
"""

from collections.abc import Iterable
from math import isinf, isnan

from sublight.facts.checkpoint import Checkpoint
from sublight.facts.quantization.base import Finding
from sublight.facts.quantization.names import FUSIONS, expert_place, tail
from sublight.facts.quantization.places import places
from sublight.facts.quantization.scalars import BYTES_PER_SHARD, is_scalar, read_scalars

_ACTIVATIONS = ("input_scale", "input_global_scale")
_GLOBAL = ("weight_scale_2", "weight_global_scale")
_DIVISORS = ("weight_global_scale", "input_global_scale")
_SCALARS = (*_ACTIVATIONS, *_GLOBAL, "weight_scale")  # the last is a scalar in per-tensor FP8 only
_WHO_CARES = (
    "CUTLASS, TensorRT-LLM and CuTe DSL backends need activation scales and answer such prompts with NaN or nothing; "
    "Marlin and humming ignore them"
)
_SMALLEST_NORMAL = 2.0**-126  # of float32; the reciprocal of what is below it can overflow


def scan_scales(checkpoint: Checkpoint) -> list[Finding]:
    """What is wrong with the scalar scales, each finding naming layers and experts.

    Reads at most 400 kB of each shard; a finding says so where that did not suffice.

    Raises:
        InputFileError: a shard that cannot be read, or has changed since its header was.
    """
    scalars = {name: t for name, t in checkpoint.tensors.items() if tail(name) in _SCALARS and is_scalar(t)}
    values, left_out = read_scalars(checkpoint, scalars)
    findings = [*_missing(checkpoint), *_unusable(values), *_unequal_halves(values)]
    findings += [*_weight_only(checkpoint), *_convention(values)]
    if left_out:
        text = f"{left_out} scales were not read: one shard holds more than {BYTES_PER_SHARD // 1000} kB of them"
        findings.append(Finding("info", "scales", text))
    return findings


def _missing(checkpoint: Checkpoint) -> Iterable[Finding]:
    """Scales that some experts of a set have and others lack.

    The set is every number up to the highest, so that an expert without any tensor is seen as well; where shards are
    missing it is the experts that something is known of.
    """
    experts: dict[str, set[int]] = {}
    having: dict[tuple[str, str, str], set[int]] = {}
    for name in (*checkpoint.tensors, *checkpoint.unread):
        place = expert_place(name) if ".experts." in name else None
        if place is None:
            continue
        stack, number, rest = place
        experts.setdefault(stack, set()).add(number)
        projection, _, leaf = rest.rpartition(".")
        if leaf in _ACTIVATIONS or leaf in _GLOBAL:
            having.setdefault((stack, projection, leaf), set()).add(number)
    lacking: dict[str, list[str]] = {}
    for (stack, projection, leaf), those in having.items():
        everyone = experts[stack] if checkpoint.missing else set(range(max(experts[stack]) + 1))
        lacking.setdefault(leaf, []).extend(f"{stack}.{number}.{projection}" for number in everyone - those)
    projections = {leaf: {p for _, p, other in having if other == leaf} for leaf in lacking}
    for leaf, modules in lacking.items():
        if modules:
            yield _unsound(leaf, modules, "missing", projections[leaf])


def _unusable(values: dict[str, float]) -> Iterable[Finding]:
    found: dict[tuple[str, str], list[str]] = {}
    projections: dict[str, set[str]] = {}
    for name, value in values.items():
        module, _, leaf = name.rpartition(".")
        projections.setdefault(leaf, set()).add(tail(module))
        problem = scale_problem(value)
        if problem:
            found.setdefault((leaf, problem), []).append(module)
    for (leaf, problem), modules in sorted(found.items()):
        yield _unsound(leaf, modules, problem, projections[leaf])


def scale_problem(value: float) -> str:
    """Why a scale cannot be meant; "" for a sound one. Kernels multiply with it or with its reciprocal."""
    if isnan(value):
        return "nan"
    if isinf(value):
        return "inf"
    if value == 0:
        return "zero"
    if value < 0:
        return "negative"
    return "denormal" if value < _SMALLEST_NORMAL else ""


def _unsound(leaf: str, modules: list[str], problem: str, projections: set[str]) -> Finding:
    """One finding for one leaf and problem; the projections are named where it is not all of them."""
    affected = {tail(module) for module in modules}
    which = leaf if affected == projections else f"{leaf} of {', '.join(sorted(affected))}"
    text = f"{places(modules)}: {which} {problem}"
    return Finding("error", "scales", f"{text}. {_WHO_CARES}" if leaf in _ACTIVATIONS else text)


def _unequal_halves(values: dict[str, float]) -> Iterable[Finding]:
    """Global scales of gate and up that differ, where a fused kernel has room for one.

    vLLM, and SGLang with Marlin, keep the gate's for both and log that they "must match"
    (`process_weights_after_loading` of their NVFP4 MoE methods); the tolerance is theirs, `torch.allclose`.
    """
    for first, second in (FUSIONS["gate_up_proj"], FUSIONS["w13"]):
        for leaf in _GLOBAL:
            ending = f".{first}.{leaf}"
            unequal = []
            for name, value in values.items():
                if name.endswith(ending):
                    module = name.removesuffix(ending)
                    other = values.get(f"{module}.{second}.{leaf}", value)
                    if not (scale_problem(value) or scale_problem(other)) and abs(value - other) > 1e-8 + 1e-5 * other:
                        unequal.append(module)
            if unequal:
                text = f"{places(unequal)}: {leaf} of {first} and {second} differ"
                text += "; engines run the two as one matrix, and some keep the former's scale for both"
                yield Finding("warn", "scales", text)


def _weight_only(checkpoint: Checkpoint) -> Iterable[Finding]:
    matrices = sum(tail(name) in _GLOBAL for name in checkpoint.tensors)
    if matrices and not any(tail(name) in _ACTIVATIONS for name in checkpoint.tensors):
        text = (
            f"weight-only checkpoint: none of its {matrices} NVFP4 matrices has an activation scale. W4A4 backends "
            "(CUTLASS, TensorRT-LLM, CuTe DSL) do not apply; Marlin and humming (W4A16) do"
        )
        yield Finding("warn", "scales", text)


def _convention(values: dict[str, float]) -> Iterable[Finding]:
    """Whether the scales of whole tensors lie on the side of 1 that their names promise."""
    by_leaf: dict[str, list[float]] = {}
    for name, value in values.items():
        module, _, leaf = name.rpartition(".")
        # Per-tensor FP8 has an activation scale of this name too, amax / 448, which large activations lift above 1.
        is_fp8 = leaf == "weight_scale" or (leaf == "input_scale" and f"{module}.weight_scale" in values)
        if not is_fp8 and not scale_problem(value):
            by_leaf.setdefault(leaf, []).append(value)
    for leaf, sound in sorted(by_leaf.items()):
        median = sorted(sound)[len(sound) // 2]
        is_divisor = leaf in _DIVISORS
        what = f"{leaf} (median {median:.4g} over {len(sound)} matrices)"
        if is_divisor and median < 1:
            text = f"{what} is a divisor in compressed-tensors and should lie above 1"
            yield Finding("error", "scales", f"convention looks reversed, stop: {text}")
        elif not is_divisor and median > 1:
            text = f"{what} is a multiplier in ModelOpt and should lie below 1"
            yield Finding("error", "scales", f"convention looks reversed, stop: {text}")
        elif leaf == "weight_global_scale":
            yield Finding("info", "scales", f"{what} is a divisor, which engines invert on load")
