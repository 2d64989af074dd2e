"""Projections taken apart: one matrix for all heads, and the output matrix head by head."""

import torch

from mhalib import checks, experiment_checks


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
    experiment_checks.alike(2, weights=weights)
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
    experiment_checks.output_projection(heads, w_o, b_o)
    num_heads, head_dim = heads.shape[1], heads.shape[3]
    blocks = w_o.reshape(num_heads, head_dim, -1)
    return (heads @ blocks).sum(dim=1) + b_o
