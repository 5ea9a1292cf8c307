"""ssh against a real sshd on loopback: what it runs, and every way in which it can fail to."""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sublight.errors import HostError, UsageError
from sublight.hosts import ssh
from sublight.hosts.ssh import SshHost
from tests.hosts import sshd
from tests.hosts.test_process import gone

PYTHON = sys.executable


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Server]:
    folder = tmp_path_factory.mktemp("sshd")
    (folder / "banner").write_text("AUTHORISED USERS ONLY\nall is watched\n")
    running = sshd.start(folder, f"Banner {folder / 'banner'}")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def host(server: sshd.Server) -> Iterator[SshHost]:
    with SshHost(server.destination, server.options) as opened:
        yield opened


def refused(destination: str, options: tuple[str, ...]) -> HostError:
    with SshHost(destination, options) as unreachable, pytest.raises(HostError) as error:
        unreachable.run(["true"])
    return error.value


def test_a_command_and_its_output(host: SshHost, server: sshd.Server) -> None:
    done = host.run(["printf", "%s|", "a b", "$HOME", "`id`", "it's", '"q"', "*", "", "näh\n"])
    assert done.text == 'a b|$HOME|`id`|it\'s|"q"|*||näh\n|'
    assert (done.exit_code, done.stderr, done.argv[0], host.name) == (0, b"", "printf", server.destination)


