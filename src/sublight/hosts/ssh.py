"""Another machine, through the system's own ssh, so that the user's configuration, keys and agent apply.

One connection is opened and every command goes through it (a control socket in a private folder). Nothing is asked at a
terminal: a host or a login that would need an answer is a HostError that says so. What travels is one `sh -c` with a
fixed text and the quoted argument list behind it. The text prints a mark that nobody can guess before the command and,
with its exit code, after it. So a banner or a talkative .bashrc is cut off, a login shell that never runs the command
is noticed, and a command's own 255 is told from ssh's.
"""

import atexit
import os
import re
import secrets
import shlex
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from sublight.errors import HostError, UsageError
from sublight.hosts.base import Completed
from sublight.hosts.process import run_bounded, run_leaving
from sublight.hosts.refusals import refusal

CONNECT_TIMEOUT_S = 10
_LOGIN_S = 20  # for what comes after the connection: keys, a slow PAM, a jump host
_IDLE_S = 120  # the shared connection closes by itself after this, should this process be killed
_REMOTE_EXTRA_S = 2  # the far side ends the command later than this side gives up on it, and cleans up
_DESTINATION = re.compile(r"(?:([^@\s]+)@)?(\[[^\]\s]+\]|[^@:\s\[\]]+)(?::([0-9]{1,5}))?")
# "$1" is the mark, "$2" the time limit in seconds, the rest the command.
_FAR_SIDE = (
    'm=$1; t=$2; shift 2; printf "%s\\n" "$m"; printf "%s\\n" "$m" >&2; '
    'if timeout -k 1 9 true >/dev/null 2>&1; then timeout -k 1 "$t" "$@"; else "$@"; fi; '
    'printf "%s %d\\n" "$m" "$?" >&2'
)
# Signals that end programs: a shell can only say 128 + number, and programs hardly choose these codes themselves.
_DEADLY = {
    signal.Signals[name]
    for name in (
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGHUP",
        "SIGILL",
        "SIGINT",
        "SIGKILL",
        "SIGPIPE",
        "SIGSEGV",
        "SIGTERM",
    )
    if name in signal.Signals.__members__
}


class SshHost:
    """A machine reached as "user@box", "user@box:port", "box", or a name from the user's ssh configuration.

    The connection is opened by the first command. It is closed by `close`, at the end of a `with` block, or when the
    program ends.

    Args:
        destination: as above.
        options: further options of ssh, as on its command line; the first setting of an option counts, and these come
            before ours.
    """

    def __init__(self, destination: str, options: Sequence[str] = ()) -> None:
        match = _DESTINATION.fullmatch(destination)
        if match is None or destination.startswith("-") or match[2].startswith("-"):
            raise UsageError(
                f"--host {destination}", "that is not how a host is named", "user@box, user@box:2222 or box"
            )
        user, box, port = match.groups()
        self.name = destination
        self._options = (*options, *(("-p", port) if port else ()))
        self._destination = (f"{user}@" if user else "") + box.strip("[]")
        self._folder: Path | None = None

    def __enter__(self) -> "SshHost":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 30.0) -> Completed:
        """Run a command there. Raises HostError when the machine cannot be asked, or the connection is lost."""
        folder = self._connected()
        mark = secrets.token_hex(12)
        limit_s = str(int(timeout_s) + 1 + _REMOTE_EXTRA_S)
        far_side = shlex.join(("sh", "-c", _FAR_SIDE, "sh", mark, limit_s, *argv))
        done = run_bounded((*self._ssh(folder), "--", self._destination, far_side), stdin, timeout_s, _environment())
        answer = _unwrapped(done, tuple(argv), mark.encode())
        if answer is not None:
            return answer
        if done.exit_code == 255:
            raise self._refused(done, "running a command on")
        raise HostError(
            f"running {argv[0]} on {self.name}",
            f"the login shell did not run it ({done.failure or 'it ended without a word'})",
            f"ssh {self.name} true, which has to print nothing and end with exit code 0",
        )

    def close(self) -> None:
        """End the shared connection and remove its folder. The next command would open another."""
        folder, self._folder = self._folder, None
        if folder is not None:
            atexit.unregister(self.close)
            run_bounded((*self._ssh(folder), "-O", "exit", "--", self._destination), b"", 5, _environment())
            shutil.rmtree(folder, ignore_errors=True)

    def _connected(self) -> Path:
        """The folder of the control socket, behind which a login that worked is waiting."""
        if self._folder is not None:
            return self._folder
        if shutil.which("ssh") is None:
            raise HostError(f"reaching {self.name}", "there is no ssh on this machine", "the OpenSSH client installed")
        folder = Path(_short_folder())
        try:
            argv = (*self._ssh(folder), "-M", "-N", "-f", "--", self._destination)
            done = run_leaving(argv, CONNECT_TIMEOUT_S + _LOGIN_S, _environment(), folder / "said")
            if not done.ok:
                raise self._refused(done, "reaching")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folder = folder
        atexit.register(self.close)
        return folder

    def _ssh(self, folder: Path) -> tuple[str, ...]:
        """ssh with what holds for every use of it here; the user's configuration decides the rest."""
        settings = {
            "BatchMode": "yes",
            "ConnectTimeout": str(CONNECT_TIMEOUT_S),
            "ControlPath": str(folder / "s"),
            "ControlPersist": str(_IDLE_S),
            "Compression": "yes",  # most of what comes is text, and the far machine is far
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "ClearAllForwardings": "yes",
            "ForwardAgent": "no",
            "ForwardX11": "no",
            "PermitLocalCommand": "no",
            "RemoteCommand": "none",
            "RequestTTY": "no",
        }
        pairs = (part for name, value in settings.items() for part in ("-o", f"{name}={value}"))
        return ("ssh", *self._options, *pairs)

    def _refused(self, done: Completed, doing: str) -> HostError:
        found, hint = refusal(done, self.name, CONNECT_TIMEOUT_S + _LOGIN_S)
        return HostError(f"{doing} {self.name} with ssh", found, hint)


def _unwrapped(done: Completed, argv: tuple[str, ...], mark: bytes) -> Completed | None:
    """What the command itself wrote and how it ended; None when it did not run, or its end was not seen in time."""
    stdout = done.stdout.partition(mark + b"\n")
    stderr = done.stderr.partition(mark + b"\n")
    if not (stdout[1] and stderr[1]):
        if done.timed_out or done.truncated:  # nothing of the command was seen, and nothing speaks against the host
            return Completed(argv, None, seconds=done.seconds, truncated=done.truncated)
        return None
    said, ended, code = stderr[2].rpartition(mark + b" ")
    if ended:
        return Completed(argv, _exit_code(code), stdout[2], said, done.seconds, done.truncated)
    if done.timed_out or done.truncated:
        return Completed(argv, done.exit_code, stdout[2], stderr[2], done.seconds, done.truncated)
    return None


def _exit_code(text: bytes) -> int:
    code = int(text)
    with suppress(ValueError):
        if code > 128 and signal.Signals(code - 128) in _DEADLY:
            return 128 - code
    return code


def _environment() -> dict[str, str]:
    """Ours, with messages in English: they are read."""
    return {**os.environ, "LC_ALL": "C"}


def _short_folder() -> str:
    """A private folder with a short name: the path of a socket holds about a hundred characters."""
    long = len(tempfile.gettempdir()) > 60
    return tempfile.mkdtemp(prefix="sublight-", dir="/tmp" if long and Path("/tmp").is_dir() else None)  # noqa: S108
