"""Text from files we did not write, made inert before any renderer sees it.

A kernel name, a path or a server's reply may hold escape sequences, line breaks that fake a line of our own output, or
direction overrides that show a name backwards. Each such character is shown as its escape (`\\x1b`, `\\n`, `\\u202e`)
in every form, so a reader sees that it is there. Backslashes are left alone: paths stay readable, and showing a text
twice changes nothing.
"""

# Spaces that are not ASCII: invisible but harmless, and a view may hold "6.64 ms" together with one.
_SPACES = frozenset("\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000")


def visible(text: str) -> str:
    """`text` on one line, with everything that is not a printable character or a space shown as an escape."""
    if text.isprintable():
        return text
    return "".join(ch if ch.isprintable() or ch in _SPACES else _escape(ch) for ch in text)


def visible_lines(text: str) -> list[str]:
    """The lines of a text that may have several (code), each inert; tabs become four spaces."""
    return [visible(line.replace("\t", "    ")) for line in text.replace("\r\n", "\n").split("\n")]


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
