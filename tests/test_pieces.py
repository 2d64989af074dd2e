"""The pieces of a softmax: any split, any order, no keys; and half precision beside float64."""

import itertools
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mhalib.functional import scaled_dot_product_attention
from mhalib.pieces import (
    attention_in_pieces,
    merge_softmax_pieces,
    stable_half_precision_attention,
)


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def piece(scores, values):
    """A piece from its definition; a row without a key gives -inf, 0 and 0."""
    maximum = scores.amax(dim=-1, keepdim=True)
    powers = (scores - maximum).exp().nan_to_num(0.0)
    return maximum, powers.sum(dim=-1, keepdim=True), powers @ values


def empty(rows=3, width=4):
    return torch.full((rows, 1), -math.inf).double(), normal(rows, 1) * 0, normal(rows, width) * 0


def assert_same(one, other, tolerance=1e-12):
    for got, expected in zip(one, other, strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


# merging


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 11), unique=True, max_size=6),
    order=st.randoms(use_true_random=False),
    size=st.sampled_from([0.1, 1.0, 30.0, 3_000.0]),
    seed=st.integers(0, 1_000),
)
def test_any_split_merged_in_any_order_is_the_softmax_of_the_whole(cuts, order, size, seed):
    scores, values = normal(3, 12, seed=seed) * size, normal(12, 4, seed=seed + 1)
    edges = [0, *sorted(cuts), 12]
    parts = [piece(scores[:, a:b], values[a:b]) for a, b in itertools.pairwise(edges)]
    order.shuffle(parts)
    merged = parts[0]
    for part in parts[1:]:
        merged = merge_softmax_pieces(merged, part)
    assert_same(merged, piece(scores, values))
    assert_same([merged[2] / merged[1]], [scores.softmax(dim=-1) @ values])


def three_pieces():
    scores, values = normal(3, 12) * 20, normal(12, 4, seed=1)
    scores[1, 4:8] = -math.inf
    return [piece(scores[:, a : a + 4], values[a : a + 4]) for a in (0, 4, 8)]


def test_it_does_not_matter_which_two_are_merged_first():
    a, b, c = three_pieces()
    assert_same(
        merge_softmax_pieces(merge_softmax_pieces(a, b), c),
        merge_softmax_pieces(a, merge_softmax_pieces(b, c)),
    )


def test_left_and_right_may_change_places():
    for one, other in itertools.combinations(three_pieces(), 2):
        assert_same(merge_softmax_pieces(one, other), merge_softmax_pieces(other, one), 0)


def test_the_piece_of_no_keys_changes_nothing():
    a, *_ = three_pieces()
    assert_same(merge_softmax_pieces(a, empty()), a, 0)
    assert_same(merge_softmax_pieces(empty(), a), a, 0)
    assert_same(merge_softmax_pieces(empty(), empty()), empty(), 0)


def test_one_row_without_keys_does_not_touch_the_others():
    a, b, _ = three_pieces()
    assert b[0][1] == -math.inf
    merged = merge_softmax_pieces(a, b)
    assert_same([part[1] for part in merged], [part[1] for part in a], 0)
    assert not any(part.isnan().any() for part in merged)


@pytest.mark.parametrize(("left", "right"), [(1e30, -1e30), (710.0, 0.0), (-1e4, -2e4)])
def test_maxima_far_apart_neither_overflow_nor_vanish(left, right):
    parts = [
        (torch.full((2, 1), top).double(), torch.full((2, 1), 3.0).double(), normal(2, 4))
        for top in (left, right)
    ]
    assert_same(merge_softmax_pieces(*parts), parts[0], 0)


def test_pieces_may_have_axes_before_the_rows():
    scores, values = normal(2, 3, 5, 8), normal(2, 3, 8, 4, seed=1)
    parts = [piece(scores[..., a : a + 4], values[:, :, a : a + 4]) for a in (0, 4)]
    assert_same(merge_softmax_pieces(*parts), piece(scores, values))


def test_gradients_of_the_merged_pieces_are_those_of_the_whole():
    leaves = [normal(3, 8).requires_grad_(), normal(8, 4, seed=1).requires_grad_()]

    def gradients(output):
        return torch.autograd.grad((output * normal(3, 4, seed=2)).sum(), leaves)

    scores, values = leaves
    parts = [piece(scores[:, a : a + 4], values[a : a + 4]) for a in (0, 4)]
    _, total, output = merge_softmax_pieces(*parts)
    assert_same(gradients(output / total), gradients(scores.softmax(dim=-1) @ values))


