"""Attention in blocks: the numbers, gradients and masks of the plain one, in linear memory."""

import math
import random

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from mhalib import blockwise_attention, fused_attention, masks, scaled_dot_product_attention


def inputs(batch=2, num_heads=4, num_kv_heads=None, query_len=7, key_len=None, *, seed=0, **kind):
    generator = torch.Generator().manual_seed(seed)
    num_kv_heads = num_kv_heads or num_heads
    key_len = key_len or query_len
    kind = {"dtype": torch.float64} | kind
    shapes = ((num_heads, query_len, 3), (num_kv_heads, key_len, 3), (num_kv_heads, key_len, 5))
    return [torch.randn(batch, *shape, generator=generator).to(**kind) for shape in shapes]


def both(query, key, value, block_size, **options):
    plain = scaled_dot_product_attention(query, key, value, **options)[0]
    return blockwise_attention(query, key, value, block_size=block_size, **options), plain


def same(ours, plain, tolerance=1e-10):
    assert ours.shape == plain.shape
    assert ours.dtype == plain.dtype
    assert (ours - plain).abs().max() <= tolerance


@pytest.mark.parametrize("num_kv_heads", [8, 4, 2, 1])
@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 7, 8, 100])
@pytest.mark.parametrize("is_causal", [False, True])
def test_equals_the_plain_one(num_kv_heads, block_size, is_causal):
    same(*both(*inputs(2, 8, num_kv_heads), block_size, is_causal=is_causal))


@pytest.mark.parametrize(
    "offset", [-3, 0, 4, 11, torch.tensor([0, 5]), torch.tensor([1, 4], dtype=torch.uint8)]
)
@pytest.mark.parametrize("block_size", [1, 2, 3, 5])
def test_causal_with_more_keys_than_queries(offset, block_size):
    given = inputs(query_len=5, key_len=9)
    same(*both(*given, block_size, is_causal=True, query_offset=offset))


def random_mask(rng, shape, additive):
    generator = torch.Generator().manual_seed(rng.randrange(10**6))
    mask = torch.rand(shape, generator=generator) < rng.choice([0.1, 0.5, 0.9])
    if not additive:
        return mask
    numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
    return numbers.masked_fill(~mask, -math.inf)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("additive", [False, True])
def test_equals_the_plain_one_under_any_mask(seed, additive):
    """Rows and whole blocks may be hidden; an axis of the mask may broadcast."""
    rng = random.Random(seed)
    query_len, key_len = rng.randint(1, 9), rng.randint(1, 9)
    shape = rng.choice(
        [
            (query_len, key_len),
            (1, key_len),
            (query_len, 1),
            (2, 1, query_len, key_len),
            (1, 4, query_len, key_len),
            (2, 1, 1, key_len),
        ]
    )
    options = {"attn_mask": random_mask(rng, shape, additive)}
    if rng.random() < 0.5:
        options |= {"is_causal": True, "query_offset": rng.randint(0, 4)}
    given = inputs(2, 4, rng.choice([1, 2, 4]), query_len, key_len, seed=seed)
    same(*both(*given, rng.randint(1, 5), **options))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("block_size", [2, 3, 8])
def test_gradients_are_those_of_the_plain_one(is_causal, block_size):
    given = [x.requires_grad_() for x in inputs(2, 4, 2, 8)]
    mask = masks.padding([8, 5], 8)
    mask = mask & (torch.arange(8) != 6)[:, None]  # one query sees nothing
    outputs = both(*given, block_size, is_causal=is_causal, attn_mask=mask)
    weight = torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(1)).double()
    ours, plain = (torch.autograd.grad((output * weight).sum(), given) for output in outputs)
    for found, expected in zip(ours, plain, strict=True):
        same(found, expected)


def test_second_derivatives_and_numerical_gradients():
    given = [x.requires_grad_() for x in inputs(1, 2, 1, 3)]
    function = lambda *x: blockwise_attention(*x, is_causal=True, block_size=2)  # noqa: E731
    assert torch.autograd.gradcheck(function, given)
    assert torch.autograd.gradgradcheck(function, given)


