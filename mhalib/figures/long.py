"""Plots of long inputs: which scores a pattern lets through, computes and skips, and its reach."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch

from mhalib.figures.page import PALETTE, SEQUENTIAL, STYLE

_SKIPPED, _COMPUTED, _SEEN = "#F2F2F2", PALETTE[1], PALETTE[0]


def mask_maps(masks, titles, *, title, computed=None):
    """Boolean masks as square maps in one row: which token may attend to which.

    Args:
        masks: sequence of (query_len, key_len) boolean arrays, True = may attend.
        titles: one short title for each.
        title: the message of the whole figure.
        computed: as many boolean arrays, True where the score is computed, or None. What is
            computed and may not be attended to gets a colour of its own.
    """
    kinds = [np.asarray(mask, dtype=int) * 2 for mask in masks]
    if computed is not None:
        for kind, mask in zip(kinds, computed, strict=True):
            kind[(kind == 0) & np.asarray(mask, dtype=bool)] = 1
    names = {0: "hidden" if computed is None else "skipped", 1: "computed, then hidden", 2: "seen"}
    shown = (0, 2) if computed is None else (0, 1, 2)
    colours = ListedColormap([_SKIPPED, _COMPUTED, _SEEN])
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            1, len(kinds), figsize=(2.5 * len(kinds) + 1.6, 3.0), squeeze=False
        )
        for ax, kind, name in zip(axes[0], kinds, titles, strict=True):
            ax.imshow(kind, cmap=colours, vmin=0, vmax=2, interpolation="nearest")
            _as_map(ax, name, kind.shape)
        axes[0, 0].set_ylabel("token that asks")
        fig.supxlabel("token that answers", fontsize=10)
        fig.legend(
            handles=[
                Patch(facecolor=colours(kind), edgecolor="#888888", label=names[kind])
                for kind in shown
            ],
            loc="outside right center",
            frameon=False,
        )
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def reach_maps(layers, titles, *, title, num_layers):
    """After how many layers information arrives, as square maps in one row.

    Args:
        layers: sequence of (n, n) integer arrays, as `sparse.layers_to_reach` gives: -1 never.
        titles: one short title for each.
        title: the message of the whole figure.
        num_layers: the last layer that has a colour of its own.
    """
    steps = plt.get_cmap(SEQUENTIAL)(np.linspace(0, 1, num_layers + 1))
    colours = ListedColormap([_SKIPPED, *steps])
    edges = BoundaryNorm(np.arange(-1.5, num_layers + 1), colours.N)
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            1, len(layers), figsize=(2.5 * len(layers) + 1.2, 3.0), squeeze=False
        )
        for ax, counts, name in zip(axes[0], layers, titles, strict=True):
            counts = np.asarray(counts)
            image = ax.imshow(counts, cmap=colours, norm=edges, interpolation="nearest")
            _as_map(ax, name, counts.shape)
        axes[0, 0].set_ylabel("token that learns")
        fig.supxlabel("token it learns of", fontsize=10)
        bar = fig.colorbar(image, ax=axes, label="layers until it arrives", shrink=0.8)
        bar.minorticks_off()
        bar.set_ticks(range(-1, num_layers + 1), labels=["never", *range(num_layers + 1)])
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def _as_map(ax, name, shape):
    ax.set_title(name, fontsize=10)
    ax.spines[:].set_visible(False)
    for axis, size in ((ax.yaxis, shape[0]), (ax.xaxis, shape[1])):
        places = [place for place in range(size) if place % max(8, size // 4) == 0] + [size - 1]
        axis.set_ticks(places[:-2] + places[-1:], [str(n + 1) for n in places[:-2] + places[-1:]])
