"""Plots of the course's own things: word vectors, attention, heads."""

import matplotlib.pyplot as plt
import numpy as np

from mhalib.figures.page import DIVERGING, PALETTE, STYLE
from mhalib.figures.plots import bars, heatmap


def vector_strips(vectors, words, *, title, ylabel="word"):
    """Each word's vector as one strip of coloured cells, a cell for each number.

    Args:
        vectors: (n, d) array.
        words: n labels.
        title, ylabel: the figure's message, and what a strip belongs to.
    """
    vectors = np.asarray(vectors, dtype=float)
    highest = np.abs(vectors).max()
    places = [0, *range(9, vectors.shape[1], 10)]
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(9.5, 1.5 + 0.34 * len(words)))
        image = ax.imshow(vectors, cmap=DIVERGING, vmin=-highest, vmax=highest, aspect="auto")
        ax.set_xticks(places, [str(place + 1) for place in places])
        ax.set_yticks(range(len(words)), words)
        ax.set_yticks(np.arange(0.5, len(words) - 1), minor=True)
        ax.grid(which="minor", axis="y", color="white", linewidth=4)
        ax.tick_params(which="minor", length=0)
        ax.spines[:].set_visible(False)
        ax.set(title=title, xlabel="which number of the vector", ylabel=ylabel)
        fig.colorbar(image, ax=ax, label="value")
    return fig


def arrows(vectors, labels, *, title, xlabel, ylabel):
    """Vectors of two numbers as arrows from the origin, one scale on both axes.

    Args:
        vectors: (n, 2) array; on one line the longer first, or it hides the other.
        labels: n labels, written beside the arrows' heads.
    """
    vectors = np.asarray(vectors, dtype=float)
    low, high = np.minimum(vectors.min(axis=0), 0) - 0.7, np.maximum(vectors.max(axis=0), 0) + 0.7
    with plt.rc_context(STYLE):
        height = 1.3 + 6 * (high - low)[1] / (high - low)[0]
        fig, ax = plt.subplots(figsize=(7, height))
        for vector, label, colour in zip(vectors, labels, PALETTE, strict=False):
            head = {
                "arrowstyle": "-|>",
                "color": colour,
                "linewidth": 2.5,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            ax.annotate("", vector, xytext=(0, 0), arrowprops=head)
            beside = 12 * np.array([vector[1], -vector[0]]) / np.linalg.norm(vector)
            ax.annotate(
                label,
                vector,
                xytext=beside,
                ha="center",
                va="center",
                textcoords="offset points",
                color=colour,
                fontweight="bold",
            )
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        ax.axhline(0, color="0.85", zorder=0)
        ax.axvline(0, color="0.85", zorder=0)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return fig


def attention_maps(maps, tokens, titles, *, title, decimals=2):
    """Several attention maps side by side, colours from 0 to 1: rows ask, columns answer.

    Args:
        maps: sequence of (query_len, key_len) arrays.
        tokens: one list of words for each map.
        titles: one short title for each map.
        title: the message of the whole figure.
        decimals: digits of the values in the cells.
    """
    width = sum(0.62 * len(words) for words in tokens) + 1.0 * len(maps) + 1.2
    height = 1.9 + 0.42 * max(len(words) for words in tokens)
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, len(maps), figsize=(width, height), squeeze=False)
        for i, (ax, weights, words) in enumerate(zip(axes[0], maps, tokens, strict=True)):
            heatmap(
                weights,
                words,
                title=titles[i],
                xlabel="word that answers",
                ylabel="word that asks" if i == 0 else "",
                colour_label="weight (each row sums to 1)" if i == len(maps) - 1 else None,
                limits=(0, 1),
                decimals=decimals,
                ax=ax,
            )
            ax.title.set_fontsize(10)
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def four_moves(words, scores, weights, values, *, asking, dimensions, title):
    """One asking word: its scores, the softmax weights, and what each word adds to the mix.

    Args:
        words: n labels.
        scores, weights: (n,) scaled scores and their softmax.
        values: (n, value_dim) values that are mixed.
        asking: the word that asks.
        dimensions: value_dim names for the value's numbers.
        title: the figure's message.
    """
    added = np.asarray(weights)[:, None] * np.asarray(values)
    rows = np.arange(len(words))
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 3, figsize=(9.5, 1.6 + 0.42 * len(words)), sharey=True)
        panels = (
            (scores, "1 and 2 · scaled score", f"query of “{asking}” · key, divided by √d"),
            (weights, "3 · softmax", "weight (all sum to 1)"),
        )
        for ax, (amounts, name, unit) in zip(axes, panels, strict=False):
            bars(words, amounts, title=name, xlabel=unit, ylabel="", ax=ax)
            ax.margins(x=0.4)
            ax.axvline(0, color="black", linewidth=0.8)
        thick = 0.8 / len(dimensions)
        for i, name in enumerate(dimensions):
            place = rows + (i - (len(dimensions) - 1) / 2) * thick
            axes[2].barh(
                place, added[:, i], height=thick, color=("#333333", "#999999")[i], label=name
            )
        axes[2].set(title="4 · mix", xlabel="weight · value (sum = output)")
        axes[2].legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
        axes[0].set_ylim(len(words) - 0.5, -0.5)  # the first word on top, in all three
        for ax in axes:
            ax.title.set_fontsize(10)
        axes[0].set_ylabel("word that answers")
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def attention_budget(weights, readable, *, title):
    """Two rows of bars: where the attention goes, and what is still read right from the mix.

    Args:
        weights: mapping from a role to its share of the attention.
        readable: mapping from a role to the share of sentences in which it is read right.
        title: the figure's message.
    """
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 2, figsize=(9, 2.6))
        panels = (("attention goes to", "share of the attention", weights, "#999999"),)
        panels += (("read right from the mix", "share of the sentences", readable, "#333333"),)
        for ax, (heading, xlabel, values, colour) in zip(axes, panels, strict=True):
            bars(
                list(values),
                list(values.values()),
                title=heading,
                xlabel=xlabel,
                ylabel="",
                limits=(0, 1.15),
                colours=colour,
                ax=ax,
            )
        fig.suptitle(title, x=0.01, ha="left")
    return fig


def head_bars(weights, words, *, title, ax=None):
    """The attention of one asking word: for each word that answers, one bar a head.

    Args:
        weights: (num_heads, n) array; each row sums to 1.
        words: n labels.
        title: the message.
        ax: draw into this Axes and not into a new Figure.

    Weights below 0.005 are drawn, but not written out.
    """
    weights = np.asarray(weights, dtype=float)
    thick = 0.8 / len(weights)
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 3))
        for head, row in enumerate(weights):
            place = np.arange(len(words)) + (head - (len(weights) - 1) / 2) * thick
            drawn = ax.bar(place, row, width=thick, color=PALETTE[head], label=f"head {head + 1}")
            seen = [f"{weight:.2f}" if weight >= 0.005 else "" for weight in row]
            ax.bar_label(drawn, seen, size=8, padding=1)
        ax.set_xticks(range(len(words)), words)
        ax.set_ylim(0, 1.12)
        ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
        ax.set(title=title, xlabel="word that answers", ylabel="weight")
    return ax.figure
