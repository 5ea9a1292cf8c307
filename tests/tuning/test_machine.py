"""The facts of a machine, for whoever else needs them."""

from collections.abc import Iterable
from pathlib import Path

from sublight.records import Evidence
from sublight.tuning.record import Verdict
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


COLUMNS = (
    "index, utilization.gpu [%], power.draw [W], power.limit [W], pcie.link.gen.current, pcie.link.gen.max, pstate\n"
)


def under_load(indices: Iterable[int], power_w: float = 140) -> str:
    return COLUMNS + "".join(f"{n}, 100 %, {power_w:.2f} W, 600.00 W, 5, 5, P1\n" for n in indices)


def test_a_log_counts_its_cards_and_not_its_lines(tmp_path: Path) -> None:
    lines = COLUMNS + under_load((0, 1)).removeprefix(COLUMNS) * 50
    machine = folder_report(folder(tmp_path / "alone", {"p.csv": lines})).machine
    assert [(gpu.index, gpu.power_draw_w.value, gpu.power_limit_w.value) for gpu in machine.gpus] == [
        (0, 140, 600),
        (1, 140, 600),
    ]
    log = COLUMNS + under_load(range(4)).removeprefix(COLUMNS) * 20
    machine = folder_report(folder(tmp_path / "both", Server().texts() | {"p.csv": log})).machine
    assert [gpu.index for gpu in machine.gpus] == [0, 1, 2, 3]


def test_indices_are_those_that_were_printed(tmp_path: Path) -> None:
    machine = folder_report(folder(tmp_path, {"t": Server().topology(), "p.csv": under_load((2, 3))})).machine
    assert [(gpu.index, gpu.numa_node, gpu.cpus) for gpu in machine.gpus] == [(2, 1, "64-127"), (3, 1, "64-127")]


def test_a_card_beyond_those_listed_is_named_without_a_count(tmp_path: Path) -> None:
    text = under_load((4, 5)).replace("5, 100 %, 140.00 W", "5, 100 %, 500.00 W")
    found = {f.knob: f.found for f in folder_report(folder(tmp_path, {"p.csv": text})).findings}
    assert found["busy, and not working"].startswith("140 of 600 W at 100 % on GPU 4: ")


def test_a_generation_is_told_without_a_width(tmp_path: Path) -> None:
    found = {f.knob: f for f in folder_report(folder(tmp_path, {"p.csv": under_load((0, 1))})).findings}
    assert found["PCIe generation of the GPUs"].found == "gen 5 on all 2 GPUs"
    assert found["PCIe width of the GPUs"].verdict is Verdict.NOT_KNOWN


def some_of(server: Server, *kept: int) -> str:
    head, *gpus = server.smi().split("GPU 00000000:")
    return head + "".join(f"GPU 00000000:{gpus[n]}" for n in kept)


def test_a_query_of_some_cards_is_placed_by_their_addresses(tmp_path: Path) -> None:
    texts = Server().texts() | {"a.log": some_of(Server(), 2, 3)}
    machine = folder_report(folder(tmp_path / "pci", texts)).machine
    assert [(gpu.index, gpu.bus, gpu.numa_node) for gpu in machine.gpus] == [
        (2, "00000000:83:00.0", 1),
        (3, "00000000:84:00.0", 1),
    ]
    # Without a listing of all cards nothing says which of the matrix they are.
    del texts["d.log"]
    machine = folder_report(folder(tmp_path / "none", texts)).machine
    assert [gpu.numa_node for gpu in machine.gpus] == [None, None]


def test_cards_whose_node_two_outputs_tell_differently(tmp_path: Path) -> None:
    pci = Server().pci().replace("NUMA node: 0", "NUMA node: 1", 1)
    report = folder_report(folder(tmp_path, Server().texts() | {"d.log": pci}))
    assert [gpu.numa_node for gpu in report.machine.gpus] == [1, 0, 1, 1]
    (finding,) = [f for f in report.findings if f.knob == "NUMA placement"]
    assert finding.contradictions[0].startswith(
        "GPU 0: the matrix says node 0 (b.log, line 2), the PCI listing node 1 (d.log, "
    )


