"""Sparse patterns: what they let through, which blocks they need, how far news travels."""

import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mhalib import blockwise_attention, masks, pretrained, scaled_dot_product_attention, sparse


def test_first_tokens_are_seen_by_all_that_come_later():
    mask = sparse.first_tokens(7, 3)
    for i, j in itertools.product(range(7), range(7)):
        assert mask[i, j] == (j < 3 and j <= i)


@pytest.mark.parametrize(("block_size", "num_global"), [(4, 0), (4, 1), (4, 4), (3, 2), (20, 1)])
def test_fixed_blocks_is_the_pattern_of_the_sparse_transformer(block_size, num_global):
    mask = sparse.fixed_blocks(13, block_size=block_size, num_global=num_global)
    for i, j in itertools.product(range(13), range(13)):
        seen_by_all = j % block_size in range(block_size - num_global, block_size)
        assert mask[i, j] == (j <= i and (i // block_size == j // block_size or seen_by_all))


@pytest.mark.parametrize("block_size", [1, 3, 4, 10, 50])
@pytest.mark.parametrize("shape", [(10, 10), (10, 7), (1, 9)])
def test_blocks_needed_by_a_loop(shape, block_size):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.15
    needed = sparse.blocks_needed(mask, block_size)
    assert needed.shape == tuple(-(-size // block_size) for size in shape)
    for i, j in itertools.product(*map(range, needed.shape)):
        rows, columns = (slice(n * block_size, (n + 1) * block_size) for n in (i, j))
        assert needed[i, j] == mask[rows, columns].any()


@pytest.mark.parametrize(
    "mask",
    [
        masks.sliding_window(96, window=16),
        sparse.first_tokens(96, 16),
        sparse.fixed_blocks(96, block_size=16),
        sparse.fixed_blocks(96, block_size=16, num_global=1),
    ],
)
def test_blockwise_attention_computes_the_needed_blocks_and_no_others(mask):
    query, key, value = torch.randn(3, 2, 4, 96, 8)
    with FlopCounterMode(display=False) as counter:
        output = blockwise_attention(query, key, value, attn_mask=mask, block_size=16)
    blocks = int(sparse.blocks_needed(mask, 16).sum())
    assert counter.get_total_flops() == blocks * 2 * 4 * (2 * 16 * 16 * 8) * 2
    plain, _ = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(output, plain)


def walk(mask, start):
    """{token: layers until news of it arrives at `start`}, by walking along the mask."""
    found, front = {start: 0}, {start}
    for layer in itertools.count(1):
        front = {j for i in front for j in range(len(mask)) if mask[i][j]} - found.keys()
        if not front:
            return found
        found |= dict.fromkeys(front, layer)


@pytest.mark.parametrize(
    "mask",
    [
        masks.sliding_window(12, window=3),
        masks.sliding_window(12, window=2) | masks.sliding_window(12, window=2).T,
        sparse.first_tokens(12, 2),
        sparse.fixed_blocks(12, block_size=4, num_global=1),
        torch.rand(12, 12, generator=torch.Generator().manual_seed(1)) < 0.12,
        torch.zeros(12, 12, dtype=torch.bool),
    ],
)
def test_reach_is_that_of_a_walk(mask):
    layers = sparse.layers_to_reach(mask, 12)
    for token in range(12):
        expected = walk(mask.tolist(), token)
        assert {j: n for j, n in enumerate(layers[token].tolist()) if n >= 0} == expected
    for count in (1, 2, 5):
        assert torch.equal(sparse.reachable(mask, count), (layers >= 0) & (layers <= count))


def test_reach_of_the_lessons_patterns():
    known = {  # of the last token, after 1, 2 and 6 layers
        "window": (masks.sliding_window(64, window=8), [8, 15, 43]),
        "first": (sparse.first_tokens(64, 8), [9, 9, 9]),
        "blocks": (sparse.fixed_blocks(64, block_size=8), [8, 8, 8]),
        "global": (sparse.fixed_blocks(64, block_size=8, num_global=1), [15, 64, 64]),
    }
    for mask, counts in known.values():
        assert [int(sparse.reachable(mask, n)[-1].sum()) for n in (1, 2, 6)] == counts


@pytest.fixture(scope="module")
def model():
    return pretrained.load_encoder()


def test_with_pattern_forces_the_pattern_on_every_layer_and_head(model):
    def window(n):
        return masks.sliding_window(n, window=2)

    text = "The bank refused to lend him more."
    before = model.hidden_states(text)
    patterned = sparse.with_pattern(model, window)
    weights = patterned.attention(text)
    assert (weights[..., ~window(weights.shape[-1])] == 0).all()
    assert not torch.allclose(patterned.hidden_states(text), before)
    assert torch.equal(model.hidden_states(text), before)  # the model given is as it was
    assert patterned.encoder.layers[0].layer is model.encoder.layers[0]  # and its weights shared


def test_with_pattern_composes_with_padding_and_with_gates(model):
    everything = sparse.with_pattern(model, lambda n: torch.ones(n, n, dtype=torch.bool))
    texts = ["a", "The bank refused to lend him more for the house."]
    torch.testing.assert_close(everything.embed(texts), model.embed(texts))
    gate = torch.zeros(6, 12)
    torch.testing.assert_close(
        everything.embed(texts, gate=gate), model.embed(texts, gate=gate), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sparse.first_tokens(0, 1), ValueError, "seq_len=0 must be at least 1"),
        (lambda: sparse.first_tokens(4, 0), ValueError, "count=0 must be at least 1"),
        (
            lambda: sparse.fixed_blocks(8, block_size=2, num_global=3),
            ValueError,
            "num_global=3 must be at most block_size=2",
        ),
        (
            lambda: sparse.fixed_blocks(8, block_size=2.0),
            TypeError,
            "block_size=2.0 must be an integer",
        ),
        (
            lambda: sparse.blocks_needed(torch.ones(3, 3), 2),
            TypeError,
            r"attn_mask must be a boolean tensor \(True = may attend\), not torch.float32",
        ),
        (
            lambda: sparse.blocks_needed([[True]], 2),
            TypeError,
            r"attn_mask must be a boolean tensor \(True = may attend\), not list",
        ),
        (
            lambda: sparse.blocks_needed(torch.ones(1, 3, 3, dtype=torch.bool), 2),
            ValueError,
            r"attn_mask has shape \(1, 3, 3\), but \(query_len, key_len\) was expected",
        ),
        (
            lambda: sparse.layers_to_reach(torch.ones(3, 4, dtype=torch.bool), 2),
            ValueError,
            "the length of both axes must be the same, but rows has 3, columns has 4",
        ),
        (
            lambda: sparse.reachable(masks.causal(3), 0),
            ValueError,
            "num_layers=0 must be at least 1",
        ),
    ],
)
def test_what_does_not_fit_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_pattern_that_is_no_mask_is_refused(model):
    with pytest.raises(TypeError, match="attn_mask must be a boolean tensor"):
        sparse.with_pattern(model, lambda n: torch.ones(n, n)).embed(["a"])
