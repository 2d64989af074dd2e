"""The repair of lesson 04: every fault is named on its own, whatever else is wrong beside it."""

import itertools
import math
import time

import pytest
import torch
from torch import nn

from mhalib import check
from mhalib.exercises import probing
from mhalib.exercises.lesson_04_repair import RepairedAttention as Reference
from tests.known_solutions.RepairedAttention import SEVEN, build

num_heads = 2  # a variable that lies about, as in a notebook
SUBSETS = [subset for size in range(1, 8) for subset in itertools.combinations(SEVEN, size)]


@pytest.fixture(autouse=True)
def _not_strict(monkeypatch):
    monkeypatch.delenv("MHALIB_STRICT", raising=False)


def named(faults):
    """The faults of the seven that the check names, when the class has these."""
    result = check(build(*faults))
    assert not result.passed
    said = result.diagnosis.lower()
    found = [fault for fault, words in SEVEN.items() if words.lower() in said]
    assert len(result.findings) == len(found), result
    return set(found)


@pytest.mark.parametrize("size", [1, 2, 6, 7])
def test_exactly_the_faults_that_are_there_are_named(size):
    for subset in SUBSETS:
        if len(subset) == size:
            assert named(subset) == set(subset)


@pytest.mark.thorough
def test_every_subset_of_the_seven_faults_is_named_exactly():
    assert len(SUBSETS) == 127
    for subset in SUBSETS:
        assert named(subset) == set(subset)


def test_the_family_without_faults_is_the_reference():
    x, mask = probing.probe(2, 3, 6), probing.probe_mask()
    for attn_mask in (None, mask):
        seen = probing.run(Reference, 6, 3, x, attn_mask)
        assert torch.allclose(
            seen.output, probing.family_output(seen.weights, x, 3, attn_mask), atol=1e-6
        )


def test_no_two_members_of_the_family_look_alike():
    seen = probing.run(Reference, 6, 3, probing.probe(2, 4, 6))
    steps = ("out", "split", "scale", "merge")
    members = {
        choice: probing.family_output(
            seen.weights, seen.x, 3, **dict(zip(steps, choice, strict=True))
        )
        for choice in itertools.product(*(probing.STEPS[step] for step in steps))
    }
    alike = {
        frozenset((one, other))
        for one, other in itertools.combinations(members, 2)
        if torch.allclose(members[one], members[other], rtol=1e-2, atol=1e-2)
    }
    # one wide head has a single head to merge: nothing to do wrong by a reshape
    assert all({choice[1] for choice in pair} == {"whole"} for pair in alike), alike


