"""Plots of a whole model's heads: maps, measures, probes, pruning. Heads count from 1 on paper."""

from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch, Rectangle

from mhalib.figures.page import PALETTE, STYLE
from mhalib.figures.plots import heatmap

_MARK = "#D55E00"  # seen on both ends of the colour scale


def layer_maps(weights, tokens, *, title, marked=(), per_row=None):
    """Every head of one layer as a small map, colours from 0 to 1: rows ask, columns answer.

    Args:
        weights: (num_heads, n, n) array or tensor.
        tokens: n labels.
        title: the message of the whole figure.
        marked: heads to outline, counted from 0.
        per_row: maps side by side; as many as keep the labels readable if None.
    """
    weights = _numbers(weights, 3, "(num_heads, n, n)")
    per_row = per_row or (4 if len(tokens) <= 16 else 3 if len(tokens) <= 22 else 2)
    rows = -(-len(weights) // per_row)
    side = max(1.5, 0.125 * len(tokens))
    longest = 0.075 * max(len(token) for token in tokens)
    size = per_row * (side + 0.15) + longest + 1.2, rows * (side + 0.35) + longest + 0.8
    with plt.rc_context(STYLE | {"xtick.labelsize": 7.5, "ytick.labelsize": 7.5}):
        fig, axes = plt.subplots(
            rows, per_row, figsize=size, squeeze=False, sharex=True, sharey=True
        )
        for ax in axes.flat[len(weights) :]:
            ax.axis("off")
        for head, (ax, of_head) in enumerate(zip(axes.flat, weights, strict=False)):
            heatmap(
                of_head,
                tokens,
                title=f"head {head + 1}",
                xlabel="",
                ylabel="",
                colour_label=None,
                limits=(0, 1),
                decimals=None,
                ax=ax,
            )
            chosen = head in marked
            ax.set_title(f"head {head + 1}", size=9, color=_MARK if chosen else "black")
            ax.tick_params(axis="x", rotation=90)
            ax.tick_params(length=0, pad=1)
            if chosen:
                ax.spines[:].set(visible=True, color=_MARK, linewidth=2.5)
        fig.supxlabel("token that answers", fontsize=10)
        fig.supylabel("token that asks", fontsize=10)
        image = axes[0, 0].images[0]
        fig.colorbar(image, ax=axes, label="weight (each row sums to 1)", aspect=40)
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def head_grid(values, *, title, colour_label, marked=None, limits=None, decimals=2, ax=None):
    """A measure of every head: layers down, heads across.

    Args:
        values: (num_layers, num_heads) array or tensor.
        title, colour_label: the message, and the unit of the colours.
        marked: dict from (layer, head), counted from 0, to a name: outlined, and named below.
        limits: (lowest, highest) value of the colour scale.
        decimals: digits of the values in the cells; None writes none.
        ax: draw into this Axes and not into a new Figure.
    """
    values = _numbers(values, 2, "(num_layers, num_heads)")
    layers, heads = ([str(i + 1) for i in range(count)] for count in values.shape)
    with plt.rc_context(STYLE):
        if ax is None:
            size = 2.4 + 0.52 * len(heads), 1.5 + 0.4 * len(layers) + 0.3 * bool(marked)
            _, ax = plt.subplots(figsize=size)
        heatmap(
            values,
            layers,
            heads,
            title=title,
            xlabel="head",
            ylabel="layer",
            colour_label=colour_label,
            limits=limits,
            decimals=decimals,
            ax=ax,
        )
        ax.tick_params(axis="x", rotation=0, length=0)
        ax.tick_params(axis="y", length=0)
        outline = {"fill": False, "edgecolor": _MARK, "linewidth": 2.5}
        for layer, head in marked or ():
            ax.add_patch(Rectangle((head - 0.47, layer - 0.47), 0.94, 0.94, **outline))
        if marked:
            names = [f"L{layer + 1}H{head + 1} {name}" for (layer, head), name in marked.items()]
            told = fill(
                " · ".join(names), width=max(40, 11 * len(heads) - 20), break_on_hyphens=False
            )
            ax.figure.legend(
                [Patch(**outline)],
                [told],
                loc="outside lower left",
                frameon=False,
                fontsize=9,
            )
    return ax.figure


def pruning_curves(heads_left, curves, *, title, ylabel, chance=None, ax=None):
    """Quality as heads are switched off: all heads at the left, none at the right.

    Args:
        heads_left: (n,) numbers of heads that are left.
        curves: dict from a curve's label to its (n,) values; or to (seeds, n) values, drawn as a
            point each, with their mean as the line.
        title, ylabel: the message, and what the quality is.
        chance: what guessing would reach, as a dashed line.
        ax: draw into this Axes and not into a new Figure.
    """
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(7.5, 4))
        for (label, values), colour, marker in zip(
            curves.items(), PALETTE, "osD^vPX*", strict=False
        ):
            values = np.asarray(values, dtype=float)
            middle = np.atleast_2d(values).mean(axis=0)
            if values.ndim == 2:
                ax.plot(heads_left, values.T, marker, color=colour, alpha=0.5, ms=4, mew=0)
                label = f"{label} (mean of {len(values)})"
            ax.plot(heads_left, middle, marker=marker, ms=5, color=colour, label=label)
        if chance is not None:
            ax.axhline(chance, color="0.4", linestyle="--", linewidth=1, label="guessing")
        ax.set_xlim(max(heads_left) * 1.03, -max(heads_left) * 0.03)
        ax.set_xticks(heads_left)
        ax.grid(axis="y", color="#DDDDDD")
        ax.set_axisbelow(True)
        ax.legend(frameon=False)
        ax.set(title=title, xlabel="heads left", ylabel=ylabel)
    return ax.figure


