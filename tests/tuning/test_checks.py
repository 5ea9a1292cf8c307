"""One property of a machine is changed, and what is found of one knob changes with it."""

import inspect
from pathlib import Path

import pytest

from sublight.records import Evidence
from sublight.tuning.checks import CHECKS
from sublight.tuning.record import REACHES, Gain, Verdict
from sublight.tuning.report import folder_report
from tests.tuning.judged import H200, by_knob, judged
from tests.tuning.machines import SWITCHES, Server

SETTINGS = (
    "/proc/sys/kernel/numa_balancing:0\n/proc/sys/vm/swappiness:10\n/proc/sys/vm/nr_hugepages:0\n"
    "/sys/kernel/mm/transparent_hugepage/enabled:always [madvise] never\n"
    "/sys/kernel/mm/transparent_hugepage/defrag:always defer defer+madvise [madvise] never\n"
    "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm:Y\n"
)
INTEL = Server().cpu().replace("AMD EPYC 9575F 64-Core Processor", "Intel(R) Xeon(R) 6787P")


def test_a_machine_with_nothing_wrong_has_nothing_to_change(tmp_path: Path) -> None:
    found = judged(tmp_path)
    assert [f.knob for f in found.values() if f.verdict is Verdict.CHANGE] == []
    assert found["peer access (P2P)"].found == "OK for all 6 pairs"
    assert found["ACS on the way between GPUs"].found == "off on all 6 bridges above GPUs that have it"
    assert found["IOMMU"].found == "off (iommu=off amd_iommu=off)"
    assert found["PCIe width of the GPUs"].found == "x16 on all 4 GPUs"
    assert found["Resizable BAR"].found == "BAR1 128.0 GiB for 95.59 GiB on all 4 GPUs"
    assert found["power limit"].found == "600 W of 600 W by default on all 4 GPUs"
    assert found["persistence mode"].found == "on for all 4 GPUs"
    assert found["PCIe MaxReadReq"].found == "512 bytes on all GPUs"
    assert found["kernel"].found == "6.17.0-20-generic"


def test_every_finding_says_where_why_and_what_it_can_cost(tmp_path: Path) -> None:
    for finding in judged(tmp_path, x_log=SETTINGS).values():
        assert finding.why and finding.source and finding.recommended and finding.found
        assert finding.cost.reach in REACHES
        figure = finding.cost.figure
        assert (figure.value is None) == (figure.evidence is Evidence.NOT_KNOWN)
        assert figure.note if figure.value is None else figure.source and finding.cost.unit
        assert bool(finding.read_from) or finding.verdict is Verdict.NOT_KNOWN
        assert finding.command or finding.verdict is not Verdict.NOT_KNOWN


def test_a_measured_gain_has_a_number(tmp_path: Path) -> None:
    for finding in judged(tmp_path).values():
        if finding.evidence is Gain.MEASURED:
            assert finding.cost.figure.value is not None, finding.knob


def test_an_idle_link_proves_nothing(tmp_path: Path) -> None:
    finding = judged(tmp_path)["PCIe generation of the GPUs"]
    assert (finding.verdict, finding.found) == (Verdict.CHECK, "gen 1 of 5 on all 4 GPUs, read while idle")
    assert "proves nothing either way" in finding.contradictions[0] and "P8" in finding.contradictions[0]
    assert "pcie.link.gen.current" in finding.command and finding.read_from[0].startswith("a.log, line ")


def test_a_slow_link_under_load_is_a_loss(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(pstate="P0", utilization=100, generation=3))["PCIe generation of the GPUs"]
    assert (finding.verdict, finding.contradictions) == (Verdict.CHANGE, ())
    assert finding.found == "gen 3 of 5 on all 4 GPUs, read while not idle"


def test_half_the_lanes_while_idle_is_a_hint(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(width=8))["PCIe width of the GPUs"]
    assert (finding.verdict, finding.found) == (Verdict.CHECK, "x8 of x16 on all 4 GPUs")
    assert "a hint, no proof" in finding.contradictions[-1]
    assert (finding.cost.figure.value, finding.cost.figure.evidence) == (2.0, Evidence.COMPUTED)


def test_half_the_lanes_under_load_is_a_loss(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(width=8, pstate="P0", utilization=98, generation=5))["PCIe width of the GPUs"]
    assert (finding.verdict, finding.contradictions) == (Verdict.CHANGE, ())


def test_driver_and_bus_that_disagree(tmp_path: Path) -> None:
    text = Server().smi().replace("Current                : 16x", "Current                : 8x", 1)
    finding = judged(tmp_path, a_log=text)["PCIe width of the GPUs"]
    assert finding.found == "x8 of x16 on GPU 0 of 4"
    assert finding.contradictions[0].startswith("GPU 0: the driver says x8 (a.log, line ")
    assert "the PCI listing x16 (d.log, line " in finding.contradictions[0]


def test_a_narrow_port_above_the_cards(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(upstream_width=4))["PCIe links above the GPUs"]
    assert finding.verdict is Verdict.CHANGE
    assert finding.found.startswith("2 of 8 bridges below what they can: 0000:00:01.1 x4 at 32 GT/s of x16 at 32, ")
    assert finding.read_from[0].startswith("d.log, line ")


