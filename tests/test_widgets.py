"""The widgets' logic: what they compute, and that moving a control redraws the picture."""

import numpy as np
import pytest
import torch

from mhalib import data, lending, reference, widgets


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("head_dim", [4, 64, 1024])
def test_saturation_gradient_is_autograds(head_dim, scaled):
    weights, gradient = widgets.saturation(head_dim, scaled, num_keys=8, seed=3)
    scores = torch.tensor(np.log(weights), requires_grad=True)
    scores.softmax(dim=-1).max().backward()
    assert weights.sum() == pytest.approx(1)
    assert gradient == pytest.approx(scores.grad.norm().item(), abs=1e-12)


def test_saturation_grows_with_the_width_unless_scaled():
    def typical(head_dim, scaled):
        return np.median([widgets.saturation(head_dim, scaled, seed=s)[0].max() for s in range(40)])

    assert typical(1024, False) > 0.99
    assert typical(1024, True) == pytest.approx(typical(16, True), abs=0.12)


def test_softmax_saturation_redraws_when_a_control_moves():
    box = widgets.softmax_saturation()
    width, scaled, seed, picture = box.children
    assert all(control.description for control in (width, scaled, seed))
    assert "d = 64, scores not divided: the largest weight is 1.00" in picture.value
    width.value, scaled.value = 256, True
    assert "d = 256, scores divided by √d: the largest weight is 0.63" in picture.value
    before = picture.value
    seed.value = 4
    assert picture.value != before
    assert 'alt="' in picture.value


@pytest.fixture(scope="module")
def word_vectors():
    return data.word_vectors()


def test_word_explorer_follows_its_controls(word_vectors):
    box = widgets.word_explorer(*word_vectors)
    word, measure, count, table = box.children
    assert all(control.description for control in (word, measure, count))
    assert "Nearest to <b>cat</b> by cosine" in table.value
    assert table.value.count('scope="row"') == 8
    assert table.value.index(">dog<") < table.value.index(">cats<")
    word.value = " Happy "
    assert "Nearest to <b>happy</b>" in table.value
    measure.value, count.value = "dot product", 3
    assert table.value.count('scope="row"') == 3
    assert "by dot product" in table.value
    assert "&#x27;m" in table.value


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("tuesdy", "not among these 10,000 words. Close in spelling: tuesday"),
        ("xqzjvw", "not among these 10,000 words. Try another one."),
        ("<b>", "&lt;b&gt;"),
        ("  ", "Type a word"),
    ],
)
def test_word_explorer_stays_calm_about_unknown_words(word_vectors, typed, expected):
    word, _, _, table = widgets.word_explorer(*word_vectors).children
    word.value = typed
    assert expected in table.value
    assert "<table>" not in table.value


def test_neighbours_by_cosine_are_those_of_the_reference(word_vectors):
    words, vectors = word_vectors
    found = [word for word, _ in widgets.neighbours(words, vectors, "river", "cosine", 5)]
    rows = reference.nearest_neighbours(vectors, vectors[words.index("river")], 6)
    assert ["river", *found] == [words[row] for row in rows]


def test_word_explorer_refuses_vectors_that_do_not_fit():
    with pytest.raises(ValueError, match=r"vectors has shape \(3, 2\), but \(2, d\) was expected"):
        widgets.word_explorer(["a", "b"], np.ones((3, 2)))


def test_lending_demo_follows_its_controls():
    models = {heads: lending.train(heads, 0, steps=2, progress=False) for heads in (1, 3)}
    heads, sentence, picture = widgets.lending_demo(models).children
    assert heads.options == (1, 3)
    assert sentence.options[0] == "Xiaoming lent the book to Xiaohong (小明把书借给了小红)"
    assert 'alt="1 head: what “lent” attends to. head 1: Xiaoming 0.' in picture.value
    heads.value = 3
    assert 'alt="3 heads: what “lent” attends to. head 1: Xiaoming 0.' in picture.value
    sentence.index = 1
    assert "head 3: Xiaohong 0." in picture.value
    assert "Read from what “lent” received: giver <b>" in picture.value
