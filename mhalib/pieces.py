"""Attention one piece of the keys at a time, and in half precision without its traps.

A *piece* is what some queries have gathered from some of the keys, not yet divided: a tuple
(maximum, total, output) of tensors
    maximum  (..., rows, 1)         the largest score of each row
    total    (..., rows, 1)         the sum of exp(score - maximum)
    output   (..., rows, head_dim)  the sum of exp(score - maximum) * value
A row that sees no key has maximum -inf, total 0 and output 0. output / total is the attention to
these keys alone.
"""

import math

import torch

from mhalib import checks, experiment_checks


def merge_softmax_pieces(left, right):
    """Two pieces with the same queries as one: their attention to both sets of keys together.

    Args:
        left, right: pieces, tuples (maximum, total, output) of tensors of shape (..., rows, 1),
            (..., rows, 1) and (..., rows, head_dim).

    Returns:
        (maximum, total, output): the merged piece, of the same shapes. A row that sees no key in
        either has again -inf, 0 and 0, never NaN.

    Raises:
        TypeError, ValueError: not two pieces, or pieces of different shapes or dtypes.

    Source: Milakov and Gimelshein 2018, section 3.1; Dao et al. 2022, section 3.1.
    """
    experiment_checks.softmax_pieces(left=left, right=right)
    left_maximum, left_total, left_output = left
    right_maximum, right_total, right_output = right
    maximum = torch.maximum(left_maximum, right_maximum)
    left_factor = torch.exp(left_maximum - _finite(maximum))  # 1 on the side that has the maximum
    right_factor = torch.exp(right_maximum - _finite(maximum))
    total = left_total * left_factor + right_total * right_factor
    output = left_output * left_factor + right_output * right_factor
    return maximum, total, output


def attention_in_pieces(query, key, value, block_size, attn_mask=None):
    """Attention to `block_size` keys at a time, so that all scores are never there at once.

    Args:
        query: (batch, num_heads, query_len, head_dim) tensor.
        key: (batch, num_heads, key_len, head_dim) tensor.
        value: (batch, num_heads, key_len, value_dim) tensor.
        block_size: keys taken at a time; the last ones may be fewer.
        attn_mask: None or boolean (query_len, key_len) tensor, True = may attend.

    Returns:
        (batch, num_heads, query_len, value_dim) tensor; zeros where a query may see no key.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Rabe and Staats 2021, section 2; Dao et al. 2022, algorithm 1.
    """
    checks.tensor(rank=4, query=query, key=key, value=value)
    checks.attention_shapes(query, key, value)
    checks.positive_int(block_size=block_size)
    experiment_checks.block_mask(attn_mask, query, key)
    rows = query.shape[:3]
    # at first the piece of no keys at all
    piece = (
        query.new_full((*rows, 1), -math.inf),
        query.new_zeros(*rows, 1),
        query.new_zeros(*rows, value.shape[-1]),
    )
    for start in range(0, key.shape[2], block_size):
        keys = slice(start, start + block_size)
        scores = query @ key[:, :, keys].transpose(-2, -1) / math.sqrt(query.shape[-1])
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask[:, keys], -math.inf)
        maximum = scores.amax(dim=-1, keepdim=True)
        powers = torch.exp(scores - _finite(maximum))
        block = (maximum, powers.sum(dim=-1, keepdim=True), powers @ value[:, :, keys])
        piece = merge_softmax_pieces(piece, block)
    _, total, output = piece
    return output / total.masked_fill(total == 0, 1)  # divided once, at the end


def stable_half_precision_attention(query, key, value):
    """Attention on half-precision tensors whose scores, softmax and sums are made in float32.

    Args:
        query: (batch, num_heads, query_len, head_dim) tensor of float16 or bfloat16.
        key: (batch, num_heads, key_len, head_dim) tensor of the same dtype.
        value: (batch, num_heads, key_len, value_dim) tensor of the same dtype.

    Returns:
        (batch, num_heads, query_len, value_dim) tensor of the inputs' dtype, also where query times
        key lies beyond 65504, the largest number of float16.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Micikevicius et al. 2018, section 3.3 (sums and softmax of half precision in float32).
    """
    checks.tensor(rank=4, query=query, key=key, value=value)
    checks.attention_shapes(query, key, value)
    checks.one_of(("torch.float16", "torch.bfloat16", "torch.float32"), dtype=str(query.dtype))
    scores = query.float() @ key.float().transpose(-2, -1) / math.sqrt(query.shape[-1])
    output = scores.softmax(dim=-1) @ value.float()
    return output.to(query.dtype)  # rounded once, at the end


def _finite(maximum):
    """0 in the place of -inf, because -inf minus -inf is NaN."""
    return maximum.masked_fill(maximum == -math.inf, 0)
