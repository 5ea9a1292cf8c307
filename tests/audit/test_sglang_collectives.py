"""SGLang's all-reduces in the wheels: which there are, what switches them, and who sums a step of decoding."""

import pytest

from sublight.audit.engines.base import Declaration, Route
from sublight.audit.engines.sglang import SGLANG
from sublight.audit.ladder import Answer
from sublight.audit.question import ask as ask_for
from sublight.audit.question import card
from sublight.audit.source.tree import Sources
from sublight.facts.workload import Layout
from tests.audit.reading import edited
from tests.audit.wheels import sources

pytestmark = pytest.mark.wheels

OLD, NEW = "sglang==0.5.9", "sglang==0.5.23"
HERE = "sglang/srt/distributed/device_communicators"
GROUPS = "sglang/srt/distributed/parallel_state.py"
PCIE = "rtx-pro-6000-server"


def declared(read: Sources) -> dict[str, Declaration]:
    return {each.name: each for each in SGLANG.declared(read, "all-reduce")}


def ask(name: str, gpu: str, requirement: str = NEW, tp: int = 8, read: Sources | None = None) -> Route:
    found = read or sources(requirement)
    asked = ask_for("glm-5-nvfp4", card(f"{tp}x{gpu}", None), Layout(tp=tp)).target
    if name == "auto":
        return SGLANG.auto(found, "all-reduce", asked)
    return SGLANG.route(found, declared(found)[name], asked)


def line(requirement: str, path: str, text: str) -> str:
    """Where the only line with a text stands."""
    module = sources(requirement).module(path.removesuffix(".py").replace("/", ".")) or pytest.fail(path)
    (at,) = (n for n, each in enumerate(module.lines, 1) if text in each)
    return f"{path}:{at}"


def test_the_ways_of_each_version_and_their_switches() -> None:
    assert {name: each.flag for name, each in declared(sources(OLD)).items()} == {
        "PyMscclppCommunicator": "--enable-mscclpp",
        "CustomAllreduce": "on without --disable-custom-all-reduce",
        "QuickAllReduce": "on without --disable-custom-all-reduce",
        "TorchSymmMemCommunicator": "--enable-torch-symm-mem",
        "PyNcclCommunicator": "--disable-custom-all-reduce",
        "PyNcclCommunicator symm_mem": "--enable-symm-mem",
        "flashinfer_fusion": "--enable-flashinfer-allreduce-fusion",
    }
    fused = {
        f"flashinfer_fusion {each}": f"--flashinfer-allreduce-fusion-backend {each}"
        for each in ("auto", "trtllm", "mnnvl", "cutedsl")
    }
    assert {name: each.flag for name, each in declared(sources(NEW)).items()} == {
        "PyMscclppCommunicator": "--enable-mscclpp",
        "PcieIpcCommunicator": "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",
        "CustomAllReduceV2": "on without --disable-custom-all-reduce",
        "CustomAllreduce": "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2=0",
        "QuickAllReduce": "on without --disable-custom-all-reduce",
        "TorchSymmMemCommunicator": "--enable-torch-symm-mem",
        "PyNcclCommunicator": "--disable-custom-all-reduce",
        "PyNcclCommunicator symm_mem": "--enable-symm-mem",
    } | fused
    for requirement in (OLD, NEW):
        place = declared(sources(requirement))["TorchSymmMemCommunicator"].proofs[0].where
        assert place == line(requirement, GROUPS, "self.torch_symm_mem_comm = TorchSymmMemCommunicator(")


@pytest.mark.parametrize(
    ("requirement", "gpu", "tp", "sums"),
    [
        (OLD, PCIE, 8, "PyNcclCommunicator"),
        (NEW, PCIE, 8, "PyNcclCommunicator"),
        (OLD, PCIE, 2, "CustomAllreduce"),
        (NEW, PCIE, 2, "CustomAllreduce"),
        (OLD, "h200", 8, "CustomAllreduce"),
        (NEW, "h200", 8, "allreduce_fusion"),
        (NEW, "b200", 8, "allreduce_fusion"),
    ],
)
def test_what_a_plain_launch_takes(requirement: str, gpu: str, tp: int, sums: str) -> None:
    found = ask("auto", gpu, requirement, tp)
    assert (found.answer, found.destination.rpartition(".")[2]) == (Answer.PASS, sums)


def test_what_is_summed_without_a_norm_is_told_besides() -> None:
    assert ask("auto", "b200").why == (
        "flashinfer.comm.allreduce_fusion sums where a norm follows, fused with it; other sums: "
        "flashinfer_allreduce or CustomAllReduceV2"
    )
    assert ask("auto", "h100-nvl", OLD).why == "CustomAllreduce where NVLink joins the cards, else PyNcclCommunicator"


@pytest.mark.parametrize(
    ("requirement", "name", "file", "says"),
    [
        (OLD, "CustomAllreduce", "custom_all_reduce.py", "disabled: Custom allreduce is disabled because it's not"),
        (
            NEW,
            "CustomAllreduce",
            "custom_all_reduce_utils.py",
            "disabled: CustomAllreduce is disabled because it's not",
        ),
        (NEW, "CustomAllReduceV2", "custom_all_reduce_utils.py", "not made: CustomAllReduceV2 is disabled because"),
    ],
)
def test_more_than_two_cards_over_pcie(requirement: str, name: str, file: str, says: str) -> None:
    found = ask(name, PCIE, requirement)
    assert (found.answer, found.hint) == (Answer.FAIL, "PyNcclCommunicator sums instead")
    assert found.why.startswith(says)
    assert "supported on more than two PCIe-only GPUs" in found.why
    assert found.proofs[-2].where == line(requirement, f"{HERE}/{file}", "if world_size > 2 and not full_nvlink:")


