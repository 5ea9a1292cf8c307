"""What tensors a kernel takes: names, types, shapes in named dimensions, and how they lie in memory.

Checked once, where a call comes in. A dimension gets its value from the problem, or from the first tensor that has it,
and every later tensor has to agree; the error names the tensor, the dimension, both values, and who said the first.

    "k"            the dimension itself
    "k/2"          two values to a byte
    "2*n"          gate and up
    "ceil(m/128)"  tiles; never used to find out what m is

Nothing here imports torch: where nobody has imported it yet, no argument is a tensor.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from sublight.errors import KernelError
from sublight.facts.formats import get_format
from sublight.kernels.problem import MoeProblem

if TYPE_CHECKING:
    from torch import Tensor

_DIMENSION = re.compile(r"(?:(\d+)\*)?([a-z_]\w*)(?:/(\d+))?")
_TILES = re.compile(r"ceil\(([a-z_]\w*)/(\d+)\)")


class TensorSpec(msgspec.Struct, frozen=True):
    """One tensor of a call.

    Attributes:
        name: as the caller knows it.
        shape: sizes, or dimensions as above.
        dtypes: torch's names of the types it may have, without "torch.".
        memory: the order of its dimensions in memory, outermost first, without gaps; None where strides do not matter.
        optional: None may stand for it.
    """

    name: str
    shape: tuple[int | str, ...]
    dtypes: tuple[str, ...]
    memory: tuple[int, ...] | None = None
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.name} [{', '.join(map(str, self.shape))}] {' or '.join(self.dtypes)}"


class _Bound(NamedTuple):
    size: int
    by: str


def check(
    call: str,
    specs: Sequence[TensorSpec],
    tensors: Mapping[str, "Tensor | None"],
    dimensions: Mapping[str, int] | None = None,
    *,
    beside: "tuple[str, Tensor] | None" = None,
) -> dict[str, int]:
    """Every dimension's value.

    Args:
        call: what errors name: the kernel or function called.
        dimensions: those that are known before any tensor is looked at.
        beside: a tensor that was checked before, and its name: these have to be on its device.

    Raises:
        KernelError: something that is missing or no tensor, a tensor of another type or number of dimensions, on
            another device, laid out otherwise, or of a size that does not fit; it and the dimension are named.
    """
    bound = {name: _Bound(size, "the problem") for name, size in (dimensions or {}).items()}
    device = None if beside is None else (str(beside[1].device), beside[0])
    given = [(spec, tensor) for spec in specs if (tensor := _given(call, spec, tensors)) is not None]
    for spec, tensor in given:
        _check_kind(call, spec, tensor)
        if device is not None and str(tensor.device) != device[0]:
            found = f"it is on {tensor.device}, and {device[1]} on {device[0]}"
            raise KernelError(f"{call}: {spec.name}", found, "all tensors on one device")
        device = device or (str(tensor.device), spec.name)
        for place, dimension in enumerate(spec.shape):
            _bind(call, spec, tensor, place, dimension, bound)
    for spec, tensor in given:
        for place, dimension in enumerate(spec.shape):
            _check_tiles(call, spec, tensor, place, dimension, bound)
        if spec.memory is not None and not tensor.permute(spec.memory).is_contiguous():
            order = ", ".join(str(spec.shape[place]) for place in spec.memory)
            found = f"its strides are {tuple(tensor.stride())}"
            raise KernelError(f"{call}: {spec.name}", found, f"memory of [{order}] without gaps")
    return {name: value.size for name, value in bound.items()}


def require_tensor(call: str, name: str, value: Any, hint: str) -> None:
    """Raises KernelError for what is missing, or is no tensor: an array of NumPy, a list, a number."""
    if value is None:
        raise KernelError(f"{call}: {name}", "it is missing", hint)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        raise KernelError(f"{call}: {name}", f"it is no tensor but of type {type(value).__name__}", hint)
    if value.layout != torch.strided:
        raise KernelError(f"{call}: {name}", f"its layout is {value.layout}", f"a dense tensor: {hint}")


def require_parts(call: str, name: str, value: Any, parts: str) -> tuple[Any, Any]:
    """Both parts of a pair. A tensor is none, even where it could be unpacked: its first two matrices are no parts."""
    if not isinstance(value, tuple | list):
        raise KernelError(f"{call}: {name}", f"it is no pair but of type {type(value).__name__}", parts)
    if len(value) != 2:
        raise KernelError(f"{call}: {name}", f"it has {len(value)} parts", parts)
    return value[0], value[1]


def _given(call: str, spec: TensorSpec, tensors: Mapping[str, "Tensor | None"]) -> "Tensor | None":
    tensor = tensors.get(spec.name)
    if tensor is not None or not spec.optional:
        require_tensor(call, spec.name, tensor, str(spec))
    return tensor


def _check_kind(call: str, spec: TensorSpec, tensor: "Tensor") -> None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in spec.dtypes:
        raise KernelError(f"{call}: {spec.name}", f"its type is {dtype}", str(spec))
    if tensor.dim() != len(spec.shape):
        raise KernelError(f"{call}: {spec.name}", f"its shape is {list(tensor.shape)}", str(spec))


def _bind(
    call: str, spec: TensorSpec, tensor: "Tensor", place: int, dimension: int | str, bound: dict[str, _Bound]
) -> None:
    size = tensor.shape[place]
    if isinstance(dimension, int):
        if size != dimension:
            raise _misfit(call, spec, place, f"it is {size}", f"{dimension}")
        return
    match = _DIMENSION.fullmatch(dimension)
    if match is None:
        return  # tiles, once every dimension is known
    times, name, per = int(match[1] or 1), match[2], int(match[3] or 1)
    if name not in bound:
        if size * per % times:
            raise _misfit(call, spec, place, f"it is {size}", f"a multiple of {times}")
        bound[name] = _Bound(size * per // times, spec.name)
    known = bound[name]
    if known.size * times != size * per:
        wanted = known.size * times / per
        found = f"it is {size}, where {name} = {known.size} of {known.by} makes it {wanted:g}"
        raise _misfit(call, spec, place, found, f"{wanted:g}")


def _check_tiles(
    call: str, spec: TensorSpec, tensor: "Tensor", place: int, dimension: int | str, bound: Mapping[str, _Bound]
) -> None:
    match = _TILES.fullmatch(dimension) if isinstance(dimension, str) else None
    if match is None:
        return
    known = bound[match[1]]
    wanted = -(-known.size // int(match[2]))
    if tensor.shape[place] != wanted:
        found = f"it is {tensor.shape[place]}, where {match[1]} = {known.size} of {known.by} makes it {wanted}"
        raise _misfit(call, spec, place, found, f"{wanted}")


def _misfit(call: str, spec: TensorSpec, place: int, found: str, wanted: str) -> KernelError:
    where = f"dimension {place} ({spec.shape[place]})"
    return KernelError(f"{call}: {where} of {spec.name}", found, f"{wanted} there; the whole is {spec}")


def moe_specs(problem: MoeProblem) -> list[TensorSpec]:
    """The tensors of a layer of experts in the checkpoint's own layout: input, routing, weights, output.

    Block scales lie in rows; global scales are multipliers, one a part of w13 and one a w2.
    """
    weights = get_format(problem.weight_format)
    activations = ("float16",) if problem.activation_format == "fp16" else ("bfloat16",)
    codes, scales = _WEIGHT_TYPES[problem.weight_format]
    per_byte = "/2" if weights.bits == 4 else ""
    specs = [
        TensorSpec("x", ("tokens", "hidden_size"), activations, (0, 1)),
        TensorSpec("out", ("tokens", "hidden_size"), activations, (0, 1)),
    ]
    if problem.routing == "given":
        specs += [
            TensorSpec("ids", ("tokens", "top_k"), ("int32",), (0, 1)),
            TensorSpec("weights", ("tokens", "top_k"), ("float32",), (0, 1)),
        ]
    else:
        everyone = problem.num_experts * problem.expert_ranks
        specs.append(TensorSpec("logits", ("tokens", everyone), ("float32", "bfloat16"), (0, 1)))
    for name, rows, columns in (("w13", "up_rows", "hidden_size"), ("w2", "hidden_size", "intermediate_size")):
        specs.append(TensorSpec(name, ("num_experts", rows, f"{columns}{per_byte}"), (codes,), (0, 1, 2)))
        if weights.block:
            high = rows if weights.block_rows == 1 else f"ceil({rows}/{weights.block_rows})"
            shape = ("num_experts", high, f"ceil({columns}/{weights.block})")
            specs.append(TensorSpec(f"{name}_scale", shape, (scales,), (0, 1, 2)))
        if problem.global_scale != "none":
            parts = 2 if name == "w13" and problem.global_scale == "projection" else 1
            specs.append(TensorSpec(f"{name}_global", ("num_experts", parts), ("float32",), (0, 1)))
        if problem.expert_bias:
            specs.append(TensorSpec(f"{name}_bias", ("num_experts", rows), ("bfloat16", "float32"), (0, 1)))
    return specs


_WEIGHT_TYPES = {
    "nvfp4": ("uint8", "float8_e4m3fn"),
    "mxfp4": ("uint8", "uint8"),
    "fp8-block": ("float8_e4m3fn", "float32"),
    "bf16": ("bfloat16", ""),
}


def check_moe(
    call: str, problem: MoeProblem, tensors: Mapping[str, "Tensor | None"], *, weights_only: bool = False
) -> None:
    """Tensors of a layer of experts, or its weights alone, against their problem. Raises as `check` does."""
    specs = [spec for spec in moe_specs(problem) if spec.name.startswith(("w13", "w2")) or not weights_only]
    check(call, specs, tensors, problem.dimensions())
