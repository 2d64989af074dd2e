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
    checks.mask_options(query, key, attn_mask, is_causal, query_offset)
    batch, num_heads, query_len, head_dim = query.shape
    num_kv_heads, key_len = key.shape[1:3]
    mask = _with_causal(attn_mask, query, key, is_causal, query_offset)

    narrow, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    # one batched product for all heads, their queries in line behind the key head that they share
    query, key, value = (
        _rows(x, num_kv_heads) for x in (query.to(wide) * scale, key.to(wide), value.to(wide))
    )
    shape = (batch, num_heads, query_len, key_len)
    weights = _masked_softmax(torch.bmm(query, key.transpose(1, 2)), mask, shape)
    dropped = F.dropout(weights, dropout_p) if dropout_p else weights
    output = torch.bmm(_rows(dropped, num_kv_heads), value)
    output = output.view(batch, num_heads, query_len, -1)
    return output.to(narrow), weights.to(narrow)


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
    checks.mask_options(query, key, attn_mask, is_causal, query_offset)
    from_the_start = not isinstance(query_offset, torch.Tensor) and query_offset in (None, 0)
    plain_causal = (
        is_causal and attn_mask is None and from_the_start and query.shape[2] == key.shape[2]
    )
    options = (query, key, is_causal, query_offset)
    mask = None if plain_causal else _with_causal(attn_mask, *options)
    shape = query.shape
    if shape[2] == 1 and (mask is None or mask.dim() == 2 or mask.shape[1] == 1):
        # a single token: the queries of a group are one head's rows, which reads its keys once
        query = query.reshape(len(query), key.shape[1], -1, shape[3])
    output = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=plain_causal,
        scale=scale,
        dropout_p=dropout_p,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return output.reshape(*shape[:3], value.shape[3])


def blockwise_attention(
    query,
    key,
    value,
    *,
    attn_mask=None,
    is_causal=False,
    query_offset=None,
    scale=None,
    block_size=256,
):
    """The same output in blocks: never more than block_size x block_size scores of a head at once.

    Args:
        query, key, value, attn_mask, is_causal, query_offset, scale: as
            `scaled_dot_product_attention`. Blocks in which nothing may be attended to are skipped.
        block_size: queries, and keys, in a block; the last ones may have fewer.

    Returns:
        output: (batch, num_heads, query_len, value_dim) tensor; zeros where nothing may be attended
        to. Gradients come from autograd, which keeps every block's scores for the way back: to save
        that memory too, recompute them with `torch.utils.checkpoint`.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Milakov and Gimelshein 2018 (online softmax); Rabe and Staats 2021; Dao et al. 2022,
    algorithm 1.
    """
    checks.tensor(rank=4, query=query, key=key, value=value)
    checks.grouped_shapes(query, key, value)
    checks.scale(scale)
    checks.positive_int(block_size=block_size)
    checks.mask_options(query, key, attn_mask, is_causal, query_offset)
    kv_heads = key.shape[1]
    wide = torch.promote_types(query.dtype, torch.float32)
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    if attn_mask is not None:  # so that an axis that broadcasts can be cut into blocks, too
        attn_mask = attn_mask.expand(*attn_mask.shape[:-2], query.shape[2], key.shape[2])

    outputs = []
    for i in range(0, query.shape[2], block_size):
        queries = query[:, :, i : i + block_size].to(wide) * scale
        shape = queries.shape[:3]
        maximum = queries.new_full((*shape, 1), -math.inf)  # of each row's scores so far
        total = queries.new_zeros(*shape, 1)  # sum of exp(score - maximum)
        output = queries.new_zeros(*shape, value.shape[3])  # sum of exp(score - maximum) · value
        for j in range(0, key.shape[2], block_size):
            keys, values = (x[:, :, j : j + block_size].to(wide) for x in (key, value))
            part = attn_mask
            if part is not None:
                part = part[..., i : i + block_size, j : j + block_size]
            mask = _with_causal(part, queries, keys, is_causal, query_offset, shift=i - j)
            hides = mask is not None and mask.dtype == torch.bool
            if hides and not mask.any():
                continue
            keys, values = _rows(keys, kv_heads), _rows(values, kv_heads)
            scores = torch.bmm(_rows(queries, kv_heads), keys.transpose(1, 2)).view(*shape, -1)
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf) if hides else scores + mask

            new_maximum = torch.maximum(maximum, scores.detach().amax(dim=-1, keepdim=True))
            finite = new_maximum.masked_fill(new_maximum == -math.inf, 0)  # no key seen so far
            weights = (scores - finite).exp_()
            shrink = (maximum - finite).exp_()  # for the sums, which were up to the old maximum
            total = total * shrink + weights.sum(dim=-1, keepdim=True)
            output = output * shrink + torch.bmm(_rows(weights, kv_heads), values).view_as(output)
            maximum = new_maximum
        outputs.append((output / total.masked_fill(total == 0, 1)).to(query.dtype))
    return torch.cat(outputs, dim=2)


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


def _rows(x, num_kv_heads):
    """(batch, num_heads, n, m) -> (batch * num_kv_heads, group_size * n, m), without a copy."""
    return x.reshape(x.shape[0] * num_kv_heads, -1, x.shape[3])


def _with_causal(attn_mask, query, key, is_causal, query_offset, shift=0):
    """`attn_mask` and `is_causal` as one mask for both: None, boolean or additive."""
    query_len, key_len = query.shape[2], key.shape[2]
    if isinstance(query_offset, torch.Tensor):
        query_offset = query_offset.long()
    query_offset = shift if query_offset is None else query_offset + shift
    sees_all = isinstance(query_offset, int) and query_offset >= key_len - 1
    if not is_causal or sees_all:
        return attn_mask
    causal = masks.causal(query_len, key_len, query_offset).to(query.device)
    if attn_mask is None:
        return causal
    if attn_mask.dtype == torch.bool:
        return attn_mask & causal
    return attn_mask.masked_fill(~causal, -math.inf)


def _masked_softmax(scores, mask, shape):
    """Softmax of the scores, in this shape; a row without a key gives zeros, and zero gradients.

    It writes over `scores` where it can: a second array costs more time than its numbers.
    """
    if mask is not None:
        additive = mask.dtype != torch.bool
        hidden = mask == -math.inf if additive else ~mask
        if additive:
            scores = scores.view(shape) + mask.masked_fill(hidden, 0)
        empty = hidden.all(dim=-1, keepdim=True)
        hidden = hidden & ~empty  # a row of -inf alone would be NaN: it keeps its scores
        # outside the graph: what gets no weight gets no gradient either
        scores.detach().view(shape).masked_fill_(hidden, -math.inf)
    scores = scores.view(shape)
    weights = torch.softmax(scores, dim=-1, out=None if torch.is_grad_enabled() else scores)
    return weights if mask is None or not empty.any() else weights.masked_fill(empty, 0)