def test_acs_that_redirects(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(acs="+"))["ACS on the way between GPUs"]
    assert finding.verdict is Verdict.CHANGE
    assert finding.found.startswith("redirects on 6 of 6 bridges above GPUs: 0000:00:01.1, 0000:02:01.0, 0000:02:02.0")
    assert finding.cost.figure.value == pytest.approx(2.06) and finding.evidence is Gain.MEASURED


def test_acs_under_a_virtual_machine_is_not_ours_to_clear(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(acs="+", hypervisor="KVM"))["ACS on the way between GPUs"]
    assert finding.verdict is Verdict.CHECK and "KVM" in finding.why


def test_what_only_root_may_read(tmp_path: Path) -> None:
    found = judged(tmp_path, Server(root=False))
    for knob in ("ACS on the way between GPUs", "PCIe links above the GPUs", "PCIe MaxReadReq", "PCIe MaxPayload"):
        assert found[knob].verdict is Verdict.NOT_KNOWN, knob
        assert found[knob].found == "lspci was not run as root: capabilities are <access denied>"
        assert found[knob].command == "sudo lspci -vvv"


def test_without_lspci(tmp_path: Path) -> None:
    finding = judged(tmp_path, d_log="")["ACS on the way between GPUs"]
    assert (finding.verdict, finding.found) == (Verdict.NOT_KNOWN, "lspci -vvv: not in the folder")


@pytest.mark.parametrize(
    ("parameters", "verdict", "found"),
    [
        ("iommu=pt", Verdict.FINE, "passthrough (iommu=pt)"),
        ("iommu=pt amd_iommu=on", Verdict.FINE, "passthrough (iommu=pt)"),
        # Of two that contradict each other the last counts, but "off" is final.
        (
            "iommu.passthrough=1 iommu.passthrough=0",
            Verdict.CHANGE,
            "translating (iommu.passthrough=1 iommu.passthrough=0)",
        ),
        ("iommu.passthrough=0 iommu=pt", Verdict.FINE, "passthrough (iommu.passthrough=0 iommu=pt)"),
        ("iommu=pt iommu.passthrough=off", Verdict.CHANGE, "translating (iommu=pt iommu.passthrough=off)"),
        ("iommu.passthrough=on", Verdict.FINE, "passthrough (iommu.passthrough=on)"),
        ("iommu=off iommu=pt", Verdict.FINE, "off (iommu=off iommu=pt)"),
        ("intel_iommu=on intel_iommu=off", Verdict.FINE, "off (intel_iommu=on intel_iommu=off)"),
        ("intel_iommu=off intel_iommu=on", Verdict.CHANGE, "translating (intel_iommu=off intel_iommu=on)"),
        ("intel_iommu=on iommu=pt", Verdict.FINE, "passthrough (intel_iommu=on iommu=pt)"),
        ("intel_iommu=on,sm_on iommu.passthrough=1", Verdict.FINE, "passthrough (intel_iommu=on iommu.passthrough=1)"),
        ("intel_iommu=on", Verdict.CHANGE, "translating (intel_iommu=on)"),
        ("iommu.passthrough=0", Verdict.CHANGE, "translating (iommu.passthrough=0)"),
        ("quiet", Verdict.NOT_KNOWN, "g.log does not set it, and then the kernel's build decides"),
    ],
)
def test_iommu_on_the_command_line(tmp_path: Path, parameters: str, verdict: Verdict, found: str) -> None:
    line = f"BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 ro {parameters}"
    cpu = INTEL if "intel_iommu" in parameters else Server().cpu()
    finding = judged(tmp_path, Server(cmdline=line), e_log=cpu)["IOMMU"]
    assert (finding.verdict, finding.found) == (verdict, found)


@pytest.mark.parametrize("parameter", ["intel_iommu=off", "intel_iommu=on"])
def test_a_parameter_for_the_other_vendor_says_nothing(tmp_path: Path, parameter: str) -> None:
    line = f"BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 ro {parameter}"
    finding = judged(tmp_path, Server(cmdline=line))["IOMMU"]
    assert finding.verdict is Verdict.NOT_KNOWN


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ("iommu=pt", ("the kernel was told iommu=pt, and the groups say otherwise",)),
        ("amd_iommu=off", ("the kernel was told amd_iommu=off, and yet 2 IOMMU groups exist",)),
        ("intel_iommu=off", ()),
        ("iommu.passthrough=0", ()),
    ],
)
def test_what_the_kernel_shows_beats_what_it_was_told(tmp_path: Path, parameters: str, said: tuple[str, ...]) -> None:
    groups = "".join(f"/sys/kernel/iommu_groups/{n}/type:DMA-FQ\n" for n in (0, 1))
    line = f"BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 ro {parameters}"
    finding = judged(tmp_path, Server(cmdline=line), x_log=groups)["IOMMU"]
    assert (finding.verdict, finding.found) == (Verdict.CHANGE, "translating in 2 of 2 groups")
    assert finding.contradictions == said


