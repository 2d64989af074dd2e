"""Laws that attention obeys whatever the numbers: hypothesis looks for a counterexample."""

import math

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mhalib
from mhalib import MultiHeadAttention, masks, reference

laws = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def layers(draw, num_heads=(1, 2, 3, 4, 6, 8)):
    """(layer in float64, x): any head counts, group sizes, head widths and lengths."""
    heads = draw(st.sampled_from(num_heads))
    kv_heads = draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]))
    torch.manual_seed(draw(st.integers(0, 1000)))
    layer = MultiHeadAttention(
        draw(st.integers(1, 9)), heads, kv_heads, draw(st.integers(1, 4)), bias=draw(st.booleans())
    ).double()
    seq_len = draw(st.integers(1, 7))
    return layer, torch.randn(draw(st.integers(1, 3)), seq_len, layer.d_model).double() * 3


def both_paths(layer, *inputs, **options):
    output, weights = layer(*inputs, need_weights=True, **options)
    fused = layer(*inputs, **options)
    torch.testing.assert_close(output, fused, rtol=1e-10, atol=1e-11)
    return output, weights


def same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-11)


@laws
@given(layers(), st.randoms(use_true_random=False))
def test_permuting_the_words_permutes_the_output(layer_and_x, random):
    layer, x = layer_and_x
    order = list(range(x.shape[1]))
    random.shuffle(order)
    output, weights = both_paths(layer, x)
    permuted, permuted_weights = both_paths(layer, x[:, order])
    same(permuted, output[:, order])
    same(permuted_weights, weights[:, :, order][..., order])


@laws
@given(layers(), st.data())
def test_a_later_word_never_changes_an_earlier_output(layer_and_x, data):
    layer, x = layer_and_x
    changed = data.draw(st.integers(0, x.shape[1] - 1))
    later = x.clone()
    later[:, changed:] = torch.randn_like(later[:, changed:]) * 10
    before, weights = both_paths(layer, x, is_causal=True)
    after, _ = both_paths(layer, later, is_causal=True)
    same(after[:, :changed], before[:, :changed])
    assert (weights.triu(diagonal=1) == 0).all()


@laws
@given(layers(), st.data())
def test_words_beyond_the_window_never_matter(layer_and_x, data):
    layer, x = layer_and_x
    seq_len = x.shape[1]
    window = data.draw(st.integers(1, seq_len))
    mask = masks.sliding_window(seq_len, window=window)
    far = x.clone()
    far[:, : seq_len - window] = 50.0
    before, _ = both_paths(layer, x, attn_mask=mask)
    after, _ = both_paths(layer, far, attn_mask=mask)
    same(after[:, -1], before[:, -1])


@laws
@given(layers(), st.data())
def test_finite_padding_never_matters(layer_and_x, data):
    layer, x = layer_and_x
    batch, seq_len, _ = x.shape
    lengths = data.draw(st.lists(st.integers(0, seq_len), min_size=batch, max_size=batch))
    mask = masks.padding(lengths, seq_len)
    garbage = torch.where(mask[:, 0, 0, :, None], x, torch.randn_like(x) * 1e6)
    for need_weights in (False, True):
        clean = layer(x, x, attn_mask=mask, need_weights=need_weights)
        dirty = layer(x, garbage, attn_mask=mask, need_weights=need_weights)
        same(dirty, clean)
    output, _ = both_paths(layer, x, attn_mask=mask)
    for sample, length in enumerate(lengths):  # and a padded sample is the same as a short one
        if length:
            short = layer(x[sample : sample + 1, :length])
            same(output[sample : sample + 1, :length], short)


@laws
@given(layers())
def test_nan_in_a_hidden_value_leaks_and_in_a_hidden_key_does_not(layer_and_x):
    """As documented: a hidden value has weight 0, and 0 times NaN is NaN."""
    layer, x = layer_and_x
    query, key, value = (
        mhalib.split_heads(projection(x), heads)
        for projection, heads in (
            (layer.q_proj, layer.num_heads),
            (layer.k_proj, layer.num_kv_heads),
            (layer.v_proj, layer.num_kv_heads),
        )
    )
    assume(x.shape[1] > 1)
    mask = masks.padding([x.shape[1] - 1] * len(x), x.shape[1])
    broken = torch.zeros_like(key)
    broken[:, :, -1] = math.nan
    clean, _ = mhalib.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    with_key, weights = mhalib.scaled_dot_product_attention(
        query, key + broken, value, attn_mask=mask
    )
    same(with_key, clean)
    assert (weights[..., -1] == 0).all()
    with_value, weights = mhalib.scaled_dot_product_attention(
        query, key, value + broken, attn_mask=mask
    )
    assert with_value.isnan().all()
    assert weights.isfinite().all()

    groups = layer.num_heads // layer.num_kv_heads
    arrays = [x.detach().numpy() for x in (query, mhalib.repeat_kv(key, groups))]
    values = mhalib.repeat_kv(value + broken, groups).detach().numpy()
    output, _ = reference.attention(*arrays, values, attn_mask=mask.numpy())
    assert np.isnan(output).all()


