"""What names a machine, a card or a person does not get into a record: only lines that are read are kept."""

import base64
import json
import zlib
from pathlib import Path

import msgspec
import pytest

from sublight.hosts.base import Completed
from sublight.records import encode
from sublight.tuning.clean import clean, message
from sublight.tuning.parsers.nvidia_q import QueryLog
from sublight.tuning.report import folder_report, host_report
from sublight.tuning.sources import SOURCES
from tests.tuning.judged import H200
from tests.tuning.machines import Server, folder

PROCESSES = """    Processes
        GPU instance ID                   : N/A
        Process ID                        : SECRET4242
            Type                          : C
            Name                          : /home/SECRET/venv/bin/python serve --api-key sk-SECRET
# hostname SECRETbox.corp
api_token=SECRETlower
  HF_TOKEN=hf_SECRET
https://user:SECRET@host/
root@SECRETbox:~# nvidia-smi -q --key SECRET
10.1.2.3 fe80::1ff:fe23:4567:SECRET
"""
VITAL_DATA = (
    "\tCapabilities: [150 v1] Device Serial Number SE-CR-ET-SECRET\n\tCapabilities: [160] Vital Product Data\n"
    "\t\tProduct Name: SECRET\n\t\tRead-only fields:\n\t\t\t[SN] Serial number: MTSECRET\n"
    "\t\t\t[V3] Vendor specific: SECRET\n\t\tRead/write fields:\n\t\t\t[YA] Asset tag: SECRET\n"
)
COMMAND_LINE = (
    "BOOT_IMAGE=(hd0,gpt2)/SECRET/vmlinuz-6.8.0-41-generic root=UUID=SECRET ro resume=UUID=SECRET boot=UUID=SECRET "
    "ds=nocloud;h=SECRET;s=http://SECRET/ systemd.hostname=SECRET netconsole=4444@SECRET/eth0,9353@SECRET/SECRET "
    "BOOTIF=SECRET ifname=eth0:SECRET rescue_pass=SECRET pass=SECRET credential=SECRET "
    'systemd.set_credential=a:SECRET note="SECRET iommu=off SECRET" SECRET intel-iommu=on,sm_on iommu=pt '
    "mitigations=auto,nosmt -- --secret=SECRET\n"
)
OLD_TABLE = """| NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2     |
|   0  Tesla V100-SXM2...  On   | 00000000:06:00.0 Off |                    0 |
| N/A   40C    P0    60W / 300W |   1000MiB / 32510MiB |     99%      Default |
| Processes:                                                       GPU Memory |
|    0      1234      C   /home/SECRET/bin/python                      1000MiB |
|    0   N/A  N/A      1234      C   /home/my SECRET/x SECRET              1000MiB |
"""
TEXTS = {
    "nvidia-smi -q": Server().smi() + PROCESSES,
    "nvidia-smi --query-gpu": (
        "index, name, uuid, serial, utilization.gpu [%], power.draw [W]\n"
        "0, NVIDIA H200, GPU-SECRET, 165SECRET, 100 %, 70.0 W\n"
    ),
    "nvidia-smi": OLD_TABLE,
    "nvidia-smi topo -m": Server().topology() + "\nNIC Legend:\n\n  NIC0: SECRET\nSECRET$ exit\n",
    "nvidia-smi topo -p2p r": Server().peer_access() + "user@SECRET:~$\n",
    "lspci -vvv": Server(acs="+").pci() + VITAL_DATA,
    "lscpu": Server().cpu() + "hostname: SECRET\nSECRET_TOKEN=SECRET\n",
    "numactl -H": Server().numa() + "SECRET@box:~$ ls\n",
    "/proc/cmdline": COMMAND_LINE,
    "uname -sr": "Linux SECRET 6.8.0-41-generic #41-Ubuntu SMP x86_64 GNU/Linux\n",
    "/proc/meminfo": "MemTotal:       263998500 kB\nMemAvailable:   1024 kB\nSECRET: 12\n",
    "kernel settings": "kernel.hostname = SECRET\nkernel.numa_balancing = 1\n/proc/sys/kernel/domainname:SECRET\n",
    "scheduler": "kernel.hostname = SECRET\nkernel.sched_migration_cost_ns = 500000\n/proc/sys/kernel/version:SECRET\n",
    "cpufreq": (
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor:performance\n"
        "/sys/devices/system/cpu/cpufreq/policy0/note:SECRET\n"
    ),
    "cpuidle": "/sys/devices/system/cpu/cpu0/cpuidle/state0/name:POLL\n/sys/class/dmi/id/product_serial:SECRET\n",
    "IOMMU groups": "/sys/kernel/iommu_groups/0/type:identity\n/sys/kernel/iommu_groups/0/devices:SECRET\n",
    "ls of IOMMUs": "/sys/class/iommu:\nivhd0\n\n/sys/kernel/iommu_groups:\n0\n1\nSECRET\n",
    "NVIDIA driver": (
        '/proc/driver/nvidia/params:RegistryDwords: "ForceP2P=0x11"\n'
        '/proc/driver/nvidia/params:TemporaryFilePath: "/home/SECRET"\n'
        "/proc/driver/nvidia/version:NVRM version: NVIDIA UNIX Open Kernel Module  Release Build  (root@SECRET)\n"
    ),
    "env": (
        "HOME=/home/SECRET\nNCCL_PROTO=LL\nNCCL_GRAPH_FILE=/home/SECRET/graph.xml\nCUDA_VISIBLE_DEVICES=GPU-SECRET\n"
    ),
}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_what_is_not_read_is_not_kept(name: str) -> None:
    source, text = SOURCES[name], TEXTS[name]
    assert source.looks_like(text)
    kept = source.keep(text)
    assert "SECRET" not in kept and kept.strip() and source.keep(kept) == kept
    assert source.looks_like(kept) or name == "/proc/cmdline"


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {"env", "/proc/cmdline", "nvidia-smi -q"}))
def test_what_is_read_is_kept_in_its_line(name: str) -> None:
    source = SOURCES[name]
    partly = {"lscpu", "/proc/meminfo", "NVIDIA driver"}  # more is printed than is read
    for text in (TEXTS[name], *(path.read_text() for path in (*sorted(H200.glob("*.log")), H200 / "cards.csv"))):
        if source.looks_like(text):
            kept = source.parse(source.keep(text))
            assert kept if name in partly or "SECRET" in text else kept == source.parse(text)