def probe_dots(
    labels, series, *, title, xlabel="accuracy", ylabel="relation", limits=(0, 1), ax=None
):
    """Several scores of each thing on one line: how far the first is from the others.

    Args:
        labels: n names, the first on top.
        series: dict from a score's name to its n values; a thin line joins the dots of a label.
        title, xlabel, ylabel: the message and the axes.
        limits: (lowest, highest) value shown.
        ax: draw into this Axes and not into a new Figure.
    """
    values = np.array([list(of_one) for of_one in series.values()], dtype=float)
    if values.shape != (len(series), len(labels)):
        raise ValueError(f"each of the series needs {len(labels)} values, one for each label")
    places = np.arange(len(labels))
    colours = (PALETTE[0], "#777777", "#E69F00", "#CC79A7")
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(7.5, 1.6 + 0.38 * len(labels)))
        ax.hlines(places, values.min(axis=0), values.max(axis=0), color="#CCCCCC", zorder=1)
        for name, of_one, colour, marker in zip(series, values, colours, "osD^", strict=False):
            ax.scatter(of_one, places, s=55, color=colour, marker=marker, label=name, zorder=2)
        for place, value in zip(places, values[0], strict=True):
            above = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "size": 8}
            ax.annotate(f"{value:.2f}", (value, place), color=colours[0], **above)
        ax.set_yticks(places, labels)
        ax.set_ylim(len(labels) - 0.5, -0.7)
        ax.set_xlim(*limits)
        ax.grid(axis="x", color="#EEEEEE")
        ax.set_axisbelow(True)
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax.figure


def attention_lines(weights, tokens, *, title, asking=None, least=0.05, ax=None):
    """One head's weights as lines: the left column asks, the right column answers.

    Args:
        weights: (n, n) array or tensor.
        tokens: n labels.
        title: the message.
        asking: the number of a token, from 0: only its lines, with their weights written out.
        least: weights below are left out.
        ax: draw into this Axes and not into a new Figure.
    """
    weights = _numbers(weights, 2, "(n, n)")
    share = np.linspace(0, 1, 40)
    bend = share**2 * (3 - 2 * share)  # leaves and arrives level
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(4.6, 0.9 + 0.24 * len(tokens)))
        for (row, column), weight in np.ndenumerate(weights):
            if weight < least or asking not in (None, row):
                continue
            ax.plot(
                share,
                row + (column - row) * bend,
                color=PALETTE[0],
                linewidth=0.5 + 6 * weight,
                alpha=0.25 + 0.75 * weight,
                solid_capstyle="butt",
            )
        for i, token in enumerate(tokens):
            strong = "bold" if i == asking else "normal"
            ax.text(-0.03, i, token, ha="right", va="center", fontweight=strong)
            told = asking is not None and weights[asking, i] >= least
            answer = f"{token}  {weights[asking, i]:.2f}" if told else token
            ax.text(
                1.03,
                i,
                answer,
                va="center",
                color="#777777" if asking is not None and not told else "black",
            )
        ax.set(xlim=(-0.75, 1.75), ylim=(len(tokens) - 0.5, -1.6), title=title)
        ax.text(-0.03, -1.1, "asks", ha="right", va="center", style="italic", color="#555555")
        ax.text(1.03, -1.1, "answers", va="center", style="italic", color="#555555")
        ax.axis("off")
    return ax.figure


def _numbers(values, axes, expected):
    """An array of floats with that many axes, from an array or a tensor."""
    values = np.asarray(values, dtype=float)
    if values.ndim != axes:
        raise ValueError(f"the values have shape {values.shape}, but {expected} was expected")
    return values
