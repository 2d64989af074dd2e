"""The key/value cache: every way to fill it gives what one pass over the whole gives."""

import itertools
import math

import pytest
import torch

from mhalib import KVCache, MultiHeadAttention, masks

LEN, BATCH = 9, 3
KINDS = {"MHA": (8, 8), "GQA": (8, 2), "GQA of three": (6, 2), "MQA": (8, 1)}


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def layer_and_input(num_heads=8, num_kv_heads=2, head_dim=4, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    layer = MultiHeadAttention(24, num_heads, num_kv_heads, head_dim).to(dtype).eval()
    return layer, torch.randn(BATCH, LEN, 24, dtype=dtype)


def new_cache(layer, window=None, max_len=LEN, batch=BATCH, **kind):
    room = {"max_len": max_len} if window is None else {"window": window}
    return KVCache(batch, layer.num_kv_heads, layer.head_dim, **room, **kind)


def in_one_pass(layer, x, window=None, need_weights=False):
    if window is None:
        return layer(x, is_causal=True, need_weights=need_weights)
    return layer(x, attn_mask=masks.sliding_window(x.shape[1], window=window))


def in_chunks(layer, x, cache, sizes, **options):
    outputs, start = [], 0
    for size in sizes:
        chunk = x[:, start : start + size]
        outputs.append(layer(chunk, is_causal=True, cache=cache, **options))
        start += size
    assert start == x.shape[1]
    return outputs


def splits(total):
    """Every way to cut `total` tokens into chunks."""
    for cuts in itertools.product([False, True], repeat=total - 1):
        edges = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), total]
        yield [after - before for before, after in itertools.pairwise(edges)]


