"""Each kind of output is read by a pure function; files of real machines and texts one can check by eye."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublight.tuning.parsers import environment, lspci, matrix, nvidia_csv, nvidia_q, nvidia_table, system
from sublight.tuning.parsers.values import has_value, number, plain
from sublight.tuning.sources import SOURCES
from tests.tuning.judged import H200
from tests.tuning.machines import PRO_6000, Server


def real(name: str) -> str:
    return (H200 / name).read_text()


@pytest.mark.parametrize(
    "text",
    [
        *("N/A", "[N/A]", "Not Supported", "[Not Supported]", "[Unknown Error]", "", "None"),
        *("[Insufficient Permissions]", "Requested functionality has been deprecated"),
    ],
)
def test_what_is_no_value(text: str) -> None:
    assert not has_value(text) and number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("600.00 W", 600.0), ("16x", 16.0), ("97887 MiB", 97887.0), ("0 %", 0.0), ("-5 C", None), ("P8", None)],
)
def test_a_field_starts_with_its_number(text: str, value: float | None) -> None:
    assert number(text) == value


def test_nvidia_q_of_a_real_machine() -> None:
    log = nvidia_q.parse(real("smi.log"))
    assert (log.head.text("Driver Version"), log.head.text("CUDA Version")) == ("580.159.04", "13.0")
    assert [gpu.bus for gpu in log.gpus] == ["00000000:00:06.0", "00000000:00:07.0"]
    first = log.gpus[0]
    assert first.text("Product Name") == "NVIDIA H200"
    assert first.number("PCI/GPU Link Info/PCIe Generation/Current") == 5
    assert first.number("PCI/GPU Link Info/Link Width/Max") == 16
    assert first.number("GPU Power Readings/Current Power Limit") == 700
    # Fields of the same name in other sections are not mixed up.
    assert first.number("FB Memory Usage/Total") == 143771 and first.number("BAR1 Memory Usage/Total") == 262144
    assert first.text("Clocks Event Reasons/Idle") == "Active"
    field = first.get("FB Memory Usage/Total")
    assert field is not None and real("smi.log").splitlines()[field.line - 1].strip().endswith("143771 MiB")


def test_nvidia_q_says_which_fields_hold_nothing() -> None:
    gpu = nvidia_q.parse(real("smi.log")).gpus[0]
    assert gpu.number("Fan Speed") is None and gpu.text("Fan Speed") == ""
    assert gpu.get("Fan Speed", "Performance State") == gpu.get("Performance State")
    assert gpu.get("No Such Field") is None


def test_older_names_of_fields() -> None:
    text = Server().smi().replace("GPU Power Readings", "Power Readings").replace("Current Power Limit", "Power Limit")
    assert nvidia_q.parse(text).gpus[3].number("Power Readings/Power Limit") == 600


def test_csv_of_a_real_machine() -> None:
    rows = nvidia_csv.parse(real("cards.csv"))
    assert [(row.text("name"), row.text("compute_cap")) for row in rows] == [("NVIDIA H200", "9.0")] * 2
    assert (rows[1].number("memory.total"), rows[1].number("power.limit"), rows[1].number("gen.current")) == (
        143771,
        700,
        5,
    )


def test_csv_of_a_logger() -> None:
    rows = nvidia_csv.parse("index,util,power_w,limit_w\n0,100,140,600\n1,99,141.5,600\n")
    assert [(row.line, row.number("power.draw"), row.number("utilization")) for row in rows] == [
        (2, 140, 100),
        (3, 141.5, 99),
    ]


def test_csv_without_a_header() -> None:
    (row,) = nvidia_csv.parse("NVIDIA GB10, 12.1, [N/A], [N/A]\n")
    assert (row.text("name"), row.text("compute_cap"), row.number("memory.total")) == ("NVIDIA GB10", "12.1", None)


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "name\nx\n", "one line of prose, with commas, in it", "NVIDIA GB10\n"]
)
def test_what_is_no_table_of_cards(text: str) -> None:
    assert nvidia_csv.parse(text) == ()


def test_the_boxed_table() -> None:
    table = nvidia_table.parse(real("table.log"))
    assert (table.driver, table.cuda, len(table.cards)) == ("580.159.04", "13.0", 2)
    card = table.cards[1]
    assert (card.index, card.name, card.bus, card.persistence) == (1, "NVIDIA H200", "00000000:00:07.0", True)
    assert (card.pstate, card.power_w, card.limit_w, card.memory_mib, card.utilization) == ("P0", 79, 700, 143771, 0)


def test_the_boxed_table_without_values() -> None:
    row = "| N/A   41C    P8              4W /  N/A  | Not Supported          |      0%      Default |"
    text = real("table.log").replace(
        "| N/A   36C    P0             80W /  700W |       0MiB / 143771MiB |      0%      Default |", row
    )
    first = nvidia_table.parse(text).cards[0]
    assert first.limit_w is None and first.memory_mib is None


def test_the_matrix_of_a_real_machine() -> None:
    found = matrix.parse_topology(real("topology.log"))
    assert found.devices == ("GPU0", "GPU1") and found.pairs() == (("GPU0", "GPU1", "NV18"),)
    assert (found.rows[1].cpus, found.rows[1].numa, found.rows[1].line) == ("0-31", 0, 3)
    assert matrix.parse_p2p(real("peers.log")).pairs() == (("GPU0", "GPU1", "OK"),)


def test_a_matrix_with_network_cards_and_spaces_for_tabs() -> None:
    text = (
        "        GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity\n"
        "GPU0     X      NODE    PHB     0-15,32-47      0\nGPU1    NODE     X      SYS     0-15,32-47      0\n"
        "NIC0    PHB     SYS      X\n\nLegend:\n  X = Self\nNIC Legend:\n  NIC0: mlx5_0\n"
    )
    found = matrix.parse_topology(text)
    assert found.devices == ("GPU0", "GPU1", "NIC0") and found.pairs() == (("GPU0", "GPU1", "NODE"),)
    assert [(row.name, row.cpus, row.numa) for row in found.gpus] == [
        ("GPU0", "0-15,32-47", 0),
        ("GPU1", "0-15,32-47", 0),
    ]
    assert matrix.looks_like_topology(text) and not matrix.looks_like_p2p(text)


def test_a_matrix_of_one_card() -> None:
    assert matrix.parse_topology("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\tN/A\n").pairs() == ()


def test_pci_devices_and_the_bridges_above_them() -> None:
    pci = lspci.parse(Server(acs="+").pci())
    assert [gpu.address for gpu in pci.gpus] == [f"0000:{bus}:00.0" for bus in ("03", "04", "83", "84")]
    card = pci.gpus[1]
    assert [bridge.address for bridge in pci.above(card)] == ["0000:02:02.0", "0000:01:00.0", "0000:00:01.1"]
    assert (card.payload_bytes, card.read_request_bytes, card.numa, card.largest_bar_bytes) == (
        256,
        512,
        0,
        128 * 2**30,
    )
    assert card.link_now is not None and (card.link_now.speed_gts, card.link_now.width) == (2.5, 16)
    assert [bridge.redirects for bridge in pci.above(card)] == [True, False, True]
    assert len(pci.above_gpus) == 8


def test_pci_lines_are_those_of_the_file() -> None:
    text = Server().pci()
    card = lspci.parse(text).gpus[0]
    lines = text.splitlines()
    assert lines[card.line - 1].startswith("03:00.0 ") and card.link_now is not None
    assert "LnkSta:" in lines[card.link_now.line - 1] and "MaxReadReq" in lines[card.sizes_line - 1]


def test_pci_addresses_with_a_domain_and_numeric_names() -> None:
    text = "0001:c1:00.0 3D controller [0302]: Device [10de:2bb5] (rev a1)\n\tSubsystem: Device [10de:204e]\n"
    (card,) = lspci.parse(text).gpus
    assert card.address == "0001:c1:00.0" and lspci.parse(text).above(card) == ()


def test_pci_capabilities_that_only_root_may_read() -> None:
    pci = lspci.parse(Server(root=False).pci())
    assert all(device.denied and device.link_now is None and device.acs is None for device in pci.devices)
    assert len(pci.above_gpus) == 8


def test_processors() -> None:
    cpu = system.parse_cpu(real("cpu.log"))
    assert (cpu.text("Hypervisor vendor"), cpu.sockets, cpu.nodes) == ("KVM", 1, {0: "0-31"})
    other = system.parse_cpu(Server().cpu())
    assert other.nodes == {0: "0-63", 1: "64-127"} and other.text("Hypervisor vendor") == ""


def test_numa_nodes() -> None:
    one, two = system.parse_numa(real("numa.log")), system.parse_numa(Server().numa())
    assert (one.nodes, one.distances) == ((0,), {})
    assert (two.nodes, two.distances, sum(two.sizes_bytes.values())) == ((0, 1), {"0-1": 32}, 1547706 * 2**20)


def test_of_two_directions_the_larger_distance_counts() -> None:
    text = Server().numa().replace("  1:  32  10", "  1:  12  10")
    assert system.parse_numa(text).distances == {"0-1": 32}
    assert system.parse_numa(Server().numa().replace("  0:  10  32", "  0:  10  12")).distances == {"0-1": 32}


def test_a_log_is_a_row_a_card() -> None:
    head = "timestamp, index, utilization.gpu [%], power.draw [W]\n"
    lines = [
        f"2026/09/01 10:00:0{t}.{i}, {i}, {0 if t < 2 else 100} %, {500 + 10 * t + i} W"
        for t in range(6)
        for i in (0, 1)
    ]
    rows = nvidia_csv.parse(head + "\n".join(lines))
    # Of the samples at 90 % and more (520 to 550 W) the one of median power.
    assert [(row.text("index"), row.number("power.draw"), row.line) for row in rows] == [("0", 530, 8), ("1", 531, 9)]
    again = "index, power.draw [W], utilization.gpu [%], timestamp\n0, 900 W, 100 %, 2026/09/01 10:00:09\n"
    both = nvidia_csv.parse(head + "\n".join(lines[:2]) + "\n" + again)
    assert [(row.number("power.draw"), row.number("utilization")) for row in both] == [(900, 100), (501, 0)]


def test_a_log_by_bus_address_and_one_that_names_no_card() -> None:
    log = "timestamp, pci.bus_id, power.draw [W]\n"
    log += "".join(f"10:00:0{t}.{n}, 00000000:0{n}:00.0, {100 * n} W\n" for t in range(3) for n in (1, 6))
    assert [(row.text("bus"), row.number("power.draw")) for row in nvidia_csv.parse(log)] == [
        ("00000000:01:00.0", 100),
        ("00000000:06:00.0", 600),
    ]
    assert nvidia_csv.parse("timestamp, utilization.gpu [%], power.draw [W]\n10:00:00, 5 %, 70 W\n") == ()


def test_a_cell_beyond_all_measure_is_no_row() -> None:
    text = "index, power.draw [W]\n0, 70 W\n1, " + "9" * 200_000 + "\n"
    assert [row.text("index") for row in nvidia_csv.parse(text)] == ["0"]


def test_a_query_that_was_repeated_is_each_card_at_its_busiest() -> None:
    busy = Server(utilization=97, power_w=410).smi()
    log = nvidia_q.parse(Server().smi() + busy + Server().smi())
    assert [gpu.number("Utilization/GPU") for gpu in log.gpus] == [97] * 4
    assert [gpu.number("GPU Power Readings/Instantaneous Power Draw") for gpu in log.gpus] == [410] * 4


def test_values_in_quotes_and_dashes_on_the_command_line() -> None:
    assert system.arguments('note="a iommu=off b" intel-iommu=on x') == [
        ("note", "a iommu=off b"),
        ("intel_iommu", "on"),
        ("x", ""),
    ]


@pytest.mark.parametrize(
    ("printed", "address"),
    [
        ("00000000:06:00.0", "0000:06:00.0"),
        ("06:00.0", "0000:06:00.0"),
        ("00010000:81:00.0", "10000:81:00.0"),
        ("10000:81:00.0", "10000:81:00.0"),
        ("00000000:F4:00.0", "0000:f4:00.0"),
    ],
)
def test_an_address_in_its_spellings(printed: str, address: str) -> None:
    assert lspci.address(printed) == address


def test_memory() -> None:
    values = system.parse_memory(real("memory.log"))
    assert system.kib(values, "MemTotal") == 263998500 * 1024 and system.kib(values, "SwapTotal") == 0
    assert system.kib(values, "Hugetlb") is None


def test_kernel_parameters() -> None:
    found = system.parse_cmdline(
        "BOOT_IMAGE=/vmlinuz-6.8 ro amd_iommu=off iommu=pt iommu=soft quiet -- --token=secret\n"
    )
    assert found == {
        "BOOT_IMAGE": ["/vmlinuz-6.8"],
        "ro": [""],
        "amd_iommu": ["off"],
        "iommu": ["pt", "soft"],
        "quiet": [""],
    }


def test_files_of_the_kernel() -> None:
    text = "/sys/a/enabled:always [madvise] never\n/proc/b:one\n/proc/b:two: three\nkernel.numa_balancing = 1\n-\n"
    found = system.parse_files(text)
    assert {path: (value.text, value.line) for path, value in found.items()} == {
        "/sys/a/enabled": ("always [madvise] never", 1),
        "/proc/b": ("one\ntwo: three", 2),
        "/proc/sys/kernel/numa_balancing": ("1", 4),
    }


def test_iommus() -> None:
    assert system.parse_iommu(real("iommu.log")) == {"/sys/class/iommu": (), "/sys/kernel/iommu_groups": ()}
    assert system.parse_iommu("/sys/class/iommu:\nivhd0\n\n/sys/kernel/iommu_groups:\n0\n1\n")[
        "/sys/kernel/iommu_groups"
    ] == ("0", "1")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("Linux 6.17.0-20-generic\n", "6.17.0-20-generic"),
        ("Linux box 6.8.0-31-generic #31-Ubuntu SMP x86_64 GNU/Linux\n", "6.8.0-31-generic"),
        ("Linux is a kernel\n", ""),
    ],
)
def test_kernel_release(text: str, release: str) -> None:
    assert system.parse_kernel(text) == release


def test_ranges_of_cpus() -> None:
    assert system.ranges("0-2,5, 7-7") == {0, 1, 2, 5, 7} and system.ranges("N/A") == set()


def test_of_an_environment_a_short_list_is_read() -> None:
    text = "PATH=/bin\nAWS_SECRET_ACCESS_KEY=hidden\nexport NCCL_P2P_LEVEL='SYS'\nOMP_NUM_THREADS=8\n"
    assert environment.parse(text) == {"NCCL_P2P_LEVEL": "SYS", "OMP_NUM_THREADS": "8"}
    kept = environment.only_allowed(text)
    assert "hidden" not in kept and "/bin" not in kept and environment.parse(kept) == environment.parse(text)
    assert environment.looks_like(kept) and environment.looks_like(environment.only_allowed(""))


@pytest.mark.parametrize("name", sorted(SOURCES))
@given(text=st.text(max_size=300))
def test_any_text_is_read_or_left_alone(name: str, text: str) -> None:
    source = SOURCES[name]
    recognised = source.looks_like(text)
    source.parse(text)
    assert recognised in (True, False)


@given(st.integers(0, 2000), st.integers(1, 40))
def test_output_with_a_hole_is_still_read(start: int, length: int) -> None:
    lines = (Server().smi() + Server().pci() + Server().topology()).splitlines()
    cut = "\n".join(lines[: start % len(lines)] + lines[start % len(lines) + length :])
    assert len(nvidia_q.parse(cut).gpus) <= 4
    assert len(lspci.parse(cut).gpus) <= 4
    assert len(matrix.parse_topology(cut).rows) <= 4


def test_colours_are_no_text() -> None:
    assert plain("\x1b[4mGPU0\x1b[0m\r\n") == "GPU0\n"
    assert PRO_6000 in Server().smi()
