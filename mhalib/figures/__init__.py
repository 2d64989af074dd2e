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
from mhalib.figures.long import mask_maps, reach_maps
from mhalib.figures.page import PALETTE, STYLE, html, show
from mhalib.figures.plots import bars, heatmap, heatmap_grid, lines, points, word_map
from mhalib.figures.sharing import before_and_after, cost_and_quality, curves, shared_heads

__all__ = [
    "PALETTE",
    "STYLE",
    "arrows",
    "attention_budget",
    "attention_lines",
    "attention_maps",
    "bars",
    "before_and_after",
    "cost_and_quality",
    "curves",
    "four_moves",
    "head_bars",
    "head_grid",
    "head_sizes",
    "heatmap",
    "heatmap_grid",
    "html",
    "layer_maps",
    "lines",
    "mask_maps",
    "measured_and_predicted",
    "points",
    "points_beside",
    "probe_dots",
    "pruning_curves",
    "reach_maps",
    "shared_heads",
    "show",
    "square_maps",
    "vector_strips",
    "word_map",
]
