"""What a recorded run shows: series and summaries (pure data), and pictures of them apart from that.

Importing this needs numpy only; the pictures import matplotlib when they are drawn.
"""

from lbbsp.report.plots import Mark, Segment, draw, save_png
from lbbsp.report.series import Series, series_of
from lbbsp.report.summary import ForecastErrors, Summary, summarise

__all__ = [
    "ForecastErrors",
    "Mark",
    "Segment",
    "Series",
    "Summary",
    "draw",
    "save_png",
    "series_of",
    "summarise",
]
