"""Shared key/value heads: attention without copies, the cache's size and step, conversion."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mhalib import MultiHeadAttention
from mhalib.cost import kv_cache_bytes
from mhalib.exercises.observing import largest_new
from mhalib.functional import repeat_kv, scaled_dot_product_attention, split_heads
from mhalib.sharing import (
    cached_step,
    grouped_attention,
    kv_cache_bytes_per_token,
    pool_kv_heads,
    shared_layer,
)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def trained_layer(*sizes, seed=0, **options):
    """A layer with known weights in place of trained ones."""
    layer = MultiHeadAttention(*sizes, **options).double()
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=seed + number) / 2)
    return layer


# grouped attention


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 2), *[st.integers(1, 4)] * 6, st.integers(0, 99))
def test_grouped_attention_is_attention_on_repeated_heads(
    batch, num_kv_heads, group_size, query_len, key_len, head_dim, value_dim, seed
):
    query = normal(batch, num_kv_heads * group_size, query_len, head_dim, seed=seed)
    key = normal(batch, num_kv_heads, key_len, head_dim, seed=seed + 1)
    value = normal(batch, num_kv_heads, key_len, value_dim, seed=seed + 2)
    copies = repeat_kv(key, group_size), repeat_kv(value, group_size)
    expected, _ = scaled_dot_product_attention(query, *copies)
    torch.testing.assert_close(grouped_attention(query, key, value), expected)


def test_grouped_attention_of_64_heads_on_8_makes_no_copies():
    query = normal(2, 64, 1, 32, dtype=torch.float32)
    key, value = (normal(2, 8, 256, 32, seed=seed, dtype=torch.float32) for seed in (1, 2))
    output, largest = largest_new(grouped_attention, query, key, value)
    assert output.shape == query.shape
    assert largest == 2 * 64 * 256  # the scores
    assert largest < key.numel()


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((1, 3, 2), (1, 1, 2, 2), (1, 1, 2, 2)), r"query has shape \(1, 3, 2\)"),
        (((1, 3, 2, 2), (1, 2, 2, 2), (1, 2, 2, 2)), "num_kv_heads=2 must divide num_heads=3"),
        (((1, 4, 2, 2), (1, 2, 2, 3), (1, 2, 2, 2)), "head_dim must be the same"),
        (((1, 4, 2, 2), (1, 2, 2, 2), (1, 2, 3, 2)), "the number of keys and values"),
        (((2, 4, 2, 2), (1, 2, 2, 2), (1, 2, 2, 2)), "batch must be the same"),
    ],
)
def test_grouped_attention_refuses_what_does_not_fit(shapes, words):
    with pytest.raises(ValueError, match=words):
        grouped_attention(*(torch.ones(shape) for shape in shapes))


# the cache


def test_bytes_per_token_are_what_one_more_position_costs():
    for num_heads, num_kv_heads, head_dim, num_layers in ((32, 32, 128, 32), (64, 8, 128, 80)):
        sizes = {"d_model": num_heads * head_dim, "num_heads": num_heads}
        sizes |= {"num_kv_heads": num_kv_heads, "num_layers": num_layers, "itemsize": 2}
        one, two = (kv_cache_bytes(**sizes, key_len=n) for n in (4096, 4097))
        assert kv_cache_bytes_per_token(num_layers, num_kv_heads, head_dim, 2) == two - one
    assert kv_cache_bytes_per_token(32, 32, 128, 2) == 2**19  # Llama-2-7B: half a MiB


@pytest.mark.parametrize("number", [0, -1, 2.0, True, "2"])
@pytest.mark.parametrize("place", range(4))
def test_bytes_per_token_need_positive_integers(place, number):
    name = ("num_layers", "num_kv_heads", "head_dim", "itemsize")[place]
    sizes = [2, 2, 2, 2]
    sizes[place] = number
    with pytest.raises((TypeError, ValueError), match=f"{name}="):
        kv_cache_bytes_per_token(*sizes)


def matrices(layer):
    return [getattr(layer, name).weight.T for name in ("q_proj", "k_proj", "v_proj", "out_proj")]


@pytest.mark.parametrize("num_kv_heads", [6, 3, 1])
@pytest.mark.parametrize("head_dim", [None, 5])
def test_steps_with_a_cache_are_causal_attention(num_kv_heads, head_dim):
    layer = trained_layer(12, 6, num_kv_heads, head_dim, bias=False)
    x = normal(2, 7, 12)
    keys = values = torch.empty(2, num_kv_heads, 0, layer.head_dim, dtype=x.dtype)
    outputs = []
    for token in x.split(1, dim=1):
        output, keys, values = cached_step(token, keys, values, *matrices(layer), 6)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), layer(x, is_causal=True))
    torch.testing.assert_close(keys, split_heads(layer.k_proj(x), num_kv_heads))
    torch.testing.assert_close(values, split_heads(layer.v_proj(x), num_kv_heads))


@pytest.mark.parametrize("cached_len", [0, 3])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": torch.ones(1, 2, 8)}, "the number of tokens must be the same, but x has 2"),
        ({"x": torch.ones(1, 8)}, r"x has shape \(1, 8\)"),
        ({"x": torch.ones(2, 1, 8)}, "batch must be the same"),
        ({"x": torch.ones(1, 1, 6)}, "the width must be the same"),
        ({"keys": None}, "keys must be a torch.Tensor"),
        ({"keys": torch.ones(1, 2, 8)}, r"keys has shape \(1, 2, 8\)"),
        ({"keys": torch.ones(1, 4, 3, 2)}, "key and value heads must be the same"),
        ({"values": torch.ones(1, 2, 9, 2)}, "cached_len must be the same"),
        ({"values": torch.ones(1, 2, 3, 2).double()}, "all inputs must share one dtype"),
        ({"x": torch.ones(1, 1, 8).double()}, "all inputs must share one dtype"),
        ({"w_k": torch.ones(8, 8)}, "head_dim must be the same"),
        ({"w_v": torch.ones(8, 8)}, "the concatenated width must be the same"),
        ({"w_o": torch.ones(6, 8)}, "the concatenated width must be the same"),
        ({"num_heads": 3}, "num_kv_heads=2 must divide num_heads=3"),
        ({"num_heads": 0}, "num_heads=0 must be at least 1"),
        ({"num_heads": 4.0}, "num_heads=4.0 must be an integer"),
    ],
)
def test_a_step_refuses_what_does_not_fit(cached_len, change, words):
    arguments = {"x": torch.ones(1, 1, 8)}
    arguments |= {name: torch.ones(1, 2, cached_len, 2) for name in ("keys", "values")}
    arguments |= {"w_q": torch.ones(8, 8), "w_k": torch.ones(8, 4), "w_v": torch.ones(8, 4)}
    arguments |= {"w_o": torch.ones(8, 8), "num_heads": 4}
    cached_step(**arguments)
    with pytest.raises((TypeError, ValueError), match=words):
        cached_step(**arguments | change)


# fewer heads


def test_pooling_takes_the_mean_of_neighbours():
    w = torch.tensor([[0.0, 1, 2, 3, 10, 11, 14, 15]])  # four heads of two features
    assert pool_kv_heads(w, 4, 2).tolist() == [[1, 2, 12, 13]]
    assert pool_kv_heads(w, 4, 1).tolist() == [[6.5, 7.5]]
    same = pool_kv_heads(w, 4, 4)
    assert torch.equal(same, w)
    assert same.data_ptr() != w.data_ptr()


def test_pooled_keys_are_the_mean_of_the_keys():
    w, x = normal(10, 24), normal(2, 5, 10, seed=1)
    pooled = split_heads(x @ pool_kv_heads(w, 6, 2), 2)
    means = split_heads(x @ w, 6).unflatten(1, (2, 3)).mean(2)
    torch.testing.assert_close(pooled, means)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, 4, 2), "w must be a torch.Tensor"),
        ((torch.ones(8), 4, 2), r"w has shape \(8,\)"),
        ((torch.ones(3, 8), 3, 1), "num_heads=3 must divide the columns of w=8"),
        ((torch.ones(3, 8), 4, 3), "num_kv_heads=3 must divide num_heads=4"),
        ((torch.ones(3, 8), 4, 0), "num_kv_heads=0 must be at least 1"),
        ((torch.ones(3, 8), 4, 2.0), "num_kv_heads=2.0 must be an integer"),
    ],
)
def test_pooling_refuses_what_does_not_fit(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        pool_kv_heads(*arguments)


def spread(layer, num_heads):
    """The same layer with every key/value head written out for each head that shares it."""
    whole = MultiHeadAttention(
        layer.d_model,
        layer.num_heads,
        num_heads,
        layer.head_dim,
        bias=layer.q_proj.bias is not None,
    ).double()
    state = layer.state_dict()
    for name in state:
        if name.startswith(("k_proj", "v_proj")):
            heads = state[name].unflatten(0, (layer.num_kv_heads, -1))
            state[name] = heads.repeat_interleave(num_heads // layer.num_kv_heads, 0).flatten(0, 1)
    whole.load_state_dict(state)
    return whole


@pytest.mark.parametrize("how", ["mean", "first"])
@pytest.mark.parametrize("bias", [True, False])
def test_heads_that_are_equal_already_convert_without_a_change(how, bias):
    grouped = trained_layer(12, 6, 2, bias=bias)
    whole, x = spread(grouped, 6), normal(2, 5, 12)
    torch.testing.assert_close(whole(x), grouped(x))
    again = shared_layer(whole, 2, how)
    assert again.num_kv_heads == 2
    torch.testing.assert_close(again(x), grouped(x))
    for name, parameter in again.named_parameters():
        torch.testing.assert_close(parameter, grouped.get_parameter(name))


@pytest.mark.parametrize("how", ["mean", "first"])
def test_the_same_number_of_heads_changes_nothing(how):
    layer, x = trained_layer(12, 6), normal(2, 5, 12)
    assert torch.equal(shared_layer(layer, 6, how)(x), layer(x))


@pytest.mark.parametrize("how", ["mean", "first", "random"])
@pytest.mark.parametrize("num_kv_heads", [3, 2, 1])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"head_dim": 5, "kdim": 7, "vdim": 9}])
def test_a_converted_layer_has_the_heads_it_should(how, num_kv_heads, options):
    layer = trained_layer(12, 6, **options)
    before = {name: parameter.clone() for name, parameter in layer.state_dict().items()}
    shared = shared_layer(layer, num_kv_heads, how)
    assert shared.k_proj.weight.shape == (num_kv_heads * layer.head_dim, options.get("kdim", 12))
    for name in ("q_proj", "out_proj"):
        assert torch.equal(getattr(shared, name).weight, getattr(layer, name).weight)
    for name in ("k_proj", "v_proj"):
        new = getattr(shared, name).state_dict()
        for part, old in getattr(layer, name).state_dict().items():
            groups = old.unflatten(0, (num_kv_heads, -1, layer.head_dim))
            pooled = {"mean": groups.mean(1), "first": groups[:, 0]}
            if how == "random":
                assert new[part].abs().max() <= 1 / math.sqrt(getattr(layer, name).in_features)
            else:
                torch.testing.assert_close(new[part], pooled[how].flatten(0, 1))
    # the two share no memory: training the one leaves the other as it was
    with torch.no_grad():
        for parameter in shared.parameters():
            parameter.add_(1)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


def test_the_output_is_that_of_a_layer_with_repeated_heads():
    layer, x = trained_layer(12, 6), normal(2, 5, 12)
    for how in ("mean", "first", "random"):
        shared = shared_layer(layer, 2, how)
        torch.testing.assert_close(shared(x), spread(shared, 6)(x))


def test_heads_can_be_shared_step_by_step():
    layer, x = trained_layer(12, 6), normal(2, 5, 12)
    for how in ("mean", "first"):
        twice = shared_layer(shared_layer(layer, 3, how), 1, how)
        torch.testing.assert_close(twice(x), shared_layer(layer, 1, how)(x))


def test_random_heads_depend_on_the_seed_alone():
    layer = trained_layer(12, 6)
    state = torch.get_rng_state()
    one, same, other = (shared_layer(layer, 2, "random", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.k_proj.weight, same.k_proj.weight)
    assert not torch.equal(one.k_proj.weight, other.k_proj.weight)
    assert not torch.equal(one.k_proj.weight, one.v_proj.weight)


def test_mode_dtype_and_training_are_kept():
    layer = MultiHeadAttention(8, 4, dropout=0.5).half().eval()
    shared = shared_layer(layer, 2)
    assert not any(module.training for module in shared.modules())
    assert shared.dropout == 0.5
    assert {parameter.dtype for parameter in shared.parameters()} == {torch.float16}
    assert all(parameter.requires_grad for parameter in shared.parameters())
    assert shared_layer(layer.train(), 2).k_proj.training


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer": torch.nn.Linear(2, 2)}, "layer must be a MultiHeadAttention, not Linear"),
        ({"num_kv_heads": 4}, "num_kv_heads=4 must divide the layer's num_kv_heads=6"),
        ({"num_kv_heads": 0}, "num_kv_heads=0 must be at least 1"),
        ({"how": "median"}, "how='median' must be one of 'mean', 'first', 'random'"),
        ({"seed": 0.5}, "seed=0.5 must be an integer"),
    ],
)
def test_converting_refuses_what_does_not_fit(change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        shared_layer(**{"layer": MultiHeadAttention(12, 6), "num_kv_heads": 2} | change)