def test_every_field_that_is_read_of_a_real_card_is_kept() -> None:
    text = (H200 / "smi.log").read_text()
    before: QueryLog = SOURCES["nvidia-smi -q"].parse(text)
    after: QueryLog = SOURCES["nvidia-smi -q"].parse(SOURCES["nvidia-smi -q"].keep(text))
    for old, new in zip(before.gpus, after.gpus, strict=True):
        assert new.fields == {path: field for path, field in old.fields.items() if path in new.fields}
        assert len([path for path in new.fields if path.startswith("Clocks Event Reasons/")]) == 9
    assert set(after.head.fields) == {"Driver Version", "CUDA Version", "Attached GPUs"}


def test_columns_and_parameters_that_are_kept() -> None:
    assert SOURCES["nvidia-smi --query-gpu"].keep(TEXTS["nvidia-smi --query-gpu"]) == (
        "index,name,utilization,power.draw,\n0,NVIDIA H200,100 %,70.0 W,\n"
    )
    assert SOURCES["/proc/cmdline"].keep(COMMAND_LINE) == (
        "BOOT_IMAGE=vmlinuz-6.8.0-41-generic intel_iommu=on,sm_on iommu=pt mitigations=auto,nosmt\n"
    )
    assert SOURCES["uname -sr"].keep(TEXTS["uname -sr"]) == "Linux 6.8.0-41-generic\n"
    assert SOURCES["env"].keep(TEXTS["env"]) == (
        "PATH=(not kept)\nNCCL_PROTO=LL\nNCCL_GRAPH_FILE=(not kept)\nCUDA_VISIBLE_DEVICES=(not kept)\n"
    )


def test_a_saved_folder_holds_no_secret(tmp_path: Path) -> None:
    report = folder_report(folder(tmp_path, {f"{n}.txt": text for n, text in enumerate(TEXTS.values())}))
    record = json.loads(encode(report))
    assert len(record["record"]["recording"]["answers"]) == len(SOURCES)
    for answer in record["record"]["recording"]["answers"]:
        for stream in ("stdout", "stderr"):
            packed = answer.pop(stream, "")
            assert b"SECRET" not in (zlib.decompress(base64.b64decode(packed)) if packed else b"")
    assert "SECRET" not in json.dumps(record)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("pcilib: Cannot open /proc/bus/pci", "pcilib: Cannot open /proc/bus/pci"),
        ("grep: /home/someone/x: No such file", "grep: (removed) No such file"),
        ("HF_TOKEN=hf_abc was refused\nby fe80::1ff:fe23:4567:890a%eth0", "by (removed)"),
        ("  api_key=hf_abc for 192.0.2.17", "api_key=(removed) for (removed)"),
        ("see https://user:word@box/x, root@box", "see (removed) (removed)"),
        ("ether 52:54:00:12:34:56 on 00000000:06:00.0", "ether (removed) on 00000000:06:00.0"),
        ("GPU-7a0b1c2d-1234-5678-9abc-def012345678 is lost", "GPU-(removed) is lost"),
        ("Serial Number: 1320022032114", "Serial Number (removed)"),
        ("\x00\x01\x02", ""),
        ("", ""),
    ],
)
def test_messages_of_programs(text: str, left: str) -> None:
    assert message(text) == left


def test_of_a_program_that_failed_its_message_is_kept() -> None:
    failed = clean(Completed(("nvidia-smi", "-q"), 9, b"a\nNVIDIA-SMI has failed on 192.0.2.1\n", b"at 192.0.2.1"))
    assert failed.text == "NVIDIA-SMI has failed on (removed)" and failed.stderr == b"at (removed)"
    other = clean(Completed(("some", "tool"), 0, b"x\ny\n"))
    assert other.text == "y"


class Box:
    """A host that has nothing, under the name that it was asked by."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        return Completed(tuple(argv), 127)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        *(("me@box", "box"), ("box17.example:2222", "box17.example:2222"), ("gpu-1", "gpu-1")),
        ("192.0.2.1", "a host over ssh"),
        ("me@192.0.2.1:55069", "a host over ssh"),
        ("[2001:db8::1]:22", "a host over ssh"),
        ("fe80::1%eth0", "a host over ssh"),
    ],
)
def test_a_host_is_called_what_was_typed_unless_that_is_an_address(typed: str, name: str) -> None:
    report = host_report(Box(typed), "ssh")
    assert (report.name, report.recording.name) == (name, name)
    assert msgspec.json.encode(report).count(b"192.0.2") == 0
