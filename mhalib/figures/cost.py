"""Plots of what heads cost and what they bring: measured beside predicted, and real sizes."""

import matplotlib.pyplot as plt
import numpy as np

from mhalib.figures.page import PALETTE, SEQUENTIAL, STYLE
from mhalib.figures.plots import points


def measured_and_predicted(x, measured, predicted, *, title, xlabel, ylabel, ax=None):
    """Measurements as points with their medians as a line, predictions as dashed lines.

    Args:
        x: (n,) values, drawn at equal steps.
        measured: dict from a label to n sequences of values, one for each x.
        predicted: dict from a label to (n,) values.
        title, xlabel, ylabel: the message and the axes.
        ax: draw into this Axes and not into a new Figure.
    """
    places = np.arange(len(x))
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(7.5, 4.2))
        shifts = np.linspace(-0.07, 0.07, len(measured))
        for (label, values), shift, colour, marker in zip(
            measured.items(), shifts, PALETTE, "osD^vPX*", strict=False
        ):
            for place, single in zip(places, values, strict=True):
                spread = np.linspace(-0.04, 0.04, len(single))
                ax.plot(place + shift + spread, single, ".", color="#444444", alpha=0.4, ms=5)
            medians = [np.median(single) for single in values]
            ax.plot(places + shift, medians, marker=marker, color=colour, label=label)
        for (label, values), style in zip(predicted.items(), ("--", ":", "-."), strict=False):
            ax.plot(places, values, style, color="#555555", label=label)
        ax.set_xticks(places, x)
        ax.set_ylim(bottom=0)
        ax.grid(axis="y", color="#DDDDDD")
        ax.set_axisbelow(True)
        ax.legend(frameon=False)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax.figure


def points_beside(panels, *, title, xlabel, from_zero=()):
    """`points` in panels from left to right, each with a scale of its own.

    Args:
        panels: dict from the label of a panel's values to its groups, as `points` takes them.
        title, xlabel: the message of the whole figure, and what the groups are.
        from_zero: labels of the panels whose scale starts at 0.
    """
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, len(panels), figsize=(2.6 * len(panels), 3.4), squeeze=False)
        for ax, (ylabel, groups) in zip(axes[0], panels.items(), strict=True):
            points(groups, title="", xlabel=xlabel, ylabel=ylabel, ax=ax)
            if ylabel in from_zero:
                ax.set_ylim(bottom=0)
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def square_maps(matrices, titles, *, title, colour_label, xlabel, ylabel, limits):
    """Matrices of one form as small square maps in one row, without tick labels.

    Args:
        matrices: sequence of (n, n) arrays.
        titles: one short title for each.
        title, colour_label, xlabel, ylabel: the message, the unit of the colours, the axes.
        limits: (lowest, highest) value of the colour scale; what is above has the last colour.
    """
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            1, len(matrices), figsize=(1.6 * len(matrices) + 1, 2.5), squeeze=False
        )
        for ax, matrix, name in zip(axes[0], matrices, titles, strict=True):
            image = ax.imshow(matrix, cmap=SEQUENTIAL, vmin=limits[0], vmax=limits[1])
            ax.set_title(name, fontsize=10)
            ax.spines[:].set_visible(False)
            ax.set_xticks([])
            ax.set_yticks([])
        fig.colorbar(image, ax=axes, label=colour_label, extend="max")
        fig.supxlabel(xlabel, fontsize=10)
        fig.supylabel(ylabel, fontsize=10)
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def head_sizes(names, head_dims, even, *, title, xlabel):
    """One line for each model: the width of its heads, and d_model / num_heads where that differs.

    Args:
        names: n models, the first on top.
        head_dims: (n,) widths of one head.
        even: (n,) values of d_model / num_heads.
        title, xlabel: the message and the axis.
    """
    places = np.arange(len(names))
    differ = [i for i in places if head_dims[i] != even[i]]
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(7.5, 1.4 + 0.27 * len(names)))
        ax.axvline(128, color="#BBBBBB", linewidth=1, linestyle="--", zorder=0)
        for i in differ:
            ax.plot([even[i], head_dims[i]], [i, i], color="#CCCCCC", zorder=1)
        ax.plot(head_dims, places, "o", color=PALETTE[0], ms=8, label="head_dim")
        ax.plot(
            [even[i] for i in differ],
            differ,
            "D",
            color=PALETTE[5],
            mfc="white",
            label="d_model / num_heads,\nwhere it is another number",
        )
        for place, width, other in zip(places, head_dims, even, strict=True):
            beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "size": 9}
            ax.annotate(str(width), (max(width, other), place), color=PALETTE[0], **beside)
        ax.set_yticks(places, names)
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_xlim(0, 290)
        ax.set_xticks([0, 64, 128, 192, 256])
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        ax.set(title=title, xlabel=xlabel)
    return fig
