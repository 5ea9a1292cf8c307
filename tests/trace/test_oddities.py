"""One small trace for each thing that can be odd about a step, with the answer added up by hand.

Written as the profiler writes them, read as any trace is. Times are microseconds here, as in the files.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sublight.trace.analysis import Analysis, analyse
from sublight.trace.oddity import Oddity
from sublight.trace.plan import Plan
from sublight.trace.powerlog import GpuPower
from sublight.trace.read import read_trace

GEMM = "nvjet_sm90_tst_64x8_64x16_1x1_v_bz_TNT"
MARLIN = (
    "void marlin::Marlin<__nv_bfloat16, 1125899906843136l, 1125899906842624l, 128, 1, 8, 4, 4, 4, false>(int4 const*)"
)
SPARSE = "void sm90::fwd::sparse_attn_fwd_kernel<sm90::fwd::KernelTemplate<576, false>>(int)"
WRITE = "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(int)"
NORM = "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
H200 = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
B200 = {"id": 0, "name": "NVIDIA B200", "numSms": 148, "computeMajor": 10, "computeMinor": 0}
Kernel = tuple[str, float, int]  # name, microseconds, blocks


class Decode:
    """Steps of the same kernels, a microsecond apart and 20 between steps; replayed from a graph unless told.

    Each begins with the copy of its token ids to the card, as in every engine: 2 us.
    """

    def __init__(self, device: dict[str, Any] = H200) -> None:
        self.events: list[dict[str, Any]] = []
        self.device, self.at, self.correlation = device, 1000.0, 0

    def put(self, category: str, name: str, at: float, us: float, thread: int = 1, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 0 if thread == 7 else 1, "tid": thread, "ts": at,
             "dur": us, "args": args}
        )  # fmt: skip

    def step(self, kernels: list[Kernel], *, graph: bool = True, launch_us: float = 0.5, sync_us: float = 0.0) -> None:
        self.correlation += 1
        self.put("cuda_runtime", "cudaMemcpyAsync", self.at - 12, 1, correlation=self.correlation)
        self.put("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", self.at, 2, 7, correlation=self.correlation, device=0,
                 stream=7, bytes=64)  # fmt: skip
        self.at += 3
        self.correlation += 1
        if graph:
            self.put("cuda_runtime", "cudaGraphLaunch", self.at - 10, 5, correlation=self.correlation)
        for name, us, blocks in kernels:
            if not graph:
                # The call returns just before its kernel starts: the GPU has waited for it.
                self.correlation += 1
                self.put("cuda_runtime", "cudaLaunchKernel", self.at, launch_us, correlation=self.correlation)
                self.at += launch_us
            self.put("kernel", name, self.at, us, 7, correlation=self.correlation, device=0, stream=7,
                     grid=[blocks, 1, 1], block=[128, 1, 1])  # fmt: skip
            self.at += us + 1
        if sync_us:
            self.put("cuda_runtime", "cudaStreamSynchronize", self.at, sync_us)
            self.at += sync_us
        self.at += 20

    def steps(self, kernels: list[Kernel], count: int = 6, **how: Any) -> "Decode":
        for _ in range(count):
            self.step(kernels, **how)
        return self

    def analysed(self, folder: Path, plan: Plan | None = None, power: Sequence[GpuPower] = ()) -> Analysis:
        file = folder / "trace.json"
        document = {"schemaVersion": 1, "deviceProperties": [self.device], "traceEvents": self.events}
        file.write_text(json.dumps(document), encoding="utf-8")
        return analyse(read_trace(file), plan, power=power)

    def odd(self, folder: Path, plan: Plan | None = None) -> dict[str, Oddity]:
        return {o.id: o for o in self.analysed(folder, plan).oddities}


LAYER: list[Kernel] = [(NORM, 3.0, 1), (GEMM, 20.0, 132), (WRITE, 3.0, 1), (SPARSE, 40.0, 132), (GEMM, 25.0, 132)]


def test_nothing_odd(tmp_path: Path) -> None:
    assert Decode().steps([(GEMM, 200.0 + i, 132) for i in range(12)]).odd(tmp_path) == {}


def test_one_block_on_a_whole_card(tmp_path: Path) -> None:
    """12 layers of an attention kernel of 40 us that runs 1 block: 480 us, all of it exposed."""
    layer = [(name, us, 1 if name == SPARSE else blocks) for name, us, blocks in LAYER]
    found = Decode().steps(layer * 12).odd(tmp_path)["few-blocks"]
    assert found.title == "sm90::fwd::sparse_attn_fwd_kernel runs 1 block on 132 SMs"
    assert found.evidence == "40.0 us x 12 calls = 480 us of the step"
    assert (found.ns, found.row) == (480_000, "attn.core")


def test_no_graph_at_all(tmp_path: Path) -> None:
    """60 kernels launched one by one, each call 50 us long and the GPU idle meanwhile."""
    found = Decode().steps(LAYER * 12, graph=False, launch_us=50.0).odd(tmp_path)["no-cuda-graph"]
    assert found.title == "decode runs without a CUDA graph"
    assert found.evidence.startswith("60 kernels launched one by one; the GPU waits for the CPU")
    # 51 us before each of the 60, the first of which follows the pause between steps.
    assert found.ns == pytest.approx(60 * 51_000, rel=0.03)


def test_steps_that_miss_the_captured_graph(tmp_path: Path) -> None:
    trace = Decode().steps(LAYER * 12, 5).steps(LAYER * 12, 2, graph=False, launch_us=50.0).steps(LAYER * 12, 3)
    found = trace.odd(tmp_path)["graph-not-used"]
    assert found.title.startswith("2 of 9 decode steps run outside the captured graph")
    assert "(steps 5, 6)" in found.evidence
    assert found.ns == pytest.approx(60 * 50_000, rel=0.03)


def test_gaps_between_nodes(tmp_path: Path) -> None:
    """60 kernels of 3 us with 1 us between: the step idles 59 us inside."""
    found = Decode().steps([(GEMM, 3.0, 132)] * 60).odd(tmp_path)["launch-gaps"]
    assert found.title == "the GPU is idle between nodes of the graph"
    assert (found.evidence, found.ns) == ("59 gaps of 1.00 us on average", 59_000)


def test_kernels_too_short_to_be_worth_a_launch(tmp_path: Path) -> None:
    found = Decode().steps([(NORM, 1.5, 4), (GEMM, 20.0, 132)] * 110).odd(tmp_path)["short-kernels"]
    assert found.title == "110 kernels run under 2 us"
    assert found.evidence == "50 % of the launches, 165 us together; most often vllm::rms_norm_kernel"
    assert found.ns == 165_000


def test_the_host_waits_inside_the_step(tmp_path: Path) -> None:
    found = Decode().steps(LAYER * 12, graph=False, sync_us=400.0).odd(tmp_path)["host-sync"]
    assert found.evidence == "1 call of cudaStreamSynchronize, 400 us together"
    assert found.ns == 400_000


def test_four_bit_weights_on_a_card_that_multiplies_them(tmp_path: Path) -> None:
    kernels = [(MARLIN, 30.0, 148), (NORM, 5.0, 148)] * 12
    assert "fallback-backend" not in Decode().steps(kernels).odd(tmp_path)
    found = Decode(B200).steps(kernels).odd(tmp_path)["fallback-backend"]
    assert found.evidence == "Marlin kernels take 360 us of the step on compute capability 10.0"
    assert found.ns == 360_000


def test_a_step_unlike_the_others(tmp_path: Path) -> None:
    trace = Decode().steps(LAYER * 12, 4).steps(LAYER * 14, 1).steps(LAYER * 12, 4)
    found = trace.odd(tmp_path)["unlike-steps"]
    assert found.title == "1 of 8 steps differs from the others"
    assert found.evidence.startswith("step 4: ")


def test_collectives_that_spin(tmp_path: Path) -> None:
    """156 all-reduces of 110 us beside 700 kernels that sum to 7 ms: the ranks wait, the cards look busy."""
    kernels = ([(GEMM, 10.0, 132)] * 5 + [(REDUCE, 110.0, 2)]) * 140 + [(REDUCE, 110.0, 2)] * 16
    found = Decode().steps(kernels, 4).odd(tmp_path)["slow-collectives"]
    assert found.title == "all-reduce calls wait: 110 us each"
    assert found.evidence == (
        "156 calls of ncclDevKernel_AllReduce_Sum_bf16_RING_LL take 17.2 ms, 69 % of the step; the fastest takes 110 us"
    )
    assert found.ns == 156 * 110_000
    assert "a GPU at 100 % that draws little power waits" in found.advice


def test_collectives_of_a_rank_that_waits_now_and_then(tmp_path: Path) -> None:
    """23 all-reduces of 8 us and one of 300 in the same step."""
    kernels = [(GEMM, 100.0, 132), (REDUCE, 8.0, 2)] * 23 + [(GEMM, 100.0, 132), (REDUCE, 300.0, 2)]
    found = Decode().steps(kernels).odd(tmp_path)["slow-collectives"]
    assert found.evidence.endswith("the fastest takes 8.00 us")
    assert found.ns == 292_000


@pytest.mark.parametrize("each_us", [8.0, 20.0])
def test_healthy_collectives(tmp_path: Path, each_us: float) -> None:
    kernels = [(GEMM, 100.0, 132), (REDUCE, each_us, 2)] * 20
    assert "slow-collectives" not in Decode().steps(kernels).odd(tmp_path)


def slowing(step: int) -> float:
    return 20.0 + step


def noisy(step: int) -> float:
    return 20.0 + 3 * (step % 2)


@pytest.mark.parametrize(("length", "seen"), [(slowing, True), (noisy, False), (lambda step: 20.0, False)])
def test_kernels_that_grow_slower(tmp_path: Path, length: Callable[[int], float], seen: bool) -> None:
    """Nine steps of 40 GEMMs, a microsecond longer in each step: 21 us against 27, in the medians of three."""
    trace = Decode()
    for step in range(10):
        trace.step([(GEMM, length(step), 132), (NORM, 2.5, 4)] * 40)
    found = trace.odd(tmp_path).get("slower-kernels")
    assert (found is not None) is seen
    if found is not None:
        assert found.title == "the same GEMMs run 29 % slower at the end of the trace than at its start"
        assert found.evidence == "840 us a step in the first 3 steps, 1.08 ms in the last 3"
        assert found.ns == 240_000


def test_heads_that_only_pad(tmp_path: Path) -> None:
    trace = Decode().steps(LAYER * 12)
    plan = Plan((), (), heads=8)
    found = trace.odd(tmp_path, plan)["padded-heads"]
    assert found.title == "8 attention heads of this rank are computed as 64"
    assert found.evidence == "FlashMLA sparse works on tiles of 64 query heads: 12 calls, 480 us of the step"
    assert found.ns == 480_000
    assert "padded-heads" not in trace.odd(tmp_path, Plan((), (), heads=64))
    assert "padded-heads" not in trace.odd(tmp_path)


def test_tokens_that_only_pad(tmp_path: Path) -> None:
    """A graph captured for 16 tokens runs for 10: six in sixteen of the time goes to nobody."""
    layer = [(name, us, 16 if name == WRITE else blocks) for name, us, blocks in LAYER]
    trace = Decode().steps(layer * 12)
    found = trace.odd(tmp_path, Plan((), (), tokens=10))["padded-batch"]
    assert found.title == "the captured graph runs 16 tokens for 10"
    # The copy of the token ids counts with the layers.
    assert found.ns == (2 + 12 * (3 + 20 + 3 + 40 + 25)) * 1000 * 6 / 16
    assert "padded-batch" not in trace.odd(tmp_path, Plan((), (), tokens=16))
    eager = Decode().steps(layer * 12, graph=False)
    assert "padded-batch" not in eager.odd(tmp_path, Plan((), (), tokens=10))


@pytest.mark.parametrize(("attentions", "said"), [(1, True), (2, False)])
def test_layers_taken_for_steps_are_suspected(tmp_path: Path, attentions: int, said: bool) -> None:
    """One step of ten layers, launched one by one, with nothing copied: as steps ten layers are found, or pairs."""
    decode = Decode()
    layer: list[Kernel] = [(NORM, 3.0, 1), (GEMM, 20.0, 132), (SPARSE, 40.0, 132), (GEMM, 25.0, 132)]
    second: list[Kernel] = [(MARLIN, 9.0, 132), *layer[1:]]
    decode.step([*layer, *(second * (attentions - 1))] * 10, graph=False)
    decode.events = [event for event in decode.events if event["cat"] != "gpu_memcpy"]
    found = decode.odd(tmp_path)
    assert ("layers-as-steps" in found) == said
    if said:
        assert found["layers-as-steps"].title == "what was found as 9 steps may be the layers of one"
