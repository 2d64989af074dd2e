"""Plots of shared key/value heads: what is lost, what is regained, what memory sets the pace."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import ScalarFormatter

from mhalib.figures.page import PALETTE, STYLE

_MARKERS = "osD^vPX*"


def shared_heads(orders, titles, *, title):
    """Which KV head every query head uses: query heads above, KV heads below, a line for each.

    Args:
        orders: one list for each panel: the number of the KV head of query head 0, 1, 2, …
        titles: one short title for each panel.
        title: the message of the whole figure.

    A dashed line leads to another KV head than consecutive groups would give.
    """
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, len(orders), figsize=(4.6 * len(orders), 2.7), squeeze=False)
        for ax, order, name in zip(axes[0], orders, titles, strict=True):
            num_heads, num_kv_heads = len(order), max(order) + 1
            group_size = num_heads // num_kv_heads
            below = [(g + 0.5) * group_size - 0.5 for g in range(num_kv_heads)]
            for head, kv_head in enumerate(order):
                style = "-" if kv_head == head // group_size else "--"
                ax.plot([head, below[kv_head]], [1, 0], style, color=PALETTE[kv_head], lw=1.8)
            for y, places in ((1, range(num_heads)), (0, below)):
                for number, x in enumerate(places):
                    edge = "#444444" if y else PALETTE[number]
                    circle = {"boxstyle": "circle", "fc": "white", "ec": edge, "lw": 1.5}
                    ax.text(x, y, number, ha="center", va="center", bbox=circle)
            ax.text(-0.9, 1, "query heads", ha="right", va="center")
            ax.text(-0.9, 0, "KV heads", ha="right", va="center")
            ax.set(xlim=(-2.9, num_heads - 0.4), ylim=(-0.3, 1.3))
            ax.axis("off")
            ax.set_title(name, fontsize=10)
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def before_and_after(panels, *, title, ylabel, levels=None):
    """What each way starts from and what it reaches, one line for every seed.

    Args:
        panels: dict from a panel's title to {way: list of (before, after), one pair a seed}.
        title, ylabel: the message of the whole figure, and what is measured.
        levels: dict from a label to a value, drawn as a thin line across every panel.
    """
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            1, len(panels), figsize=(4.3 * len(panels), 3.9), squeeze=False, sharey=True
        )
        for ax, (name, ways) in zip(axes[0], panels.items(), strict=True):
            for (label, level), style in zip((levels or {}).items(), ("--", ":"), strict=False):
                ax.axhline(level, color="#555555", linestyle=style, linewidth=1)
                ax.annotate(
                    label, (1.42, level), xytext=(0, 3), textcoords="offset points", ha="right"
                )
            shifts = np.linspace(-0.1, 0.1, len(ways))
            for (way, pairs), shift, colour, marker in zip(
                ways.items(), shifts, PALETTE, _MARKERS, strict=False
            ):
                for number, pair in enumerate(pairs):
                    label = way if number == 0 else None
                    ax.plot(
                        [shift, 1 + shift], pair, marker=marker, color=colour, label=label, lw=1.2
                    )
            ax.set_xticks([0, 1], ["before", "after"])
            ax.set_xlim(-0.3, 1.45)
            ax.grid(axis="y", color="#DDDDDD")
            ax.set_axisbelow(True)
            ax.set_title(name, fontsize=10)
        axes[0, 0].set_ylabel(ylabel)
        axes[0, -1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        fig.suptitle(title, x=0.01, ha="left", fontsize=12)
    return fig


def cost_and_quality(groups, *, title, xlabel, ylabel, logx=False, ax=None):
    """Points that cost something (to the right) and are worth something, each group with its name.

    Args:
        groups: dict from a label to (cost, list of values).
        title, xlabel, ylabel: the message and the axes.
        logx: equal steps to the right multiply the cost.
        ax: draw into this Axes and not into a new Figure.
    """
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(6.2, 3.9))
        for (label, (place, values)), colour, marker in zip(
            groups.items(), PALETTE, _MARKERS, strict=False
        ):
            ax.plot([place] * len(values), values, marker, color=colour, ms=7, alpha=0.9)
            ax.annotate(
                label,
                (place, max(values)),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
            )
        if logx:
            ax.set_xscale("log", base=2)
            places = sorted({place for place, _ in groups.values()})
            ax.set_xticks(places, [f"{place:,}" for place in places])
        ax.margins(0.16, 0.2)
        ax.grid(axis="y", color="#DDDDDD")
        ax.set_axisbelow(True)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax.figure


def curves(by_label, *, title, xlabel, ylabel, logx=False, logy=False, ax=None):
    """Lines with markers, each at places of its own.

    Args:
        by_label: dict from a label to (places, values).
        title, xlabel, ylabel: the message and the axes.
        logx, logy: equal steps along this axis multiply.
        ax: draw into this Axes and not into a new Figure.
    """
    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(7, 3.9))
        for (label, (places, values)), marker in zip(by_label.items(), _MARKERS, strict=False):
            ax.plot(places, values, marker=marker, label=label)
        if logx:
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter(ScalarFormatter())
        if logy:
            ax.set_yscale("log", base=2)
            ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.grid(color="#DDDDDD")
        ax.set_axisbelow(True)
        ax.legend(frameon=False)
        ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return ax.figure
