"""A real sshd on loopback with keys and a configuration of its own; nothing of the machine's is used or changed."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/sbin")


@dataclass
class Server:
    """Where it listens, and the options with which ssh trusts it."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    options: tuple[str, ...] = field(default=())

    @property
    def destination(self) -> str:
        return f"{getpass.getuser()}@127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path], check=True)
    return path.with_suffix(".pub").read_text().strip()


def start(folder: Path, settings: str = "", known: bool = True, authorized: bool = True, prefix: str = "") -> Server:
    """Start a server and wait until it answers.

    Args:
        folder: for its files.
        settings: further lines of sshd_config.
        known: whether its host key is in the known_hosts that the options name.
        authorized: whether the client's key may log in.
        prefix: options before the key in authorized_keys.
    """
    assert SSHD is not None, "OpenSSH's sshd is needed here: apt-get install openssh-server"
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd, started by root, locks itself in
    folder.mkdir(parents=True, exist_ok=True)
    host_key, client_key = _key(folder / "host"), _key(folder / "client")
    (folder / "authorized_keys").write_text(f"{prefix}{' ' if prefix else ''}{client_key}\n" if authorized else "")
    server = Server(folder, free_port())
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n" if known else "")
    (folder / "sshd_config").write_text(
        f"Port {server.port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nPidFile none\n"
        f"AuthorizedKeysFile {folder / 'authorized_keys'}\nStrictModes no\nUsePAM no\n"
        f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n{settings}\n"
    )
    server.options = (
        *("-F", "/dev/null", "-i", str(folder / "client")),
        *(part for option in (f"UserKnownHostsFile={folder / 'known_hosts'}", "GlobalKnownHostsFile=/dev/null",
                              "IdentitiesOnly=yes", "IdentityAgent=none") for part in ("-o", option)),
    )  # fmt: skip
    server.process = subprocess.Popen(
        [SSHD, "-D", "-f", folder / "sshd_config", "-E", folder / "sshd.log"],
        stdin=subprocess.DEVNULL,
    )
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", server.port)) == 0:
                return server
        time.sleep(0.05)
    raise AssertionError(f"sshd does not answer: {server.log()}")
