"""A layer of experts in Triton, prepared: workspace, launches, and one compiled form for every size of batch.

The result is a sum in the order of a token's experts, from fp32 rows in a workspace, and not by atomics: the same
input gives the same bits, whatever else is in the batch. Calls whose rows would take more than `ROWS_BYTES` are cut
into several.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from sublight.errors import KernelError
from sublight.kernels import fused_triton as kernels
from sublight.kernels.fused_portable import plan
from sublight.kernels.numerics.minifloat import E8M0_NAN
from sublight.kernels.numerics.quantised import Quantised
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts

Layer = Callable[[Tensor, Tensor, Tensor, Tensor], None]

ROWS_BYTES = 256 << 20
_UNPACKING = (100, 103, 120, 121)  # GPUs with an instruction from E2M1 to bf16
# Exponents of MXFP4's block scales. Decoding in pairs moves a scale up by 2**119 in bf16, by 2**6 in fp16; in fp16 not
# even a weight of 4 fits above the last.
_PAIRED = {"bf16": 8, "fp16": 9}
_LARGEST = {"bf16": 127, "fp16": 13}
_BLOCKS = 64
_SUM_BLOCK = 1024


def prepare_portable(
    problem: MoeProblem, experts: Experts, device: torch.device, configuration: Mapping[str, int]
) -> Layer:
    """The layer over the weights where they are. Raises KernelError as `_Layer` does."""
    return _Layer(problem, experts, device, configuration, native=False)


def prepare_native(
    problem: MoeProblem, experts: Experts, device: torch.device, configuration: Mapping[str, int]
) -> Layer:
    """The same for FP4 units."""
    return _Layer(problem, experts, device, configuration, native=True)


class _Operand(NamedTuple):
    """One matrix of every expert, as kernels take it; what it has not stands as its codes, and is not read."""

    codes: Tensor
    scales: Tensor
    above: Tensor
    parts: int
    bias: Tensor
    has_bias: bool


class _Layer:
    """Called with (x, ids, weights, out).

    Raises:
        KernelError: weights on another device, or rows of gate and up interleaved under two global scales.
    """

    def __init__(
        self,
        problem: MoeProblem,
        experts: Experts,
        device: torch.device,
        configuration: Mapping[str, int],
        *,
        native: bool,
    ) -> None:
        if experts.order == "interleaved" and problem.global_scale == "projection":
            found = "gate and up have global scales of their own, and interleaved rows have no halves"
            raise KernelError("the portable kernel", found, "rows in the order 'gate-up'")
        self.problem, self.device, self.native = problem, device, native
        self.way = "fp4" if native else _way(problem, experts, device, configuration["target"])
        self.up = _operand("w13", experts.w13, experts.bias13, device, self.way)
        self.down = _operand("w2", experts.w2, experts.bias2, device, self.way)
        self.order, self.first = experts.order, experts.first
        self.x4 = problem.activation_format == "nvfp4"
        scales = experts.input_scales
        self.between = torch.bfloat16 if scales is None else scales.between
        self.first_global = self.up.above if scales is None else scales.first.to(device).contiguous()
        self.second_global = self.up.above if scales is None else scales.second.to(device).contiguous()
        self._plans: dict[int, Mapping[str, int]] = {}
        self._configuration = configuration
        self.chunk = max(1, min(problem.tokens, ROWS_BYTES // (problem.top_k * problem.hidden_size * 4)))
        if device.type == "cuda":
            self._compile()

    def __call__(self, x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        for start in range(0, x.shape[0], self.chunk):
            rows = slice(start, start + self.chunk)
            self._run(x[rows], ids[rows], weights[rows], out[rows], self._plan(min(self.chunk, x.shape[0] - start)))

    def _plan(self, tokens: int) -> Mapping[str, int]:
        """For the next power of two, so that few are compiled."""
        size = min(1 << (tokens - 1).bit_length(), max(self.problem.tokens, 1))
        if size not in self._plans:
            given = self._configuration
            self._plans[size] = plan(
                msgspec.structs.replace(self.problem, tokens=size),
                given["sm_count"],
                given["shared_memory_bytes"],
                native=self.native,
                least_rows=given["LEAST_N"],
            )
        return self._plans[size]

    def _compile(self) -> None:
        """Every plan once, for a token that nobody is asked about: a graph may not stop to compile later."""
        kind = torch.float16 if self.problem.activation_format == "fp16" else torch.bfloat16
        x = torch.zeros(1, self.problem.hidden_size, dtype=kind, device=self.device)
        nobody = torch.full((1, self.problem.top_k), -1, dtype=torch.int32, device=self.device)
        weights = torch.zeros(1, self.problem.top_k, device=self.device)
        sizes = [1 << k for k in range(max(self.problem.tokens, 1).bit_length())]
        seen: list[Mapping[str, int]] = []
        for numbers in (self._plan(size) for size in (*sizes, max(self.problem.tokens, 1))):
            if numbers not in seen:
                seen.append(numbers)
                self._run(x, nobody, weights, torch.empty_like(x), numbers)

    def _run(self, x: Tensor, ids: Tensor, weights: Tensor, out: Tensor, numbers: Mapping[str, int]) -> None:
        problem = self.problem
        experts, hidden, width, top_k = (
            problem.num_experts,
            problem.hidden_size,
            problem.intermediate_size,
            problem.top_k,
        )
        pairs, block_m = x.shape[0] * top_k, numbers["BLOCK_M"]
        room = workspace(self.device, problem, self.chunk * top_k)
        kernels.group_pairs[(experts,)](
            ids,
            room.counts,
            room.offsets,
            room.order,
            pairs,
            self.first,
            CHUNK=numbers["CHUNK"],
            num_warps=numbers["GROUP_WARPS"],
        )
        given, given_scale = x, room.counts
        if self.x4:
            given, given_scale = room.given, room.given_scale
            kernels.quantise_pairs[(pairs, -(-hidden // (16 * _BLOCKS)))](
                x,
                ids,
                room.order,
                room.counts,
                room.offsets,
                self.first_global,
                given,
                given_scale,
                self.first,
                experts,
                hidden,
                TOP_K=top_k,
                BLOCKS=_BLOCKS,
                num_warps=4,
            )
        # Each expert's last block may be part of one: no more blocks than this, however pairs fall.
        blocks = min(pairs, (pairs + min(experts, pairs) * (block_m - 1)) // block_m)
        common = {
            "FORMAT": problem.weight_format,
            "X4": self.x4,
            "WAY": self.way,
            "KIND": _type("float16" if self.x4 else str(x.dtype)),
            "EXPERTS": max(16, 1 << (experts - 1).bit_length()),
            "BLOCK_M": block_m,
        }
        scaled = partial(_scale_type, way=self.way)
        kernels.up_product[(blocks * -(-width // numbers["UP_N"]),)](
            given,
            scaled(given_scale),
            self.first_global,
            self.up.codes,
            self.up.scales,
            self.up.above,
            self.up.bias,
            room.inner,
            room.inner_scale,
            self.second_global,
            room.order,
            room.counts,
            room.offsets,
            experts,
            HIDDEN=hidden,
            WIDTH=width,
            TOP_K=top_k,
            ACTIVATION=problem.activation,
            ORDER=self.order,
            PARTS=self.up.parts,
            HAS_BIAS=self.up.has_bias,
            BETWEEN=_type(str(self.between)),
            BLOCK_N=numbers["UP_N"],
            BLOCK_K=numbers["UP_K"],
            num_warps=numbers["UP_WARPS"],
            num_stages=numbers["UP_STAGES"],
            **common,
        )
        kernels.down_product[(blocks * -(-hidden // numbers["DOWN_N"]),)](
            room.inner,
            scaled(room.inner_scale),
            self.second_global,
            self.down.codes,
            self.down.scales,
            self.down.above,
            self.down.bias,
            weights,
            room.rows,
            room.order,
            room.counts,
            room.offsets,
            experts,
            HIDDEN=hidden,
            WIDTH=width,
            PARTS=self.down.parts,
            HAS_BIAS=self.down.has_bias,
            BLOCK_N=numbers["DOWN_N"],
            BLOCK_K=numbers["DOWN_K"],
            num_warps=numbers["DOWN_WARPS"],
            num_stages=numbers["DOWN_STAGES"],
            **common,
        )
        kernels.sum_pairs[(x.shape[0], -(-hidden // _SUM_BLOCK))](
            room.rows, ids, out, self.first, experts, hidden, TOP_K=top_k, BLOCK=_SUM_BLOCK, num_warps=4
        )


class Workspace(NamedTuple):
    """What a call leaves in memory between its kernels.

    Attributes:
        counts, offsets: [experts] int32, pairs of each expert and where they start in the list.
        order: [pairs] int32, the list.
        given, given_scale: the input of each place in the list in NVFP4; empty where it is read as it is.
        inner, inner_scale: what the activation made, in the order of the list.
        rows: fp32 [pairs, hidden], the second product of each pair.
    """

    counts: Tensor
    offsets: Tensor
    order: Tensor
    given: Tensor
    given_scale: Tensor
    inner: Tensor
    inner_scale: Tensor
    rows: Tensor


_WORKSPACES: dict[tuple[Any, ...], Workspace] = {}


def workspace(device: torch.device, problem: MoeProblem, pairs: int) -> Workspace:
    """The workspace of this stream for layers of this size, made on the first call.

    Layers on one stream follow each other, so they share it, as cuBLAS's products do theirs: 75 layers of their own
    would hold 75 times as much. Layers on two streams do not.
    """
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    experts, hidden, width = problem.num_experts, problem.hidden_size, problem.intermediate_size
    key = (device, stream, pairs, experts, hidden, width, problem.activation_format)
    if key not in _WORKSPACES:
        kind = torch.float16 if problem.activation_format == "fp16" else torch.bfloat16
        x4 = problem.activation_format == "nvfp4"

        def empty(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        _WORKSPACES[key] = Workspace(
            counts=empty(experts, dtype=torch.int32),
            offsets=empty(experts, dtype=torch.int32),
            order=empty(pairs, dtype=torch.int32),
            given=empty(pairs if x4 else 0, hidden // 2),
            given_scale=empty(pairs if x4 else 0, hidden // 16),
            inner=empty(pairs, width // 2) if x4 else empty(pairs, width, dtype=kind),
            inner_scale=empty(pairs if x4 else 1, width // 16),
            rows=empty(pairs, hidden, dtype=torch.float32),
        )
    return _WORKSPACES[key]


def _operand(name: str, matrix: Any, bias: Tensor | None, device: torch.device, way: str) -> _Operand:
    codes = matrix.codes if isinstance(matrix, Quantised) else matrix
    if codes.device != device:
        hint = "weights on the device of the calls; this kernel makes no copy"
        raise KernelError(f"the portable kernel: {name}", f"it is on {codes.device}, and calls on {device}", hint)
    scales, above, parts = codes, codes, 0
    if isinstance(matrix, Quantised):
        scales = _scale_type(matrix.scales, way)
        if matrix.global_scale is not None:
            above = matrix.global_scale.multiplier.float().contiguous()
            parts = above.shape[-1]
    return _Operand(_bytes(codes), scales, above, parts, codes if bias is None else bias, bias is not None)


def _bytes(tensor: Tensor) -> Tensor:
    """FP8 as the bytes it is decoded from: GPUs before sm_89 have no such type."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