@pytest.mark.parametrize(
    ("kind", "verdict", "found"),
    [
        ("identity", Verdict.FINE, "passthrough in all 2 groups"),
        ("DMA-FQ", Verdict.CHANGE, "translating in 2 of 2 groups"),
    ],
)
def test_iommu_by_its_groups(tmp_path: Path, kind: str, verdict: Verdict, found: str) -> None:
    groups = "".join(f"/sys/kernel/iommu_groups/{n}/type:{kind}\n" for n in (0, 1))
    finding = judged(tmp_path, Server(cmdline="BOOT_IMAGE=/vmlinuz-6.8 ro quiet"), x_log=groups)["IOMMU"]
    assert (finding.verdict, finding.found, finding.read_from) == (verdict, found, ("x.log",))


def test_iommu_that_was_turned_off_and_is_there(tmp_path: Path) -> None:
    listed = "/sys/class/iommu:\nivhd0\n\n/sys/kernel/iommu_groups:\n0\n1\n2\n"
    finding = judged(tmp_path, x_log=listed)["IOMMU"]
    assert finding.verdict is Verdict.CHECK
    assert finding.contradictions == ("the kernel was told iommu=off amd_iommu=off, and yet 3 IOMMU groups exist",)


def test_peer_access_that_is_refused(tmp_path: Path) -> None:
    driver = '/proc/driver/nvidia/params:RegistryDwords: "ForceP2P=0x11"\n'
    finding = judged(tmp_path, Server(peers="CNS"), x_log=driver)["peer access (P2P)"]
    assert (finding.verdict, finding.found) == (Verdict.CHANGE, "CNS for 4 of 6 pairs, OK for 2 of 6 pairs")
    assert "CNS: the chipset does not allow it" in finding.why and 'RegistryDwords: "ForceP2P=0x11"' in finding.why
    assert (finding.cost.figure.value, finding.cost.unit) == (13.6, "us a message")


def test_all_reduce_of_cards_without_nvlink(tmp_path: Path) -> None:
    finding = judged(tmp_path)["all-reduce without NVLink"]
    assert finding.verdict is Verdict.CHECK
    assert finding.found == "4 GPUs without NVLink between all of them (pairs: 4 SYS, 2 PIX)"
    assert (finding.cost.figure.value, finding.cost.unit) == (15, "us a message")
    assert "4 to 5 us a message" in finding.why and "19 to 20 us" in finding.why and "128 KB to 1 MB" in finding.why


def test_switches_below_several_roots(tmp_path: Path) -> None:
    two = judged(tmp_path)["writes to several roots"]
    assert two.verdict is Verdict.FINE
    assert two.found == "2 switches (Broadcom / LSI PEX890xx PCIe Gen 5 Switch) below 2 root ports, 2 GPUs each"
    server = Server(switches=(*SWITCHES, ("40:01.1", "41", "42", ("43", "44"))))
    three = judged(tmp_path, server)["writes to several roots"]
    assert (three.verdict, three.found.split(" (")[0]) == (Verdict.CHECK, "3 switches")
    assert "below 3 root ports" in three.found and three.cost.figure.value == pytest.approx(52.5 / 13.5)
    intel = Server().cpu().replace("AMD EPYC 9575F 64-Core Processor", "Intel(R) Xeon(R) 6787P")
    assert "writes to several roots" not in judged(tmp_path, server, e_log=intel)


def test_power_saving_of_ports(tmp_path: Path) -> None:
    start = "BOOT_IMAGE=/vmlinuz-6.17 root=/dev/sda1 ro"
    for parameters, verdict, found in (
        ("", Verdict.CHECK, "neither is set"),
        (" pcie_aspm=off", Verdict.CHECK, "pcie_aspm=off"),
        (" pcie_port_pm=off pcie_aspm=off", Verdict.FINE, "pcie_port_pm=off pcie_aspm=off"),
    ):
        finding = judged(tmp_path, Server(cmdline=start + parameters))["PCIe port power saving"]
        assert (finding.verdict, finding.found) == (verdict, found)


def test_nccl_on_an_amd_host(tmp_path: Path) -> None:
    finding = judged(tmp_path)["NCCL's view of an AMD host"]
    assert finding.verdict is Verdict.CHECK
    assert finding.found == "2 x AMD EPYC 9575F 64-Core Processor; the variables are not known"
    told = judged(tmp_path, x_log="PATH=/bin\nNCCL_PROTO=LL\n")["NCCL's view of an AMD host"]
    assert (told.verdict, told.found) == (Verdict.FINE, "2 x AMD EPYC 9575F 64-Core Processor; NCCL_PROTO=LL")
    intel = Server().cpu().replace("AMD EPYC 9575F 64-Core Processor", "Intel(R) Xeon(R) 6787P")
    assert "NCCL's view of an AMD host" not in judged(tmp_path, e_log=intel)


