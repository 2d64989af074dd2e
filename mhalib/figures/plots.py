"""Plots for any numbers: a matrix, bars, lines, points."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.transforms import Bbox

from mhalib.figures.page import DIVERGING, PALETTE, SEQUENTIAL, STYLE


def heatmap(
    matrix,
    rows,
    columns=None,
    *,
    title,
    xlabel,
    ylabel,
    colour_label,
    limits=None,
    diverging=False,
    decimals=2,
    ax=None,
):
    """A matrix as coloured cells, with the values written in where there are few.

    Args:
        matrix: (n_rows, n_columns) array.
        rows, columns: tick labels; `columns` as `rows` if None.
        title, xlabel, ylabel, colour_label: the message, the axes and the unit of the colours (no
            colour bar if None).
        limits: (lowest, highest) value of the colour scale.
        diverging: centre the colours on zero.
        decimals: digits of the values in the cells; None writes none.
        ax: draw into this Axes and not into a new Figure.
    """
    matrix = np.asarray(matrix, dtype=float)
    columns = rows if columns is None else columns
    if matrix.shape != (len(rows), len(columns)):
        raise ValueError(
            f"matrix has shape {matrix.shape}, but there are {len(rows)} row labels "
            f"and {len(columns)} column labels"
        )
    few = matrix.size <= 150 and decimals is not None
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(2.4 + 0.55 * len(columns), 1.7 + 0.42 * len(rows)))
        low, high = limits or (matrix.min(), matrix.max())
        if diverging and not limits:
            high = np.abs(matrix).max()
            low = -high
        image = ax.imshow(
            matrix, cmap=DIVERGING if diverging else SEQUENTIAL, vmin=low, vmax=high, aspect="auto"
        )
        ax.set_xticks(
            range(len(columns)), columns, rotation=45 if len(columns) > 5 else 0, ha="center"
        )
        ax.set_yticks(range(len(rows)), rows)
        ax.spines[:].set_visible(False)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
        if colour_label:
            ax.figure.colorbar(image, ax=ax, label=colour_label)
        if few:
            for (row, column), value in np.ndenumerate(matrix):
                red, green, blue, _ = image.cmap(image.norm(value))
                ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
                ax.text(
                    column,
                    row,
                    f"{value:.{decimals}f}",
                    ha="center",
                    va="center",
                    color=ink,
                    size=9,
                )
    return ax.figure


def heatmap_grid(
    matrices, rows, columns, titles, *, title, xlabel, ylabel, colour_label, per_row=4, decimals=2
):
    """Matrices of one form as small heat maps in rows, on one colour scale from 0 to 1.

    Args:
        matrices: sequence of (n_rows, n_columns) arrays.
        rows, columns: tick labels of each map.
        titles: one short title for each map.
        title: the message of the whole figure.
        xlabel, ylabel, colour_label: the axes, and the unit of the colours.
        per_row: maps side by side.
        decimals: digits of the values in the cells.
    """
    lines_of_maps = -(-len(matrices) // per_row)
    size = (
        per_row * (0.5 * len(columns) + 0.3) + 1.8,
        lines_of_maps * (1.15 + 0.34 * len(rows)) + 0.8,
    )
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            lines_of_maps, per_row, figsize=size, squeeze=False, sharex=True, sharey=True
        )
        for ax in axes.flat[len(matrices) :]:
            ax.axis("off")
        for ax, matrix, name in zip(axes.flat, matrices, titles, strict=False):
            heatmap(
                matrix,
                rows,
                columns,
                title=name,
                xlabel="",
                ylabel="",
                colour_label=None,
                limits=(0, 1),
                decimals=decimals,
                ax=ax,
            )
            ax.title.set_fontsize(10)
            ax.tick_params(axis="x", rotation=45)
            ax.tick_params(length=0)
        fig.supxlabel(xlabel, fontsize=10)
        fig.supylabel(ylabel, fontsize=10)
        fig.colorbar(axes[0, 0].images[0], ax=axes, label=colour_label)
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def bars(labels, values, *, title, xlabel, ylabel, limits=None, colours=None, decimals=2, ax=None):
    """Horizontal bars, the first on top, each with its value at the end."""
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 1.2 + 0.34 * len(labels)))
        drawn = ax.barh(range(len(labels)), values, color=colours or PALETTE[0])
        ax.bar_label(drawn, fmt=f"%.{decimals}f", padding=3)
        ax.set_yticks(range(len(labels)), labels)
        ax.invert_yaxis()
        ax.margins(x=0.12)
        if limits:
            ax.set_xlim(*limits)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax.figure


def lines(x, curves, *, title, xlabel, ylabel, logx=False, logy=False, ax=None):
    """One line with markers for each named curve.

    Args:
        x: (n,) values shared by all curves.
        curves: mapping from a curve's label to its (n,) values.
    """
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 3.8))
        for (label, values), marker in zip(curves.items(), "osD^vPX*" * 4, strict=False):
            ax.plot(x, values, marker=marker, label=label)
        if logx:
            ax.set_xscale("log", base=2)
            ax.set_xticks(x, [str(tick) for tick in x])
        if logy:
            ax.set_yscale("log")
        if len(curves) > 1:
            ax.legend(frameon=False)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax.figure


def points(groups, *, title, xlabel, ylabel, limits=None, ax=None):
    """Every value as a point, one column for each group, in the order given from left to right.

    Args:
        groups: mapping from a group's label to its values.
        title, xlabel, ylabel: the message and the axes.
        limits: (lowest, highest) value shown.
        ax: draw into this Axes and not into a new Figure.
    """
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(2.2 + 1.25 * len(groups), 3.8))
        for column, values in enumerate(groups.values()):
            spread = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [0]
            ax.plot(column + np.array(spread), values, "o", color="#444444", alpha=0.7, ms=6)
        ax.set_xticks(range(len(groups)), groups)
        ax.set_xlim(-0.6, len(groups) - 0.4)
        if limits:
            ax.set_ylim(*limits)
        ax.grid(axis="y", color="#DDDDDD")
        ax.set_axisbelow(True)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax.figure


def word_map(points, words, groups=None, *, title, xlabel, ylabel):
    """Words as labelled points on a plane, coloured and marked by group.

    Args:
        points: (n, 2) array.
        words: n labels.
        groups: n group names, or None for one group.
    """
    points = np.asarray(points, dtype=float)
    groups = [""] * len(words) if groups is None else groups
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(7.5, 5))
        for group, colour, marker in zip(dict.fromkeys(groups), PALETTE, "osD^vPX*", strict=False):
            members = [i for i, name in enumerate(groups) if name == group]
            ax.scatter(*points[members].T, color=colour, marker=marker, label=group or None)
        if any(groups):
            ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        ax.margins(0.12)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
        _label_points(ax, points, words)
    return fig


def _label_points(ax, points, words):
    """A label beside each point, where it covers the fewest points and earlier labels."""
    places = ((6, 3, "left"), (6, -9, "left"), (-6, 3, "right"), (-6, -9, "right"))
    places += ((0, 8, "center"), (0, -15, "center"))
    ax.figure.canvas.draw()
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in ax.transData.transform(points)]
    for word, point in zip(words, points, strict=True):
        labels = [
            ax.annotate(word, point, xytext=(x, y), textcoords="offset points", ha=side)
            for x, y, side in places
        ]
        boxes = [label.get_window_extent() for label in labels]
        covered = [sum(box.overlaps(other) for other in taken) for box in boxes]
        best = covered.index(min(covered))
        for label in labels[:best] + labels[best + 1 :]:
            label.remove()
        taken.append(boxes[best])