def test_a_reading_under_load_is_taken_whole(tmp_path: Path) -> None:
    report = folder_report(folder(tmp_path / "csv", Server().texts() | {"p.csv": under_load(range(4))}))
    gpu = report.machine.gpus[0]
    assert (gpu.pstate, gpu.utilization.value, gpu.power_draw_w.value, gpu.pcie_gen_now.value) == ("P1", 100, 140, 5)
    assert gpu.power_draw_w.source == "p.csv, line 2" and not gpu.idle
    assert gpu.power_default_w.value == 600 and gpu.power_default_w.source.startswith("a.log, line ")
    found = {f.knob: (f.verdict, f.found) for f in report.findings}
    assert found["PCIe generation of the GPUs"] == (Verdict.FINE, "gen 5 on all 4 GPUs")
    assert found["busy, and not working"][1] == "140 of 600 W at 100 % on all 4 GPUs: kernels wait, they do not work"
    # The reasons why clocks are held down are those of the reading at rest.
    assert found["clocks held down"] == (Verdict.CHECK, "no reason is active, read while idle")


def test_readings_of_two_moments_are_not_mixed(tmp_path: Path) -> None:
    texts = Server().texts() | {"p.csv": "index, utilization.gpu [%]\n" + "".join(f"{n}, 100 %\n" for n in range(4))}
    report = folder_report(folder(tmp_path, texts))
    gpu = report.machine.gpus[0]
    assert gpu.power_draw_w.value is None
    assert gpu.power_draw_w.note == "p.csv does not say, and the others were read at rest"
    # The link was read at rest, and what is said of it says so.
    assert (gpu.pcie_gen_now.value, gpu.generation_at_rest, gpu.busy) == (1, True, True)
    found = {f.knob: (f.verdict, f.found) for f in report.findings}
    assert found["PCIe generation of the GPUs"] == (Verdict.CHECK, "gen 1 of 5 on all 4 GPUs, read while idle")
    assert found["busy, and not working"][0] is Verdict.NOT_KNOWN


def test_a_busy_table_beside_a_query_at_rest(tmp_path: Path) -> None:
    table = (H200 / "table.log").read_text().replace("00:06.0", "03:00.0").replace("00:07.0", "84:00.0")
    table = table.replace("00000000:00:", "00000000:").replace("|   1  NVIDIA", "|   3  NVIDIA")
    table = table.replace(
        "79W /  700W |       0MiB / 143771MiB |      0%", "140W /  600W |       0MiB / 143771MiB |    100%"
    )
    table = table.replace("00000000:03:00.0", "00000000:03:00.0")
    machine = folder_report(folder(tmp_path, Server().texts() | {"t.log": table})).machine
    assert [(gpu.utilization.value, gpu.power_draw_w.value) for gpu in machine.gpus] == [
        (0, 39.17),
        (0, 39.17),
        (0, 39.17),
        (100, 140),
    ]


def test_a_pair_without_nvlink_among_pairs_with_it(tmp_path: Path) -> None:
    joined = Server().topology().replace("SYS", "NV18")
    assert folder_report(folder(tmp_path / "a", {"t": joined})).machine.nvlink is False
    assert folder_report(folder(tmp_path / "b", {"t": joined.replace("PIX", "NV18")})).machine.nvlink is True


def test_a_listing_of_some_devices_places_no_card(tmp_path: Path) -> None:
    pci = "\n\n".join(block for block in Server().pci().split("\n\n") if not block.startswith(("03:", "04:")))
    texts = Server().texts() | {"a.log": some_of(Server(), 2, 3), "d.log": pci}
    machine = folder_report(folder(tmp_path, texts)).machine
    # By their addresses, for the listing has them; the matrix goes by index, which nothing says.
    assert [(gpu.numa_node, gpu.cpus) for gpu in machine.gpus] == [(1, ""), (1, "")]


def test_rows_that_name_no_card_are_used_where_they_are_as_many_as_cards(tmp_path: Path) -> None:
    for rows, utilization in ((3, [0, 0, 0, 0]), (4, [90, 91, 92, 93])):
        text = "utilization.gpu [%], power.draw [W]\n" + "".join(f"{90 + n} %, 140 W\n" for n in range(rows))
        machine = folder_report(folder(tmp_path / str(rows), Server().texts() | {"p.csv": text})).machine
        assert [gpu.utilization.value for gpu in machine.gpus] == utilization
