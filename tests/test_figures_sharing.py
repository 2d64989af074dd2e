"""The figures and the control of lesson 07: what they draw, and that they follow their input."""

import math

import numpy as np
import pytest

from mhalib import figures, widgets


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_shared_heads_draws_a_line_for_each_query_head_and_dashes_the_wrong_ones():
    fig = figures.shared_heads([[0, 0, 1, 1], [0, 1, 0, 1]], ["right", "wrong"], title="x")
    right, wrong = fig.axes
    assert [line.get_linestyle() for line in right.lines] == ["-"] * 4
    assert [line.get_linestyle() for line in wrong.lines] == ["-", "--", "--", "-"]
    assert [line.get_xdata()[1] for line in right.lines] == [0.5, 0.5, 2.5, 2.5]
    assert [line.get_xdata()[1] for line in wrong.lines] == [0.5, 2.5, 0.5, 2.5]
    assert texts(right) == ["0", "1", "2", "3", "0", "1", "query heads", "KV heads"]
    assert len(figures.html(fig, alt="closes it")) < 200_000


def test_before_and_after_draws_every_seed_of_every_way():
    ways = {"mean": [(3.0, 2.0), (3.1, 2.1)], "first": [(3.2, 2.2)]}
    fig = figures.before_and_after({"two": ways, "one": ways}, title="x", ylabel="y")
    for ax in fig.axes:
        drawn = [tuple(line.get_ydata()) for line in ax.lines]
        assert drawn == [(3.0, 2.0), (3.1, 2.1), (3.2, 2.2)]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["before", "after"]
    named = [text.get_text() for text in fig.axes[-1].get_legend().get_texts()]
    assert named == ["mean", "first"]
    figures.html(fig, alt="closes it")


def test_before_and_after_draws_levels_in_every_panel():
    ways = {"mean": [(3.0, 2.0)]}
    levels = {"nothing": math.log(27)}
    fig = figures.before_and_after({"a": ways, "b": ways}, title="x", ylabel="y", levels=levels)
    for ax in fig.axes:
        assert list(ax.lines[0].get_ydata()) == [math.log(27)] * 2
        assert texts(ax) == ["nothing"]
    figures.html(fig, alt="closes it")


def test_cost_and_quality_puts_each_group_at_its_cost():
    fig = figures.cost_and_quality(
        {"many": (1024, [2.04, 2.05]), "one": (128, [2.07])},
        title="x",
        xlabel="bytes",
        ylabel="loss",
        logx=True,
    )
    (ax,) = fig.axes
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines]
    assert drawn == [([1024, 1024], [2.04, 2.05]), ([128], [2.07])]
    assert texts(ax) == ["many", "one"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["128", "1,024"]
    figures.html(fig, alt="closes it")


def test_curves_have_places_of_their_own():
    fig = figures.curves(
        {"a": ([1, 2], [3, 4]), "b": ([5], [6])}, title="x", xlabel="y", ylabel="z"
    )
    drawn = [np.array(line.get_xydata()).tolist() for line in fig.axes[0].lines]
    assert drawn == [[[1, 3], [2, 4]], [[5, 6]]]
    figures.html(fig, alt="closes it")


@pytest.mark.parametrize(
    ("num_kv_heads", "order", "used", "share", "loss"),
    [
        (8, "tiled", "0, 1, 2, 3, 4, 5, 6, 7", "100 %", "2.05"),
        (4, "in groups", "0, 0, 1, 1, 2, 2, 3, 3", "50 %", "2.06"),
        (4, "tiled", "0, 1, 2, 3, 0, 1, 2, 3", "50 %", "3.18"),
        (1, "tiled", "0, 0, 0, 0, 0, 0, 0, 0", "12.5 %", "2.07"),
    ],
)
def test_the_control_follows_its_buttons(num_kv_heads, order, used, share, loss):
    box = widgets.shared_heads({8: (2.05, 2.05), 4: (2.06, 3.18), 1: (2.07, 2.07)})
    count, how, picture = box.children
    assert all(control.description for control in (count, how))
    count.value, how.value = num_kv_heads, order
    assert f"use KV heads {used}. The cache is {share} of that of 8 KV heads" in picture.value
    assert f"has loss {loss} in this order" in picture.value
