"""Attention in NumPy, one head at a time: slow, short, and the oracle for everything else."""

import math

import numpy as np

from mhalib import checks


def dot_product(a, b):
    """Multiply two vectors entry by entry and add up: large where both are large.

    Args:
        a, b: (d,) arrays of the same length.

    Returns:
        A float.

    Raises:
        TypeError, ValueError: not two vectors of one length.
    """
    checks.array(rank=1, a=a, b=b)
    checks.same("the length", a=len(a), b=len(b))
    return float(a @ b)


def cosine_similarity(a, b):
    """Cosine of the angle between two vectors: 1 same direction, 0 at right angles, -1 opposite.

    Args:
        a, b: (d,) arrays of the same length.

    Returns:
        A float between -1 and 1, up to rounding; NaN if a vector holds one.

    Raises:
        TypeError, ValueError: not two vectors of one length, or one of zeros (it has no direction).
    """
    checks.array(rank=1, a=a, b=b)
    checks.same("the length", a=len(a), b=len(b))
    checks.not_zero(a=a, b=b)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def nearest_neighbours(vectors, query, k):
    """Row numbers of the `k` vectors that point most nearly the way `query` does.

    Args:
        vectors: (n, d) array, one vector a row.
        query: (d,) array.
        k: how many, at most n.

    Returns:
        (k,) integer array of row numbers by cosine similarity, best first; equal ones in row
        order, a row with NaN last.

    Raises:
        TypeError, ValueError: shapes that do not fit, `k` not in 1 ... n, a vector of zeros.
    """
    checks.array(rank=2, vectors=vectors)
    checks.array(rank=1, query=query)
    checks.same("the length of the vectors", vectors=vectors.shape[1], query=len(query))
    checks.positive_int(k=k)
    checks.at_most(k=k, rows=len(vectors))
    checks.not_zero(vectors=vectors, query=query)
    cosines = vectors @ query / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query))
    return np.argsort(-cosines, kind="stable")[:k]


def softmax(x):
    """Turn the last axis into positive weights that sum to 1.

    Args:
        x: (..., n) array. Each row's maximum is subtracted first: large scores do not overflow.

    Returns:
        Array of the same shape. A row with NaN or inf, or of -inf alone, gives NaN.

    Raises:
        TypeError, ValueError: not a non-empty array of real numbers.

    Source: Vaswani et al. 2017, equation 1.
    """
    checks.array(min_rank=1, x=x)
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def attention_weights(query, key):
    """How much each query attends to each key: softmax(Q Kᵀ / √head_dim).

    Args:
        query: (query_len, head_dim) array.
        key: (key_len, head_dim) array.

    Returns:
        (query_len, key_len) array; every row sums to 1.

    Raises:
        TypeError, ValueError: not two matrices of one head_dim.

    Source: Vaswani et al. 2017, equation 1.
    """
    checks.array(rank=2, query=query, key=key)
    checks.same("head_dim", query=query.shape[1], key=key.shape[1])
    scores = query @ key.T / math.sqrt(query.shape[1])
    return softmax(scores)


def attention(query, key, value, *, attn_mask=None, is_causal=False, query_offset=None, scale=None):
    """Scaled dot-product attention: every query's weighted mean of the values.

    Args:
        query: (..., query_len, head_dim) array.
        key: (..., key_len, head_dim) array with the same leading axes.
        value: (..., key_len, value_dim) array with the same leading axes.
        attn_mask: None; boolean, True = may attend; or floats added to the scores. Rank 2 is
            (query_len, key_len), else the rank of the scores (..., query_len, key_len).
        is_causal: let query i see key j only when j <= i + query_offset; composes with `attn_mask`.
        query_offset: integer, or (batch,) array for the first axis; needed when lengths differ.
        scale: factor on the scores; 1/√head_dim if None.

    Returns:
        (output, weights): (..., query_len, value_dim) and (..., query_len, key_len). Weights sum
        to 1 a row; a row that may attend to nothing gets zeros. Dtypes mix as NumPy's do. NaN in
        a value reaches every query, masked or not, because 0 · NaN is NaN; in a masked key none.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Vaswani et al. 2017, equation 1.
    """
    checks.array(min_rank=2, query=query, key=key, value=value)
    checks.attention_shapes(query, key, value)
    checks.scale(scale)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = query @ np.swapaxes(key, -1, -2) * scale

    checks.attn_mask(attn_mask, scores.shape, like=scores)
    checks.only_with_is_causal(is_causal, query_offset)
    allowed = np.ones(scores.shape, dtype=bool)
    if is_causal:
        allowed &= _causal(scores.shape, query_offset)
    if attn_mask is not None and attn_mask.dtype == bool:
        allowed &= attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask
        allowed &= attn_mask != -np.inf

    # a row of -inf alone would be NaN: it gets 0s, and then no weight
    fill = np.where(allowed.any(axis=-1, keepdims=True), -np.inf, 0).astype(scores.dtype)
    scores = np.where(allowed, scores, fill)
    weights = np.where(allowed, softmax(scores), 0)
    return weights @ value, weights


