"""The repair of lesson 07: both faults are named, whatever else is wrong beside them."""

import itertools
import time

import pytest
import torch
from torch import nn

from mhalib import MultiHeadAttention, check
from mhalib.exercises import lesson_07_repair, probing
from mhalib.exercises.lesson_07_repair import RepairedGroupedAttention as Reference
from tests.known_solutions.RepairedGroupedAttention import TWO, WRONG, build


@pytest.fixture(autouse=True)
def _not_strict(monkeypatch):
    monkeypatch.delenv("MHALIB_STRICT", raising=False)


def checked(cls):
    cls.__name__ = "RepairedGroupedAttention"
    return check(cls)


@pytest.mark.parametrize("faults", [("tiled",), ("wide keys and values",), tuple(TWO)])
def test_exactly_the_faults_that_are_there_are_named(faults):
    result = check(build(*faults))
    assert not result.passed
    said = result.diagnosis.lower()
    assert {fault for fault, words in TWO.items() if words.lower() in said} == set(faults)
    assert len(result.findings) == len(faults), result


def test_the_class_of_the_notebook_stops_as_the_pseudo_code_does():
    with pytest.raises(RuntimeError, match="size"):
        build(*TWO)(16, 8, 4)(torch.ones(1, 3, 16))


@pytest.mark.parametrize("wide", ["wide keys", "wide values", "wide keys and values"])
@pytest.mark.parametrize("second", ["heads", "scale", "split", "merge"])
def test_a_wide_projection_hides_no_other_fault(wide, second):
    for fault, words in WRONG[second].items():
        result = check(build(wide, fault))
        assert WRONG["width"][wide] in result.diagnosis
        assert words.lower() in result.diagnosis.lower()
        assert len(result.findings) == 2, result


def test_the_reference_is_the_layer_of_the_library():
    layer, own = MultiHeadAttention(24, 6, 2, bias=False), Reference(24, 6, 2)
    own.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(own(x), layer(x))


def test_the_family_without_faults_is_the_reference():
    seen = lesson_07_repair.run(Reference, 16, 8, 4, probing.probe(2, 4, 16))
    right = lesson_07_repair.family_output(seen.weights, seen.x, 8, 4)
    assert not seen.replaced
    torch.testing.assert_close(seen.returned, right)


def test_members_of_the_family_with_one_fault_do_not_look_alike():
    seen = lesson_07_repair.run(Reference, 16, 8, 4, probing.probe(2, 4, 16))
    members = [{}] + [
        {step: way} for step, ways in lesson_07_repair._FAMILY.items() for way in ways if way
    ]
    outputs = [lesson_07_repair.family_output(seen.weights, seen.x, 8, 4, **m) for m in members]
    for one, other in itertools.combinations(outputs, 2):
        assert not torch.allclose(one, other, rtol=1e-2, atol=1e-2)


class OnlyInGroups(Reference):
    """Right with a head for each and with one for all; in between the groups are reversed."""

    def forward(self, x):
        q, k, v = (
            linear(x).unflatten(-1, (count, -1)).transpose(1, 2)
            for linear, count in (
                (self.q_proj, self.num_heads),
                (self.k_proj, self.num_kv_heads),
                (self.v_proj, self.num_kv_heads),
            )
        )
        if self.num_kv_heads < self.num_heads:
            k, v = k.flip(1), v.flip(1)
        k, v = (part.repeat_interleave(self.num_heads // self.num_kv_heads, 1) for part in (k, v))
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


def test_an_unknown_fault_is_placed():
    result = checked(OnlyInGroups)
    assert "with one key/value head for all, or one for each, the output is right" in str(result)
    assert len(result.findings) == 1

    class WrongValues(Reference):
        def forward(self, x):
            return 2 * super().forward(x)

    assert "with one word and one head" in checked(WrongValues).diagnosis


def test_a_cut_into_wide_heads_is_named_beside_the_wide_projections():
    class WideTwice(build("wide keys and values")):
        def cut(self, x, num_heads):
            batch, seq_len, _ = x.shape
            return x.view(batch, seq_len, num_heads, 16 // num_heads).transpose(1, 2)

    result = checked(WideTwice)
    assert "gives wide heads" in result.diagnosis
    assert "once the projections have the right widths, forward stops" in result.diagnosis
    assert len(result.findings) == 2


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (lambda *sizes: 3, "a value of type int was made, but no nn.Module"),
        (lambda *sizes: nn.Linear(2, 2), "no nn.Linear called q_proj"),
        (lambda d_model: None, "TypeError"),
        (lambda *sizes: Wrapped(Reference(*sizes)), "no nn.Linear called q_proj"),
    ],
)
def test_whatever_is_made_is_said_once(thing, words):
    result = checked(thing)
    assert words in result.diagnosis
    assert len(result.findings) == 1


class Wrapped(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


def test_an_unwritten_forward_is_not_attempted():
    class Stub(Reference):
        def forward(self, x):
            raise NotImplementedError

    assert not checked(Stub).attempted


def test_changing_x_is_found():
    class InPlace(Reference):
        def forward(self, x):
            output = super().forward(x)
            x.mul_(2)
            return output

    assert "the input x was changed" in checked(InPlace).diagnosis


def test_the_check_is_quick():
    start = time.perf_counter()
    check(build(*TWO))
    checked(OnlyInGroups)
    assert time.perf_counter() - start < 5