def test_pieces_are_not_changed():
    a, b, _ = three_pieces()
    before = [part.clone() for part in (*a, *b)]
    merge_softmax_pieces(a, b)
    assert all(map(torch.equal, (*a, *b), before))


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (3, empty(), "left must be a tuple (maximum, total, output), not 3"),
        (empty(), empty()[:2], "right must be a tuple (maximum, total, output), not 2 values"),
        (empty(), (1, 2, 3), "maximum of right must be a torch.Tensor"),
        (empty(), tuple(x.float() for x in empty()), "all inputs must share one dtype"),
        (empty(rows=2), empty(), "the shape of output must be the same"),
        ((*empty()[:2], normal(3, 5)), empty(), "the shape of output must be the same"),
        ([normal(3, 4)] * 3, [normal(3, 4)] * 3, "one number a row has (3, 1)"),
        ((empty(rows=2)[0], *empty()[1:]), empty(), "maximum of left has (2, 1)"),
        ((empty()[0].squeeze(), *empty()[1:]), empty(), "maximum of left has (3,)"),
    ],
)
def test_what_is_no_piece_is_refused(left, right, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        merge_softmax_pieces(left, right)


# attention in pieces


def pattern(query_len, key_len, seed=0):
    return torch.rand(query_len, key_len, generator=torch.Generator().manual_seed(seed)) < 0.4


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 11, 100])
@pytest.mark.parametrize("mask", [None, pattern(5, 11)])
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_attention_in_pieces_is_attention(block_size, mask, size):
    query, key = normal(2, 3, 5, 4) * size, normal(2, 3, 11, 4, seed=1) * size
    value = normal(2, 3, 11, 6, seed=2)
    expected, _ = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert_same([attention_in_pieces(query, key, value, block_size, mask)], [expected], 1e-10)


def test_gradients_in_pieces_are_those_of_attention():
    leaves = [normal(2, 3, n, 4, seed=n).requires_grad_() for n in (5, 9, 9)]
    mask = pattern(5, 9)
    mask[1] = False
    gradients = [
        torch.autograd.grad((output * normal(2, 3, 5, 4, seed=2)).sum(), leaves)
        for output in (
            attention_in_pieces(*leaves, 4, mask),
            scaled_dot_product_attention(*leaves, attn_mask=mask)[0],
        )
    ]
    assert_same(*gradients)


def test_a_query_that_may_see_no_key_gets_zeros():
    query, key, value = (normal(1, 2, 4, 3, seed=seed) for seed in range(3))
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    output = attention_in_pieces(query, key, value, 2, mask)
    assert (output[:, :, 2] == 0).all()
    assert not output.isnan().any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": normal(4, 3)}, "query has shape (4, 3)"),
        ({"key": normal(1, 2, 5, 4)}, "head_dim must be the same"),
        ({"block_size": 0}, "block_size=0 must be at least 1"),
        ({"block_size": 2.0}, "block_size=2.0 must be an integer"),
        ({"attn_mask": [True]}, "attn_mask must be a torch.Tensor"),
        ({"attn_mask": pattern(1, 5)}, "expected has ('torch.bool', (4, 5))"),
        ({"attn_mask": normal(4, 5)}, "expected has ('torch.bool', (4, 5))"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    fitting = {
        "query": normal(1, 2, 4, 3),
        "key": normal(1, 2, 5, 3),
        "value": normal(1, 2, 5, 3),
        "block_size": 2,
    }
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        attention_in_pieces(**{**fitting, **options})


# half precision


def in_float64(query, key, value):
    wide = [x.double() for x in (query, key, value)]
    return scaled_dot_product_attention(*wide)[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [1.0, 4.0])
def test_half_precision_is_as_good_as_rounding_once(dtype, size):
    query, key, value = (
        normal(2, 3, n, 16, seed=n, dtype=dtype) * scale
        for n, scale in ((4, size), (7, size), (7, 1))
    )
    output = stable_half_precision_attention(query, key, value)
    assert output.dtype == dtype
    expected = in_float64(query, key, value)
    half_a_unit = torch.finfo(dtype).eps / 2
    error = (output.double() - expected).abs()
    # rounded once, plus what float32 itself loses on scores of this size
    assert (error <= 1.01 * half_a_unit * expected.abs() + 2e-5 * value.abs().max()).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_beyond_the_largest_half_keep_their_differences(sign):
    query = torch.tensor([[300.0, 1], [300, -2]]).half()[None, None]
    key = torch.tensor([[240.0 * sign, k] for k in (-2, -1, 0, 1)]).half()[None, None]
    value = normal(1, 1, 4, 2, dtype=torch.float16)
    assert not (query @ key.mT).isfinite().any()
    output = stable_half_precision_attention(query, key, value)
    torch.testing.assert_close(output.double(), in_float64(query, key, value), rtol=4e-3, atol=1e-3)


def test_float64_is_refused_because_it_would_be_rounded():
    x = normal(1, 1, 2, 3)
    with pytest.raises(ValueError, match=r"dtype='torch.float64' must be one of"):
        stable_half_precision_attention(x, x, x)
    with pytest.raises(TypeError, match="share one dtype"):
        stable_half_precision_attention(x.half(), x.bfloat16(), x.half())