@laws
@given(layers(), st.data())
def test_one_head_of_the_whole_is_one_turn_of_the_loop(layer_and_x, data):
    layer, x = layer_and_x
    head = data.draw(st.integers(0, layer.num_heads - 1))
    kv_head = head // (layer.num_heads // layer.num_kv_heads)
    width = layer.head_dim
    one = slice(head * width, (head + 1) * width)
    one_kv = slice(kv_head * width, (kv_head + 1) * width)
    query, key, value = (
        projection(x)[..., part].detach().numpy()
        for projection, part in (
            (layer.q_proj, one),
            (layer.k_proj, one_kv),
            (layer.v_proj, one_kv),
        )
    )
    output, weights = reference.attention(query, key, value, is_causal=True)
    _, all_weights = both_paths(layer, x, is_causal=True)
    same(all_weights[:, head], torch.from_numpy(weights))
    with torch.no_grad():  # leave only this head's block of the output projection
        layer.out_proj.weight[:, : one.start] = 0
        layer.out_proj.weight[:, one.stop :] = 0
        expected = layer.out_proj.weight[:, one] @ torch.from_numpy(output).mT
        expected = expected.mT + (0 if layer.out_proj.bias is None else layer.out_proj.bias)
    same(layer(x, is_causal=True), expected)


@laws
@given(layers(), st.data())
def test_samples_of_a_batch_do_not_see_each_other(layer_and_x, data):
    layer, x = layer_and_x
    batch = len(x)
    offset = torch.tensor(data.draw(st.lists(st.integers(-2, 3), min_size=batch, max_size=batch)))
    output, weights = both_paths(layer, x, is_causal=True, query_offset=offset)
    for sample in range(batch):
        alone, alone_weights = both_paths(
            layer, x[sample : sample + 1], is_causal=True, query_offset=int(offset[sample])
        )
        same(output[sample : sample + 1], alone)
        same(weights[sample : sample + 1], alone_weights)


@laws
@given(layers(), st.floats(-50, 50).filter(lambda constant: constant != 1))
def test_a_constant_added_to_all_scores_changes_nothing(layer_and_x, constant):
    layer, x = layer_and_x  # a mask of 1s is refused, because it is more likely a mistake
    mask = torch.full((x.shape[1], x.shape[1]), constant, dtype=torch.float64)
    output, weights = both_paths(layer, x)
    shifted, shifted_weights = both_paths(layer, x, attn_mask=mask)
    same(shifted, output)
    same(shifted_weights, weights)
    rows = weights.sum(dim=-1)
    same(rows, torch.ones_like(rows))


@laws
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8), st.floats(-1e4, 1e4))
def test_softmax_is_positive_sums_to_one_and_ignores_a_shift(numbers, shift):
    x = np.array(numbers)
    weights = reference.softmax(x)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(), 1)
    np.testing.assert_allclose(reference.softmax(x + shift), weights, rtol=1e-6, atol=1e-9)
    assert weights.argmax() in np.flatnonzero(weights == weights[x.argmax()])


@laws
@given(st.integers(0, 1000), st.floats(0.01, 100), st.integers(1, 6))
def test_cosine_ignores_length_and_a_vector_is_its_own_neighbour(seed, factor, k):
    vectors = np.random.default_rng(seed).normal(size=(6, 4))
    cosine = reference.cosine_similarity(vectors[0], vectors[1])
    assert -1 - 1e-12 <= cosine <= 1 + 1e-12
    np.testing.assert_allclose(
        reference.cosine_similarity(vectors[0] * factor, vectors[1]), cosine, rtol=1e-9
    )
    nearest = reference.nearest_neighbours(vectors, vectors[2] * factor, k)
    assert nearest[0] == 2
    cosines = [reference.cosine_similarity(vectors[2], vectors[row]) for row in nearest]
    assert cosines == sorted(cosines, reverse=True)
    assert len(set(nearest.tolist())) == k
