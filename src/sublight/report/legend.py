"""What a legend of bars says: the series, and next to a single bar the size of each, which nothing else would say."""

from sublight.report.blocks import Bars


def legend(bars: Bars) -> tuple[tuple[str, str], ...]:
    """Each series with its size in words, or with nothing where there are several bars."""
    only = {segment.series: segment.text for segment in bars.bars[0].segments} if len(bars.bars) == 1 else {}
    return tuple((name, only.get(name, "")) for name in bars.series)
