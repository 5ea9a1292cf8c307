"""Every command that a machine is asked, and how its output is recognised without a name.

This is the whole list: nothing else is ever run, and each of these only reads. A folder of saved outputs is matched
with the same list by content, so what a file is called does not matter. LC_ALL=C because lscpu speaks the language of
the machine.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sublight.tuning.parsers import environment, lspci, matrix, nvidia_csv, nvidia_q, nvidia_table, system


class Source(msgspec.Struct, frozen=True):
    """One command.

    Attributes:
        argv: what is run.
        looks_like: whether a text is this command's output.
        parse: the text as values.
        keep: the text with nothing but what is read: every other line is empty, so that lines keep their numbers.
        needs_root: whether the output says more to root.
        advice: what to show as the command, where it is not the one that is run.
        partly: whether output with an exit code other than 0 is an answer: one of several files was not there.
        talks: whether the program says what is wrong in place of its output, and leaves with exit code 0.
    """

    argv: tuple[str, ...]
    looks_like: Callable[[str], bool]
    parse: Callable[[str], Any]
    keep: Callable[[str], str]
    needs_root: bool = False
    advice: str = ""
    partly: bool = False
    talks: bool = False

    @property
    def label(self) -> str:
        """What its answers are found under: a file that is only printed is found under its own name."""
        if self.argv[0] == "cat":
            return self.argv[1]
        return self.argv[0] if self.advice else self.command.removeprefix("sudo ")

    @property
    def command(self) -> str:
        """As a person would type it."""
        import shlex

        if self.advice:
            return self.advice
        words = self.argv[2:] if self.argv[:2] == ("env", "LC_ALL=C") else self.argv
        return ("sudo " if self.needs_root else "") + shlex.join(words)


def _smi(module: Any, *arguments: str) -> Source:
    return Source(("nvidia-smi", *arguments), module.looks_like, module.parse, module.keep, talks=True)


def _files(prefix: str, read: str, *arguments: str) -> Source:
    """Files whose paths start so; `read` is a pattern of those that are looked at."""
    paths = re.compile(read)
    return Source(
        ("grep", *arguments),
        lambda text: system.looks_like_files(text, prefix),
        system.parse_files,
        lambda text: system.keep_files(text, paths),
        partly=True,
    )


def _settings(*paths: str, needs_root: bool = False) -> Source:
    """These files."""
    return Source(
        ("grep", "-sH", "", *paths),
        lambda text: any(path in paths for path in system.parse_files(text)),
        system.parse_files,
        lambda text: system.keep_files(text, re.compile("|".join(map(re.escape, paths)))),
        needs_root=needs_root,
        partly=True,
    )


_COLUMNS = (
    "index,name,compute_cap,memory.total,utilization.gpu,power.draw,power.limit,pstate,"
    "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"
)
_RECURSIVE = ("-rsH", "")

_CPU0 = "/sys/devices/system/cpu/cpu0/cpuidle"

SOURCES: Mapping[str, Source] = {
    "nvidia-smi -q": _smi(nvidia_q, "-q"),
    "nvidia-smi --query-gpu": _smi(nvidia_csv, f"--query-gpu={_COLUMNS}", "--format=csv"),
    "nvidia-smi": _smi(nvidia_table),
    "nvidia-smi topo -m": Source(
        ("nvidia-smi", "topo", "-m"), matrix.looks_like_topology, matrix.parse_topology, matrix.keep, talks=True
    ),
    "nvidia-smi topo -p2p r": Source(
        ("nvidia-smi", "topo", "-p2p", "r"), matrix.looks_like_p2p, matrix.parse_p2p, matrix.keep, talks=True
    ),
    "lspci -vvv": Source(("lspci", "-vvv"), lspci.looks_like, lspci.parse, lspci.keep, needs_root=True),
    "lscpu": Source(("env", "LC_ALL=C", "lscpu"), system.looks_like_cpu, system.parse_cpu, system.keep_cpu),
    "numactl -H": Source(("numactl", "-H"), system.looks_like_numa, system.parse_numa, system.keep_numa),
    "/proc/cmdline": Source(
        ("cat", "/proc/cmdline"), system.looks_like_cmdline, system.parse_cmdline, system.keep_cmdline
    ),
    "uname -sr": Source(("uname", "-sr"), system.looks_like_kernel, system.parse_kernel, system.keep_kernel),
    "/proc/meminfo": Source(
        ("cat", "/proc/meminfo"), system.looks_like_memory, system.parse_memory, system.keep_memory
    ),
    "kernel settings": _settings(
        "/proc/sys/kernel/numa_balancing",
        "/proc/sys/vm/swappiness",
        "/proc/sys/vm/nr_hugepages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
    ),
    # Asked apart from the others: a machine that was saved before is found by what it was asked.
    "scheduler": _settings(
        "/sys/kernel/debug/sched/migration_cost_ns", "/proc/sys/kernel/sched_migration_cost_ns", needs_root=True
    ),
    "cpufreq": _files(
        "/sys/devices/system/cpu/cpufreq/",
        r"/sys/devices/system/cpu/[\w/]+/scaling_(governor|driver)",
        *(*_RECURSIVE, "--include=scaling_governor", "--include=scaling_driver", "/sys/devices/system/cpu/cpufreq"),
    ),
    "cpuidle": _files(
        f"{_CPU0}/",
        rf"{_CPU0}/\w+/(name|latency|disable)",
        *(*_RECURSIVE, "--include=name", "--include=latency", "--include=disable"),
        _CPU0,
    ),
    "IOMMU groups": _files(
        "/sys/kernel/iommu_groups/",
        "/sys/kernel/iommu_groups/[0-9]+/type",
        *(*_RECURSIVE, "--include=type", "/sys/kernel/iommu_groups"),
    ),
    "ls of IOMMUs": Source(
        ("ls", "/sys/class/iommu", "/sys/kernel/iommu_groups"),
        system.looks_like_iommu,
        system.parse_iommu,
        system.keep_iommu,
        partly=True,
    ),
    "NVIDIA driver": _files(
        "/proc/driver/nvidia/",
        "/proc/driver/nvidia/params",
        *("-sH", "", "/proc/driver/nvidia/params", "/proc/driver/nvidia/version"),
    ),
    "env": Source(
        ("env",),
        environment.looks_like,
        environment.parse,
        environment.only_allowed,
        advice="env | grep -E '^(NCCL|PYTORCH|OMP|CUDA)_'",  # the rest of an environment does not belong in a folder
    ),
}
