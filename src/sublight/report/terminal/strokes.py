"""Bars made of characters: block elements that end on an eighth of a column."""

EIGHTHS = " ▏▎▍▌▋▊▉"
LEVELS = " ▁▂▃▄▅▆▇█"
SOLID = "█"
RIGHT_HALF = "▐"
# Series differ in pattern as well as in colour. The lightest shade is left out: it means "unknown".
PATTERNS = (SOLID, "▓", "▒", "▚", "▄", "▞")
COLOURS = ("blue", "yellow", "magenta", "green", "cyan", "red")
UNKNOWN = "░"


def solid(length: float) -> str:
    """A bar from the left edge, to the nearest eighth of a column; what is not zero leaves at least a trace."""
    eighths = round(length * 8)
    if eighths == 0 and length > 0:
        eighths = 1
    whole, part = divmod(eighths, 8)
    return SOLID * whole + (EIGHTHS[part] if part else "")


def span(start: float, end: float, pattern: str) -> tuple[int, str]:
    """A bar between two places: how many empty columns before it, and the bar.

    There are no characters for a bar that begins at an arbitrary eighth, so a solid bar starts on a half column and a
    pattern on a whole one. Something is always drawn, at least a trace.
    """
    if pattern != SOLID:
        first = round(start)
        return first, pattern * max(1, round(end) - first)
    column, half = divmod(round(start * 2), 2)
    if not half:
        return column, solid(max(end - column, 1 / 8))
    if end < column + 0.75:
        return column, solid(max(end - start, 1 / 8))
    rest = end - column - 1
    return column, RIGHT_HALF + (solid(rest) if rest > 1 / 16 else "")


def level(share: float) -> str:
    """A column filled from the ground to the nearest eighth; what is not zero leaves at least a trace."""
    return LEVELS[max(round(share * 8), 1) if share > 0 else 0]
