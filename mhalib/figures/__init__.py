"""Every plot of the course: each function returns a Figure, `show` puts it on the page."""

from mhalib.figures.attention import (
    arrows,
    attention_budget,
    attention_maps,
    four_moves,
    head_bars,
    vector_strips,
)
from mhalib.figures.page import PALETTE, STYLE, html, show
from mhalib.figures.plots import bars, heatmap, heatmap_grid, lines, points, word_map

__all__ = [
    "PALETTE",
    "STYLE",
    "arrows",
    "attention_budget",
    "attention_maps",
    "bars",
    "four_moves",
    "head_bars",
    "heatmap",
    "heatmap_grid",
    "html",
    "lines",
    "points",
    "show",
    "vector_strips",
    "word_map",
]
