"""The figures of a whole model's heads: what they draw, and how large they are on the page."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from mhalib import figures

TOKENS = ["[CLS]", "the", "teacher", "read", "the", "book", ".", "[SEP]"]


@pytest.fixture
def weights():
    scores = torch.randn(12, 8, 8, generator=torch.Generator().manual_seed(0))
    return scores.softmax(dim=-1)


def kilobytes(fig):
    return len(figures.html(fig, alt="what the figure shows")) / 1000


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_layer_maps_draws_every_head_and_outlines_the_marked(weights):
    fig = figures.layer_maps(weights, TOKENS, title="Twelve heads", marked=[2])
    maps = [ax for ax in fig.axes if ax.get_title(loc="left").startswith("head")]
    assert [ax.get_title(loc="left") for ax in maps] == [f"head {i}" for i in range(1, 13)]
    assert [ax.spines["left"].get_visible() for ax in maps] == [i == 2 for i in range(12)]
    np.testing.assert_allclose(maps[11].images[0].get_array(), weights[11])
    assert not any(ax.texts for ax in maps)
    assert kilobytes(fig) < 200


@pytest.mark.parametrize(("count", "per_row"), [(8, 4), (20, 3), (30, 2)])
def test_layer_maps_leaves_room_for_the_labels(count, per_row):
    fig = figures.layer_maps(np.full((12, count, count), 1 / count), ["word"] * count, title="x")
    assert fig.axes[0].get_subplotspec().get_gridspec().ncols == per_row
    assert fig.get_size_inches()[0] < 11
    figures.html(fig, alt="closes it")


def test_head_grid_counts_from_one_and_names_the_marked_heads():
    values = torch.arange(72.0).reshape(6, 12)
    marked = {(2, 0): "object", (0, 2): "previous token"}
    fig = figures.head_grid(values, title="x", colour_label="y", marked=marked, decimals=0)
    ax = fig.axes[0]
    assert texts(ax)[:3] == ["0", "1", "2"]
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(i) for i in range(1, 13)]
    assert [tuple(patch.get_center()) for patch in ax.patches] == [(0, 2), (2, 0)]
    named = [text.get_text() for text in fig.legends[0].get_texts()]
    assert named == ["L3H1 object · L1H3 previous token"]
    assert kilobytes(fig) < 200


def test_pruning_curves_draws_seeds_as_points_and_their_mean_as_a_line():
    random = np.array([[0.8, 0.7, 0.5], [0.9, 0.5, 0.5]])
    curves = {"least first": [0.8, 0.8, 0.5], "random": random}
    fig = figures.pruning_curves([72, 36, 0], curves, title="x", ylabel="y", chance=0.5)
    ax = fig.axes[0]
    drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
    np.testing.assert_allclose(drawn["random (mean of 2)"], [0.85, 0.6, 0.5])
    np.testing.assert_allclose(drawn["least first"], [0.8, 0.8, 0.5])
    points = [list(line.get_ydata()) for line in ax.lines if line.get_linestyle() == "None"]
    assert points == random.tolist()
    assert "guessing" in drawn
    assert ax.get_xlim()[0] > ax.get_xlim()[1]
    figures.html(fig, alt="closes it")


def test_probe_dots_draws_every_score_on_its_line():
    series = {"best head": [0.7, 0.8], "fixed offset": [0.4, 0.6]}
    fig = figures.probe_dots(["obj", "det"], series, title="x")
    ax = fig.axes[0]
    assert texts(ax) == ["0.70", "0.80"]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == list(series)
    figures.html(fig, alt="closes it")
    with pytest.raises(ValueError, match="each of the series needs 1 values"):
        figures.probe_dots(["obj"], series, title="x")


def test_attention_lines_draws_the_weights_that_count(weights):
    fig = figures.attention_lines(weights[0], TOKENS, title="x", least=0.2)
    assert len(fig.axes[0].lines) == int((weights[0] >= 0.2).sum())
    figures.html(fig, alt="closes it")
    fig = figures.attention_lines(weights[0], TOKENS, title="x", asking=2, least=0)
    assert len(fig.axes[0].lines) == 8
    assert f"book  {weights[0, 2, 5]:.2f}" in texts(fig.axes[0])
    assert kilobytes(fig) < 200


@pytest.mark.parametrize(
    "draw",
    [
        lambda: figures.layer_maps(np.ones((2, 2)), ["a", "b"], title="x"),
        lambda: figures.head_grid(np.ones(3), title="x", colour_label="y"),
        lambda: figures.attention_lines(np.ones((1, 2, 2)), ["a", "b"], title="x"),
    ],
)
def test_figures_of_heads_refuse_other_shapes(draw):
    with pytest.raises(ValueError, match=r"the values have shape \(.*\), but \(.*\) was expected"):
        draw()


# what heads cost


def test_measured_and_predicted_draws_medians_between_the_predictions():
    measured = {"explicit": [[1, 1.2, 0.9], [5, 4, 6]]}
    fig = figures.measured_and_predicted(
        [1, 64], measured, {"from FLOPs": [1, 1.04]}, title="x", xlabel="y", ylabel="z"
    )
    drawn = {line.get_label(): list(line.get_ydata()) for line in fig.axes[0].lines}
    assert drawn["explicit"] == [1, 5]
    assert drawn["from FLOPs"] == [1, 1.04]
    assert kilobytes(fig) < 200


def test_points_beside_gives_each_panel_its_own_scale():
    panels = {"accuracy": {1: [0.9, 0.8], 4: [0.95]}, "time": {1: [1.0], 4: [2.0]}}
    fig = figures.points_beside(panels, title="x", xlabel="heads", from_zero=["time"])
    assert [ax.get_ylabel() for ax in fig.axes] == ["accuracy", "time"]
    assert [ax.get_ylim()[0] == 0 for ax in fig.axes] == [False, True]
    figures.html(fig, alt="closes it")


def test_square_maps_share_one_scale():
    maps = [np.eye(3), np.ones((3, 3))]
    options = {"colour_label": "w", "xlabel": "x", "ylabel": "y", "limits": (0, 0.4)}
    fig = figures.square_maps(maps, ["wanted", "found"], title="x", **options)
    images = [ax.images[0] for ax in fig.axes[:2]]
    assert [image.get_clim() for image in images] == [(0, 0.4)] * 2
    figures.html(fig, alt="closes it")


def test_head_sizes_marks_only_where_the_even_cut_differs():
    fig = figures.head_sizes(["a", "b"], [64, 128], [64.0, 80.0], title="x", xlabel="y")
    (diamonds,) = (line for line in fig.axes[0].lines if line.get_marker() == "D")
    assert list(diamonds.get_xdata()) == [80.0]
    assert texts(fig.axes[0]) == ["64", "128"]
    figures.html(fig, alt="closes it")


@pytest.mark.parametrize("whole", [False, True])
def test_a_title_wider_than_the_figure_goes_on_in_a_second_line(whole):
    title = "A message in one sentence that is longer than the figure is wide, by a good deal"
    if whole:
        groups = {"one": [1.0, 2.0]}
        fig = figures.points_beside({"panel": groups, "other": groups}, title=title, xlabel="x")
    else:
        fig = figures.lines([1, 2], {"line": [1.0, 2.0]}, title=title, xlabel="x", ylabel="y")
    text = next(text for text in fig.findobj(Text) if text.get_text() == title)
    fig.canvas.draw()
    assert text.get_window_extent().x1 > fig.bbox.x1
    figures.html(fig, alt="two points")
    assert text.get_window_extent().x1 <= fig.bbox.x1
    assert text.get_window_extent().y1 <= fig.bbox.y1
