"""The kernels for FP4 units run on a Hopper, where Triton 3.9 and later emulate those units, against the oracle.

It shows that what these kernels read, where they write it, and their epilogues are right, at the numbers that dispatch
gives them for Blackwell. It shows nothing of Blackwell's own instructions or speed.

    python -m tests.gpu.emulated                     on a Hopper with Triton 3.9 or later
    python -m tests.gpu.emulated --build FOLDER      on any machine with Triton 3.9 or later: compiles, runs nothing
    python -m tests.gpu.emulated --cubins FOLDER     on a Hopper with any Triton: runs what was compiled

Add `--save FILE` for a record.
"""

import argparse
import ctypes
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
import triton

from sublight.facts.gpu import get_gpu
from sublight.kernels import fused_triton, masked_triton
from sublight.kernels.agreement import compare
from sublight.kernels.catalogue import Limits
from sublight.kernels.cuda.driver import check
from sublight.kernels.fused_portable import configure_native
from sublight.kernels.fused_triton_layer import prepare_native
from sublight.kernels.masked_call import GemmCall
from sublight.kernels.masked_portable import configure_native as configure_masked
from sublight.kernels.masked_portable import run_native
from sublight.kernels.masked_reference import grouped_gemm
from sublight.kernels.numerics.formats import NVFP4
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.numerics.swizzle import swizzle
from sublight.kernels.problem import GroupedGemmProblem, MoeProblem
from sublight.kernels.reference import Experts, InputScales, moe_forward
from tests.torch.crosscompile import Recorder

TARGET = "sm_90"
# card whose numbers are taken; rows of a group; n; k; rows that count
MASKED = [
    ("rtx-pro-6000-server", 16, 512, 6144, (16, 3, 0, 1)),
    ("rtx-pro-6000-server", 64, 6144, 256, (64, 1, 63, 17)),
    ("rtx-pro-6000-server", 5, 136, 96, (4, 0, 5)),
    ("b200", 200, 512, 6144, (200, 129, 128, 0)),
]
# card, tokens, experts, width, hidden, top-k
LAYERS = [
    ("rtx-pro-6000-server", 1, 256, 256, 6144, 8),
    ("rtx-pro-6000-server", 16, 256, 256, 6144, 8),
    ("rtx-pro-6000-server", 1024, 256, 256, 6144, 8),
    ("rtx-pro-6000-server", 17, 6, 192, 320, 3),
    ("b200", 16, 256, 256, 6144, 8),
]


class Carried:
    """A kernel compiled elsewhere: `kernel[grid](...)` finds the cubin for its arguments and launches it."""

    def __init__(self, kernel: Any, folder: Path, *, build: bool) -> None:
        self.kernel, self.folder, self.build, self.grid = kernel, folder, build, (1,)

    def __getitem__(self, grid: tuple[int, ...]) -> "Carried":
        self.grid = grid
        return self

    def __call__(self, *arguments: Any, **more: Any) -> None:
        source, options = Recorder(self.kernel, TARGET).source(arguments, more)
        said = (source.signature, {k: str(v) for k, v in source.constants.items()}, sorted(source.attrs), options)
        name = hashlib.sha256(repr((self.kernel.fn.__name__, *said)).encode()).hexdigest()[:24]
        file = self.folder / f"{name}.json"
        if self.build:
            if not file.exists():
                compiled = triton.compile(
                    source, target=triton.backends.compiler.GPUTarget("cuda", 90, 32), options=options
                )
                facts = compiled.metadata
                assert not facts.global_scratch_size and facts.num_ctas == 1
                file.with_suffix(".cubin").write_bytes(compiled.asm["cubin"])
                numbers = {"name": facts.name, "shared": facts.shared, "warps": facts.num_warps}
                file.write_text(json.dumps(numbers | {"triton": triton.__version__}))
            return
        facts = json.loads(file.read_text())
        function = _function(file.with_suffix(".cubin"), facts["name"], facts["shared"])
        given = [v for v, p in zip(arguments, self.kernel.params, strict=False) if not p.is_constexpr]
        values: list[Any] = [
            ctypes.c_void_p(v.data_ptr()) if isinstance(v, torch.Tensor) else ctypes.c_int32(v) for v in given
        ]
        values += [ctypes.c_void_p(), ctypes.c_void_p()]  # Triton's own memory, of which these kernels want none
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        grid = (*self.grid, 1, 1)[:3]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        launch = (function, *grid, 32 * facts["warps"], 1, 1, facts["shared"], stream, pointers, None)
        check("cuLaunchKernel", f"launching {facts['name']}", *launch)


def _function(cubin: Path, name: str, shared: int) -> ctypes.c_void_p:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check("cuModuleLoadData", f"loading {cubin.name}", ctypes.byref(module), cubin.read_bytes())
    check("cuModuleGetFunction", f"finding {name}", ctypes.byref(function), module, name.encode())
    check("cuFuncSetAttribute", f"{shared} B of shared memory", function, 8, shared)
    return function


@contextmanager
def carried(folder: Path, *, build: bool) -> Iterator[None]:
    """The kernels for FP4 units replaced; where building, all others do nothing."""
    replaced: list[tuple[ModuleType, str, Any]] = [
        (masked_triton, "native_product", None),
        (fused_triton, "up_product", None),
        (fused_triton, "down_product", None),
    ]
    if build:
        replaced += [(fused_triton, name, _Nothing()) for name in ("group_pairs", "quantise_pairs", "sum_pairs")]
    with ExitStack() as stack:
        for module, name, other in replaced:
            kernel = getattr(module, name)
            stack.callback(setattr, module, name, kernel)
            setattr(module, name, Carried(kernel, folder, build=build) if other is None else other)
        yield


