"""Heads against accuracy: the two tasks, the classifier, and what `train_many` promises."""

import pytest
import torch

from mhalib import data, digits


@pytest.fixture(scope="module")
def images():
    return digits.images()


@pytest.fixture(scope="module")
def words():
    return digits.words()


def spelled(row):
    return "".join(chr(96 + letter) for letter in row.tolist() if letter)


def test_images_are_the_digits_cut_into_squares(images):
    from sklearn.datasets import load_digits

    tokens, answers = (torch.cat(pair) for pair in zip(images.train, images.test, strict=True))
    assert [len(answers) for _, answers in (images.train, images.test)] == [1200, 597]
    pictures = load_digits()
    assert answers.bincount().tolist() == torch.tensor(pictures.target).bincount().tolist()
    mosaic = tokens.reshape(-1, 4, 4, 2, 2).transpose(2, 3).reshape(-1, 8, 8) * 16
    assert {tuple(x.flatten().tolist()) for x in mosaic} == {
        tuple(x.flatten()) for x in pictures.images
    }


def test_words_are_english_and_swapped_ones_are_not(words):
    known = set(data.word_vectors()[0])
    for tokens, answers in (words.train, words.test):
        right = [spelled(row) for row in tokens[answers == 0]]
        swapped = [spelled(row) for row in tokens[answers == 1]]
        assert set(right) <= known
        assert not set(swapped) & known
        for one, other in zip(right, swapped, strict=True):
            places = [i for i in range(len(one)) if one[i] != other[i]]
            assert 4 <= len(one) == len(other) <= 6
            assert places == [places[0], places[0] + 1]
            assert sorted(one) == sorted(other)


def test_nothing_is_both_trained_and_tested(words):
    trained, tested = ({spelled(row) for row in part[0]} for part in (words.train, words.test))
    assert not trained & tested
    assert len(words.test[1]) == 2000
    assert words.test[1].double().mean() == words.train[1].double().mean() == 0.5


def test_the_tasks_are_the_same_every_time(words):
    again = digits.words()
    assert all(torch.equal(a, b) for a, b in zip(words.train, again.train, strict=True))


@pytest.mark.parametrize("task", ["images", "words"])
def test_the_classifier_has_as_many_parameters_whatever_the_heads(task, request):
    task = request.getfixturevalue(task)
    models = [digits.Classifier(task, heads) for heads in (1, 4, 12, 48)]
    assert len({sum(p.numel() for p in model.parameters()) for model in models}) == 1
    assert models[0](task.test[0][:5]).shape == (5, task.num_classes)


def test_the_classifier_with_one_seed_starts_from_the_same_numbers(words):
    models = []
    for heads in (1, 12):
        torch.manual_seed(3)
        models.append(digits.Classifier(words, heads).state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_training_gives_a_result_for_every_seed_and_leaves_the_random_state(words):
    state = torch.get_rng_state()
    results = digits.train_many(words, (1, 4), seeds=[5, 2], steps=2)
    assert torch.equal(state, torch.get_rng_state())
    assert {heads: [r.seed for r in runs] for heads, runs in results.items()} == {
        1: [5, 2],
        4: [5, 2],
    }
    assert all(r.seconds > 0 and 0 <= r.accuracy <= 1 for runs in results.values() for r in runs)
    again = digits.train_many(words, [4], seeds=[2], steps=2)
    assert again[4][0].accuracy == results[4][1].accuracy


def test_training_learns(images):
    (result,) = digits.train_many(images, [4], seeds=[0], steps=100)[4]
    assert result.accuracy > 0.8


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([5],), {}, "num_heads=5 must divide d_model=48"),
        (([0],), {}, r"heads\[0\]=0 must be at least 1"),
        (([1],), {"steps": 0}, "steps=0 must be at least 1"),
        (([1], [0.5]), {}, r"seeds\[0\]"),
    ],
)
def test_arguments_that_do_not_fit_are_named(words, arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        digits.train_many(words, *arguments, **options)
