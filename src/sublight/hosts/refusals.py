"""Why ssh could not reach a host, from what it wrote: found, and what to try.

ssh has one exit code (255) for all of it, so its words are read. Words that are not known here are passed on as they
are.
"""

from sublight.hosts.base import Completed

# (what ssh writes, found, hint); the first that matches. {host} is the host as the user named it.
_KNOWN: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("could not resolve hostname", "name or service not known"),
        "no host of that name is known",
        "the name as in ~/.ssh/config or DNS; ssh -G {host} shows what ssh makes of it",
    ),
    (
        ("remote host identification has changed",),
        "its key is not the one in known_hosts: another machine answers, or it was installed anew",
        "the new fingerprint from whoever runs the machine, then ssh-keygen -R for the old key",
    ),
    (
        ("host key verification failed", "no matching host key", "host key is known for"),
        "its host key is not known here, and nothing is trusted without asking",
        "ssh {host} once by hand, and compare the fingerprint that it shows",
    ),
    (
        ("connection refused",),
        "the connection was refused: the machine is there, and nothing listens on that port",
        "the right port (user@box:2222), or sshd started there",
    ),
    (
        ("connection timed out", "operation timed out", "timed out"),
        "it did not answer in time",
        "ssh {host} by hand; a firewall or a VPN may be in between",
    ),
    (
        ("no route to host", "network is unreachable"),
        "there is no way to it from this network",
        "ssh {host} by hand; a VPN or a ProxyJump in ~/.ssh/config may be missing",
    ),
    (
        ("permission denied", "too many authentication failures", "no supported authentication methods"),
        "the login was refused; only keys and an agent are used, and no password is asked for",
        "a key that the machine knows (ssh-add -l, ssh-copy-id {host}), and the right user",
    ),
    (
        ("bad configuration option", "bad owner or permissions", "terminating, "),
        "ssh does not accept its own configuration",
        "ssh -G {host}, which names the line",
    ),
    (
        ("connection closed", "connection reset", "broken pipe", "kex_exchange_identification", "not responding"),
        "the connection was closed from the other side",
        "ssh {host} by hand; the machine may be restarting, or limit how many connect at once",
    ),
)


def refusal(done: Completed, host: str, limit_s: float) -> tuple[str, str]:
    """What stood in the way, and what to try."""
    said = done.stderr.decode("utf-8", "replace")
    if done.timed_out:
        return f"it did not answer within {limit_s:.0f} s", f"ssh {host} true, by hand"
    lowered = said.lower()
    for needles, found, hint in _KNOWN:
        if any(needle in lowered for needle in needles):
            return f"{found} ({_line_with(said, needles)})", hint.format(host=host)
    return done.failure or "ssh ended without a word", f"ssh -v {host} true, by hand"


def _line_with(said: str, needles: tuple[str, ...]) -> str:
    """The line that says so, without the frame of @ that ssh puts round its loudest warning."""
    for line in said.splitlines():
        if any(needle in line.lower() for needle in needles):
            return line.strip(" @\t\r.")[:200]
    return ""
