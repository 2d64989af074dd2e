"""The figures and the control of lesson 08: what they draw, and that they follow."""

import numpy as np
import pytest
import torch

from mhalib import figures, masks, sparse, widgets
from mhalib.widgets import patterns


def titles(fig):
    return [ax.get_title(loc="left") for ax in fig.axes if ax.get_title(loc="left")]


def test_mask_maps_colours_what_is_computed_and_hidden():
    mask = masks.sliding_window(16, window=4)
    blocks = sparse.blocks_needed(mask, 4).repeat_interleave(4, 0).repeat_interleave(4, 1)
    fig = figures.mask_maps([mask, ~mask], ["a", "b"], title="x", computed=[blocks, mask])
    first = np.asarray(fig.axes[0].images[0].get_array())
    assert titles(fig) == ["a", "b"]
    assert (first == 2).sum() == int(mask.sum())
    assert (first == 1).sum() == int(blocks.sum()) - int(mask.sum())
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert legend == ["skipped", "computed, then hidden", "seen"]
    assert len(figures.html(fig, alt="what it shows")) < 200_000


def test_mask_maps_without_blocks_has_two_colours():
    fig = figures.mask_maps([masks.causal(5)], ["causal"], title="x")
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["hidden", "seen"]
    figures.html(fig, alt="closes it")


def test_reach_maps_gives_every_number_of_layers_a_colour():
    layers = sparse.layers_to_reach(masks.sliding_window(16, window=4), 3)
    fig = figures.reach_maps([layers, layers], ["a", "b"], title="x", num_layers=3)
    image = fig.axes[0].images[0]
    colours = image.cmap(image.norm(torch.arange(-1, 4).numpy()))
    assert len({tuple(colour) for colour in colours}) == 5
    assert [t.get_text() for t in fig.axes[-1].get_yticklabels()] == ["never", "0", "1", "2", "3"]
    figures.html(fig, alt="closes it")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 64])
def test_first_and_last_token_are_named(size):
    fig = figures.mask_maps([masks.causal(size)], ["x"], title="x")
    named = [label.get_text() for label in fig.axes[0].get_xticklabels()]
    assert named[-1] == str(size)
    assert len(named) == len(set(named)) <= 8
    figures.html(fig, alt="closes it")


def test_sparse_patterns_follows_its_controls():
    box = widgets.sparse_patterns()
    chosen, size, layers, picture = box.children
    assert all(control.description for control in (chosen, size, layers))
    assert "after 2 layers the last token knows of 15 of 64" in picture.value
    assert "484 of 2,080 causal scores are seen, and 15 of 36 causal blocks" in picture.value
    layers.value = 1
    assert "after 1 layer the last token knows of 8 of 64" in picture.value
    size.value, layers.value = 16, 5
    assert "after 5 layers the last token knows of 64 of 64" in picture.value
    layers.value = 4
    assert "after 4 layers the last token knows of 61 of 64" in picture.value
    for name, known in zip(patterns.PATTERNS[1:], (17, 16, 64), strict=True):
        chosen.value = name
        assert f"{name}, size 16: after 4 layers the last token knows of {known}" in picture.value


def test_every_named_pattern_is_there():
    for name in patterns.PATTERNS:
        assert patterns.pattern(name, 4, 16).shape == (16, 16)
    with pytest.raises(KeyError):
        patterns.pattern("star", 4)
