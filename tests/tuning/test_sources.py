"""What is run is a short list, every entry of it only reads, and each output is told from all others by content."""

import pytest

from sublight.hosts.base import Completed
from sublight.tuning.checks import CHECKS
from sublight.tuning.checks.base import Check
from sublight.tuning.readings import collect
from sublight.tuning.sources import SOURCES
from tests.tuning.judged import H200
from tests.tuning.machines import Server

# Program -> arguments that it may be given, beside paths under /proc and /sys. None of them changes anything.
READ_ONLY = {
    "nvidia-smi": {"-q", "topo", "-m", "-p2p", "r", "--format=csv"},
    "lspci": {"-vvv"},
    "env": {"LC_ALL=C", "lscpu"},
    "numactl": {"-H"},
    "cat": set(),
    "uname": {"-sr"},
    "ls": set(),
    "grep": {"-sH", "-rsH", ""},
}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_command_only_reads(name: str) -> None:
    program, *arguments = SOURCES[name].argv
    for argument in arguments:
        allowed = (
            argument in READ_ONLY[program]
            or argument.startswith(("/proc/", "/sys/"))
            or (program == "nvidia-smi" and argument.startswith("--query-gpu="))
            or (program == "grep" and argument.startswith("--include="))
        )
        assert allowed, argument


class Watched:
    """A host that has nothing, and remembers what it was asked."""

    name = "watched"

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv: tuple[str, ...], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        assert stdin == b""
        self.asked.append(tuple(argv))
        return Completed(tuple(argv), 127)


def test_nothing_but_the_list_is_run() -> None:
    host = Watched()
    collect(host)
    assert host.asked == [source.argv for source in SOURCES.values()]


def test_checks_need_what_there_is() -> None:
    needed = set()
    for name in CHECKS.names():
        check: Check = CHECKS.load(name)
        assert check.name == name
        needed |= set(check.needs)
    assert needed <= set(SOURCES)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("smi.log", "nvidia-smi -q"),
        ("cards.csv", "nvidia-smi --query-gpu"),
        ("table.log", "nvidia-smi"),
        ("topology.log", "nvidia-smi topo -m"),
        ("peers.log", "nvidia-smi topo -p2p r"),
        ("cpu.log", "lscpu"),
        ("numa.log", "numactl -H"),
        ("memory.log", "/proc/meminfo"),
        ("settings.log", "kernel settings"),
        ("driver.log", "NVIDIA driver"),
        ("iommu.log", "ls of IOMMUs"),
        ("README.md", ""),
    ],
)
def test_real_output_is_recognised_as_one_kind(file: str, source: str) -> None:
    text = (H200 / file).read_text()
    assert [name for name, kind in SOURCES.items() if kind.looks_like(text)] == ([source] if source else [])


def test_made_output_is_recognised_as_one_kind() -> None:
    kinds = [[name for name, kind in SOURCES.items() if kind.looks_like(text)] for text in Server().texts().values()]
    assert kinds == [[name] for name in ("nvidia-smi -q", "nvidia-smi topo -m", "nvidia-smi topo -p2p r", "lspci -vvv",
                                         "lscpu", "numactl -H", "/proc/cmdline")]  # fmt: skip


def test_a_command_as_a_person_types_it() -> None:
    assert SOURCES["lspci -vvv"].command == "sudo lspci -vvv"
    assert (SOURCES["lscpu"].command, SOURCES["lscpu"].label) == ("lscpu", "lscpu")
    assert SOURCES["/proc/cmdline"].label == "/proc/cmdline"
    assert SOURCES["env"].command.startswith("env | grep") and SOURCES["env"].label == "env"
