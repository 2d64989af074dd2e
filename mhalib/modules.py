"""Multi-head attention as a layer: MHA, GQA and MQA are one class with one argument."""

import torch
from torch import nn

from mhalib import checks
from mhalib.cache import KVCache
from mhalib.functional import (
    fused_attention,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)


class MultiHeadAttention(nn.Module):
    """Multi-head attention with an output projection, batch first.

    Args:
        d_model: width of the queries and of the output.
        num_heads: query heads.
        num_kv_heads: key/value heads, a divisor of `num_heads`. Equal to it (None): multi-head
            attention; fewer: grouped-query attention; 1: multi-query attention.
        head_dim: width of one head; d_model / num_heads if None, which then must come out even.
        kdim, vdim: width of the keys' and values' inputs; d_model if None.
        bias: whether the query, key and value projections add a bias.
        out_bias: whether the output projection does; as `bias` if None.
        dropout: share of attention weights dropped at random while training.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.

    Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019 (MQA); Ainslie et al. 2023 (GQA).
    """

    def __init__(
        self,
        d_model,
        num_heads,
        num_kv_heads=None,
        head_dim=None,
        *,
        kdim=None,
        vdim=None,
        bias=True,
        out_bias=None,
        dropout=0.0,
    ):
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        kdim = d_model if kdim is None else kdim
        vdim = d_model if vdim is None else vdim
        checks.heads(d_model, num_heads, num_kv_heads, head_dim)
        head_dim = d_model // num_heads if head_dim is None else head_dim
        out_bias = bias if out_bias is None else out_bias
        checks.positive_int(kdim=kdim, vdim=vdim)
        checks.boolean(bias=bias, out_bias=out_bias)
        checks.probability(dropout=dropout)

        self.d_model, self.head_dim = d_model, head_dim
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.dropout = dropout
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(kdim, num_kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(vdim, num_kv_heads * head_dim, bias=bias)
        self.out_proj = nn.Linear(num_heads * head_dim, d_model, bias=out_bias)

    def forward(
        self,
        query,
        key=None,
        value=None,
        *,
        attn_mask=None,
        is_causal=False,
        query_offset=None,
        cache=None,
        lengths=None,
        need_weights=False,
    ):
        """Attend from `query` to `key` and `value`; to itself where they are left out.

        Args:
            query: (batch, query_len, d_model) tensor.
            key: (batch, key_len, kdim) tensor; `query` if None.
            value: (batch, key_len, vdim) tensor; `key` if None.
            attn_mask: None; boolean, True = may attend; or floats added to the scores. Rank 2
                (query_len, key_len) or rank 4, broadcast to (batch, num_heads, query_len, key_len).
            is_causal: let query i see key j only when j <= i + query_offset; composes with
                `attn_mask`.
            query_offset: int or (batch,) integer tensor; needed when query_len and key_len differ.
            cache: a `KVCache` of this layer's sizes, for decoding under `torch.no_grad()`. The keys
                and values of `query` are kept in it, and each query attends to its own token and
                to those before it, in the cache or in `query`; with the cache's window to the last
                `window` of them. Needs is_causal=True, and nothing else but `lengths`.
            lengths: only with a cache: (batch,) integers, real tokens in each sample of `query`;
                the rest is padding at the end. All if None.
            need_weights: also return the weights, one map per head, never their average.

        Returns:
            output: (batch, query_len, d_model) tensor, from the fused kernel; or, with
            `need_weights`, (output, weights) from the explicit path, with weights (batch,
            num_heads, query_len, key_len) as they are before dropout; the keys of a cache with a
            window are in the order of its slots, then the new ones. A query that may attend to
            nothing gets zeros from every head, so the output there is `out_proj`'s bias.

        Raises:
            TypeError, ValueError: arguments that do not fit, named.
        """
        if key is None and value is not None:
            raise ValueError(
                "value was given without key: give both, or neither for self-attention"
            )
        if cache is not None:
            absent = {"key": key, "value": value, "attn_mask": attn_mask}
            checks.with_cache(KVCache, cache, is_causal, **absent, query_offset=query_offset)
        elif lengths is not None:
            raise ValueError("lengths was given, but has a meaning only with a cache")
        checks.boolean(need_weights=need_weights)
        key = query if key is None else key
        value = key if value is None else value
        self._check_inputs(query=query, key=key, value=value)

        query = split_heads(self.q_proj(query), self.num_heads)
        key = split_heads(self.k_proj(key), self.num_kv_heads)
        value = split_heads(self.v_proj(value), self.num_kv_heads)
        options = {"attn_mask": attn_mask, "is_causal": is_causal, "query_offset": query_offset}
        if cache is not None:
            key, value, options = cache.append(key, value, lengths)
        options["dropout_p"] = self.dropout if self.training else 0.0
        if not need_weights:
            return self.out_proj(merge_heads(fused_attention(query, key, value, **options)))
        output, weights = scaled_dot_product_attention(query, key, value, **options)
        return self.out_proj(merge_heads(output)), weights

    def _check_inputs(self, query, key, value):
        checks.tensor(rank=3, query=query, key=key, value=value)
        checks.last_axis("query", query, "d_model", self.q_proj.in_features)
        checks.last_axis("key", key, "kdim", self.k_proj.in_features)
        checks.last_axis("value", value, "vdim", self.v_proj.in_features)
        checks.like_parameters("query", query, self.q_proj.weight)

    def extra_repr(self):
        return (
            f"d_model={self.d_model}, num_heads={self.num_heads}, "
            f"num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}, dropout={self.dropout}"
        )

    @classmethod
    def from_torch(cls, module):
        """The same layer as an `nn.MultiheadAttention`, with its weights copied.

        Args:
            module: an `nn.MultiheadAttention`. Ours is batch first whatever its `batch_first` says.

        Returns:
            MultiHeadAttention of the same dtype, device and training mode.

        Raises:
            TypeError: another kind of module.
            ValueError: `add_bias_kv` or `add_zero_attn`, which this layer does not have.
        """
        if not isinstance(module, nn.MultiheadAttention):
            raise TypeError(f"module must be an nn.MultiheadAttention, got {type(module).__name__}")
        for option, used in {
            "add_bias_kv": module.bias_k is not None,
            "add_zero_attn": module.add_zero_attn,
        }.items():
            if used:
                raise ValueError(
                    f"module uses {option}=True, which MultiHeadAttention does not have"
                )
        layer = cls(
            module.embed_dim,
            module.num_heads,
            kdim=module.kdim,
            vdim=module.vdim,
            bias=module.in_proj_bias is not None,
            out_bias=module.out_proj.bias is not None,
            dropout=module.dropout,
        ).to(module.out_proj.weight)
        with torch.no_grad():
            for ours, theirs in zip(
                layer._parameters_in_order(), _torch_parameters(module), strict=True
            ):
                ours.copy_(theirs)
        return layer.train(module.training)

    def to_torch(self):
        """The same layer as an `nn.MultiheadAttention(batch_first=True)`, with its weights copied.

        Returns:
            `nn.MultiheadAttention` of the same dtype, device and training mode.

        Raises:
            ValueError: shared key/value heads, heads that do not add up to d_model, or a bias on
                some projections only: PyTorch's layer has none of these.
        """
        if self.num_kv_heads != self.num_heads:
            raise ValueError(
                f"num_kv_heads={self.num_kv_heads} is not num_heads={self.num_heads}, "
                "and nn.MultiheadAttention cannot share key/value heads"
            )
        if self.num_heads * self.head_dim != self.d_model:
            raise ValueError(
                f"num_heads={self.num_heads} times head_dim={self.head_dim} is not "
                f"d_model={self.d_model}, as nn.MultiheadAttention needs"
            )
        bias = self.q_proj.bias is not None
        if bias != (self.out_proj.bias is not None):
            raise ValueError(
                "bias and out_bias differ, but nn.MultiheadAttention has one bias for both"
            )
        module = nn.MultiheadAttention(
            self.d_model,
            self.num_heads,
            dropout=self.dropout,
            bias=bias,
            kdim=self.k_proj.in_features,
            vdim=self.v_proj.in_features,
            batch_first=True,
        ).to(self.out_proj.weight)
        with torch.no_grad():
            for ours, theirs in zip(
                self._parameters_in_order(), _torch_parameters(module), strict=True
            ):
                theirs.copy_(ours)
        return module.train(self.training)

    def _parameters_in_order(self):
        layers = (self.q_proj, self.k_proj, self.v_proj, self.out_proj)
        weights = [layer.weight for layer in layers]
        return weights + [layer.bias for layer in layers if layer.bias is not None]


def _torch_parameters(module):
    """The parameters of an `nn.MultiheadAttention` as views, in our layer's order."""
    if module.in_proj_weight is not None:
        weights = list(module.in_proj_weight.chunk(3))
    else:
        weights = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
    biases = [] if module.in_proj_bias is None else list(module.in_proj_bias.chunk(3))
    out_bias = [] if module.out_proj.bias is None else [module.out_proj.bias]
    return [*weights, module.out_proj.weight, *biases, *out_bias]
