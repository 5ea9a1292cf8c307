"""Released engines still print what the rules read: their own message templates, filled in and read back."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from sublight.audit.log.rules import built_in
from tests.audit.wheels import installed

pytestmark = pytest.mark.wheels

MOE = "vllm/model_executor/layers/fused_moe"
COMMUNICATORS = "vllm/distributed/device_communicators"
ORACLES = ("nvfp4", "fp8", "unquantized", "mxfp4", "int_wna16", "int8", "mxfp8")
VLLM = [
    *((f"{MOE}/oracle/{name}.py", "vllm.moe-backend") for name in ORACLES),
    *((f"{MOE}/oracle/{name}.py", "vllm.moe-refused") for name in ORACLES if name not in ("mxfp8", "int8")),
    (f"{MOE}/fused_moe.py", "vllm.no-config-moe"),
    (f"{MOE}/fused_moe.py", "vllm.tuned-config-moe"),
    (f"{COMMUNICATORS}/custom_all_reduce.py", "both.all-reduce-pcie"),
    (f"{COMMUNICATORS}/custom_all_reduce.py", "both.all-reduce-p2p"),
    (f"{COMMUNICATORS}/custom_all_reduce.py", "both.all-reduce-off"),
    (f"{COMMUNICATORS}/symm_mem.py", "both.symmetric-memory"),
    (f"{COMMUNICATORS}/pynccl.py", "both.nccl"),
    ("vllm/platforms/cuda.py", "vllm.attention"),
    ("vllm/config/vllm.py", "vllm.graph-eager"),
    ("vllm/v1/engine/core.py", "vllm.config"),
    ("vllm/v1/worker/gpu_model_runner.py", "vllm.memory-weights"),
    ("vllm/model_executor/kernels/linear/__init__.py", "vllm.linear-kernel"),
    ("vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py", "both.weight-only"),
    ("vllm/model_executor/layers/quantization/utils/fp8_utils.py", "both.no-config-fp8"),
    ("vllm/compilation/passes/fusion/allreduce_rms_fusion.py", "vllm.fusion-pass-off"),
]
SGLANG = [
    ("sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py", "sglang.no-config"),
    ("sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py", "sglang.tuned-config"),
    ("sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py", "sglang.config-other-triton"),
    ("sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py", "sglang.no-config-down"),
    ("sglang/srt/distributed/device_communicators/custom_all_reduce.py", "both.all-reduce-pcie"),
    ("sglang/srt/distributed/parallel_state.py", "sglang.all-reduce-set-up"),
    ("sglang/srt/model_executor/cuda_graph_runner.py", "sglang.graph-capture-sizes"),
    ("sglang/srt/managers/scheduler.py", "sglang.limits"),
    ("sglang/srt/server_args.py", "sglang.attention-default"),
    ("sglang/srt/server_args.py", "sglang.runner"),
    ("sglang/srt/layers/quantization/fp8_kernel.py", "both.no-config-fp8"),
]
NEWEST_SGLANG = [
    ("sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py", "sglang.no-config"),
    ("sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py", "sglang.config-other-triton"),
    ("sglang/srt/distributed/device_communicators/custom_all_reduce_utils.py", "both.all-reduce-pcie"),
    ("sglang/srt/layers/flashinfer_comm_fusion.py", "sglang.fusion-on"),
    ("sglang/srt/managers/scheduler.py", "sglang.limits"),
    ("sglang/srt/arg_groups/overrides.py", "sglang.runner"),
]
# What a placeholder may stand for; one kind at a time is put in for all of them.
FILLERS = ("8", "NAME", "0.5", "/opt/a/E=1,N=2.json", "Custom allreduce")
LISTS = re.compile(r"strs|_bs\b|sizes")


@cache
def templates(requirement: str, file: str) -> tuple[ast.expr, ...]:
    tree = ast.parse((installed(requirement) / file).read_bytes())
    texts = (ast.Constant, ast.JoinedStr)
    return tuple(node for node in ast.walk(tree) if isinstance(node, texts))


def filled(node: ast.expr, filler: str) -> str:
    if isinstance(node, ast.JoinedStr):
        parts = (
            part.value
            if isinstance(part, ast.Constant)
            else "[1, 2]"
            if LISTS.search(ast.unparse(part)) and "[" not in filler
            else filler
            for part in node.values
        )
        return "".join(map(str, parts))
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return re.sub(r"%(?:\.\d)?[srdf]", filler, text)


def readings(requirement: str, file: str) -> Iterator[str]:
    for node in templates(requirement, file):
        for filler in FILLERS:
            for reading in built_in().read(filled(node, filler)):
                yield reading.rule.id


CASES = [
    *(("vllm==0.33.0", *case) for case in VLLM),
    *(("sglang==0.5.9", *case) for case in SGLANG),
    *(("sglang==0.5.23", *case) for case in NEWEST_SGLANG),
]


@pytest.mark.parametrize(("requirement", "file", "rule"), CASES)
def test_a_rule_reads_what_the_engine_prints(requirement: str, file: str, rule: str) -> None:
    assert rule in set(readings(requirement, file))