def test_rows_without_a_key_are_zero():
    mask = torch.tensor([[True, False, False], [False, False, False], [False, False, True]])
    output = blockwise_attention(*inputs(query_len=3), attn_mask=mask, block_size=2)
    assert (output[:, :, 1] == 0).all()
    assert (output[:, :, [0, 2]] != 0).all()


@pytest.mark.parametrize("factor", [1e3, 1e5])
@pytest.mark.parametrize("block_size", [1, 2, 7])
def test_scores_beyond_what_exp_can_take(factor, block_size):
    query, key, value = inputs()
    query *= factor
    ours, plain = both(query, key, value, block_size)
    assert ours.isfinite().all()
    same(ours, plain)


def test_the_maximum_may_come_first_or_last():
    query, key, value = inputs(1, 1, query_len=1, key_len=6)
    for scores in ([900.0, 0, 0, 0, 0, 0], [0.0, 0, 0, 0, 0, 900], [0.0, 500, 1000, 0, 0, 0]):
        mask = torch.tensor([scores], dtype=torch.float64)
        same(*both(query, key, value, 2, attn_mask=mask))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_other_dtypes_are_computed_in_float32_at_least(dtype):
    given = inputs(query_len=40, dtype=dtype)
    ours, plain = both(*given, 16, is_causal=True)
    step = torch.finfo(dtype).eps
    same(ours.double(), plain.double(), 2 * step * plain.abs().max().item())
    assert ours.dtype == dtype


def test_layouts_that_are_not_contiguous_and_a_given_scale():
    query, key, value = (x.transpose(1, 2) for x in inputs(2, 5, query_len=5))
    same(*both(query, key, value, 2, scale=0.3))


def products(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def test_hidden_blocks_cost_nothing():
    query, key, value = inputs(1, 1, query_len=64)
    block = 2 * 8 * 8 * (3 + 5)  # scores and mix of eight queries and eight keys
    run = lambda **given: products(  # noqa: E731
        lambda: blockwise_attention(query, key, value, block_size=8, **given)
    )
    assert run() == 64 * block
    assert run(is_causal=True) == 36 * block
    assert run(attn_mask=masks.sliding_window(64, window=9)) == (8 + 7) * block
    assert run(attn_mask=masks.sliding_window(64, window=10)) == (8 + 7 + 6) * block


class Allocations(torch.utils._python_dispatch.TorchDispatchMode):
    """The most numbers that any one operation made."""

    largest = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.untyped_storage().nbytes())
        return result


def test_no_step_makes_more_than_its_block():
    """And grouped key/value heads are never expanded: 8 of 64 heads."""
    query = torch.randn(1, 64, 128, 4)
    key, value = torch.randn(2, 1, 8, 128, 4)
    for function, largest in (
        (lambda: blockwise_attention(query, key, value, block_size=4), 64 * 128 * 4),  # its output
        (lambda: scaled_dot_product_attention(query, key, value), 64 * 128 * 128),
    ):
        with Allocations() as seen, torch.no_grad():
            function()
        assert seen.largest == largest * 4


def saved(function, *given):
    """Bytes that autograd keeps for the way back, each storage once."""
    kept = {}
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
    )
    with hooks:
        function(*given)
    return sum(x.untyped_storage().nbytes() for x in kept.values())


def test_autograd_keeps_every_block_unless_the_caller_recomputes():
    given = [x.requires_grad_() for x in inputs(1, 2, query_len=64, dtype=torch.float32)]
    blockwise = lambda *x: blockwise_attention(*x, block_size=8)  # noqa: E731
    scores = 2 * 64 * 64 * 4
    assert saved(blockwise, *given) > scores
    again = lambda *x: checkpoint(blockwise, *x, use_reentrant=False)  # noqa: E731
    assert saved(again, *given) < scores / 4
    ours, plain = (torch.autograd.grad(f(*given).sum(), given) for f in (again, fused_attention))
    for found, expected in zip(ours, plain, strict=True):
        same(found, expected, 1e-5)
