"""`sublight audit` from outside: what it says beside the ladders, of variables that are set and of an engine's log."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.audit.machines import Environment, Site
from tests.audit.wheels import installed
from tests.cli.test_audit import QUESTION, Sublight
from tests.hosts import sshd

ENVS = 'environment_variables = {"VLLM_LOGGING_LEVEL": str, "VLLM_FLASHINFER_ALLREDUCE_BACKEND": str}\n'
LOGS = Path(__file__).parents[1] / "data" / "logs"
VLLM = {"vllm/__init__.py": "", "vllm/envs.py": ENVS}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def said(text: str, start: str) -> str:
    """One finding of a page, on one line."""
    part = re.split("Flags worth trying|Sublight: asked", text.partition("What is odd")[2])[0]
    items = " ".join(part.split()).split(" • ")
    (found,) = [item for item in items if item.removeprefix("─").strip("─ •").startswith(start)]
    return found.strip("─ •")


def test_a_variable_that_a_flag_replaced_leads_to_the_flag(
    sublight: Sublight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(tmp_path / "env")
    environment.install("vllm", "0.33.0", VLLM)
    monkeypatch.setenv("VLLM_FLASHINFER_MOE_BACKEND", "latency")
    monkeypatch.setenv("VLLM_LOGING_LEVEL", "DEBUG")
    run = sublight("audit", "vllm", "--python", environment.python, *QUESTION, "--no-import")
    assert run.code == 0, run.err
    no_effect = "it is set, and nothing in this version of vllm reads it: it has no effect"
    assert said(run.out, "VLLM_FLASHINFER_MOE_BACKEND") == (
        f"VLLM_FLASHINFER_MOE_BACKEND: {no_effect}. Try: unset it and set --moe-backend."
    )
    assert said(run.out, "VLLM_LOGING_LEVEL").endswith("Try: VLLM_LOGGING_LEVEL.")
    chosen = "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: ['FLASHINFER_CUTLASS']."
    log = log_of(tmp_path, "0.33.0", "/x/configs", chosen)
    again = sublight("audit", "vllm", "--python", environment.python, *QUESTION, "--no-import", "--log", log)
    assert said(again.out, "VLLM_FLASHINFER_MOE_BACKEND") == (  # once, and with what holds
        "VLLM_FLASHINFER_MOE_BACKEND: VLLM_FLASHINFER_MOE_BACKEND=latency is not read by vLLM 0.33.0, which has "
        "--moe-backend instead. Effective: moe_backend not printed -> FLASHINFER_CUTLASS for NvFp4 experts. Try: unset "
        "it and set --moe-backend."
    )


CONFIGS = "vllm/model_executor/layers/fused_moe/configs"
CARD = "device_name=NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition,dtype=fp8_w8a8.json"
USED = f"E=128,N=768,{CARD}"
TUNED = {
    **VLLM,
    f"{CONFIGS}/E=256,N=512,{CARD}": "{}",
    f"{CONFIGS}/E=64,N=1280,{CARD}": "{}",
    f"{CONFIGS}/{USED}": '{"1": {}, "2": {}, "4": {}, "8": {}}',
    "vllm/model_executor/layers/quantization/utils/configs/N=256,K=256,device_name=NVIDIA_H20.json": "{}",
}
NEAREST = f"Nearest of the 3 in {CONFIGS}: E=256,N=512,{CARD}, which has N=512 (another width of a rank)."
PCIE = "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs."


def log_of(tmp_path: Path, version: str, folder: str, *more: str) -> str:
    lines = (
        f"vLLM API server version {version}",
        "Using default MoE config. Performance might be sub-optimal! Config file not found at "
        f"{folder}/E=256,N=256,{CARD}",
        f"Using configuration from {folder}/{USED} for MoE layer.",
        *more,
    )
    path = tmp_path / "server.log"
    path.write_text("".join(f"WARNING 05-15 03:31:05 [a.py:1] {line}\n" for line in lines))
    return str(path)


@pytest.fixture(params=["--path", "--python", "--host", "--snapshot"])
def tuned(request: pytest.FixtureRequest, sublight: Sublight, tmp_path: Path) -> tuple[str, ...]:
    """An installation with tuned files, by each way in."""
    if request.param == "--path":
        site = Site(tmp_path / "site")
        site.install("vllm", "0.33.0", TUNED)
        return "--path", str(site.folder)
    environment = Environment(tmp_path / "env")
    environment.install("vllm", "0.33.0", TUNED)
    if request.param == "--python":
        return "--python", environment.python
    if request.param == "--snapshot":  # of an audit that was given no log
        saving = sublight("audit", "vllm", "--python", environment.python, *QUESTION, "--no-import", "--save", "m.json")
        assert saving.code == 0, saving.err
        shutil.rmtree(tmp_path / "env")
        return "--snapshot", str(tmp_path / "m.json")
    server: sshd.Server = request.getfixturevalue("server")
    return "--host", server.destination, "--python", environment.python


def test_the_nearest_tuned_file_is_found_by_every_way_in(
    sublight: Sublight, tmp_path: Path, tuned: tuple[str, ...]
) -> None:
    for folder in ("/x/configs", f"/elsewhere/site-packages/{CONFIGS}"):
        ask = ("audit", "vllm", *tuned, *QUESTION, "--no-import", "--log", log_of(tmp_path, "0.33.0", folder))
        run = sublight(*ask)
        assert run.code == 0, run.err
        assert NEAREST in said(run.out, "Triton MoE: wanted")


def test_tables_for_other_versions_of_triton_count_as_well(sublight: Sublight, tmp_path: Path) -> None:
    """SGLang has a folder a version; a version newer than all of them has none."""
    configs = "sglang/srt/layers/moe/configs"
    site = Site(tmp_path / "site")
    files = {f"{configs}/triton_3_5_1/E=256,N=512,{CARD}": "{}", f"{configs}/triton_3_4_0/E=256,N=512,{CARD}": "{}"}
    site.install("sglang", "0.5.30", {"sglang/__init__.py": "", **files})
    for version, nearest in (("3_4_0", "3_4_0"), ("3_9_0", "3_5_1"), ("3_5_1", "3_5_1")):
        log = tmp_path / "server.log"
        log.write_text(
            "[2026-08-14 09:26:53] server_args=ServerArgs(model_path='m', tp_size=8)\n"
            "[2026-08-14 09:26:54] Using default MoE kernel config. Performance might be sub-optimal! "
            f"Config file not found at /opt/{configs}/triton_{version}/E=256,N=256,{CARD}, you can create them\n"
        )
        run = sublight("audit", "sglang", "--path", str(site.folder), *QUESTION, "--log", str(log), "--json")
        (found,) = [item for item in json.loads(run.out)["record"]["findings"] if item["subject"] == "Triton MoE"]
        best = f"triton_{nearest}/E=256,N=512,{CARD}"
        assert f"Nearest of the 2 in {configs}: {best}, which has N=512 (another width of a rank)." in found["text"]


def test_the_folder_that_the_log_names(sublight: Sublight, tmp_path: Path) -> None:
    """In the audited installation it is looked into whatever the version; the one elsewhere is of another version."""
    site = Site(tmp_path / "site")
    site.install("vllm", "0.33.0", TUNED)
    ask = ("audit", "vllm", "--path", str(site.folder), *QUESTION, "--log")
    own = sublight(*ask, log_of(tmp_path, "0.26.0", f"{site.folder}/{CONFIGS}"))
    assert NEAREST in said(own.out, "Triton MoE: wanted")
    short = said(own.out, f"Triton MoE: {USED}")
    assert short.startswith(f"Triton MoE: {USED} has rows for 1, 2, 4, 8 only: the nearest is taken, so every M >= 16")
    other = sublight(*ask, log_of(tmp_path, "0.26.0", f"/elsewhere/{CONFIGS}"))
    unread = "Which files there are is not known: the log is of vllm 0.26.0, and audited is 0.33.0."
    assert unread in said(other.out, "Triton MoE: wanted")
    assert USED not in other.out


def test_what_was_given_on_the_command_line_counts_for_the_log(sublight: Sublight, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.install("vllm", "0.33.0", VLLM)
    ask = ("audit", "vllm", "--path", str(site.folder), "--log", log_of(tmp_path, "0.33.0", "/x/configs", PCIE))
    text = said(sublight(*ask, *QUESTION).out, "all-reduce: custom all-reduce is off")
    assert (
        "157 all-reduces a step of 12,288 B at batch 1, as TP8 was asked for and the log does not say: NCCL 26.9 us "
        "each, 4.22 ms a step"
    ) in text
    assert "not known without the number of ranks" in said(
        sublight(*ask, *QUESTION[:-2]).out, "all-reduce: custom all-reduce is off"
    )


def test_a_log_of_another_version_still_says_what_it_chose(sublight: Sublight, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.install("vllm", "0.33.0", VLLM)
    chosen = "Using 'B12X' NvFp4 MoE backend out of potential backends: ['B12X', 'FLASHINFER_TRTLLM', 'MARLIN']."
    attention = "Using B12X_MLA_SPARSE attention backend out of potential backends: ['B12X_MLA_SPARSE']."
    log = log_of(tmp_path, "0.20.2rc1", "/x/configs", chosen, attention)
    run = sublight("audit", "vllm", "--path", str(site.folder), *QUESTION, "--log", log)
    assert said(run.out, "server.log: it is of another run").endswith(
        "engine version 0.20.2rc1, asked for 0.33.0. Try: the audit for the model, card and layout that it is of, or a "
        "run of this target."
    )
    listed = run.out.partition("What the engine chose besides")[2].partition("What is odd")[0]
    assert [" ".join(item.split()) for item in listed.split("• ")[1:]] == [
        "MoE: In the log, which is of another run, vLLM 0.20.2rc1 chose B12X for NvFp4, out of B12X, "
        "FLASHINFER_TRTLLM, MARLIN (server.log:4).",
        "attention: In the log, which is of another run, vLLM 0.20.2rc1 chose B12X_MLA_SPARSE, out of "
        "B12X_MLA_SPARSE (server.log:5).",
    ]


def test_a_log_of_another_checkpoint_is_not_explained_by_the_one_that_was_named(
    sublight: Sublight, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site")
    site.install("vllm", "0.20.2", VLLM)
    log = str(LOGS / "vllm-0.20.2-qwen3-graph.log")
    ask = ("audit", "vllm", "--path", str(site.folder), "--model", "qwen3-30b-a3b", "--gpu", "h200", "--log", log)
    out = sublight(*ask).out
    assert "quantisation modelopt_fp4, asked for none" in said(out, "vllm-0.20.2-qwen3-graph.log: it is of another run")
    assert "experts are BF16" not in out


@pytest.mark.wheels
@pytest.mark.parametrize(
    ("requirement", "kernel", "folder"),
    [
        ("vllm==0.33.0", "Using default MoE config.", "vllm/model_executor/layers/fused_moe/configs"),
        ("sglang==0.5.9", "Using default MoE kernel config.", "sglang/srt/layers/moe/fused_moe_triton/configs"),
    ],
)
def test_tuned_files_of_released_engines(
    sublight: Sublight, tmp_path: Path, requirement: str, kernel: str, folder: str
) -> None:
    """A log that names a folder of nowhere still leads to the folder of this version, with real files in it."""
    engine, _, version = requirement.partition("==")
    started = {"sglang": "server_args=ServerArgs(tp_size=8)", "vllm": f"vLLM API server version {version}"}[engine]
    missing = f"{kernel} Performance might be sub-optimal! Config file not found at /x/configs/E=256,N=256,{CARD}"
    log = tmp_path / "server.log"
    log.write_text("".join(f"[2026-08-14 09:26:53] {line}\n" for line in (started, missing)))
    site = str(installed(requirement))
    run = sublight(
        "audit", engine, "--path", site, *QUESTION, "--area", "moe", "--log", str(log), "--json", limit_s=300
    )
    assert run.code == 0, run.err
    (found,) = [item for item in json.loads(run.out)["record"]["findings"] if item["subject"] == "Triton MoE"]
    counted = sum(path.name.startswith("E=") for path in Path(site, folder).rglob("*.json"))
    assert f"Nearest of the {counted} in {folder}: " in found["text"]
