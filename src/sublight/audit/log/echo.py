"""Arguments as an engine echoes them: Python's own notation, read without evaluating anything.

ServerArgs(a='x', b=[1, 2]), {'a': 'x', 'b': {...}} and a bare a='x', b=Config(c=1) are all lists of names and values.
Values keep their source text, because they hold objects that no parser knows (<Mode.FULL: 2>). A line that was cut
short gives the arguments that stand there whole.
"""

import re

from sublight.audit.log.record import Argument

_NAME = re.compile(r"\s*(?:'([A-Za-z_][\w.\-]{0,100})'|\"([A-Za-z_][\w.\-]{0,100})\"|([A-Za-z_][\w.]{0,100}))\s*[:=]")
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
_TOKEN = re.compile(r"""['"(){}\[\],\\<>]""")
_SECRET = re.compile(r"(?:^|_)(?:api_?keys?|key|secret|password|passwd|credentials?|auth|hf_token|access_token)$", re.I)
HIDDEN = "<hidden>"
_IN_TEXT = re.compile(
    r"""((?:api_?keys?|_key|secret|password|passwd|hf_token|access_token)['"]?\s*[:=]\s*)"""
    r"""(\[[^\]]*\]?|'[^']*'?|"[^"]*"?|[^\s,)}\]]+)""",
    re.I,
)


def arguments(text: str) -> tuple[Argument, ...]:
    """The arguments that a line lists, outermost only; secrets hidden. Never raises."""
    found = []
    for piece in _pieces(text):
        match = _NAME.match(piece)
        if match is None:
            continue
        name = match[1] or match[2] or match[3]
        value = piece[match.end() :].strip()
        found.append(Argument(name, HIDDEN if _SECRET.search(name) and value != "None" else without_secrets(value)))
    return tuple(found)


def inner(value: str) -> tuple[Argument, ...]:
    """The arguments inside a value: of "{'a': 1}" or "Config(a=1)"."""
    start = min((place for place in (value.find("("), value.find("{")) if place >= 0), default=-1)
    return arguments(value[start + 1 :]) if start >= 0 else ()


def whole_numbers(value: str) -> tuple[int, ...]:
    """[1, 2, 4] as numbers; empty for anything else, and for a list with something else in it."""
    body = value.strip()
    if not (body.startswith("[") and body.endswith("]")):
        return ()
    parts = [part.strip() for part in body[1:-1].split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        return ()
    return tuple(int(part) for part in parts)


def without_secrets(text: str) -> str:
    """The text with the values of keys, tokens and passwords hidden: evidence is saved and sent on."""
    return _IN_TEXT.sub(lambda match: match[0] if match[2].startswith("None") else match[1] + HIDDEN, text)


def _pieces(text: str) -> list[str]:
    """Split at the commas that are inside no bracket and no string, up to the bracket that closes the list."""
    pieces: list[str] = []
    closing: list[str] = []
    quote, begin, skip = "", 0, -1
    for match in _TOKEN.finditer(text):
        place, mark = match.start(), match[0]
        if place == skip:
            continue
        if quote:
            if mark == "\\":
                skip = place + 1
            elif mark == quote:
                quote = ""
        elif mark in "'\"":
            quote = mark
        elif mark in _OPEN:
            closing.append(_OPEN[mark])
        elif mark in _CLOSE:
            if not closing:
                return [*pieces, text[begin:place]]
            closing.pop()
        elif mark == "," and not closing:
            pieces.append(text[begin:place])
            begin = place + 1
    # Without its end the last one may be cut; a line that lists arguments bare ends where its last one does.
    return pieces if closing or quote else [*pieces, text[begin:]]
