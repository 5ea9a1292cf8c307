"""Output on a terminal or a pipe whose encoding lacks the characters that bars and signs are drawn with."""

import codecs
from typing import TextIO

_NAME = "sublight-glyphs"
# One character for one, so that columns still stand under each other.
_PLAIN = {
    **dict.fromkeys("█▉▊▋▌▐▀▄", "#"),
    **dict.fromkeys("▓▚▞▙▟▛▜", "%"),
    **dict.fromkeys("▒■●◆", "="),
    **dict.fromkeys("░·•▏▎▍▁▂▃▅▆▇", "."),
    **dict.fromkeys("─━–—−‐‑", "-"),
    **dict.fromkeys("│┃┊┆╎", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼", "+"),
    **dict.fromkeys(map(chr, range(0x2801, 0x2900)), "*"),  # the dots that curves are drawn with
    "\u2800": " ",
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u200a\u202f\u200b", " "),
    **{"×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "≤": "<", "≥": ">", "≈": "~", "µ": "u", "μ": "u", "…": "."},
    **{"✓": "+", "✗": "x"},
}


def make_printable(stream: TextIO | None) -> None:
    """Let the stream print what its encoding has, something plain for drawings, and ? for the rest.

    Encodings of all of Unicode are left alone, and ASCII, which click takes for a locale that nobody set.
    """
    encoding = getattr(stream, "encoding", None)
    reconfigure = getattr(stream, "reconfigure", None)
    if encoding is None or reconfigure is None:
        return
    name = codecs.lookup(encoding).name
    if name == "ascii":
        return
    codecs.register_error(_NAME, _plain)
    if name.startswith("utf"):
        reconfigure(errors="backslashreplace")
    else:
        reconfigure(errors=_NAME)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in text), error.end
