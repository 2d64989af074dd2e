"""Key/value heads that several query heads share: attention without copies, cache, conversion."""

import copy
import math

import torch
from torch import nn

from mhalib import checks
from mhalib.functional import merge_heads, split_heads
from mhalib.modules import MultiHeadAttention


def grouped_attention(query, key, value):
    """Attention in which query heads share key/value heads, without a copy of key or value.

    The query heads of a group stand in line behind the head they share: to a matrix product they
    are more rows.

    Args:
        query: (batch, num_heads, query_len, head_dim) tensor.
        key: (batch, num_kv_heads, key_len, head_dim) tensor; `num_kv_heads` divides `num_heads`,
            and num_heads / num_kv_heads consecutive query heads share a key/value head.
        value: (batch, num_kv_heads, key_len, value_dim) tensor.

    Returns:
        (batch, num_heads, query_len, value_dim) tensor, as if every query head had its own copy.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Ainslie et al. 2023, section 2.2.
    """
    checks.tensor(rank=4, query=query, key=key, value=value)
    checks.grouped_shapes(query, key, value)
    batch, num_heads, query_len, head_dim = query.shape
    num_kv_heads = key.shape[1]
    # (batch, num_kv_heads, group_size * query_len, head_dim)
    in_line = query.reshape(batch, num_kv_heads, -1, head_dim)
    scores = in_line @ key.transpose(-2, -1) / math.sqrt(head_dim)
    output = scores.softmax(dim=-1) @ value
    return output.reshape(batch, num_heads, query_len, -1)


def kv_cache_bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize):
    """Bytes by which a key/value cache grows with every token of one sequence.

    Args:
        num_layers: attention layers of the model; each has its own keys and values.
        num_kv_heads: key/value heads of a layer.
        head_dim: width of one head.
        itemsize: bytes of one number: 4 for float32, 2 for float16 and bfloat16.

    Returns:
        int, bytes: one key and one value for each layer and key/value head.

    Raises:
        TypeError, ValueError: a number that is not a positive integer.

    Source: Shazeer 2019; Ainslie et al. 2023.
    """
    checks.positive_int(num_layers=num_layers, num_kv_heads=num_kv_heads)
    checks.positive_int(head_dim=head_dim, itemsize=itemsize)
    return 2 * num_layers * num_kv_heads * head_dim * itemsize


def cached_step(x, keys, values, w_q, w_k, w_v, w_o, num_heads):
    """One more token of causal self-attention, from the keys and values of those before it.

    Args:
        x: (batch, 1, d_model) tensor, the new token.
        keys, values: (batch, num_kv_heads, cached_len, head_dim) tensors, those of all tokens so
            far; cached_len is 0 before the first.
        w_q: (d_model, num_heads * head_dim) tensor, used as `x @ w`.
        w_k, w_v: (d_model, num_kv_heads * head_dim) tensors, used as `x @ w`.
        w_o: (num_heads * head_dim, d_model) tensor, used as `x @ w`.
        num_heads: number of query heads.

    Returns:
        (output, keys, values): the new token's output (batch, 1, d_model), and new tensors
        (batch, num_kv_heads, cached_len + 1, head_dim) that end with its own key and value. The
        tensors given stay as they are.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Shazeer 2019, section 2.4 (incremental multi-head attention).
    """
    checks.tensor(rank=3, x=x)
    checks.tensor(rank=2, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o)
    checks.tensor(rank=4, keys=_with_a_slot(keys), values=_with_a_slot(values))
    checks.tensor(x=x, keys=_with_a_slot(keys), w_q=w_q)
    checks.same("the number of tokens", x=x.shape[1], one_step=1)
    checks.same("batch", x=x.shape[0], keys=keys.shape[0], values=values.shape[0])
    checks.same("the number of key and value heads", keys=keys.shape[1], values=values.shape[1])
    checks.same("cached_len", keys=keys.shape[2], values=values.shape[2])
    checks.positive_int(num_heads=num_heads)
    checks.divides(num_kv_heads=keys.shape[1], num_heads=num_heads)
    checks.projections(x, x, x, w_q, w_k, w_v, w_o, num_heads, keys.shape[1])
    checks.same("the width", keys=keys.shape[1] * keys.shape[3], **{"w_k (columns)": w_k.shape[1]})
    checks.same(
        "the width", values=values.shape[1] * values.shape[3], **{"w_v (columns)": w_v.shape[1]}
    )
    num_kv_heads = keys.shape[1]
    query = split_heads(x @ w_q, num_heads)  # (batch, num_heads, 1, head_dim)
    keys = torch.cat([keys, split_heads(x @ w_k, num_kv_heads)], dim=2)
    values = torch.cat([values, split_heads(x @ w_v, num_kv_heads)], dim=2)
    # no mask: whatever is in the cache lies in the token's past
    output = merge_heads(grouped_attention(query, keys, values)) @ w_o
    return output, keys, values