def _causal(scores_shape, query_offset):
    """True where key j <= query i + query_offset, for scores of shape (..., query_len, key_len)."""
    query_len, key_len = scores_shape[-2:]
    batch = scores_shape[0] if len(scores_shape) > 2 else 1
    checks.query_offset(query_offset, query_len, key_len, batch, numpy=True)
    offset = np.asarray(0 if query_offset is None else query_offset)
    if offset.ndim:
        offset = offset.reshape(-1, *(1 for _ in scores_shape[1:]))
    return np.arange(key_len) <= np.arange(query_len)[:, None] + offset


def multi_head_attention(
    query,
    key,
    value,
    w_q,
    w_k,
    w_v,
    w_o,
    *,
    num_heads,
    num_kv_heads=None,
    b_q=0.0,
    b_k=0.0,
    b_v=0.0,
    b_o=0.0,
    attn_mask=None,
    is_causal=False,
    query_offset=None,
    scale=None,
):
    """Multi-head attention as a loop: project, attend head by head, concatenate, project back.

    Args:
        query: (batch, query_len, d_model) array.
        key, value: (batch, key_len, ...) arrays; pass `query` three times for self-attention.
        w_q: (d_model, num_heads * head_dim) array, used as `query @ w_q`.
        w_k, w_v: (..., num_kv_heads * head_dim) arrays, likewise.
        w_o: (num_heads * head_dim, d_out) array that mixes the concatenated heads.
        num_heads, num_kv_heads: query heads, and key/value heads (a divisor; equal if None). Query
            heads that share a key/value head are consecutive (Ainslie et al. 2023).
        b_q, b_k, b_v, b_o: biases added after each projection: one per column, or 0 for none.
        attn_mask, is_causal, query_offset, scale: as in `attention`; the mask has rank 2 or 4 and
            broadcasts to (batch, num_heads, query_len, key_len).

    Returns:
        (output, weights): (batch, query_len, d_out) and (batch, num_heads, query_len, key_len).

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    checks.positive_int(num_heads=num_heads, num_kv_heads=num_kv_heads)
    checks.divides(num_kv_heads=num_kv_heads, num_heads=num_heads)
    checks.array(rank=3, query=query, key=key, value=value)
    checks.array(rank=2, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)
    checks.projections(query, key, value, w_q, w_k, w_v, w_o, num_heads, num_kv_heads)
    head_dim = w_q.shape[1] // num_heads
    value_dim = w_v.shape[1] // num_kv_heads
    checks.biases((w_q, w_k, w_v, w_o), b_q=b_q, b_k=b_k, b_v=b_v, b_o=b_o)

    query, key, value = query @ w_q + b_q, key @ w_k + b_k, value @ w_v + b_v
    scores_shape = (len(query), num_heads, query.shape[1], key.shape[1])
    checks.attn_mask(attn_mask, scores_shape, like=query)
    outputs, maps = [], []
    for head in range(num_heads):
        kv_head = head // (num_heads // num_kv_heads)
        output, weights = attention(
            query[:, :, head * head_dim : (head + 1) * head_dim],
            key[:, :, kv_head * head_dim : (kv_head + 1) * head_dim],
            value[:, :, kv_head * value_dim : (kv_head + 1) * value_dim],
            attn_mask=_mask_of_head(attn_mask, head),
            is_causal=is_causal,
            query_offset=query_offset,
            scale=scale,
        )
        outputs.append(output)
        maps.append(weights)
    return np.concatenate(outputs, axis=-1) @ w_o + b_o, np.stack(maps, axis=1)


def _mask_of_head(attn_mask, head):
    """The part of a rank-4 mask that one head sees; a rank-2 mask is the same for all."""
    if attn_mask is None or attn_mask.ndim == 2:
        return attn_mask
    return attn_mask[:, head if attn_mask.shape[1] > 1 else 0]
