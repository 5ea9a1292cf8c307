"""The decode kernel's router and grouping, its own source run on the CPU by 512 threads, against the oracle."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch

from sublight.kernels import cuda
from sublight.kernels.cuda.plan import DecodePlan, RouterPlan, plan_decode
from sublight.kernels.routing import Router, route

BLOCK = Path(__file__).parent / "emulated_block.cpp"
NOBODY = 255
CASES = {
    # experts of all ranks, router, correction, shared experts, experts here, number of the first one
    "mixtral": (8, Router("softmax", 2), False, 0, 8, 0),
    "qwen1.5": (60, Router("softmax", 4, renormalise=False), False, 1, 60, 0),
    "deepseek-v2": (160, Router("softmax", 6, False, 16.0, groups=8, top_groups=3), False, 2, 160, 0),
    "deepseek-v3": (256, Router("sigmoid", 8, True, 2.5, groups=8, top_groups=4), True, 1, 256, 0),
    "no correction": (256, Router("sigmoid", 8, True, 2.5, groups=8, top_groups=4), False, 0, 256, 0),
    "kimi-k2": (384, Router("sigmoid", 8, True, 2.827), True, 1, 96, 96),
}


def emulator(folder: Path, plan: DecodePlan) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ here")
    source = (Path(cuda.__file__).parent / "moe_decode.cu").read_text()
    types, rest = source[source.index("typedef ") : source.index("DEV u32 smem_of")], source.index("DEV int token_of")
    kernel, program = folder / "kernel.inc", folder / "block"
    parts = types.replace("__device__ __forceinline__", "static inline") + source[rest : source.index('extern "C"')]
    kernel.write_text(parts)
    defines = [f"-D{name}={value}" for name, value in plan.defines().items()]
    command = [compiler, "-std=c++20", "-O1", "-w", "-pthread", f'-DKERNEL="{kernel}"', *defines, str(BLOCK)]
    done = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return program


def logits_of(kind: str, tokens: int, experts: int) -> torch.Tensor:
    logits = torch.randn(tokens, experts, generator=torch.Generator().manual_seed(tokens)) * 2
    return {"any": logits, "equal": (logits > 1).float(), "alike": logits[:1].repeat(tokens, 1)}[kind]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("mixtral", 16),
        ("qwen1.5", 4),
        ("deepseek-v2", 16),
        ("deepseek-v3", 1),
        ("deepseek-v3", 16),
        ("no correction", 4),
        ("kimi-k2", 16),
    ],
)
def test_choice_and_groups(tmp_path: Path, name: str, most: int) -> None:
    experts, router, corrects, shared, here, first = CASES[name]
    plan_of_it = RouterPlan(
        router.scoring == "sigmoid", experts, corrects, router.groups, router.top_groups, router.renormalise
    )
    plan = plan_decode(512, 64, router.top_k, most, 132, 232_448, shared=shared, router=plan_of_it)
    program = emulator(tmp_path, plan)
    for tokens, kind in ((most, "any"), (most, "equal"), (most, "alike"), (max(1, most - 5), "any")):
        logits = logits_of(kind, tokens, experts)
        bias = torch.randn(experts, generator=torch.Generator().manual_seed(1)) * 0.2 * (kind != "equal")
        numbers = [f"{v:.9g}" for v in (*logits.flatten().tolist(), *bias.tolist())]
        given = f"{tokens} {here} {first} {router.scaling_factor} " + " ".join(numbers)
        lines = subprocess.run([program], input=given, capture_output=True, text=True, check=True).stdout.splitlines()
        pairs = tokens * router.top_k
        chosen = [(int(id), float(weight)) for id, weight in (line.split() for line in lines[1 : 1 + pairs])]
        ids, weights = route(logits, router, bias if corrects else None)
        assert [id + first for id, _ in chosen] == ids.flatten().tolist()
        assert [weight for _, weight in chosen] == pytest.approx(weights.flatten().tolist(), rel=2e-6)
        wanted = {pair: id for pair, (id, _) in enumerate(chosen) if 0 <= id < here}
        after = most * router.top_k
        wanted |= {after + s * most + token: here + s for s in range(shared) for token in range(tokens)}
        check_groups(lines[1 + pairs :], wanted, plan, int(lines[0]))


def check_groups(lines: list[str], wanted: dict[int, int], plan: DecodePlan, count: int) -> None:
    """Every pair in one group, of its expert and as few as can be; each at its token's column; shared ones first."""
    after = plan.max_tokens * plan.top_k
    seen: dict[int, int] = {}
    for line in lines:
        head, columns = line.split(";")
        expert, *members = map(int, head.split())
        tokens = [(pair - after) % plan.max_tokens if pair >= after else pair // plan.top_k for pair in members]
        expected = [NOBODY] * plan.columns
        for token, pair in zip(tokens, members, strict=True):
            expected[token] = pair
        assert [int(v) for v in columns.split()] == expected
        seen |= dict.fromkeys(members, expert)
    assert seen == wanted
    assert count == len(lines) == sum(-(-held // 8) for held in Counter(wanted.values()).values())
    kinds = [min(map(int, line.split(";")[0].split()[1:])) >= after for line in lines]
    assert kinds == sorted(kinds, reverse=True)
