"""Multi-head attention in parts, on tensors (batch, num_heads, seq_len, head_dim)."""

import math

import torch
import torch.nn.functional as F

from mhalib import checks, masks


def split_heads(x, num_heads):
    """Cut the features into heads and move the heads in front of the sequence.

    Args:
        x: (batch, seq_len, num_heads * head_dim) tensor.
        num_heads: number of heads; must divide the last axis.

    Returns:
        (batch, num_heads, seq_len, head_dim) tensor; head h holds the h-th stretch of features.

    Raises:
        TypeError, ValueError: not three axes, or a width that `num_heads` does not divide.

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    checks.tensor(rank=3, x=x)
    checks.positive_int(num_heads=num_heads)
    checks.divides(num_heads=num_heads, d_model=x.shape[-1])
    batch, seq_len, d_model = x.shape
    return x.reshape(batch, seq_len, num_heads, d_model // num_heads).transpose(1, 2)


def merge_heads(x):
    """Undo `split_heads`: put the heads' features side by side again.

    Args:
        x: (batch, num_heads, seq_len, head_dim) tensor.

    Returns:
        (batch, seq_len, num_heads * head_dim) tensor.

    Raises:
        TypeError, ValueError: not a tensor of four axes.

    Source: Vaswani et al. 2017, section 3.2.2 (Concat).
    """
    checks.tensor(rank=4, x=x)
    batch, num_heads, seq_len, head_dim = x.shape
    return x.transpose(1, 2).reshape(batch, seq_len, num_heads * head_dim)


def repeat_kv(x, group_size):
    """Give every query head its own copy of the key/value head it shares.

    Args:
        x: (batch, num_kv_heads, seq_len, head_dim) tensor.
        group_size: query heads per key/value head.

    Returns:
        (batch, num_kv_heads * group_size, seq_len, head_dim) tensor in which `group_size`
        consecutive heads are equal: 0, 0, 1, 1 and not 0, 1, 0, 1.

    Raises:
        TypeError, ValueError: not a tensor of four axes, or a `group_size` below 1.

    Source: Ainslie et al. 2023, section 2.2.
    """
    checks.tensor(rank=4, x=x)
    checks.positive_int(group_size=group_size)
    return x.repeat_interleave(group_size, dim=1)


def scaled_dot_product_attention(
    query,
    key,
    value,
    *,
    attn_mask=None,
    is_causal=False,
    query_offset=None,
    scale=None,
    dropout_p=0.0,
):
    """Attention step by step, with its weights: softmax(Q Kᵀ · scale + mask) V.

    Args:
        query: (batch, num_heads, query_len, head_dim) tensor.
        key: (batch, num_kv_heads, key_len, head_dim) tensor. `num_kv_heads` may be smaller than
            `num_heads` and must divide it; consecutive query heads share a key/value head.
        value: (batch, num_kv_heads, key_len, value_dim) tensor.
        attn_mask: None; boolean, True = may attend; or of the query's dtype, added to the scores.
            Rank 2 (query_len, key_len) or rank 4; broadcasts to the shape of the weights.
        is_causal: let query i see key j only when j <= i + query_offset; composes with `attn_mask`.
        query_offset: int, or (batch,) integer tensor; needed when query_len and key_len differ.
        scale: factor on the scores; 1/√head_dim if None.
        dropout_p: share of weights dropped at random, always active (a function has no eval mode).

    Returns:
        (output, weights): (batch, num_heads, query_len, value_dim) and (batch, num_heads,
        query_len, key_len). The weights are those before dropout; a row sums to 1, or is all zeros
        where nothing may be attended to, and so is its output. Half precision is computed in
        float32. NaN in a value reaches every query, masked or not, because 0 · NaN is NaN; in a
        masked key it reaches none.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Vaswani et al. 2017, equation 1; grouped heads: Ainslie et al. 2023.
    """
    checks.tensor(rank=4, query=query, key=key, value=value)
    checks.grouped_shapes(query, key, value)
    checks.scale(scale)
    checks.probability(dropout_p=dropout_p)
    batch, num_heads, query_len, head_dim = query.shape
    num_kv_heads, key_len = key.shape[1:3]
    mask = _one_mask(query, key, attn_mask, is_causal, query_offset)

    wide = torch.promote_types(query.dtype, torch.float32)
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    # the query heads that share a key head stand in line behind it, so no key is copied
    grouped_query = (query.to(wide) * scale).reshape(batch, num_kv_heads, -1, head_dim)
    scores = grouped_query @ key.to(wide).transpose(-2, -1)
    scores = scores.reshape(batch, num_heads, query_len, key_len)

    weights = _masked_softmax(scores, mask)
    dropped = F.dropout(weights, dropout_p) if dropout_p else weights
    output = dropped.reshape(batch, num_kv_heads, -1, key_len) @ value.to(wide)
    output = output.reshape(batch, num_heads, query_len, value.shape[-1])
    return output.to(query.dtype), weights.to(query.dtype)


def fused_attention(
    query,
    key,
    value,
    *,
    attn_mask=None,
    is_causal=False,
    query_offset=None,
    scale=None,
    dropout_p=0.0,
):
    """The same output from PyTorch's fused kernel, which never stores the weights.

    Args, raises and source: as `scaled_dot_product_attention`.

    Returns:
        output: (batch, num_heads, query_len, value_dim) tensor. Whether NaN in a masked key or
        value reaches a query depends on the kernel: keep hidden positions finite.
    """
    checks.tensor(rank=4, query=query, key=key, value=value)
    checks.grouped_shapes(query, key, value)
    checks.scale(scale)
    checks.probability(dropout_p=dropout_p)
    checks.only_with_is_causal(is_causal, query_offset)
    plain_causal = (
        is_causal and attn_mask is None and query_offset is None and query.shape[2] == key.shape[2]
    )
    mask = None if plain_causal else _one_mask(query, key, attn_mask, is_causal, query_offset)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=plain_causal,
        scale=scale,
        dropout_p=dropout_p,
        enable_gqa=key.shape[1] != query.shape[1],
    )


def multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads):
    """Multi-head self-attention from its parts: project, split, attend, merge, project.

    Args:
        x: (batch, seq_len, d_model) tensor.
        w_q, w_k, w_v, w_o: (d_model, d_model) tensors, each used as `x @ w`.
        num_heads: number of heads; must divide d_model.

    Returns:
        (batch, seq_len, d_model) tensor.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    checks.tensor(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)
    checks.square_projections(x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)
    query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    output, _ = scaled_dot_product_attention(query, key, value)
    return merge_heads(output) @ w_o


