"""A command is bounded: its time, what it writes, and what it leaves behind."""

import sys
import time
from pathlib import Path

import pytest

from sublight.hosts.base import NOT_EXECUTABLE, NOT_FOUND, Completed
from sublight.hosts.local import LocalHost
from sublight.hosts.process import run_bounded

PYTHON = sys.executable


def run(code: str, stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
    return LocalHost().run((PYTHON, "-c", code), stdin, timeout_s)


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and waits for its parent does not."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    for _ in range(100):
        if not is_alive(pid):
            return True
        time.sleep(0.05)
    return False


def test_output_input_and_exit_code() -> None:
    done = run("import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1]); sys.exit(3)", b"\x00\xffab")
    assert (done.exit_code, done.stdout, done.stderr, done.ok) == (3, b"ba\xff\x00", b"", False)
    assert done.argv[0] == PYTHON and done.failure == f"{PYTHON} left with exit code 3: ba\ufffd\x00"


def test_arguments_are_no_shell_text() -> None:
    done = LocalHost().run(["echo", "$HOME; echo b", "`id`", "a  b"])
    assert done.text == "$HOME; echo b `id` a  b\n"


def test_large_input_and_output_at_once() -> None:
    data = bytes(range(256)) * 8192  # 2 MiB: neither side may wait for the other with full pipes
    done = run("import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer, 4096)", data)
    assert done.ok and done.stdout == data


def test_input_that_nobody_reads() -> None:
    assert run("print('no thanks')", b"x" * 2_000_000).text == "no thanks\n"


def test_input_is_read_on_after_the_outputs_are_closed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    code = f"import os, sys; os.close(1); os.close(2); open({str(kept)!r}, 'wb').write(sys.stdin.buffer.read())"
    assert run(code, b"y" * 1_000_000).ok
    assert kept.stat().st_size == 1_000_000


def test_a_signal_is_a_negative_exit_code() -> None:
    done = run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert done.exit_code == -11 and done.failure == f"{PYTHON} was ended by SIGSEGV"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    done = LocalHost().run(["no-such-program-of-ours"])
    assert done.exit_code == NOT_FOUND and done.failure == "no-such-program-of-ours was not found"
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert LocalHost().run([str(plain)]).exit_code == NOT_EXECUTABLE
    assert LocalHost().run(["true\0"]).exit_code == NOT_FOUND


def test_the_time_limit_ends_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "print('started', flush=True)\n"
        "time.sleep(600)"
    )
    done = run(code, timeout_s=2.0)
    assert done.timed_out and done.exit_code is None and done.text == "started\n"
    assert done.failure == f"{PYTHON} did not end within 2 s"
    assert gone(int(pid_file.read_text()))


def test_a_child_that_keeps_the_pipes_open_is_not_waited_for() -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)"
    )
    done = run(code, timeout_s=300.0)
    assert done.ok
    assert gone(int(done.text))


def test_output_without_end_is_stopped() -> None:
    done = run_bounded(["yes"], b"", 30.0, output_limit_bytes=1 << 20)
    assert done.truncated and len(done.stdout) == 1 << 20 and not done.ok
    assert done.failure == "yes wrote more than 64 MiB and was stopped"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_up_to_the_limit_is_whole(stream: str) -> None:
    code = f"import sys; sys.{stream}.write('z' * 4095)"
    done = run_bounded([PYTHON, "-c", code], b"", 30.0, output_limit_bytes=4096)
    assert done.ok and not done.truncated and len(getattr(done, stream)) == 4095


def test_nothing_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        run("print(1)", b"input")
        LocalHost().run(["no-such-program-of-ours"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