def test_what_nvlink_decides_is_not_known_of_a_card_with_it_in_pairs() -> None:
    found = ask("CustomAllreduce", "h100-nvl", OLD)
    assert found.answer is Answer.NOT_KNOWN
    assert found.why.startswith("hangs on NVLink, which is not known of this card: CustomAllreduce sums where NVLink")
    assert "more than two PCIe-only GPUs" in found.why


def test_a_card_that_a_communicator_has_no_sizes_for() -> None:
    refused = ask("TorchSymmMemCommunicator", PCIE)
    assert refused.why.startswith("disabled: TorchSymmMemCommunicator: Device capability 12 not supported")
    assert [gate.answer for gate in refused.gates] == [Answer.FAIL]
    stops = ask("TorchSymmMemCommunicator", PCIE, OLD)
    assert (stops.answer, stops.why) == (
        Answer.FAIL,
        "accepted, but the server stops when the group of ranks is made: KeyError: 12",
    )
    place, _, number = stops.proofs[-1].where.rpartition(":")
    lines = (sources(OLD).module("sglang.srt.distributed.device_communicators.torch_symm_mem") or pytest.fail()).lines
    assert "TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES[self.device_capability]" in lines[int(number) - 1]
    assert (place, stops.destination) == ("sglang/srt/distributed/device_communicators/torch_symm_mem.py", "")


def test_the_order_in_which_communicators_are_asked() -> None:
    found = ask("PyMscclppCommunicator", "h200", OLD)
    assert found.why == "accepted, but CustomAllreduce sums a message of 12,288 B: it is asked first"
    assert found.hint == "--disable-custom-all-reduce besides: there PyMscclppCommunicator sums"
    assert ask("PyMscclppCommunicator", PCIE, OLD).answer is Answer.PASS
    few = ask("PyMscclppCommunicator", "h200", OLD, tp=4)
    assert few.why.startswith("disabled: PyMscclpp is disabled due to an unsupported world size: 4.")
    multicast = ask("TorchSymmMemCommunicator", "h200", OLD)
    assert "depending on handle.multicast_ptr == 0" in multicast.hint
    assert ask("QuickAllReduce", "h200", OLD).why == "it is made only where is_hip() holds, which it does not here"


def test_flashinfers_reduction_over_pcie_is_left_to_its_library() -> None:
    found = ask("PcieIpcCommunicator", PCIE)
    assert found.answer is Answer.NOT_KNOWN
    assert found.why.startswith(
        "PcieIpcCommunicator or PyNcclCommunicator sums, depending on the answer of should_pcie"
    )
    assert [need.symbol for need in found.needs] == ["flashinfer.comm.PcieIpcAllReduceWorkspace"]


def test_sums_fused_with_a_norm() -> None:
    for requirement, name, kernel in (
        (OLD, "flashinfer_fusion", "flashinfer.comm.trtllm_allreduce_fusion"),
        (NEW, "flashinfer_fusion trtllm", "flashinfer.comm.allreduce_fusion"),
    ):
        found = ask(name, "h200", requirement)
        assert (found.answer, found.destination) == (Answer.PASS, kernel)
        assert [need.symbol for need in found.needs] == [kernel]
        refused = ask(name, PCIE, requirement)
        assert (refused.answer, refused.gates[0].text) == (Answer.FAIL, "_is_sm90_supported or _is_sm100_supported")
    own = ask("flashinfer_fusion cutedsl", "b200")
    assert (own.answer, own.why.partition(",")[0]) == (Answer.NOT_KNOWN, "it has a way of its own")


def test_symbols_of_the_custom_all_reduce() -> None:
    for requirement in (OLD, NEW):
        found = ask("CustomAllreduce", PCIE, requirement, tp=2)
        assert {need.symbol.partition(".all")[0] for need in found.needs} == {"sgl_kernel"}
        assert "sgl_kernel.allreduce.init_custom_ar" in [need.symbol for need in found.needs]
        place = line(requirement, f"{HERE}/custom_all_reduce_ops.py", "import sgl_kernel.allreduce as _custom_ar")
        assert {need.where for need in found.needs} == {place}


def test_the_verdict_follows_the_source() -> None:
    path = f"{HERE}/custom_all_reduce_utils.py"
    test = "if world_size > 2 and not full_nvlink:"
    kinder = edited(sources(NEW), {path: (test, test.replace("2", "8"))})
    left = ask("CustomAllreduce", PCIE, read=kinder)
    assert left.why == "accepted, but it leaves a message of 12,288 B to PyNcclCommunicator"
    taken = edited(kinder, {f"{HERE}/custom_all_reduce.py": ("world_size == 2 or self.full_nvlink", "world_size <= 8")})
    assert ask("auto", PCIE, read=taken).destination.endswith(".CustomAllreduce")
    moved = edited(sources(NEW), {path: ("    # test nvlink first,", "\n\n    # test nvlink first,")})
    file, _, number = line(NEW, path, test).rpartition(":")
    assert ask("CustomAllreduce", PCIE, read=moved).proofs[-2].where == f"{file}:{int(number) + 2}"
    renamed = edited(
        sources(NEW),
        {f"{HERE}/torch_symm_mem.py": ("class TorchSymmMemCommunicator", "class Symmetric"),
         GROUPS: ("TorchSymmMemCommunicator", "Symmetric")},
    )  # fmt: skip
    assert declared(renamed)["Symmetric"].flag == "--enable-torch-symm-mem"
    assert "Device capability 12 not supported" in ask("Symmetric", PCIE, read=renamed).why