def fuse_projections(weights):
    """Put the heads' own projections side by side, so that one product does them all.

    Args:
        weights: list of num_heads tensors of shape (d_model, head_dim), each used as `x @ w`.

    Returns:
        (d_model, num_heads * head_dim) tensor `w`: head h of `split_heads(x @ w, num_heads)` is
        `x @ weights[h]`.

    Raises:
        TypeError, ValueError: not a list of tensors, or tensors of different shapes.

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    checks.alike(2, weights=weights)
    return torch.cat(list(weights), dim=1)


def output_projection_as_sum(heads, w_o, b_o):
    """The output projection as a sum over heads: each head meets its own rows of `w_o`.

    Args:
        heads: (batch, num_heads, seq_len, head_dim) tensor, before `merge_heads`.
        w_o: (num_heads * head_dim, d_out) tensor, used as `x @ w`.
        b_o: (d_out,) tensor, added once.

    Returns:
        (batch, seq_len, d_out) tensor, equal to `merge_heads(heads) @ w_o + b_o`.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Vaswani et al. 2017, section 3.2.2, written out.
    """
    checks.tensor(heads=heads, w_o=w_o, b_o=b_o)
    checks.output_projection(heads, w_o, b_o)
    num_heads, head_dim = heads.shape[1], heads.shape[3]
    blocks = w_o.reshape(num_heads, head_dim, -1)
    return (heads @ blocks).sum(dim=1) + b_o


def _one_mask(query, key, attn_mask, is_causal, query_offset):
    """`attn_mask` and `is_causal` as one mask for both: None, boolean or additive."""
    batch, num_heads, query_len = query.shape[:3]
    key_len = key.shape[2]
    checks.only_with_is_causal(is_causal, query_offset)
    checks.attn_mask(attn_mask, (batch, num_heads, query_len, key_len), like=query)
    if not is_causal:
        return attn_mask
    checks.query_offset(query_offset, query_len, key_len, batch)
    causal = masks.causal(query_len, key_len, query_offset).to(query.device)
    if attn_mask is None:
        return causal
    if attn_mask.dtype == torch.bool:
        return attn_mask & causal
    return attn_mask.masked_fill(~causal, -math.inf)


def _masked_softmax(scores, mask):
    """Softmax over the allowed keys; a row with none gives zeros, and zero gradients."""
    if mask is None:
        return scores.softmax(dim=-1)
    if mask.dtype == torch.bool:
        allowed = mask
    else:
        allowed = mask != -math.inf
        scores = scores + mask
    # a row of -inf alone would be NaN: it gets 0s, and then no weight
    fill = torch.where(allowed.any(dim=-1, keepdim=True), -math.inf, 0.0).to(scores.dtype)
    return torch.where(allowed, scores, fill).softmax(dim=-1).masked_fill(~allowed, 0)
