"""A call of the masked grouped GEMM: arguments checked against each other, tensors in the order of their memory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from sublight.errors import KernelError, near_misses
from sublight.kernels.contract import TensorSpec, check, require_parts, require_tensor
from sublight.kernels.problem import GroupedGemmProblem

if TYPE_CHECKING:
    from torch import Tensor

CALL = "grouped_gemm_nt_masked"
_FOUR_BITS = "float4_e2m1fn"
# (ab_dtype, sf_dtype, sf_vec_size) -> the format of both operands. Others are refused, as FlashInfer refuses them:
# E4M3 scales over 32 values, eight-bit operands with scales over 16.
OPERANDS = {
    (_FOUR_BITS, "float8_e4m3fn", 16): "nvfp4",
    (_FOUR_BITS, "float8_e8m0fnu", 32): "mxfp4",
    (_FOUR_BITS, "float8_e8m0fnu", 16): "mxfp4-16",
    ("float8_e4m3fn", "float8_e8m0fnu", 32): "mxfp8-e4m3",
    ("float8_e5m2", "float8_e8m0fnu", 32): "mxfp8-e5m2",
}
_OUT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
# What FlashInfer 0.7.4 added, with its defaults: fusing the products' sum over ranks, and swapped operands.
LATER = {
    "topk_weights": None,
    "idx_src_info": None,
    "rank_src_info": None,
    "out_ptrs": None,
    "num_ranks": 0,
    "barrier_flag_local": None,
    "barrier_flag_multicast": None,
    "is_combine_fusion": False,
    "is_swap_ab": False,
}
_OPTIONS = ("mma_tiler_mn", "cluster_shape_mn", "alpha", "alpha_dtype")


class GemmCall(msgspec.Struct, frozen=True, kw_only=True):
    """A checked call, as a kernel's `loader` gets it: every tensor in the order of its memory.

    Attributes:
        lhs, rhs: [l, m, k] and [l, n, k], four-bit codes two to a byte.
        lhs_scale, rhs_scale: [l, rows/128, scales/4, 32, 4, 4].
        out: [l, m, n]; written in place.
        masked_m: [l] int32.
        alpha: [l], or None: what each group's result is multiplied by.
        sm_count: SMs to use at most; None for all.
        signals: counters that the kernel adds to as groups finish; None where nobody waits.
        configuration: the numbers that choosing the kernel gave.
    """

    problem: GroupedGemmProblem
    ab_dtype: str
    sf_vec_size: int
    lhs: Any
    rhs: Any
    lhs_scale: Any
    rhs_scale: Any
    out: Any
    masked_m: Any
    alpha: Any = None
    sm_count: int | None = None
    signals: Any = None
    configuration: Mapping[str, int] = {}


def checked_call(
    lhs: "tuple[Tensor, Tensor]",
    rhs: "tuple[Tensor, Tensor]",
    out: "Tensor",
    masked_m: "Tensor",
    *,
    ab_dtype: str,
    sf_dtype: str,
    c_dtype: str,
    sf_vec_size: int,
    dst_signals: "Tensor | None",
    sm_count: int | None,
    options: dict[str, Any],
) -> GemmCall:
    """The arguments of `grouped_gemm_nt_masked`, checked against each other. Raises KernelError."""
    known = _options(options)
    _check_names(ab_dtype=ab_dtype, sf_dtype=sf_dtype, c_dtype=c_dtype)
    operands = _operands(ab_dtype, sf_dtype, sf_vec_size)
    lhs = require_parts(CALL, "lhs", lhs, "codes and block scales")
    rhs = require_parts(CALL, "rhs", rhs, "codes and block scales")
    sizes = _check_tensors(lhs[0], rhs[0], masked_m, ab_dtype, sf_vec_size)
    if sm_count is not None and not (_is_int(sm_count) and sm_count >= 1):
        raise KernelError(f"{CALL}: sm_count", f"it is {sm_count!r}", "a whole number of at least 1")
    if dst_signals is not None:
        _check_signals(dst_signals, lhs[0])
    problem = GroupedGemmProblem(
        m=sizes["m"],
        n=sizes["n"],
        k=sizes["k"],
        num_groups=sizes["l"],
        operands=operands,
        out_dtype=c_dtype,
        signals=dst_signals is not None,
        sm_limit=sm_count is not None,
    )
    _check_alignment(problem, ab_dtype)
    groups, scales = sizes["l"], sizes["k"] // sf_vec_size
    return GemmCall(
        problem=problem,
        ab_dtype=ab_dtype,
        sf_vec_size=sf_vec_size,
        lhs=_codes(lhs[0], ab_dtype),
        rhs=_codes(rhs[0], ab_dtype),
        lhs_scale=_scales("lhs scales", lhs[1], sf_dtype, (groups, sizes["m"], scales), lhs[0]),
        rhs_scale=_scales("rhs scales", rhs[1], sf_dtype, (groups, sizes["n"], scales), lhs[0]),
        out=_result(out, problem, lhs[0]),
        masked_m=masked_m,
        alpha=_alpha(known, problem, lhs[0]),
        sm_count=sm_count,
        signals=dst_signals,
    )


def _options(kwargs: dict[str, Any]) -> dict[str, Any]:
    """FlashInfer's own keyword arguments. Raises KernelError for those of other versions, unless at their default."""
    for name, value in kwargs.items():
        if name in LATER and not _is_default(value, LATER[name]):
            found = f"FlashInfer 0.6.3 has no {name}; it came later, and its default is {LATER[name]!r}"
            raise KernelError(f"{CALL}: {name}", found, f"a call without {name}")
        if name not in LATER and name not in _OPTIONS:
            near = " or ".join(near_misses(name, _OPTIONS))
            raise KernelError(f"{CALL}: {name}", "there is no such argument", near or f"one of {', '.join(_OPTIONS)}")
    tiler, cluster = kwargs.get("mma_tiler_mn", (128, 128)), kwargs.get("cluster_shape_mn", (1, 1))
    if not _is_pair_of(tiler, (128, 256)):
        raise KernelError(f"{CALL}: mma_tiler_mn", f"it is {tiler!r}", "128 or 256 in each place")
    if not _is_pair_of(cluster, (1, 2, 4)) or (tiler[0] == 256 and cluster[0] == 1):
        hint = "1, 2 or 4 in each place, and an even first one with a tiler of 256 rows"
        raise KernelError(f"{CALL}: cluster_shape_mn", f"it is {cluster!r}", hint)
    return {name: kwargs.get(name) for name in _OPTIONS}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_default(value: Any, default: Any) -> bool:
    """Numbers and truth values only: a tensor's own comparison has no one answer."""
    return value is default or (isinstance(value, int) and value == default)