@pytest.mark.parametrize("heads", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("window", [None, 1, 2, 4, 8, 9, 20])
def test_token_by_token_is_the_full_pass_at_every_position(heads, window):
    layer, x = layer_and_input(*heads)
    decoded = torch.cat(in_chunks(layer, x, new_cache(layer, window), [1] * LEN), dim=1)
    assert (decoded - in_one_pass(layer, x, window)).abs().max() < 1e-5


@pytest.mark.parametrize("heads", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("window", [None, 1, 3, 20])
def test_prefill_in_any_chunks_is_the_full_pass(heads, window):
    layer, x = layer_and_input(*heads)
    whole = in_one_pass(layer, x, window)
    cache = new_cache(layer, window)
    for sizes in splits(LEN):  # all 256
        cache.clear()
        parts = torch.cat(in_chunks(layer, x, cache, sizes), dim=1)
        assert (parts - whole).abs().max() < 1e-5, sizes


@pytest.mark.parametrize("need_weights", [False, True])
def test_float64_to_the_last_digits_and_on_both_paths(need_weights):
    layer, x = layer_and_input(dtype=torch.float64)
    cache = new_cache(layer, dtype=torch.float64)
    parts = in_chunks(layer, x, cache, [4, 1, 4], need_weights=need_weights)
    parts = [part[0] if need_weights else part for part in parts]
    assert (torch.cat(parts, dim=1) - in_one_pass(layer, x)).abs().max() < 1e-12


def test_weights_are_the_rows_of_the_whole_map():
    layer, x = layer_and_input()
    cache = new_cache(layer)
    whole = in_one_pass(layer, x, need_weights=True)[1]
    (_, first), (_, second) = in_chunks(layer, x, cache, [5, 4], need_weights=True)
    assert first.shape == (BATCH, 8, 5, 5)
    assert second.shape == (BATCH, 8, 4, 9)
    assert (first - whole[:, :, :5, :5]).abs().max() < 1e-6
    assert (second - whole[:, :, 5:]).abs().max() < 1e-6


def real_lengths(total):
    """How many of each sample's tokens come in the first step, and then one or none at a time."""
    first = [5, 2, 3]
    yield 5, first
    for step in range(max(total) - 1):
        yield 1, [int(step < total[sample] - first[sample]) for sample in range(BATCH)]


@pytest.mark.parametrize("window", [None, 1, 3, 20])
@pytest.mark.parametrize("heads", KINDS.values(), ids=KINDS)
def test_sequences_of_different_lengths_in_one_batch(heads, window):
    """Each sample's real tokens get what they get alone, whatever the padding holds."""
    layer, x = layer_and_input(*heads)
    total = [9, 6, 3]
    alone = [in_one_pass(layer, x[[n], : total[n]], window)[0] for n in range(BATCH)]
    cache = new_cache(layer, window)
    done = [0] * BATCH
    for size, lengths in real_lengths(total):
        chunk = torch.full((BATCH, size, 24), 1e3)  # padding that would be noticed
        for n, count in enumerate(lengths):
            chunk[n, :count] = x[n, done[n] : done[n] + count]
        output = layer(chunk, is_causal=True, cache=cache, lengths=lengths)
        assert output.isfinite().all()
        for n, count in enumerate(lengths):
            expected = alone[n][done[n] : done[n] + count]
            assert count == 0 or (output[n, :count] - expected).abs().max() < 1e-5
            done[n] += count
    assert cache.lengths.tolist() == done == total


@pytest.mark.parametrize("window", [2, 3])
def test_chunks_of_different_lengths_around_the_ring(window):
    layer, x = layer_and_input()
    cache = new_cache(layer, window)
    steps = torch.tensor([[4, 1, 0], [4, 4, 3], [1, 4, 2]])
    done = torch.zeros(BATCH, dtype=torch.long)
    for lengths in steps:
        chunk = torch.stack([x[n].roll(-int(done[n]), 0)[:4] for n in range(BATCH)])
        output = layer(chunk, is_causal=True, cache=cache, lengths=lengths)
        for n in range(BATCH):
            start, stop = int(done[n]), int(done[n] + lengths[n])
            expected = in_one_pass(layer, x[[n]], window)[0, start:stop]
            assert torch.allclose(output[n, : stop - start], expected, atol=1e-5)
        done += lengths


def test_padding_takes_no_slot():
    """Also where the cache is full, and where the ring's oldest token is needed still."""
    layer, x = layer_and_input()
    for window, done in ((None, LEN - 1), (4, 5)):
        whole = in_one_pass(layer, x, window)
        cache = new_cache(layer, window)
        layer(x[:, :done], is_causal=True, cache=cache)
        padded = torch.cat([x[:, done : done + 1], torch.full((BATCH, 2, 24), 1e3)], dim=1)
        layer(padded, is_causal=True, cache=cache, lengths=[1, 1, 1])
        layer(padded[:, 1:], is_causal=True, cache=cache, lengths=[0, 0, 0])
        without = new_cache(layer, window)
        layer(x[:, : done + 1], is_causal=True, cache=without)
        assert (cache.key - without.key).abs().max() < 1e-5
        assert (cache.value - without.value).abs().max() < 1e-5
        assert cache.lengths.tolist() == [done + 1] * BATCH
        if window is not None:
            step = layer(x[:, done + 1 : done + 2], is_causal=True, cache=cache)
            assert (step - whole[:, done + 1 : done + 2]).abs().max() < 1e-5


def test_the_slots_hold_the_tokens_they_should():
    cache = KVCache(1, 1, 1, window=3)
    for token in range(7):
        cache.append(torch.full((1, 1, 1, 1), float(token)), torch.ones(1, 1, 1, 1))
    assert cache.key.flatten().tolist() == [6, 4, 5]
    assert cache.lengths.tolist() == [7]
    cache.append(torch.arange(7.0, 12).reshape(1, 1, 5, 1), torch.ones(1, 1, 5, 1))
    assert cache.key.flatten().tolist() == [9, 10, 11]


def test_cleared_it_is_as_new_and_needs_no_new_memory():
    layer, x = layer_and_input()
    cache = new_cache(layer, max_len=6)
    place = cache.key.data_ptr()
    first = in_chunks(layer, x[:, :6], cache, [3, 3])
    cache.clear()
    again = in_chunks(layer, x[:, :6], cache, [3, 3])
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert cache.key.data_ptr() == place


def test_bytes_are_those_of_the_key_and_value_heads_alone():
    for num_heads, num_kv_heads in KINDS.values():
        layer, _ = layer_and_input(num_heads, num_kv_heads)
        cache = new_cache(layer, dtype=torch.float16)
        assert cache.nbytes == 2 * BATCH * num_kv_heads * LEN * 4 * 2
        assert new_cache(layer, window=2).nbytes == 2 * BATCH * num_kv_heads * 2 * 4 * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    layer, x = layer_and_input()
    whole = in_one_pass(layer, x)
    parts = in_chunks(layer.to(dtype), x.to(dtype), new_cache(layer, dtype=dtype), [5, 1, 3])
    assert torch.cat(parts, dim=1).dtype == dtype
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 20 * torch.finfo(dtype).eps


def heads_of(batch=2, num_kv_heads=2, new_len=3, head_dim=4, **kind):
    return torch.ones(batch, num_kv_heads, new_len, head_dim, **kind)


@pytest.mark.parametrize(
    ("key", "value", "lengths", "error", "message"),
    {
        "another batch": (*[heads_of(batch=3)] * 2, None, ValueError, "batch.*3.*2"),
        "one sample": (*[heads_of(batch=1)] * 2, None, ValueError, "batch.*1.*2"),
        "query heads": (*[heads_of(num_kv_heads=8)] * 2, None, ValueError, "num_kv_heads.*8.*2"),
        "one head": (*[heads_of(num_kv_heads=1)] * 2, None, ValueError, "num_kv_heads.*1.*2"),
        "another width": (*[heads_of(head_dim=1)] * 2, None, ValueError, "head_dim.*1.*4"),
        "values of another length": (
            heads_of(),
            heads_of(new_len=1),
            None,
            ValueError,
            "the shape must be the same",
        ),
        "another dtype": (
            *[heads_of(dtype=torch.float64)] * 2,
            None,
            TypeError,
            "one dtype.*float64.*cache has torch.float32",
        ),
        "another device": (
            *[heads_of(device="meta")] * 2,
            None,
            TypeError,
            "one device.*meta.*cache has cpu",
        ),
        "three axes": (*[heads_of()[0]] * 2, None, ValueError, "key has shape"),
        "no token": (*[heads_of(new_len=0)] * 2, None, ValueError, "empty"),
        "whole numbers": (*[heads_of().long()] * 2, None, TypeError, "floating-point"),
        "one more than there is room": (
            *[heads_of(new_len=4)] * 2,
            None,
            ValueError,
            r"room for max_len=5 tokens, but sequence 0 would have 2 \+ 4",
        ),
        "one sample has no room": (
            *[heads_of(new_len=5)] * 2,
            [2, 5],
            ValueError,
            r"sequence 1 would have 2 \+ 5",
        ),
        "lengths of another batch": (*[heads_of()] * 2, [1], ValueError, "batch.*lengths has 1"),
        "more lengths than tokens": (*[heads_of()] * 2, [1, 4], ValueError, "lengths=.*max_len=3"),
        "lengths below zero": (*[heads_of()] * 2, [1, -1], ValueError, "lengths=.*between 0"),
        "lengths that are no integers": (*[heads_of()] * 2, [1.0, 2], TypeError, "lengths"),
        "gradients": (
            heads_of(requires_grad=True),
            heads_of(),
            None,
            ValueError,
            r"key and value need gradients.*torch\.no_grad",
        ),
    }.values(),
)
def test_what_does_not_fit_is_refused_and_changes_nothing(key, value, lengths, error, message):
    cache = KVCache(2, 2, 4, max_len=5)
    cache.append(heads_of(new_len=2) * 7, heads_of(new_len=2) * 8)
    before = cache.key.clone(), cache.value.clone(), cache.lengths.clone()
    with torch.enable_grad(), pytest.raises(error, match=message):
        cache.append(key, value, lengths)
    after = cache.key, cache.value, cache.lengths
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_the_last_token_fits_and_the_next_does_not():
    layer, x = layer_and_input()
    cache = new_cache(layer)
    in_chunks(layer, x, cache, [8, 1])
    before = cache.key.clone()
    with pytest.raises(ValueError, match=r"sequence 0 would have 9 \+ 1"):
        layer(x[:, :1], is_causal=True, cache=cache)
    assert torch.equal(cache.key, before)
    assert cache.lengths.tolist() == [9, 9, 9]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"is_causal": False},
            ValueError,
            "is_causal=False was given, but attention with a cache is always causal",
        ),
        ({"is_causal": "yes"}, TypeError, "is_causal"),
        ({"need_weights": "yes"}, TypeError, "need_weights"),
        ({"query_offset": 0}, ValueError, "query_offset was given with a cache"),
        ({"attn_mask": masks.causal(LEN)}, ValueError, "attn_mask was given with a cache"),
        ({"key": torch.ones(BATCH, LEN, 24)}, ValueError, "key was given with a cache"),
        ({"lengths": [1, 2]}, ValueError, "batch"),
    ],
)
def test_options_that_a_cache_excludes(options, error, message):
    layer, x = layer_and_input()
    cache = new_cache(layer)
    with pytest.raises(error, match=message):
        layer(x, **({"is_causal": True, "cache": cache} | options))
    assert cache.lengths.tolist() == [0, 0, 0]