def test_cards_that_wait_at_full_utilisation(tmp_path: Path) -> None:
    power = "index,util,power_w,limit_w\n" + "".join(f"{n},100,{140 + n},600\n" for n in range(8))
    finding = judged(tmp_path / "alone", **dict.fromkeys(["a_log", "b_log", "c_log", "d_log"], ""), x_csv=power)
    waiting = finding["busy, and not working"]
    assert waiting.verdict is Verdict.CHECK
    assert waiting.found == "140 of 600 W at 100 % on all 8 GPUs: kernels wait, they do not work"
    assert (waiting.cost.figure.value, waiting.cost.unit) == (89, "us a collective")
    assert "25.3 ms" in waiting.why and "11.4 ms" in waiting.why and "sublight trace" in waiting.command


def test_cards_that_work(tmp_path: Path) -> None:
    server = Server(pstate="P0", utilization=100, generation=5, power_w=410)
    finding = judged(tmp_path, server)["busy, and not working"]
    assert (finding.verdict, finding.found) == (Verdict.FINE, "410 of 600 W at 100 % on all 4 GPUs")


def test_idle_cards_say_nothing_of_waiting(tmp_path: Path) -> None:
    finding = judged(tmp_path)["busy, and not working"]
    assert (finding.verdict, finding.found) == (Verdict.NOT_KNOWN, "no card was busy (at the most 0 %, 39 of 600 W)")


def test_a_power_limit_below_the_default(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(limit_w=300))["power limit"]
    assert (finding.verdict, finding.found) == (Verdict.CHECK, "300 W of 600 W by default on all 4 GPUs")
    assert (finding.cost.figure.value, finding.cost.unit) == (2, "% of a step at one stream")
    one = (
        Server()
        .smi()
        .replace("Current Power Limit            : 600.00 W", "Current Power Limit            : 450.00 W", 1)
    )
    found = judged(tmp_path, a_log=one)["power limit"].found
    assert found == "450 W of 600 W by default on GPU 0 of 4; cards differ: 450 to 600 W"


def test_clocks_that_something_holds_down(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(slowdown="Active", utilization=100, pstate="P0"))["clocks held down"]
    assert finding.verdict is Verdict.CHANGE
    assert finding.found == "HW Slowdown on all 4 GPUs; HW Power Brake Slowdown on all 4 GPUs"
    idle = judged(tmp_path)["clocks held down"]
    assert (idle.verdict, idle.found) == (Verdict.CHECK, "no reason is active, read while idle")
    busy = judged(tmp_path, Server(utilization=100, pstate="P0"))["clocks held down"]
    assert (busy.verdict, busy.found) == (Verdict.FINE, "no reason is active")


def test_a_small_bar(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(bar1="256 MiB"))["Resizable BAR"]
    assert (finding.verdict, finding.found) == (Verdict.CHANGE, "BAR1 0.2500 GiB for 95.59 GiB on all 4 GPUs")


def test_persistence_that_is_off(tmp_path: Path) -> None:
    finding = judged(tmp_path, Server(persistence="Disabled"))["persistence mode"]
    assert (finding.verdict, finding.found, finding.evidence) == (Verdict.CHECK, "off on all 4 GPUs", Gain.NONE)


def test_where_ranks_belong(tmp_path: Path) -> None:
    finding = judged(tmp_path)["NUMA placement"]
    assert finding.found == "node 0: GPU 0, 1; node 1: GPU 2, 3; distance 32 against 10"
    assert finding.contradictions == ()


def test_lists_of_cpus_that_do_not_agree(tmp_path: Path) -> None:
    cpu = Server().cpu().replace("CPU(s):              128\n", "CPU(s):              128\nOff-line CPU(s) list: 111\n")
    finding = judged(tmp_path, Server(cpus="64-110"), e_log=cpu.replace("64-127", "64-110,112-127"))["NUMA placement"]
    offline, differing = finding.contradictions
    assert offline.startswith("CPU 111 is off-line (e.log, line 3)")
    assert differing.startswith("GPU 2, 3: nvidia-smi names CPUs 64-110, and node 1 has 64-110,112-127 (e.log, line ")
    assert differing.endswith("16 CPUs of the node are left out")