class UsesTheNotebooksVariable(Reference):
    """Works as long as the notebook has a variable num_heads of the right value."""

    def forward(self, x, attn_mask=None):
        batch, seq_len, d_model = x.shape
        cut = (batch, seq_len, num_heads, d_model // num_heads)
        q, k, v = (
            linear(x).view(cut).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / math.sqrt(d_model // num_heads)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


def checked(cls):
    cls.__name__ = "RepairedAttention"
    return check(cls)


def test_a_variable_of_the_notebook_does_not_stand_in_for_a_name():
    result = checked(UsesTheNotebooksVariable)
    assert len(result.findings) == 1
    assert "no value in the class: num_heads (a NameError)" in result.diagnosis
    assert UsesTheNotebooksVariable(4, 2)(torch.ones(1, 3, 4)).shape == (1, 3, 4)
    assert num_heads == 2


def test_a_name_that_nobody_can_guess_is_an_error_that_is_said_once():
    class Odd(Reference):
        def forward(self, x, attn_mask=None):
            return self.out_proj(mystery)  # noqa: F821

    result = checked(Odd)
    assert len(result.findings) == 1
    assert "NameError: name 'mystery' is not defined (line 2 of `forward`" in result.diagnosis


def test_a_layer_that_is_used_but_never_made():
    class NoOutProj(Reference):
        def __init__(self, d_model, num_heads):
            super().__init__(d_model, num_heads)
            del self.out_proj

    result = checked(NoOutProj)
    assert len(result.findings) == 1
    assert "no value in the class: self.out_proj (an AttributeError)" in result.diagnosis


def test_a_missing_import_is_named_and_the_rest_examined():
    class NoImport(Reference):
        def forward(self, x, attn_mask=None):
            q, k, v = (
                F.relu(linear(x)) * 0 + linear(x)[:, None]  # noqa: F821
                for linear in (self.q_proj, self.k_proj, self.v_proj)
            )
            return (q @ k.mT).softmax(-1) @ v

    result = checked(NoImport)
    assert "a name has no value in the class: F (a NameError)" in result.diagnosis


class OwnSoftmax(Reference):
    """A fault that no member of the family has, beside two that are known."""

    def forward(self, x, attn_mask=None):
        q, k, v = (
            linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        weights = self.weights(scores)
        return (weights @ v).transpose(1, 2).flatten(2)

    def weights(self, scores):
        return scores.softmax(dim=-2)


def test_an_unknown_fault_is_placed_and_does_not_hide_the_output_projection():
    result = checked(OwnSoftmax)
    assert len(result.findings) == 2
    assert "out_proj is made, but plays no part" in result.diagnosis
    assert "with one head and four words it is not" in result.diagnosis


class OnlyWithHeads(OwnSoftmax):
    def weights(self, scores):
        return scores.softmax(dim=-1).roll(1, dims=1)


def test_a_fault_of_several_heads_is_placed_there_and_the_mask_is_still_examined():
    result = checked(OnlyWithHeads)
    assert "with one head the output is explained, with three heads it is not" in result.diagnosis
    assert "out_proj is made, but plays no part" in result.diagnosis

    class AndReversed(OnlyWithHeads):
        def forward(self, x, attn_mask=None):
            return super().forward(x, None if attn_mask is None else ~attn_mask)

    assert "what the mask hides from it" in checked(AndReversed).diagnosis


class WrongValues(OwnSoftmax):
    def weights(self, scores):
        return 2 * scores.softmax(dim=-1)


def test_a_fault_of_one_word_is_placed_there():
    assert "with one word alone the output is already another" in checked(WrongValues).diagnosis


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (lambda d_model, num_heads: 3, "a value of type int was made, but no nn.Module"),
        (lambda d_model, num_heads: nn.Linear(d_model, d_model), "no nn.Linear called q_proj"),
        (lambda d_model, num_heads: None, "a value of type NoneType was made"),
        (lambda d_model: None, "TypeError"),
    ],
)
def test_whatever_is_made_is_said_once(thing, words):
    result = checked(thing)
    assert words in result.diagnosis
    assert len(result.findings) <= 2


def test_the_shape_of_the_output_is_named():
    class Unmerged(Reference):
        def forward(self, x, attn_mask=None):
            return self.out_proj(x)[:, None]

    diagnosis = checked(Unmerged).diagnosis
    assert "the output has shape (2, 1, 4, 6), but (2, 4, 6) was expected" in diagnosis


def test_a_forward_without_a_mask_is_the_masks_fault_alone():
    class NoMask(Reference):
        def forward(self, x):
            return super().forward(x)

    result = checked(NoMask)
    assert len(result.findings) == 1
    assert "With a mask that hides some words" in result.findings[0].what


def test_an_unwritten_forward_is_not_attempted():
    class Stub(Reference):
        def forward(self, x, attn_mask=None):
            raise NotImplementedError

    assert not checked(Stub).attempted


def test_changing_x_is_found():
    class InPlace(Reference):
        def forward(self, x, attn_mask=None):
            output = super().forward(x, attn_mask)
            x.mul_(2)
            return output

    assert "the input x was changed" in checked(InPlace).diagnosis


def test_the_learners_class_stays_as_it_is():
    cls = build()
    before, variables = dict(vars(cls)), dict(cls.forward.__globals__)
    assert check(cls).passed
    assert dict(vars(cls)) == before
    assert cls.forward.__globals__ == variables


def test_the_check_is_quick():
    start = time.perf_counter()
    check(build(*SEVEN))
    assert time.perf_counter() - start < 3