class _Nothing:
    def __getitem__(self, grid: Any) -> "_Nothing":
        return self

    def __call__(self, *arguments: Any, **more: Any) -> None:
        pass


def drawn(device: str, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.uint8, device=device).random_(0, 256)


def scales(device: str, *shape: int) -> torch.Tensor:
    return (torch.rand(shape, device=device) * 1.75 + 0.25).to(torch.float8_e4m3fn)


def masked(device: str, card: str, m: int, n: int, k: int, rows: tuple[int, ...]) -> Iterator[tuple[str, Any, Any]]:
    groups = len(rows)
    problem = GroupedGemmProblem(m=m, n=n, k=k, num_groups=groups, operands="nvfp4", out_dtype="bfloat16")

    def tiles(high: int) -> torch.Tensor:
        shape = (groups, -(-high // 128), -(-k // 64), 32, 4, 4)
        if device == "meta":
            return torch.empty(shape, dtype=torch.float8_e4m3fn, device=device)
        return swizzle(scales(device, groups, high, k // 16)).reshape(shape)

    call = GemmCall(
        problem=problem,
        ab_dtype="float4_e2m1fn",
        sf_vec_size=16,
        lhs=drawn(device, groups, m, k // 2),
        rhs=drawn(device, groups, n, k // 2),
        lhs_scale=tiles(m),
        rhs_scale=tiles(n),
        out=torch.zeros(groups, m, n, dtype=torch.bfloat16, device=device),
        masked_m=torch.tensor(rows, dtype=torch.int32, device=device),
        alpha=torch.rand(groups, device=device) / k,
        configuration=configure_masked(problem, Limits.of(get_gpu(card))),
    )
    run_native(call)
    if device != "meta":
        wanted = msgspec.structs.replace(call, out=torch.zeros_like(call.out))
        grouped_gemm(wanted)
        for group, count in enumerate(rows):
            if count:
                yield f"group {group}: {count} of {m} rows", call.out[group, :count], wanted.out[group, :count].float()


def layer(
    device: str, card: str, tokens: int, experts: int, width: int, hidden: int, top_k: int
) -> Iterator[tuple[str, Any, Any]]:
    def matrix(rows: int, columns: int, parts: int) -> Quantised:
        above = (torch.rand(experts, parts, device=device) + 0.5) / (3.5 * columns**0.5)
        codes, block = drawn(device, experts, rows, columns // 2), scales(device, experts, rows, columns // 16)
        return Quantised(NVFP4, codes, block, GlobalScale(above))

    first = torch.linspace(400, 700, experts, device=device)
    own = Experts(matrix(2 * width, hidden, 2), matrix(hidden, width, 1), input_scales=InputScales(first, first / 2))
    problem = MoeProblem(
        tokens=tokens,
        hidden_size=hidden,
        intermediate_size=width,
        num_experts=experts,
        top_k=top_k,
        activation_format="nvfp4",
        global_scale="projection",
    )
    numbers = configure_native(problem, Limits.of(get_gpu(card)))
    x = torch.randn(tokens, hidden, device=device).bfloat16()
    weights = torch.rand(tokens, top_k, device=device)
    ids = torch.rand(tokens, experts, device=device).topk(top_k, 1).indices.int()
    out = torch.full_like(x, float("nan"))
    run = prepare_native(problem, own, torch.empty(0, device=device).device, numbers)
    if device == "meta":  # every number of tokens that preparing compiles on a GPU
        for size in {1 << k for k in range(tokens.bit_length())} | {tokens}:
            run(x[:size], ids[:size], weights[:size], out[:size])
        return
    run(x, ids, weights, out)
    yield f"{tokens} tokens", out, moe_forward(x, ids, weights, own, own.input_scales)


def findings(device: str) -> Iterator[dict[str, Any]]:
    """A row for everything that was compared; none where tensors are on "meta" and things are only compiled."""
    torch.manual_seed(0)
    for name, case, arguments, tolerance in (
        *(("masked-triton-fp4", masked, entry, NVFP4.kernel_error) for entry in MASKED),
        # Where sums in another order round to another bf16, a four-bit activation can fall to the next step.
        *(("fused-triton-fp4", layer, entry, 1e-2) for entry in LAYERS),
    ):
        for what, got, wanted in case(device, *arguments):  # type: ignore[operator]
            found = compare(got, wanted, tolerance)
            yield {
                "kernel": name,
                "numbers_of": arguments[0],
                "shape": list(arguments[1:]),
                "what": what,
                "relative_error": found.relative_error,
                "tolerance": tolerance,
                "reason": found.reason,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, help="compile into this folder, and run nothing")
    parser.add_argument("--cubins", type=Path, help="run what was compiled into this folder")
    parser.add_argument("--save", type=Path, help="a record of what was found")
    options = parser.parse_args()
    folder = options.build or options.cubins
    if options.build:
        folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with carried(folder, build=bool(options.build)) if folder else ExitStack():
        for row in findings("meta" if options.build else "cuda"):
            rows.append(row)
            print(row["kernel"], row["numbers_of"], *row["shape"], row["what"], row["relative_error"], row["reason"])
    if options.build:
        return
    compiled = {json.loads(f.read_text())["triton"] for f in folder.glob("*.json")} if folder else {triton.__version__}
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": torch.cuda.get_device_name(),
        "triton_that_compiled": sorted(compiled),
        "target": TARGET,
        "rows": rows,
    }
    if options.save:
        options.save.write_text(json.dumps(record, indent=1) + "\n")
    bad = [row for row in rows if row["reason"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} agree")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