def test_settings_of_the_kernel(tmp_path: Path) -> None:
    found = judged(tmp_path, x_log=SETTINGS)
    knobs = (
        "NUMA balancing",
        "swappiness",
        "reserved huge pages",
        "transparent huge pages",
        "heterogeneous memory (HMM)",
    )
    assert [(found[k].verdict, found[k].found) for k in knobs] == [
        (Verdict.FINE, "0 (off)"),
        (Verdict.FINE, "10"),
        (Verdict.FINE, "0"),
        (Verdict.FINE, "madvise, defrag madvise"),
        (Verdict.FINE, "off (uvm_disable_hmm=Y)"),
    ]
    assert found["swappiness"].read_from == ("x.log, line 2",)
    other = (
        "/proc/sys/kernel/numa_balancing:1\n/proc/sys/vm/swappiness:60\n/proc/sys/vm/nr_hugepages:512\n"
        "/sys/kernel/mm/transparent_hugepage/enabled:[always] madvise never\n"
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm:N\n"
    )
    found = judged(tmp_path, x_log=other)
    assert [(found[k].verdict, found[k].found) for k in knobs] == [
        (Verdict.CHECK, "1 (on)"),
        (Verdict.CHECK, "60"),
        (Verdict.CHECK, "512"),
        (Verdict.CHECK, "always"),
        (Verdict.CHECK, "on (uvm_disable_hmm=N)"),
    ]


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("kernel.sched_migration_cost_ns = 500000", Verdict.CHECK),
        ("/proc/sys/kernel/sched_migration_cost_ns:50000", Verdict.CHECK),
        ("/sys/kernel/debug/sched/migration_cost_ns:5000000", Verdict.FINE),
    ],
)
def test_how_readily_threads_are_moved(tmp_path: Path, line: str, verdict: Verdict) -> None:
    """In either place, as the kernel has it; nobody measured a gain, and the page says so."""
    finding = judged(tmp_path, x_log=f"\n{line}\n")["sched_migration_cost_ns"]
    assert (finding.verdict, finding.found) == (verdict, line.replace(" = ", ":").rpartition(":")[2])
    assert finding.read_from == ("x.log, line 2",)
    assert (finding.recommended, finding.evidence) == ("raised above 500,000", Gain.NONE)
    unread = judged(tmp_path)["sched_migration_cost_ns"]
    assert unread.found.endswith("since Linux 5.13 it stands in debugfs, which only root can read")
    assert unread.command.startswith("sudo grep -sH '' /sys/kernel/debug/sched/migration_cost_ns")


def test_the_governor(tmp_path: Path) -> None:
    paths = [f"/sys/devices/system/cpu/cpufreq/policy{n}/" for n in range(3)]
    names = zip(paths, ("performance", "powersave", "performance"), strict=True)
    text = "".join(f"{path}scaling_governor:{name}\n{path}scaling_driver:amd-pstate-epp\n" for path, name in names)
    finding = judged(tmp_path, x_log=text)["CPU governor"]
    assert finding.verdict is Verdict.CHECK
    assert finding.found == "performance on 2, powersave on 1 of 3 policies (amd-pstate-epp)"
    finding = judged(tmp_path, x_log=text.replace("powersave", "performance"))["CPU governor"]
    assert (finding.verdict, finding.found) == (Verdict.FINE, "performance on 3 of 3 policies (amd-pstate-epp)")


def test_idle_states(tmp_path: Path) -> None:
    def states(*entries: tuple[str, int, int]) -> str:
        start = "/sys/devices/system/cpu/cpu0/cpuidle/state"
        return "".join(
            f"{start}{n}/name:{name}\n{start}{n}/latency:{us}\n{start}{n}/disable:{off}\n"
            for n, (name, us, off) in enumerate(entries)
        )

    deep = judged(tmp_path, x_log=states(("POLL", 0, 0), ("C1", 1, 0), ("C2", 800, 0)))["C-states"]
    assert (deep.verdict, deep.found) == (
        Verdict.CHECK,
        "the deepest in use is C2, 800 us to wake (of 3 states, CPU 0)",
    )
    off = judged(tmp_path, x_log=states(("POLL", 0, 0), ("C1", 1, 0), ("C2", 800, 1)))["C-states"]
    assert (off.verdict, off.found) == (Verdict.FINE, "the deepest in use is C1, 1 us to wake (of 3 states, CPU 0)")


def test_mitigations_that_are_off_gain_nothing(tmp_path: Path) -> None:
    line = "BOOT_IMAGE=/vmlinuz-6.17 root=/dev/sda1 ro mitigations=off retbleed=off"
    cpu = Server().cpu() + "Vulnerability Spectre v2: Vulnerable; STIBP: disabled\nVulnerability Mds: Not affected\n"
    finding = judged(tmp_path, Server(cmdline=line), e_log=cpu)["CPU mitigations"]
    assert finding.verdict is Verdict.CHECK and finding.evidence is Gain.NONE
    assert finding.found == "off (mitigations=off retbleed=off); lscpu names 1 vulnerabilities open"
    on = Server(cmdline="BOOT_IMAGE=/vmlinuz-6.17 ro mitigations=auto,nosmt")
    assert judged(tmp_path, on)["CPU mitigations"].verdict is Verdict.FINE


