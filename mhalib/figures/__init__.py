"""Every plot of the course: each function returns a Figure, `show` puts it on the page."""

from mhalib.figures.attention import (
    arrows,
    attention_budget,
    attention_maps,
    four_moves,
    head_bars,
    vector_strips,
)
from mhalib.figures.cost import (
    head_sizes,
    measured_and_predicted,
    points_beside,
    square_maps,
)
from mhalib.figures.heads import (
    attention_lines,
    head_grid,
    layer_maps,
    probe_dots,
    pruning_curves,
)
from mhalib.figures.page import PALETTE, STYLE, html, show
from mhalib.figures.plots import bars, heatmap, heatmap_grid, lines, points, word_map

__all__ = [
    "PALETTE",
    "STYLE",
    "arrows",
    "attention_budget",
    "attention_lines",
    "attention_maps",
    "bars",
    "four_moves",
    "head_bars",
    "head_grid",
    "head_sizes",
    "heatmap",
    "heatmap_grid",
    "html",
    "layer_maps",
    "lines",
    "measured_and_predicted",
    "points",
    "points_beside",
    "probe_dots",
    "pruning_curves",
    "show",
    "square_maps",
    "vector_strips",
    "word_map",
]