def _scale_type(tensor: Tensor, way: str) -> Tensor:
    """Scales of one byte as bytes, or E4M3 by its type where `tl.dot_scaled` knows it by that."""
    if tensor.element_size() != 1 or (tensor.dtype == torch.uint8 and way == "unpack"):
        return tensor
    return tensor.view(torch.float8_e4m3fn if way in ("fp4", "unpack") else torch.uint8)


def _way(problem: MoeProblem, experts: Experts, device: torch.device, target: int) -> str:
    """How four-bit weights are decoded; `fused_triton_operands` says what each is.

    In pairs, a block scale is moved up by as much as its type allows for scales of NVFP4, at most 448. Those of MXFP4
    are any power of two: where one of them would become infinity, weights are decoded one by one.

    Raises:
        KernelError: a block scale under which weights have no value in fp16.
    """
    if device.type == "cpu":
        return "plain"
    four, bf16 = problem.weight_format in ("nvfp4", "mxfp4"), problem.activation_format == "bf16"
    if four and bf16 and target in _UNPACKING and kernels.UNPACKS:
        return "unpack"
    if problem.weight_format != "mxfp4":
        return "packed"
    kind, found = "fp16" if problem.activation_format == "fp16" else "bf16", []
    for name, matrix in (("w13", experts.w13), ("w2", experts.w2)):
        found.append(_largest_exponent(matrix))
        if found[-1] > _LARGEST[kind]:
            asked = f"the portable kernel: block scales of {name}"
            raise KernelError(asked, f"the largest is 2**{found[-1]}, and {kind} ends before", "activations in bf16")
    return "plain" if max(found) > _PAIRED[kind] else "packed"


def _largest_exponent(matrix: Any) -> int:
    """Of MXFP4's block scales, NaN left out."""
    scales = matrix.scales.view(torch.uint8)
    return -127 if scales.is_meta else int(scales.masked_fill(scales == E8M0_NAN, 0).max()) - 127


def _type(name: str) -> Any:
    """Triton's of torch's."""
    return kernels.TYPES[name.removeprefix("torch.")]