def pool_kv_heads(w, num_heads, num_kv_heads):
    """Turn a key or value projection for many heads into one for few: the mean of each group.

    Args:
        w: (d_model, num_heads * head_dim) tensor, used as `x @ w`.
        num_heads: key/value heads of `w`.
        num_kv_heads: key/value heads of the result; must divide `num_heads`.

    Returns:
        New (d_model, num_kv_heads * head_dim) tensor: head g is the mean of the
        num_heads / num_kv_heads consecutive heads of group g.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Ainslie et al. 2023, section 2.1.
    """
    checks.tensor(rank=2, w=w)
    checks.positive_int(num_heads=num_heads, num_kv_heads=num_kv_heads)
    checks.divides(num_heads=num_heads, **{"the columns of w": w.shape[1]})
    checks.divides(num_kv_heads=num_kv_heads, num_heads=num_heads)
    head_dim = w.shape[1] // num_heads
    groups = w.reshape(w.shape[0], num_kv_heads, -1, head_dim)  # group_size heads in each
    return groups.mean(dim=2).flatten(1)


WAYS = ("mean", "first", "random")


def shared_layer(layer, num_kv_heads, how="mean", *, seed=0):
    """A copy of a trained layer with fewer key/value heads, to be trained a little further.

    Args:
        layer: a `MultiHeadAttention`; it is left as it is.
        num_kv_heads: key/value heads of the copy; must divide those of `layer`.
        how: where they come from: "mean", the mean of each group of consecutive heads; "first",
            the first head of each group; "random", new numbers, as in an untrained `nn.Linear`.
        seed: decides the random numbers; plays no part in the other two.

    Returns:
        `MultiHeadAttention`, of the same dtype, device and mode. For `x` of shape (batch, seq_len,
        d_model) its output is that of `layer` where the heads of each group are equal already, by
        "mean" and "first".

    Raises:
        TypeError, ValueError: arguments that do not fit, named.

    Source: Ainslie et al. 2023, sections 2.1 and 3.3 (mean before first before random).
    """
    if not isinstance(layer, MultiHeadAttention):
        raise TypeError(f"layer must be a MultiHeadAttention, not {type(layer).__name__}")
    checks.positive_int(num_kv_heads=num_kv_heads)
    checks.divides(num_kv_heads=num_kv_heads, **{"the layer's num_kv_heads": layer.num_kv_heads})
    checks.one_of(WAYS, how=how)
    checks.integer(seed=seed)
    shared = copy.deepcopy(layer)
    shared.num_kv_heads = num_kv_heads
    generator = torch.Generator().manual_seed(seed)
    for name in ("k_proj", "v_proj"):
        fewer = _fewer_heads(getattr(layer, name), layer.head_dim, num_kv_heads, how, generator)
        setattr(shared, name, fewer)
    return shared.train(layer.training)


@torch.no_grad()
def _fewer_heads(linear, head_dim, num_kv_heads, how, generator):
    """A new `nn.Linear` for fewer heads, made of an old one as `how` says."""
    num_heads, width = linear.out_features // head_dim, num_kv_heads * head_dim
    options = {"dtype": linear.weight.dtype, "device": linear.weight.device}
    options |= {"bias": linear.bias is not None}
    fewer = nn.utils.skip_init(nn.Linear, linear.in_features, width, **options)
    bound = 1 / math.sqrt(linear.in_features)  # of an untrained nn.Linear
    for old, new in zip(linear.parameters(), fewer.parameters(), strict=True):
        w = old.reshape(len(old), -1).T  # (d_model, num_heads * head_dim); a bias is one row
        if how == "mean":
            w = pool_kv_heads(w, num_heads, num_kv_heads)
        elif how == "first":
            w = w.reshape(len(w), num_kv_heads, -1, head_dim)[:, :, 0].flatten(1)
        else:
            w = torch.empty(len(w), width).uniform_(-bound, bound, generator=generator)
        new.copy_(w.T.reshape(new.shape))
    return fewer


def _with_a_slot(cached):
    """The cache itself, or one slot in place of none, so that `checks.tensor` takes it."""
    if isinstance(cached, torch.Tensor) and cached.dim() == 4 and cached.shape[2] == 0:
        return cached.new_zeros(*cached.shape[:2], 1, cached.shape[3])
    return cached
