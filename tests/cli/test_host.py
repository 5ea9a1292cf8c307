"""`sublight host` from outside: a folder, a saved record, this machine, and another one through ssh."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit.machines import Site
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.hosts import sshd
from tests.tuning.judged import H200
from tests.tuning.machines import Server, folder

Sublight = Callable[..., Run]


def test_a_folder_of_output(sublight: Sublight, tmp_path: Path) -> None:
    folder(tmp_path / "box", Server(acs="+").texts())
    done = sublight("host", "--folder", "box", columns=130)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "Host: box"
    assert "4x NVIDIA RTX PRO 6000 Blackwell Server Edition, 95.59 GiB, compute capability 12.0" in done.out
    assert "595.58.03, CUDA 13.2" in done.out
    first = lines.index("to change") + 1
    assert lines[first].split("  ")[1] == "✗ ACS on the way between GPUs"
    assert "2.06x bandwidth" in done.out and "measured gain" in done.out
    assert "proves nothing" in done.out and "sudo lspci" not in done.out
    assert "nothing was changed" in done.out


def test_what_is_wrong_with_a_machine_is_no_error(sublight: Sublight, tmp_path: Path) -> None:
    server = Server(acs="+", peers="CNS", bar1="256 MiB", upstream_width=4, slowdown="Active", persistence="Disabled")
    folder(tmp_path / "box", server.texts())
    done = sublight("host", "--folder", "box", "--json")
    record = json.loads(done.out)["record"]
    to_change = [finding["knob"] for finding in record["findings"] if finding["verdict"] == "change"]
    assert done.code == 0
    assert set(to_change) == {
        "peer access (P2P)",
        "ACS on the way between GPUs",
        "PCIe links above the GPUs",
        "Resizable BAR",
        "clocks held down",
    }


def test_a_saved_machine(sublight: Sublight, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert sublight("host", "--folder", str(H200), "--save", "box.json", "--html", str(page)).code == 0
    shown, again = sublight("show", "box.json"), sublight("host", "--snapshot", "box.json")
    assert shown.code == again.code == 0
    assert "2x NVIDIA H200, 140.4 GiB, compute capability 9.0" in shown.out
    knobs = [line for line in shown.out.splitlines() if line.startswith(("  ✓", "  !", "  ?", "  ✗"))]
    assert len(knobs) == 24
    assert [line for line in again.out.splitlines() if line.startswith(("  ✓", "  !"))] == [
        line for line in knobs if line.startswith(("  ✓", "  !"))
    ]
    html = page.read_text()
    assert "Host: 2x-h200" in html and "NV18" in html and "http" not in html.split("<body")[0].replace("http-equiv", "")
    saved = (tmp_path / "box.json").read_text()
    assert json.loads(saved)["schema"] == "sublight/host"


def test_markdown(sublight: Sublight) -> None:
    done = sublight("host", "--folder", str(H200), "--markdown")
    assert done.code == 0
    assert (
        "| ✓ peer access (P2P) | OK for the pair | OK for every pair | **measured gain** | 13.6 us a message |"
        in done.out
    )
    assert "- **read from**: peers.log, line 2" in done.out


def test_text_from_files_is_inert(sublight: Sublight, tmp_path: Path) -> None:
    text = Server().smi().replace("NVIDIA RTX PRO 6000", "<script>alert(1)</script>\x1b]0;x\x07")
    folder(tmp_path / "box", {"a.log": text})
    done = sublight("host", "--folder", "box", "--html", "page.html")
    assert done.code == 0 and "\x1b" not in done.out and "\x07" not in done.out
    assert "<script>alert" not in (tmp_path / "page.html").read_text()


def test_this_machine(sublight: Sublight, tmp_path: Path) -> None:
    done = sublight("host", "--save", "here.json")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "Host: this machine"
    record = json.loads((tmp_path / "here.json").read_text())["record"]
    found = {finding["knob"]: finding for finding in record["findings"]}
    assert record["how"] == "local" and found["kernel"]["verdict"] in ("fine", "not known")
    if shutil.which("nvidia-smi") is None:
        assert found["persistence mode"]["found"] == "nvidia-smi was not found"
        assert found["power limit"]["verdict"] == "not known" and found["power limit"]["command"] == "nvidia-smi -q"
        assert record["machine"]["gpus"] == []


def test_an_environment_is_not_saved(sublight: Sublight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sublight.hosts.recording import completed_of
    from sublight.tuning.report import read_snapshot

    monkeypatch.setenv("SOME_API_KEY", "do-not-keep-this")
    monkeypatch.setenv("NCCL_PROTO", "LL")
    assert sublight("host", "--save", "here.json").code == 0
    recording, _, _ = read_snapshot(tmp_path / "here.json")
    kept = b"".join(completed_of(answer).stdout for answer in recording.answers)
    assert b"NCCL_PROTO=LL" in kept and b"do-not-keep-this" not in kept and b"SOME_API_KEY" not in kept


def test_another_machine(sublight: Sublight, server: sshd.Server, tmp_path: Path) -> None:
    done = sublight("host", "--host", server.destination, "--save", "there.json")
    assert (done.code, done.err) == (0, "")
    record = json.loads((tmp_path / "there.json").read_text())["record"]
    assert (record["name"], record["how"]) == ("a host over ssh", "ssh")
    here = json.loads(sublight("host", "--json").out)["record"]
    assert record["machine"]["kernel"] == here["machine"]["kernel"] != ""
    assert record["machine"]["memory_bytes"]["value"] == here["machine"]["memory_bytes"]["value"]
    assert server.log().count("Accepted publickey") == 1


def test_machines_that_cannot_be_asked(sublight: Sublight, server: sshd.Server) -> None:
    closed = sshd.free_port()
    refused(sublight("host", "--host", f"127.0.0.1:{closed}"), "reaching 127.0.0.1", "the connection was refused")
    refused(sublight("host", "--host", "no-such-host.invalid"), "no host of that name is known")
    (server.folder / "known_hosts").write_text("")
    refused(sublight("host", "--host", server.destination), "its host key is not known here", "fingerprint")
    refused(sublight("host", "--host", "-oProxyCommand=touch x"), "not how a host is named")


def test_an_audit_of_a_folder_is_no_machine(sublight: Sublight, tmp_path: Path) -> None:
    """It holds answers, none of them to what `host` asks: 29 knobs that are not known would be no answer."""
    Site(tmp_path / "site").install("vllm", "1", {"vllm/__init__.py": "", "vllm/envs.py": ""})
    question = ("--model", "glm-5-nvfp4", "--gpu", "b200", "--tp", "8")
    assert sublight("audit", "vllm", "--path", "site", *question, "--save", "folder.json").code == 0
    refused(
        sublight("host", "--snapshot", "folder.json"),
        "this audit holds what is installed, and nothing of the machine",
        "a file that sublight host --save or sublight audit --save wrote, of a machine and not of a folder",
    )


def test_an_audit_without_answers_asked_no_machine(sublight: Sublight, tmp_path: Path) -> None:
    Site(tmp_path / "site").install("vllm", "1", {"vllm/__init__.py": "", "vllm/envs.py": ""})
    question = ("--model", "glm-5-nvfp4", "--gpu", "b200", "--tp", "8")
    data = json.loads(sublight("audit", "vllm", "--path", "site", *question, "--json").out)
    data["record"]["recording"] = None
    (tmp_path / "folder.json").write_text(json.dumps(data))
    refused(
        sublight("host", "--snapshot", "folder.json"),
        "this audit is of folders (--path): it asked no machine, so that it holds no answers to judge again",
        "sublight host, on the machine itself or with --host",
    )


def test_bad_input(sublight: Sublight, tmp_path: Path) -> None:
    refused(sublight("host", "--folder", ".", "--snapshot", "x"), "--folder and --snapshot", "one of them")
    refused(sublight("host", "--folder", "nowhere"), "it is not there")
    refused(sublight("host", "--folder", "."), "it is empty", "nvidia-smi -q")
    refused(sublight("host", "--folder", ""), "--folder ''")
    refused(sublight("host", "--snapshot", "nowhere.json"), "No such file")
    (tmp_path / "x.json").write_text("{}")
    refused(sublight("host", "--snapshot", "x.json"), "not a record that Sublight wrote")
    assert sublight("limit", "glm-5-nvfp4", "--gpus", "h200", "--save", "limit.json").code == 0
    refused(sublight("host", "--snapshot", "limit.json"), "holds no answers of a machine")


def test_no_heavy_library_is_loaded(sublight: Sublight, tmp_path: Path) -> None:
    import subprocess

    code = (
        "import sys, contextlib, io\nfrom sublight.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main(['host', '--folder', {str(H200)!r}, '--markdown'])\n"
        "assert 'sublight.tuning.report' in sys.modules\nprint('\\n'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & {"numpy", "torch", "pandas", "jinja2", "rich"}