def test_variables(tmp_path: Path) -> None:
    text = "PATH=/bin\nNCCL_P2P_LEVEL=PHB\nNCCL_MIN_NCHANNELS=4\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"
    found = judged(tmp_path, x_log=text)
    knobs = (
        "NCCL_P2P_LEVEL",
        "NCCL_MIN_NCHANNELS",
        "expandable_segments",
        "NCCL_ALLOC_P2P_NET_LL_BUFFERS",
        "NCCL_IB_DISABLE",
        "OMP_NUM_THREADS",
    )
    assert [(found[k].verdict, found[k].found) for k in knobs] == [
        (Verdict.CHECK, "NCCL_P2P_LEVEL=PHB"),  # two processors need SYS
        (Verdict.CHECK, "NCCL_MIN_NCHANNELS=4"),
        (Verdict.CHECK, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        (Verdict.CHECK, "NCCL_ALLOC_P2P_NET_LL_BUFFERS is not set"),
        (Verdict.CHECK, "NCCL_IB_DISABLE is not set"),
        (Verdict.CHECK, "OMP_NUM_THREADS is not set"),
    ]
    assert (found["NCCL_IB_DISABLE"].evidence, found["NCCL_IB_DISABLE"].cost.reach) == (
        Gain.PLAUSIBLE,
        "jitter or start-up",
    )
    assert found["NCCL_ALLOC_P2P_NET_LL_BUFFERS"].evidence is Gain.NONE
    off = judged(tmp_path, x_log="PATH=/bin\nNCCL_IB_DISABLE=0\nNCCL_ALLOC_P2P_NET_LL_BUFFERS=0\n")
    assert {off[knob].verdict for knob in knobs[3:5]} == {Verdict.CHECK}
    good = (
        "PATH=/bin\nNCCL_P2P_LEVEL=SYS\nNCCL_MIN_NCHANNELS=8\nOMP_NUM_THREADS=8\n"
        "NCCL_ALLOC_P2P_NET_LL_BUFFERS=1\nNCCL_IB_DISABLE=1\n"
    )
    assert {judged(tmp_path, x_log=good)[knob].verdict for knob in knobs} == {Verdict.FINE}


def test_a_part_that_shares_memory(tmp_path: Path) -> None:
    meminfo = "MemTotal:       127600748 kB\nMemAvailable:   121634816 kB\n"
    found = judged(
        tmp_path, **dict.fromkeys(["a_log", "b_log", "c_log", "d_log"], ""),
        x_csv="NVIDIA GB10, 12.1, [N/A], [N/A]\n", y_log=meminfo,
    )  # fmt: skip
    finding = found["memory shared with the system"]
    assert finding.verdict is Verdict.FINE
    assert finding.found == (
        "121.7 GiB shared with the operating system, 116.0 GiB of it available; of its own: not known, the driver says "
        "'[N/A]' (x.csv, line 1)"
    )
    # The ratio of the two bandwidths, and which is which.
    assert "data sheet says 273.0 GB/s, and 232.0 GB/s were reached" in finding.why and "1.18x" in finding.why
    assert finding.read_from == ("y.log, line 1",)


def test_a_part_that_shares_memory_has_no_link_to_mend(tmp_path: Path) -> None:
    server = Server(memory="N/A", bar1="N/A", generation=1, width=1)
    found = judged(tmp_path, server)
    assert found["PCIe width of the GPUs"].verdict is Verdict.FINE
    assert "share the memory of the processor" in found["PCIe width of the GPUs"].found
    assert "PCIe generation of the GPUs" not in found and "Resizable BAR" not in found
    assert "[N/A]" not in found["memory shared with the system"].found
    assert "'N/A' (a.log, line " in found["memory shared with the system"].found


def test_fields_without_a_value(tmp_path: Path) -> None:
    text = Server().smi()
    for value in ("39.17 W", "600.00 W", "16x", " : 0 %", " : P8"):
        text = text.replace(value, " : [N/A]" if value.startswith(" :") else "[N/A]")
    found = judged(tmp_path, a_log=text)
    limit, waiting, width = (found[k] for k in ("power limit", "busy, and not working", "PCIe width of the GPUs"))
    assert limit.verdict is Verdict.NOT_KNOWN and limit.found.startswith("the driver says '[N/A]' (a.log, line ")
    assert waiting.verdict is Verdict.NOT_KNOWN and "[N/A]" in waiting.found
    assert width.verdict is Verdict.NOT_KNOWN


def test_two_cards_on_nvlink() -> None:
    found = by_knob(folder_report(H200))
    assert found["all-reduce without NVLink"].found == "NVLink joins every pair (1 NV18)"
    assert found["peer access (P2P)"].found == "OK for the pair"
    assert found["PCIe generation of the GPUs"].found == "gen 5 on all 2 GPUs"
    # Knobs of peer traffic over PCIe are not those of this machine.
    assert not {"ACS on the way between GPUs", "NCCL_P2P_LEVEL", "heterogeneous memory (HMM)"} & set(found)


def test_a_single_card_has_nobody_to_talk_to(tmp_path: Path) -> None:
    head, first, *_ = Server().smi().split("GPU 00000000:")
    found = judged(tmp_path, a_log=f"{head}GPU 00000000:{first}", b_log="", c_log="")
    assert not {"peer access (P2P)", "all-reduce without NVLink", "NCCL_P2P_LEVEL", "OMP_NUM_THREADS"} & set(found)
    assert found["PCIe width of the GPUs"].found == "x16 on the GPU"


def test_findings_come_in_the_order_of_what_they_can_cost(tmp_path: Path) -> None:
    server = Server(acs="+", peers="CNS", persistence="Disabled", limit_w=300)
    found = list(judged(tmp_path, server).values())
    verdicts, reaches = list(Verdict), list(REACHES)
    keys = [(verdicts.index(f.verdict), reaches.index(f.cost.reach)) for f in found]
    assert keys == sorted(keys)
    assert {f.knob for f in found[:2]} == {"ACS on the way between GPUs", "peer access (P2P)"}


@pytest.mark.parametrize("name", CHECKS.names())
def test_a_check_reads_only_what_it_declares(name: str) -> None:
    check = CHECKS.load(name)
    source = inspect.getsource(inspect.getmodule(check.judge))  # type: ignore[arg-type]
    from sublight.tuning.sources import SOURCES

    for other in set(SOURCES) - set(check.needs):
        assert f'parsed("{other}")' not in source and f'readings["{other}"]' not in source, other


@pytest.mark.parametrize(
    ("variables", "verdict"),
    [
        ("NCCL_P2P_LEVEL=5", Verdict.FINE),
        ("NCCL_P2P_LEVEL=sys", Verdict.CHECK),  # NCCL compares names as they are, and knows none in small letters
        ("NCCL_P2P_LEVEL=3", Verdict.CHECK),
        ("NCCL_P2P_DISABLE=0\nNCCL_P2P_LEVEL=SYS", Verdict.FINE),
    ],
)
def test_levels_of_peer_access(tmp_path: Path, variables: str, verdict: Verdict) -> None:
    assert judged(tmp_path, x_log=f"PATH=/bin\n{variables}\n")["NCCL_P2P_LEVEL"].verdict is verdict


def test_peer_access_that_nccl_was_told_not_to_use(tmp_path: Path) -> None:
    told = "PATH=/bin\nNCCL_P2P_DISABLE=1\nNCCL_P2P_LEVEL=SYS\n"
    finding = judged(tmp_path, x_log=told)["NCCL_P2P_LEVEL"]
    assert (finding.verdict, finding.found) == (
        Verdict.CHANGE,
        "NCCL_P2P_DISABLE=1: NCCL uses no peer access at all",
    )
    assert judged(tmp_path, x_log="PATH=/bin\nNCCL_P2P_LEVEL=LOC\n")["NCCL_P2P_LEVEL"].verdict is Verdict.CHANGE
    assert judged(tmp_path, Server(peers="CNS"), x_log=told)["NCCL_P2P_LEVEL"].verdict is Verdict.CHECK
    joined = Server().topology().replace("PIX", "NV18").replace("SYS", "NV18")
    assert judged(tmp_path, b_log=joined, x_log=told)["NCCL_P2P_LEVEL"].verdict is Verdict.CHANGE


@pytest.mark.parametrize(
    ("variable", "verdict"),
    [
        ("NCCL_PROTO=Simple", Verdict.CHECK),
        ("NCCL_PROTO=LL,LL128,Simple", Verdict.CHECK),
        ("NCCL_PROTO=LL,LL128", Verdict.FINE),
        ("NCCL_PROTO=^Simple", Verdict.FINE),
        ("NCCL_PROTO=^LL", Verdict.CHECK),
        ("NCCL_MIN_NCHANNELS=2", Verdict.CHECK),
        ("NCCL_MIN_NCHANNELS=8", Verdict.FINE),
        ("NCCL_GRAPH_FILE=/etc/graph.xml", Verdict.FINE),
    ],
)
def test_what_helps_nccl_on_an_amd_host(tmp_path: Path, variable: str, verdict: Verdict) -> None:
    assert judged(tmp_path, x_log=f"PATH=/bin\n{variable}\n")["NCCL's view of an AMD host"].verdict is verdict


@pytest.mark.parametrize(
    ("value", "verdict"), [("8", Verdict.FINE), ("1", Verdict.FINE), ("256", Verdict.CHECK), ("", Verdict.CHECK)]
)
def test_threads_a_rank(tmp_path: Path, value: str, verdict: Verdict) -> None:
    assert judged(tmp_path, x_log=f"PATH=/bin\nOMP_NUM_THREADS={value}\n")["OMP_NUM_THREADS"].verdict is verdict


def test_the_allocator_is_shown_under_the_name_that_was_set(tmp_path: Path) -> None:
    found = judged(tmp_path, x_log="PATH=/bin\nPYTORCH_ALLOC_CONF=expandable_segments:True\n")["expandable_segments"]
    assert (found.verdict, found.found) == (Verdict.CHECK, "PYTORCH_ALLOC_CONF=expandable_segments:True")


def test_a_card_in_a_slower_slot(tmp_path: Path) -> None:
    now = "                Max                    : 5\n                Current                : 4\n"
    slot = now.replace(": 5", ": 4") + "                Device Max             : 5\n"
    text = Server(pstate="P0", utilization=100, generation=4).smi().replace(now, slot)
    finding = judged(tmp_path, a_log=text)["PCIe generation of the GPUs"]
    assert finding.verdict is Verdict.CHECK
    assert finding.found == "gen 4 on all 4 GPUs; the card can do gen 5, its slot gen 4: all 4 GPUs"


def test_a_limit_that_holds_clocks_is_named(tmp_path: Path) -> None:
    text = (
        Server(utilization=100, pstate="P0")
        .smi()
        .replace("SW Power Cap                   : Not", "SW Power Cap                   :", 3)
    )
    finding = judged(tmp_path, a_log=text)["clocks held down"]
    assert (finding.verdict, finding.found) == (Verdict.CHECK, "SW Power Cap on GPUs 0, 1, 2 of 4")
    heat = text.replace("HW Slowdown                    : Not", "HW Slowdown                    :", 1)
    finding = judged(tmp_path, a_log=heat)["clocks held down"]
    assert (finding.verdict, finding.found) == (
        Verdict.CHANGE,
        "SW Power Cap on GPUs 0, 1, 2 of 4; HW Slowdown on GPU 0 of 4",
    )


def test_persistence_that_is_told_for_some(tmp_path: Path) -> None:
    text = (
        Server()
        .smi()
        .replace("Persistence Mode                   : Enabled", "Persistence Mode                   : N/A", 2)
    )
    finding = judged(tmp_path, a_log=text)["persistence mode"]
    assert (finding.verdict, finding.found) == (Verdict.CHECK, "on for GPUs 2, 3 of 4; not told for GPUs 0, 1 of 4")
    text = text.replace(
        "Persistence Mode                   : Enabled", "Persistence Mode                   : Disabled", 1
    )
    assert judged(tmp_path, a_log=text)["persistence mode"].found == "off on GPU 2 of 4; not told for GPUs 0, 1 of 4"


@pytest.mark.parametrize(("power", "verdict"), [(160, Verdict.CHECK), (199, Verdict.CHECK), (201, Verdict.FINE)])
def test_a_third_of_the_limit_is_where_waiting_begins(tmp_path: Path, power: int, verdict: Verdict) -> None:
    server = Server(pstate="P0", utilization=100, generation=5, power_w=power)
    assert judged(tmp_path, server)["busy, and not working"].verdict is verdict


def test_limits_that_differ_without_a_default(tmp_path: Path) -> None:
    text = Server().smi().replace("Default Power Limit            : 600.00 W", "Default Power Limit            : N/A")
    text = text.replace("Current Power Limit            : 600.00 W", "Current Power Limit            : 450.00 W", 1)
    finding = judged(tmp_path, a_log=text)["power limit"]
    assert (finding.verdict, finding.found) == (Verdict.CHECK, "450 W on all 4 GPUs; cards differ: 450 to 600 W")


def test_half_the_lanes_of_one_idle_and_one_busy_card_is_a_loss(tmp_path: Path) -> None:
    text = (
        Server(width=8)
        .smi()
        .replace("GPU                            : 0 %", "GPU                            : 97 %", 1)
    )
    finding = judged(tmp_path, a_log=text)["PCIe width of the GPUs"]
    assert (finding.verdict, finding.found) == (Verdict.CHANGE, "x8 of x16 on all 4 GPUs")


def test_the_port_above_an_idle_card_slows_down_with_it(tmp_path: Path) -> None:
    def slowed(address: str) -> str:
        head, at, rest = Server().pci().partition(f"{address} PCI bridge")
        return head + at + rest.replace("LnkSta:\tSpeed 32GT/s", "LnkSta:\tSpeed 2.5GT/s", 1)

    nearest = judged(tmp_path, d_log=slowed("02:01.0"))["PCIe links above the GPUs"]
    assert (nearest.verdict, nearest.found) == (
        Verdict.FINE,
        "full width on all 8 bridges, full speed on all but the 1 ports that slow down with their cards",
    )
    higher = judged(tmp_path, d_log=slowed("01:00.0"))["PCIe links above the GPUs"]
    assert higher.verdict is Verdict.CHECK
    assert higher.found == "1 of 8 bridges below what they can: 0000:01:00.0 x16 at 2.5 GT/s of x16 at 32"


def test_two_bridges_above_a_card_are_no_switch(tmp_path: Path) -> None:
    blocks = [block for block in Server().pci().split("\n\n") if not block.startswith(("02:0", "82:0"))]
    assert len(blocks) == 8
    assert "writes to several roots" not in judged(tmp_path, d_log="\n\n".join(blocks))


def test_pages_that_are_always_put_together(tmp_path: Path) -> None:
    text = SETTINGS.replace("always defer defer+madvise [madvise] never", "[always] defer defer+madvise madvise never")
    finding = judged(tmp_path, x_log=text)["transparent huge pages"]
    assert (finding.verdict, finding.found) == (Verdict.CHECK, "madvise, defrag always")


def test_a_domain_of_its_own_is_not_domain_zero(tmp_path: Path) -> None:
    # Drives behind a volume management device have a domain of five digits; its last four are those of the cards.
    vmd = (
        "\n10000:00:01.1 PCI bridge: Intel Corporation Device 352b (rev 04)\n\tBus: primary=00, secondary=01, "
        "subordinate=04, sec-latency=0\n\tLnkCap:\tPort #5, Speed 32GT/s, Width x16\n"
        "\tLnkSta:\tSpeed 16GT/s, Width x4\n\tACSCtl:\tSrcValid+ ReqRedir+ CmpltRedir+\n"
    )
    found = judged(tmp_path, d_log=Server().pci() + vmd)
    assert found["ACS on the way between GPUs"].found == "off on all 6 bridges above GPUs that have it"
    assert found["PCIe links above the GPUs"].found == "full width on all 8 bridges, full speed on all of them"
