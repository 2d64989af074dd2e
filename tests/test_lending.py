"""The lending experiment: its data, its models, its training, and what can be read from a mix."""

import dataclasses
import sys

import numpy as np
import pytest
import torch

from mhalib import lending, mixing, widgets

QUICK = {"steps": 3, "num_names": 6, "num_things": 5, "d_model": 12}


@pytest.fixture(scope="module")
def quick():
    return lending.train(3, 1, **QUICK)


# sentences and tokens


def test_the_sentences_of_both_languages_and_their_reverse():
    assert lending.sentence().text == "Xiaoming lent the book to Xiaohong"
    assert lending.sentence("en", True).text == "Xiaohong lent the book to Xiaoming"
    assert lending.sentence("zh").text == "小明把书借给了小红"
    assert lending.sentence("zh", swapped=True).text == "小红把书借给了小明"
    for language in ("en", "zh"):
        forward, reverse = lending.sentence(language), lending.sentence(language, True)
        assert len(forward.words) == 5
        assert forward.roles == reverse.roles[::-1] == (0, 0, 1)
        assert (forward.words[0], forward.words[4]) == (reverse.words[4], reverse.words[0])


def test_tokens_stand_in_their_places():
    model = lending.LendingModel(1, num_names=6, num_things=5, d_model=12)
    assert model.tokens(torch.tensor([[3, 4, 0]])).tolist() == [[3, 11, 10, 12, 0]]
    assert model.words.num_embeddings == 13


# models


def test_the_number_of_parameters_does_not_depend_on_the_heads():
    counts = {
        sum(parameter.numel() for parameter in lending.LendingModel(heads).parameters())
        for heads in (1, 2, 3, 4, 6, 12)
    }
    assert counts == {25_104}


@pytest.mark.parametrize("num_heads", [1, 4])
@pytest.mark.parametrize("readout", ["linear", "mlp", "fixed"])
@pytest.mark.parametrize("output_projection", [True, False])
def test_shapes_and_weights(num_heads, readout, output_projection):
    model = lending.LendingModel(
        num_heads, num_names=6, d_model=12, readout=readout, output_projection=output_projection
    )
    roles = torch.tensor([[0, 3, 1], [5, 63, 2]])
    scores, weights = model(roles, need_weights=True)
    assert [tuple(s.shape) for s in scores] == [(2, 6), (2, 64), (2, 6)]
    assert weights.shape == (2, num_heads, 5)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, num_heads))
    for fused, explicit in zip(model(roles), scores, strict=True):
        torch.testing.assert_close(fused, explicit)


def test_equal_weights_make_the_reverse_the_same():
    model = lending.LendingModel(3, num_names=6, d_model=12).double()
    with torch.no_grad():
        model.attention.q_proj.weight.zero_()  # all scores 0, so all weights equal
        forward, reverse = model(torch.tensor([[0, 2, 1]])), model(torch.tensor([[1, 2, 0]]))
        other = model(torch.tensor([[0, 2, 3]]))
    for one, two, three in zip(forward, reverse, other, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
        assert not torch.allclose(one, three)


# training


def same(one, other):
    arrays = ("roles", "predicted", "weights")
    return all(np.array_equal(getattr(one, a), getattr(other, a)) for a in arrays)


def test_one_seed_gives_one_result_whatever_the_global_state(quick):
    torch.manual_seed(123)
    again = lending.train(3, 1, **QUICK)
    in_a_row = lending.train_many(3, (2, 1), **QUICK)
    assert same(quick, again)
    assert same(quick, in_a_row[1])
    assert not same(quick, in_a_row[0])


def test_training_leaves_the_global_state_alone(quick):
    torch.manual_seed(5)
    np.random.seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    numbers = np.random.get_state()[1].copy()
    torch.set_num_threads(2)
    try:
        lending.train(1, 0, **QUICK)
        assert torch.get_num_threads() == 2
        with pytest.raises(ValueError, match="num_heads=5 must divide d_model=12"):
            lending.train(5, 0, **QUICK)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numbers, np.random.get_state()[1])
    assert torch.is_grad_enabled()


def test_training_works_where_gradients_are_off(quick):
    with torch.no_grad():
        assert same(quick, lending.train(3, 1, **QUICK))
        assert not torch.is_grad_enabled()


def test_every_number_of_heads_starts_from_the_same_numbers():
    results = [lending.train(heads, 4, **{**QUICK, "steps": 1}) for heads in (1, 2, 6)]
    for result in results[1:]:
        assert np.array_equal(result.roles, results[0].roles)
        for one, other in zip(
            result.model.parameters(), results[0].model.parameters(), strict=True
        ):
            assert (one - other).abs().max() <= 2 * lending.LEARNING_RATE + 1e-6


