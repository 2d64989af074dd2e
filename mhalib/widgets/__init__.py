"""What a learner moves: controls that redraw a picture, and an explorer of a real model's heads."""

from mhalib.widgets.calculator import cost_calculator, costs
from mhalib.widgets.controls import (
    attention_budget,
    block_tour,
    lending_demo,
    neighbours,
    saturation,
    share_out,
    softmax_saturation,
    word_explorer,
)
from mhalib.widgets.explorer import MAX_TOKENS, HeadExplorer, head_explorer
from mhalib.widgets.patterns import sparse_patterns
from mhalib.widgets.sharing import shared_heads

__all__ = [
    "MAX_TOKENS",
    "HeadExplorer",
    "attention_budget",
    "block_tour",
    "cost_calculator",
    "costs",
    "head_explorer",
    "lending_demo",
    "neighbours",
    "saturation",
    "share_out",
    "shared_heads",
    "softmax_saturation",
    "sparse_patterns",
    "word_explorer",
]