def test_the_banner_is_no_output(host: SshHost) -> None:
    done = host.run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_two_megabytes_in_and_binary_out(host: SshHost) -> None:
    data = os.urandom(2_000_000)
    done = host.run([PYTHON, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"], data)
    assert done.ok and done.stdout == data[::-1]


@pytest.mark.parametrize("code", [0, 1, 3, 124, 200, 255])
def test_exit_codes_are_the_commands_own(host: SshHost, code: int) -> None:
    assert host.run(["sh", "-c", f"exit {code}"]).exit_code == code


def test_a_signal_there_is_a_negative_exit_code_here(host: SshHost) -> None:
    done = host.run([PYTHON, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGABRT)"])
    assert done.exit_code == -6 and done.failure == f"{PYTHON} was ended by SIGABRT"


def test_a_program_that_is_not_there(host: SshHost) -> None:
    assert host.run(["no-such-program-of-ours"]).failure == "no-such-program-of-ours was not found"


def test_output_without_a_newline_at_its_end(host: SshHost) -> None:
    done = host.run(["sh", "-c", "printf out; printf err >&2"])
    assert (done.stdout, done.stderr) == (b"out", b"err")


def test_one_connection_serves_every_command(host: SshHost, server: sshd.Server) -> None:
    before = server.log().count("Accepted publickey")
    assert [host.run(["echo", str(n)]).text for n in range(5)] == [f"{n}\n" for n in range(5)]
    assert server.log().count("Accepted publickey") == max(before, 1)


def test_a_hanging_command_is_ended_on_both_sides(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_REMOTE_EXTRA_S", 0)
    pid_file = tmp_path / "pid"
    done = host.run(["sh", "-c", f"echo begun; echo $$ > {pid_file}; exec sleep 600"], timeout_s=2.0)
    assert done.timed_out and done.text == "begun\n" and done.failure == "sh did not end within 2 s"
    assert gone(int(pid_file.read_text()))
    assert host.run(["echo", "still here"]).text == "still here\n"


def test_the_connection_is_closed_and_opened_again(server: sshd.Server) -> None:
    with SshHost(server.destination, server.options) as host:
        assert host.run(["true"]).ok
        folder = host._folder
        assert folder is not None and (folder / "s").exists() and folder.stat().st_mode & 0o077 == 0
        host.close()
        assert not folder.exists()
        assert host.run(["true"]).ok


def test_a_long_name_of_the_temporary_folder(
    server: sshd.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with SshHost(server.destination, server.options) as host:
        assert host.run(["echo", "short"]).text == "short\n"


def pump(source: socket.socket, target: socket.socket) -> None:
    """Bytes one way, until either side has gone."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_a_lost_connection_is_no_answer(tmp_path: Path) -> None:
    server = sshd.start(tmp_path)
    begun = tmp_path / "begun"
    with socket.socket() as between:
        between.bind(("127.0.0.1", 0))
        between.listen()
        port = between.getsockname()[1]

        def cut_when_begun() -> None:
            client, _ = between.accept()
            far = socket.create_connection(("127.0.0.1", server.port))
            ways = [threading.Thread(target=pump, args=ends) for ends in ((client, far), (far, client))]
            for way in ways:
                way.start()
            while not begun.exists():
                time.sleep(0.02)
            client.shutdown(socket.SHUT_RDWR)
            for way in ways:
                way.join()
            client.close()
            far.close()

        thread = threading.Thread(target=cut_when_begun)
        thread.start()
        known = (tmp_path / "known_hosts").read_text().replace(f":{server.port}", f":{port}")
        (tmp_path / "known_hosts").write_text(known)
        try:
            with SshHost(f"127.0.0.1:{port}", server.options) as host, pytest.raises(HostError) as error:
                host.run(["sh", "-c", f"echo begun; touch {begun}; sleep 20"])
        finally:
            begun.touch()
            thread.join()
            server.stop()
    assert error.value.asked == f"running a command on 127.0.0.1:{port} with ssh"
    assert error.value.found and error.value.hint


def test_a_login_shell_that_runs_nothing(tmp_path: Path) -> None:
    server = sshd.start(tmp_path, prefix='command="echo This account is closed; exit 1"')
    try:
        error = refused(server.destination, server.options)
        assert error.asked == f"running true on {server.destination}"
        assert "the login shell did not run it" in error.found and "This account is closed" in error.found
    finally:
        server.stop()


def test_a_talkative_login_shell(tmp_path: Path) -> None:
    noise = r'command="echo welcome; echo 3 updates >&2; sh -c \"$SSH_ORIGINAL_COMMAND\""'
    server = sshd.start(tmp_path, prefix=noise)
    try:
        with SshHost(server.destination, server.options) as host:
            done = host.run(["sh", "-c", "printf '\\001\\000'; echo e >&2; exit 7"])
        assert (done.exit_code, done.stdout, done.stderr) == (7, b"\x01\x00", b"e\n")
    finally:
        server.stop()


def test_a_machine_without_timeout(tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    (few / "sh").symlink_to("/bin/sh")
    server = sshd.start(tmp_path / "server", prefix=rf'command="export PATH={few}; sh -c \"$SSH_ORIGINAL_COMMAND\""')
    try:
        with SshHost(server.destination, server.options) as host:
            done = host.run(["sh", "-c", "cd /; pwd; exit 9"])
            assert (done.exit_code, done.stdout) == (9, b"/\n")
            assert host.run(["timeout"]).failure == "timeout was not found"
    finally:
        server.stop()


def test_a_host_key_that_is_not_known(tmp_path: Path) -> None:
    server = sshd.start(tmp_path, known=False)
    try:
        error = refused(server.destination, server.options)
        assert error.asked == f"reaching {server.destination} with ssh"
        assert error.found.startswith("its host key is not known here") and "fingerprint" in error.hint
        assert (tmp_path / "known_hosts").read_text() == ""
    finally:
        server.stop()


def test_a_host_key_that_has_changed(tmp_path: Path) -> None:
    server = sshd.start(tmp_path)
    other = (tmp_path / "client.pub").read_text()
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {other}")
    try:
        assert "not the one in known_hosts" in refused(server.destination, server.options).found
    finally:
        server.stop()


def test_a_login_that_is_refused(tmp_path: Path) -> None:
    server = sshd.start(tmp_path, authorized=False)
    try:
        error = refused(server.destination, server.options)
        assert error.found.startswith("the login was refused") and "Permission denied" in error.found
    finally:
        server.stop()


def test_nothing_listens(server: sshd.Server) -> None:
    error = refused(f"127.0.0.1:{sshd.free_port()}", server.options)
    assert error.found.startswith("the connection was refused") and error.exit_code == 2


def test_no_such_host(server: sshd.Server) -> None:
    error = refused("no-such-host.invalid", server.options)
    assert error.found.startswith("no host of that name is known")


def test_a_host_that_never_says_anything(server: sshd.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = refused(f"127.0.0.1:{silent.getsockname()[1]}", server.options)
    assert error.found.startswith("it did not answer in time")


def test_a_host_that_answers_nonsense(server: sshd.Server) -> None:
    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            time.sleep(0.1)

    with socket.socket() as web:
        web.bind(("127.0.0.1", 0))
        web.listen()
        thread = threading.Thread(target=answer, args=(web,))
        thread.start()
        error = refused(f"127.0.0.1:{web.getsockname()[1]}", server.options)
        thread.join()
    assert error.asked.startswith("reaching 127.0.0.1:") and error.found and error.hint


def test_no_ssh_here(server: sshd.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    error = refused(server.destination, server.options)
    assert error.found == "there is no ssh on this machine"


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a b", "user@", "@box", "user@-box", "box:", "box:port", "", "a@b@c"]
)
def test_what_is_no_name_of_a_host(name: str) -> None:
    with pytest.raises(UsageError):
        SshHost(name)


@pytest.mark.parametrize(
    ("name", "destination", "port"),
    [
        ("box", "box", None),
        ("me@box:2222", "me@box", "2222"),
        ("me@[::1]:22", "me@::1", "22"),
        ("[fe80::1%eth0]", "fe80::1%eth0", None),
    ],
)
def test_how_a_host_is_named(name: str, destination: str, port: str | None) -> None:
    host = SshHost(name)
    assert host._destination == destination and host._options == (("-p", port) if port else ())


def test_one_connection_through_a_proxy(server: sshd.Server, tmp_path: Path) -> None:
    """What a ProxyCommand or a jump host's ssh started lives as long as the connection, and no longer."""
    pids = tmp_path / "pids"
    proxy = tmp_path / "proxy.py"
    proxy.write_text(
        "import os, socket, sys, threading\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        f"far = socket.create_connection(('127.0.0.1', {server.port}))\n"
        "def up():\n"
        "    while data := os.read(0, 65536):\n"
        "        far.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := far.recv(65536):\n"
        "    os.write(1, data)\n"
        "    os.write(2, b'a word of a proxy\\n')\n"
    )
    before = server.log().count("Accepted publickey")
    with SshHost(server.destination, (*server.options, "-o", f"ProxyCommand={sys.executable} {proxy}")) as host:
        assert [host.run(["echo", str(n)]).text for n in range(4)] == [f"{n}\n" for n in range(4)]
    assert server.log().count("Accepted publickey") == before + 1
    (pid,) = map(int, pids.read_text().split())
    assert gone(pid)


def test_a_proxy_that_never_connects_is_ended(
    server: sshd.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_LOGIN_S", 1)
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 1)
    pid = tmp_path / "pid"
    command = f"sh -c 'echo $$ > {pid}; exec sleep 600'"
    error = refused(server.destination, (*server.options, "-o", f"ProxyCommand={command}"))
    assert "did not answer" in error.found or "timed out" in error.found
    assert gone(int(pid.read_text()))
