"""What can go wrong, as one tree.

SublightError                    one clear sentence each for: what was asked, what was found, what to try
├── UsageError                   options that do not fit together or are out of range
├── UnknownNameError             a name that no catalogue has; the near misses are named
├── InputFileError               a file or folder that cannot be read as what it was given as
│   └── ConfigError              a model configuration that lacks, contradicts, or garbles a field
├── HostError                    a machine that could not be asked: no such host, refused, no answer, key or login
├── KernelError                  a problem or a tensor that no kernel here can take; the dimension is named
├── BenchError                   a measurement that this machine cannot make: no GPU, no such clock or library
└── RecordError                  a saved record that is not one, or is newer than this program

The command line prints the three sentences and leaves with the class's `exit_code`; nothing else maps errors to codes.
"""

from collections.abc import Iterable


class SublightError(Exception):
    """A failure the reader can act on.

    Args:
        asked: what the caller wanted.
        found: what stood in the way.
        hint: what to try next; never empty.
    """

    exit_code = 2

    def __init__(self, asked: str, found: str, hint: str) -> None:
        super().__init__(f"{asked}: {found}. Try: {hint}")
        self.asked = asked
        self.found = found
        self.hint = hint


class UsageError(SublightError):
    """Options that do not fit together, or a value out of range."""


class InputFileError(SublightError):
    """A file or folder that cannot be read as what it was given as."""


class ConfigError(InputFileError):
    """A model configuration that lacks, contradicts, or garbles a field."""


class HostError(SublightError):
    """A machine that could not be asked. What a command on it did is no error but an answer."""


class KernelError(SublightError):
    """A problem that no kernel fits, or a tensor that is not what its problem says; names the dimension."""


class BenchError(SublightError):
    """A measurement that cannot be made here, or that ended before it was one."""


class RecordError(SublightError):
    """A saved record that is not one, is damaged, or was written by a newer program."""


class UnknownNameError(SublightError):
    """A name that the catalogue of its kind does not have.

    Args:
        kind: what sort of thing was named, e.g. "GPU".
        name: the name as given.
        known: every name that would have been right.
        hint: what to try when no name is near; the near misses replace it when there are some.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        names = sorted(known)
        near = near_misses(name, names)
        if near:
            advice = " or ".join(near)
        elif len(names) <= 12:
            advice = "one of " + ", ".join(names)
        else:
            advice = hint or f"one of the {len(names)} known names, such as {', '.join(names[:5])}"
        super().__init__(f"{kind} {name!r}", "no such name is known", advice)
        self.kind = kind
        self.name = name
        self.near = near


def near_misses(name: str, known: Iterable[str], at_most: int = 4) -> list[str]:
    """The known names a reader most likely meant: same letters and digits first, then parts, then close spellings."""
    import difflib

    def squeeze(text: str) -> str:
        return "".join(ch for ch in text.lower() if ch.isalnum())

    wanted = squeeze(name)
    pool = list(known)
    same = [k for k in pool if squeeze(k) == wanted]
    inside = [k for k in pool if min(len(wanted), len(squeeze(k))) >= 3 and _one_in_other(wanted, squeeze(k))]
    lowered = {k.lower(): k for k in pool}
    close = [lowered[m] for m in difflib.get_close_matches(name.lower(), list(lowered), n=at_most, cutoff=0.6)]
    return list(dict.fromkeys([*same, *inside, *close]))[:at_most]


def _one_in_other(a: str, b: str) -> bool:
    return a in b or b in a