def test_training_learns():
    """The setting of the lesson, one seed: what one head and three heads reach."""
    one, three = lending.train(1, 1), lending.train(3, 1)
    assert 0.72 < one.accuracy["all"] < 0.88
    assert three.accuracy["all"] > 0.97
    assert one.accuracy["thing"] > 0.97
    giver, ba, thing, lent, receiver = one.mean_weights[0]
    assert min(giver, thing, receiver) > 0.2 > 0.1 > max(ba, lent)
    assert max(giver, thing, receiver) < 0.45
    tilt, right = one.tilt[:, 0], one.all_right
    assert right[tilt < 0.02].mean() < 0.5 < 0.9 < right[tilt > 0.1].mean()
    shares = one.confusions["giver"]
    assert shares["receiver"] > 3 * shares["someone else"]


def test_a_result_counts_right(quick):
    assert len(quick.roles) >= lending.TEST_SENTENCES
    assert quick.weights.shape == (len(quick.roles), 3, 5)
    made = dataclasses.replace(
        quick,
        roles=np.array([[0, 1, 2], [3, 1, 4], [5, 0, 1], [2, 2, 3]]),
        predicted=np.array([[0, 1, 2], [4, 1, 3], [5, 3, 0], [2, 2, 3]]),
        weights=np.array([[[0.5, 0, 0.1, 0.2, 0.2]], [[0.1, 0.1, 0.1, 0.1, 0.6]]] * 2),
    )
    assert made.accuracy == {"giver": 0.75, "thing": 0.75, "receiver": 0.5, "all": 0.5}
    assert made.all_right.tolist() == [True, False, False, True]
    np.testing.assert_allclose(made.tilt[:, 0], [0.3, 0.5, 0.3, 0.5])
    np.testing.assert_allclose(made.mean_weights, [[0.3, 0.05, 0.1, 0.15, 0.4]])
    assert made.confusions == {
        "giver": {"giver": 0.75, "receiver": 0.25, "someone else": 0.0},
        "receiver": {"giver": 0.25, "receiver": 0.5, "someone else": 0.25},
    }


def test_attend_is_the_row_of_the_test(quick):
    weights = quick.attend(lending.sentence("zh"))
    assert weights.shape == (3, 5)
    (row,) = np.flatnonzero((quick.roles == (0, 0, 1)).all(axis=1))[:1]
    np.testing.assert_allclose(weights, quick.weights[row], atol=1e-6)


def test_read_gives_words_of_the_sentence_or_another(quick):
    for language in ("en", "zh"):
        sentence = lending.sentence(language, swapped=True)
        told = quick.read(sentence)
        assert list(told) == ["giver", "thing", "receiver"]
        people, things = {sentence.words[0], sentence.words[4]}, {sentence.words[2]}
        assert told["giver"] in people | {"another"}
        assert told["thing"] in things | {"another"}
        assert told["receiver"] in people | {"another"}


def test_fixed_readouts_stay_as_they_were_drawn():
    torch.manual_seed(5)
    drawn = [r.weight.clone() for r in lending.LendingModel(3, readout="fixed").readouts]
    trained = lending.train(3, 5, readout="fixed", steps=3).model
    for before, after in zip(drawn, trained.readouts, strict=True):
        torch.testing.assert_close(before, after.weight, rtol=0, atol=0)
        assert not after.weight.requires_grad