def test_with_gradients_switched_on_the_layer_says_what_to_do():
    layer, x = layer_and_input()
    with torch.enable_grad(), pytest.raises(ValueError, match=r"torch\.no_grad"):
        layer(x, is_causal=True, cache=new_cache(layer))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, ValueError, "max_len or window must be given.*0 were given"),
        ({"max_len": 3, "window": 3}, ValueError, "max_len or window.*2 were given"),
        ({"max_len": 0}, ValueError, "max_len=0 must be at least 1"),
        ({"window": -1}, ValueError, "window=-1 must be at least 1"),
        ({"max_len": 2.5}, TypeError, r"max_len=2\.5 must be an integer"),
        ({"max_len": 3, "batch": 0}, ValueError, "batch=0"),
        ({"max_len": 3, "num_kv_heads": True}, TypeError, "num_kv_heads=True"),
    ],
)
def test_a_cache_of_no_size(given, error, message):
    with pytest.raises(error, match=message):
        KVCache(**({"batch": 1, "num_kv_heads": 1, "head_dim": 1} | given))


def test_a_hidden_slot_with_anything_in_it_is_not_seen():
    """Clearing does not wipe: what an earlier text left behind stays out of the next one."""
    layer, x = layer_and_input()
    for window in (None, 4):
        cache = new_cache(layer, window)
        in_chunks(layer, 100 * x, cache, [LEN])
        cache.clear()
        output = layer(x[:, :2], is_causal=True, cache=cache)
        assert (output - in_one_pass(layer, x[:, :2], window)).abs().max() < 1e-5
        assert math.isfinite(float(output.sum()))
