"""Kernels of Triton compiled for a GPU that is not here, as the package's own code would launch them.

A `Recorder` stands in the place of a kernel: what is launched is compiled with the types, constants and alignments of
that call, and nothing runs. Tensors may be on "meta", so shapes of published models cost no memory.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sublight.kernels.heuristics import Choice
from sublight.kernels.numerics.formats import get_block_format
from sublight.kernels.numerics.quantised import GlobalScale, Quantised
from sublight.kernels.problem import MoeProblem
from sublight.kernels.reference import Experts, InputScales

TYPES = {
    torch.uint8: "*u8",
    torch.int32: "*i32",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
}


LAYER = ("group_pairs", "quantise_pairs", "up_product", "down_product", "sum_pairs")


class Recorder:
    """A kernel for one target, "sm_120"; what was compiled for it lies in `built`, in the order of launches."""

    def __init__(self, kernel: Any, target: str) -> None:
        self.kernel, self.target, self.built = kernel, target, []

    @classmethod
    @contextmanager
    def of(cls, module: ModuleType, target: str, *names: str) -> "Iterator[dict[str, Recorder]]":
        """In the place of these kernels of a module."""
        kernels = {name: vars(module)[name] for name in names}
        recorders = {name: cls(kernel, target) for name, kernel in kernels.items()}
        vars(module).update(recorders)
        try:
            yield recorders
        finally:
            vars(module).update(kernels)

    def __getitem__(self, grid: Any) -> Any:
        return self

    def __call__(self, *arguments: Any, **more: Any) -> None:
        import triton
        from triton.backends.compiler import GPUTarget

        source, options = self.source(arguments, more)
        self.built.append(triton.compile(source, target=GPUTarget("cuda", int(self.target[3:]), 32), options=options))

    def source(self, arguments: tuple[Any, ...], more: dict[str, Any]) -> Any:
        """What Triton compiles for such a call, and its options."""
        from triton.compiler import ASTSource

        options = {name: more.pop(name) for name in ("num_warps", "num_stages") if name in more}
        values = dict(zip(self.kernel.arg_names, arguments, strict=False)) | more
        signature, constants, aligned = {}, {}, {}
        for place, parameter in enumerate(self.kernel.params):
            value = values[parameter.name]
            if parameter.is_constexpr:
                signature[parameter.name], constants[parameter.name] = "constexpr", value
                continue
            tensor = isinstance(value, torch.Tensor)
            signature[parameter.name] = TYPES[value.dtype] if tensor else "i32"
            fixed = parameter.do_not_specialize_on_alignment or parameter.do_not_specialize
            if not fixed and (tensor or value % 16 == 0):
                aligned[(place,)] = [["tt.divisibility", 16]]
        return ASTSource(self.kernel, signature, constants, aligned), options


def products(built: Any) -> set[str]:
    """Instructions of tensor cores in its PTX."""
    return set(re.findall(r"(?:wgmma|mma|tcgen05\.mma)[.\w:]*", built.asm["ptx"]))


def machine_products(built: Any) -> set[str]:
    """The same in its machine code."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        done = subprocess.run([tool, "--dump-sass", file.name], capture_output=True, text=True, check=True)
    return set(re.findall(r"\b(?:[HOQ]MMA|HGMMA|UT\w*MMA|F2FP\.BF16\.E2M1)[.\w]*", done.stdout))


def meta_matrix(form: str, experts: int, rows: int, columns: int, parts: int) -> Quantised:
    """A stack of matrices that takes no memory."""
    block = get_block_format(form)
    shape = (experts, rows, columns)
    codes = torch.empty(experts, rows, columns // block.codes_per_byte, dtype=block.code_dtype, device="meta")
    scales = torch.empty(block.scale_shape(shape), dtype=block.scale_dtype, device="meta")
    return Quantised(
        block, codes, scales, GlobalScale(torch.empty(experts, parts, device="meta")) if block.has_global else None
    )


def launch_on_meta(choice: Choice, problem: MoeProblem) -> None:
    """A layer with the kernel that was chosen, called once for the most tokens."""
    sizes = problem.dimensions()
    experts, hidden, tokens, top_k = (sizes[n] for n in ("num_experts", "hidden_size", "tokens", "top_k"))
    scales = None
    if problem.activation_format == "nvfp4":
        scales = InputScales(torch.empty(experts, device="meta"), torch.empty(experts, device="meta"))
    parts = 2 if problem.global_scale == "projection" else 1
    weights = Experts(
        meta_matrix(problem.weight_format, experts, problem.up_rows, hidden, parts),
        meta_matrix(problem.weight_format, experts, hidden, problem.intermediate_size, 1),
        problem.activation,
        input_scales=scales,
    )
    layer = choice.kernel.load()(problem, weights, torch.device("meta"), choice.configuration)
    x = torch.empty(tokens, hidden, dtype=torch.bfloat16, device="meta")
    ids = torch.empty(tokens, top_k, dtype=torch.int32, device="meta")
    layer(x, ids, torch.empty(tokens, top_k, device="meta"), torch.empty_like(x))


def script(code: str, folder: Path, *arguments: str, **environment: str) -> str:
    """Run in a process of its own: Triton decides on import whether it interprets."""
    env = os.environ | {"TRITON_CACHE_DIR": str(folder), "PYTHONWARNINGS": "ignore"} | environment
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=env,
        cwd=root,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