def test_every_pair_is_tested_equally_often(quick):
    pairs, counts = np.unique(quick.roles[:, [0, 2]], axis=0, return_counts=True)
    assert len(pairs) == 6 * 5
    assert set(counts) == {len(quick.roles) // 30}
    assert (pairs[:, 0] != pairs[:, 1]).all()


def test_held_out_people_never_meet_in_training(monkeypatch):
    met = set()
    plain = lending.LendingModel.forward

    def forward(self, roles, need_weights=False):
        if self.training:
            met.update(map(tuple, roles[:, [0, 2]].tolist()))
        return plain(self, roles, need_weights)

    monkeypatch.setattr(lending.LendingModel, "forward", forward)
    result = lending.train(1, 0, held_out=0.2, **{**QUICK, "steps": 20})
    tested = set(map(tuple, result.roles[:, [0, 2]].tolist()))
    assert len(tested) == 6  # 3 of 15 couples, in both directions
    assert tested == {pair[::-1] for pair in tested}
    assert len(met) == 24
    assert not met & tested


def test_the_bar_shows_only_where_someone_watches(monkeypatch, capsys):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    lending.train(1, 0, **QUICK)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    lending.train(1, 0, progress=False, **QUICK)
    assert capsys.readouterr() == ("", "")
    lending.train(1, 0, **QUICK)
    out, err = capsys.readouterr()
    assert out == ""
    assert "training 1 head" in err
    assert err.endswith("\r")  # wiped


def test_in_jupyter_the_bar_is_a_widget(monkeypatch, capsys):
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson")
    lending.train(1, 0, **QUICK)
    shown = capsys.readouterr()
    assert "training 1 head" in shown.out  # a widget's plain form
    assert shown.err == ""


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"num_heads": 0}, ValueError, "num_heads=0 must be at least 1"),
        ({"num_heads": 5}, ValueError, "num_heads=5 must divide d_model=48"),
        ({"num_heads": 1.0}, TypeError, "num_heads=1.0 must be an integer"),
        ({"seed": 0.5}, TypeError, r"seeds\[0\]=0.5 must be an integer"),
        ({"steps": 0}, ValueError, "steps=0 must be at least 1"),
        ({"num_names": 1}, ValueError, "num_names=1 must be at least 2"),
        ({"num_things": 0}, ValueError, "num_things=0 must be at least 1"),
        ({"readout": "tree"}, ValueError, "readout='tree' must be one of 'linear', 'mlp'"),
        ({"output_projection": 1}, TypeError, "output_projection=1 must be True or False"),
        ({"progress": None}, TypeError, "progress=None must be True or False"),
        ({"held_out": 1.5}, ValueError, "held_out=1.5 must lie between 0 and 1"),
        ({"held_out": 1}, ValueError, "leaves none to train on"),
        ({"held_out": 0.001, "num_names": 4}, ValueError, "leaves none to test on"),
    ],
)
def test_bad_arguments_are_named(options, error, words):
    with pytest.raises(error, match=words):
        lending.train(**{"num_heads": 1, "seed": 0, "steps": 1, **options})


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: lending.sentence("fr"), ValueError, "language='fr' must be one of 'en', 'zh'"),
        (lambda: lending.sentence("en", 1), TypeError, "swapped=1 must be True or False"),
        (lambda: mixing.mix([1.0], np.ones((1, 2))), TypeError, "weights must be a NumPy array"),
        (lambda: mixing.mix(np.ones(3), np.ones((2, 2))), ValueError, "number of words"),
        (
            lambda: mixing.role_readout(np.ones(3), np.ones((4, 2)), np.ones(4)),
            ValueError,
            "the width",
        ),
        (
            lambda: mixing.role_readout(np.ones(2), np.ones((4, 2)), np.ones(3)),
            ValueError,
            "number of names",
        ),
        (
            lambda: mixing.all_three_right(np.ones((2, 3)), np.ones((3, 3))),
            ValueError,
            "the shape",
        ),
        (lambda: mixing.budget([0.5, 0.5]), ValueError, "number of roles"),
        (lambda: mixing.budget([0.5, 0.2, 0.2]), ValueError, "shares of 1"),
        (lambda: mixing.budget([1.2, 0.0, -0.2]), ValueError, "shares of 1"),
        (lambda: mixing.budget([1, 0, 0], num_names=1), ValueError, "num_names=1"),
    ],
)
def test_other_bad_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


# what can be read from a mix


def test_mix_and_role_readout_take_one_or_many():
    rng = np.random.default_rng(0)
    weights, values = rng.dirichlet(np.ones(5), size=(4, 2)), rng.normal(size=(5, 3))
    read_out, bias = rng.normal(size=(7, 3)), rng.normal(size=7)
    mixes = mixing.mix(weights, values)
    names = mixing.role_readout(mixes, read_out, bias)
    assert mixes.shape == (4, 2, 3)
    assert names.shape == (4, 2)
    np.testing.assert_allclose(mixes[3, 1], sum(w * v for w, v in zip(weights[3, 1], values)))  # noqa: B905
    scores = [row @ mixes[3, 1] + b for row, b in zip(read_out, bias, strict=True)]
    assert names[3, 1] == scores.index(max(scores))


def test_budget_of_two_names_and_of_more():
    with_two = mixing.budget([0.45, 0.2, 0.35], num_names=2)
    with_three = mixing.budget([0.45, 0.2, 0.35], num_names=3)
    assert with_two == {"giver": 1.0, "thing": 1.0, "receiver": 1.0}
    assert with_three["giver"] > 0.99
    assert with_three["receiver"] < 0.01


def test_budget_never_gives_both_people():
    for giver in range(0, 101, 10):
        for receiver in range(0, 101 - giver, 10):
            split = np.array([giver, 100 - giver - receiver, receiver]) / 100
            right = mixing.budget(split)
            assert right["giver"] + right["receiver"] < 1 + 1 / 11 + 1e-9


# the widget


def test_attention_budget_keeps_to_one_hundred():
    box = widgets.attention_budget()
    *sliders, picture = box.children
    assert [slider.value for slider in sliders] == [34, 33, 33]
    assert all(slider.description for slider in sliders)
    for moved, value in ((0, 90), (1, 0), (0, 0), (2, 0), (2, 55), (1, 100), (0, 3)):
        sliders[moved].value = value
        assert sliders[moved].value == value
        assert sum(slider.value for slider in sliders) == 100
        assert min(slider.value for slider in sliders) >= 0
        for role, slider in zip(mixing.ROLES, sliders, strict=True):
            assert f"{role} {slider.value} %" in picture.value


def test_attention_budget_draws_what_can_be_read():
    box = widgets.attention_budget()
    *sliders, picture = box.children
    before = picture.value
    sliders[0].value = 90
    assert picture.value != before
    assert "Read right from the mix: giver 1.00, thing 0.44, receiver 0.01." in picture.value
    assert 'alt="Attention: giver 90 %, thing 5 %, receiver 5 %.' in picture.value
