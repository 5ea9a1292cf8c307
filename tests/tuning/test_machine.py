"""The facts of a machine, for whoever else needs them."""

from pathlib import Path

from sublight.records import Evidence
from sublight.tuning.report import folder_report
from tests.tuning.judged import H200
from tests.tuning.machines import PRO_6000, Server, folder


def test_a_real_machine() -> None:
    machine = folder_report(H200).machine
    assert (machine.driver, machine.cuda, machine.hypervisor, machine.sockets, machine.numa_nodes) == (
        "580.159.04", "13.0", "KVM", 1, 1,
    )  # fmt: skip
    first, second = machine.gpus
    assert (first.name, first.catalogue, first.compute_capability) == ("NVIDIA H200", "h200", "9.0")
    assert first.compute_capability_source == "cards.csv"
    assert (second.index, second.bus, second.pstate, second.numa_node) == (1, "00000000:00:07.0", "P0", 0)
    assert first.memory_bytes.value == 143771 * 2**20 and first.memory_bytes.evidence is Evidence.MEASURED
    assert first.memory_bytes.source == "smi.log, line 90"
    assert (first.pcie_gen_now.value, first.pcie_width_now.value, first.power_limit_w.value) == (5, 16, 700)
    assert machine.topology is not None and machine.topology.paths == (("X", "NV18"), ("NV18", "X"))
    assert machine.nvlink is True
    assert machine.memory_bytes.value == 263998500 * 1024


def test_a_server_with_switches(tmp_path: Path) -> None:
    machine = folder_report(folder(tmp_path, Server().texts())).machine
    assert [gpu.name for gpu in machine.gpus] == [PRO_6000] * 4
    assert [gpu.numa_node for gpu in machine.gpus] == [0, 0, 1, 1]
    assert {gpu.catalogue for gpu in machine.gpus} == {"rtx-pro-6000-server"}
    # Not printed by any of these outputs: looked up by the exact name, and said so.
    assert machine.gpus[0].compute_capability == "12.0"
    assert machine.gpus[0].compute_capability_source == "the catalogue's entry for rtx-pro-6000-server"
    assert machine.nvlink is False and machine.peer_access is not None
    assert machine.kernel == "6.17.0-20-generic"
    assert machine.memory_bytes.value == 1547706 * 2**20 and machine.memory_bytes.source == "f.log"
    assert machine.gpus[0].idle and not machine.gpus[0].busy


def test_a_card_that_the_catalogue_does_not_know(tmp_path: Path) -> None:
    text = Server().smi().replace(PRO_6000, "NVIDIA RTX PRO 9000")
    gpu = folder_report(folder(tmp_path, {"a.log": text})).machine.gpus[0]
    assert (gpu.name, gpu.catalogue, gpu.compute_capability) == ("NVIDIA RTX PRO 9000", "", "")


def test_the_boxed_table_alone(tmp_path: Path) -> None:
    machine = folder_report(folder(tmp_path, {"x": (H200 / "table.log").read_text()})).machine
    assert (machine.driver, machine.cuda, len(machine.gpus)) == ("580.159.04", "13.0", 2)
    gpu = machine.gpus[0]
    assert (gpu.memory_bytes.value, gpu.power_limit_w.value, gpu.pstate) == (143771 * 2**20, 700, "P0")
    assert gpu.pcie_gen_now.value is None and gpu.pcie_gen_now.note == "nvidia-smi -q: not in the folder"
    assert machine.topology is None and machine.nvlink is None


def test_no_cards(tmp_path: Path) -> None:
    machine = folder_report(folder(tmp_path, {"x": Server().cpu()})).machine
    assert machine.gpus == () and machine.gpus_note == "nvidia-smi -q, nvidia-smi: not in the folder"