def _is_pair_of(value: Any, known: tuple[int, ...]) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(_is_int(v) and v in known for v in value)


def _check_names(**types: Any) -> None:
    """FlashInfer's types are names; torch's own objects are refused there as well, less clearly."""
    for argument, value in types.items():
        if not isinstance(value, str):
            found = f"it is {value!r} of type {type(value).__name__}"
            raise KernelError(f"{CALL}: {argument}", found, "a type's name, such as 'float32'")


def _operands(ab_dtype: str, sf_dtype: str, sf_vec_size: int) -> str:
    operands = OPERANDS.get((ab_dtype, sf_dtype, sf_vec_size)) if _is_int(sf_vec_size) else None
    if operands is None:
        found = f"{ab_dtype} with {sf_dtype} scales over {sf_vec_size!r} values is no format"
        known = "; ".join(f"{ab} with {sf} over {size}" for ab, sf, size in OPERANDS)
        raise KernelError(f"{CALL}: ab_dtype, sf_dtype and sf_vec_size", found, known)
    return operands


def _check_signals(signals: "Tensor", like: "Tensor") -> None:
    """How many counters there are is between the caller and the kernel; what they are is not."""
    require_tensor(CALL, "dst_signals", signals, "uint32 counters")
    shape = tuple(signals.shape)
    check(CALL, [TensorSpec("dst_signals", shape, ("uint32", "int32"))], {"dst_signals": signals}, beside=("lhs", like))


def _check_tensors(lhs: "Tensor", rhs: "Tensor", masked_m: "Tensor", ab_dtype: str, sf_vec_size: int) -> dict[str, int]:
    four = ab_dtype == _FOUR_BITS
    k = "k/2" if four else "k"
    types = ("uint8", "float4_e2m1fn_x2") if four else (ab_dtype, "uint8")
    sizes = check(
        CALL,
        [
            TensorSpec("lhs", ("m", k, "l"), types, (2, 0, 1)),
            TensorSpec("rhs", ("n", k, "l"), types, (2, 0, 1)),
            TensorSpec("masked_m", ("l",), ("int32",), (0,)),
        ],
        {"lhs": lhs, "rhs": rhs, "masked_m": masked_m},
    )
    if sizes["k"] % sf_vec_size:
        found = f"{sizes['k']} values are no whole groups of {sf_vec_size}"
        raise KernelError(f"{CALL}: dimension k", found, f"a multiple of {sf_vec_size}")
    return sizes


def _check_alignment(problem: GroupedGemmProblem, ab_dtype: str) -> None:
    """Rows of 16 bytes, which is what FlashInfer's kernel loads and stores."""
    if problem.out_dtype not in _OUT_BYTES:
        raise KernelError(f"{CALL}: c_dtype", f"{problem.out_dtype!r} is not known", ", ".join(_OUT_BYTES))
    for name, size, step in (
        ("k", problem.k, 32 if ab_dtype == _FOUR_BITS else 16),
        ("n", problem.n, 16 // _OUT_BYTES[problem.out_dtype]),
    ):
        if size % step:
            found = f"{size} values of it are no whole rows of 16 bytes"
            raise KernelError(f"{CALL}: dimension {name}", found, f"a multiple of {step}")


def _codes(tensor: "Tensor", ab_dtype: str) -> "Tensor":
    """[l, rows, bytes] in the type that says what they are."""
    import torch

    dtype = torch.uint8 if ab_dtype == _FOUR_BITS else getattr(torch, ab_dtype)
    return tensor.permute(2, 0, 1).view(dtype)


def _scales(name: str, tensor: "Tensor", sf_dtype: str, sizes: tuple[int, int, int], like: "Tensor") -> "Tensor":
    """[l, rm, rk, 32, 4, 4] from either form. `sizes` are groups, rows, and scales of a row."""
    import torch

    groups, rows, scales = sizes
    high, wide = -(-rows // 128), -(-scales // 4)
    types = (sf_dtype, "uint8")
    require_tensor(CALL, name, tensor, f"{sf_dtype} scales in whole tiles")
    if tensor.dim() == 3:
        shape: tuple[int | str, ...] = (groups, high * 128, wide * 4)
        check(CALL, [TensorSpec(name, shape, types, (0, 1, 2))], {name: tensor}, beside=("lhs", like))
        tiles = tensor.reshape(groups, high, wide, 32, 4, 4)
    else:
        shape = (32, 4, high, 4, wide, groups)
        check(CALL, [TensorSpec(name, shape, types, (5, 2, 4, 0, 1, 3))], {name: tensor}, beside=("lhs", like))
        tiles = tensor.permute(5, 2, 4, 0, 1, 3)
    dtype: torch.dtype = getattr(torch, sf_dtype)
    return tiles.view(dtype)


def _result(out: "Tensor", problem: GroupedGemmProblem, like: "Tensor") -> "Tensor":
    """[l, m, n] from either form; which one it is, its strides say."""
    logical = (problem.m, problem.n, problem.num_groups)
    require_tensor(CALL, "out", out, f"{problem.out_dtype} [m, n, l]")
    if tuple(out.shape) == logical and out.permute(2, 0, 1).is_contiguous():
        out = out.permute(2, 0, 1)
    elif tuple(out.shape) != (problem.num_groups, problem.m, problem.n):
        check(CALL, [TensorSpec("out", logical, (problem.out_dtype,), (2, 0, 1))], {"out": out})
    spec = TensorSpec("out", ("l", "m", "n"), (problem.out_dtype,), (0, 1, 2))
    check(CALL, [spec], {"out": out}, beside=("lhs", like))
    return out


def _alpha(options: dict[str, Any], problem: GroupedGemmProblem, like: "Tensor") -> Any:
    alpha, dtype = options["alpha"], options["alpha_dtype"]
    if alpha is None:
        return None
    if dtype is None:
        raise KernelError(f"{CALL}: alpha_dtype", "alpha is given and its type is not said", "alpha_dtype='float32'")
    _check_names(alpha_dtype=dtype)
    require_tensor(CALL, "alpha", alpha, f"{dtype} [l], one factor a group")
    if alpha.numel() != problem.num_groups:
        found = f"its shape is {list(alpha.shape)}, and there are {problem.num_groups} groups"
        raise KernelError(f"{CALL}: alpha", found, "one factor a group")
    flat = alpha.reshape(-1)
    check(CALL, [TensorSpec("alpha", ("l",), (dtype,))], {"alpha": flat}, beside=("lhs", like))
    return flat
