"""Attention in which not every token sees every other: patterns, what they save, what they reach.

A mask alone saves nothing: the scores are computed, then hidden. Work is saved where whole blocks
are never computed, as `functional.blockwise_attention` does with blocks of which nothing is seen.
"""

import copy
from dataclasses import replace

import torch
from torch import nn

from mhalib import checks, masks


def first_tokens(seq_len, count):
    """Let every token see the first `count` tokens, as far as they do not lie after it.

    Args:
        seq_len: number of tokens.
        count: how many tokens at the start are seen by all.

    Returns:
        Boolean tensor (seq_len, seq_len), True = may attend. From token `count` on a token does
        not see itself.

    Raises:
        TypeError, ValueError: a number below 1.
    """
    checks.positive_int(seq_len=seq_len, count=count)
    return masks.causal(seq_len) & (torch.arange(seq_len) < count)


def fixed_blocks(seq_len, *, block_size, num_global=0):
    """Causal, within a token's own block, and to the last `num_global` tokens of earlier blocks.

    Args:
        seq_len: number of tokens.
        block_size: tokens in a block; the last block may be shorter.
        num_global: tokens at the end of each block that all later tokens see.

    Returns:
        Boolean tensor (seq_len, seq_len), True = may attend.

    Raises:
        TypeError, ValueError: a size below 1, or more global tokens than a block has.

    Source: Child et al. 2019, section 4.3 (the fixed pattern).
    """
    checks.positive_int(seq_len=seq_len, block_size=block_size)
    checks.at_least(0, num_global=num_global)
    checks.at_most(num_global=num_global, block_size=block_size)
    place = torch.arange(seq_len)
    same_block = place[:, None] // block_size == place // block_size
    seen_by_all = place % block_size >= block_size - num_global
    return masks.causal(seq_len) & (same_block | seen_by_all)


def blocks_needed(attn_mask, block_size):
    """Which blocks of scores have to be computed: those in which some query may see some key.

    Args:
        attn_mask: (query_len, key_len) boolean tensor, True = may attend.
        block_size: queries, and keys, in a block; the last may be shorter.

    Returns:
        Boolean tensor (query_blocks, key_blocks).

    Raises:
        TypeError, ValueError: not a boolean tensor of two axes, or a `block_size` below 1.
    """
    _check_mask(attn_mask)
    checks.positive_int(block_size=block_size)
    in_blocks = [rows.any(dim=0) for rows in attn_mask.split(block_size)]  # (key_len,) each
    in_blocks = torch.stack(in_blocks).split(block_size, dim=1)
    return torch.stack([columns.any(dim=1) for columns in in_blocks], dim=1)


def reachable(attn_mask, num_layers):
    """From which tokens information can arrive at each token, through layers one after the other.

    Each layer passes on what a token may attend to, and by the residual connection what the token
    held already.

    Args:
        attn_mask: (seq_len, seq_len) boolean tensor, True = may attend, the same in all layers.
        num_layers: how many layers.

    Returns:
        Boolean tensor (seq_len, seq_len): entry i, j says whether token i can know of token j.

    Raises:
        TypeError, ValueError: not a square boolean mask, or `num_layers` below 1.
    """
    checks.positive_int(num_layers=num_layers)
    return layers_to_reach(attn_mask, num_layers) > -1


def layers_to_reach(attn_mask, num_layers):
    """After how many layers information from each token can first arrive at each token.

    Args:
        attn_mask, num_layers: as in `reachable`.

    Returns:
        Integer tensor (seq_len, seq_len): 0 for a token itself, 1 for what it may attend to, and so
        on up to `num_layers`; -1 where nothing arrives.

    Raises:
        TypeError, ValueError: as `reachable`.
    """
    _check_mask(attn_mask)
    checks.same("the length of both axes", rows=attn_mask.shape[0], columns=attn_mask.shape[1])
    checks.positive_int(num_layers=num_layers)
    step = attn_mask.float()
    arrived = torch.eye(len(attn_mask), dtype=torch.bool, device=attn_mask.device)
    layers = arrived.long() - 1
    for layer in range(1, num_layers + 1):
        # token i sees k, and k knows of j: the product of both tables counts such k
        arrived = arrived | (step @ arrived.float() > 0)
        layers = torch.where(arrived & (layers < 0), layer, layers)
    return layers


def with_pattern(loaded, pattern):
    """A trained encoder that attends in a pattern only, in every layer and head.

    Args:
        loaded: a `pretrained.LoadedEncoder`; it stays as it is, and shares its weights.
        pattern: function from a number of tokens to a (seq_len, seq_len) boolean tensor, True =
            may attend.

    Returns:
        A `LoadedEncoder`.
    """
    encoder = copy.copy(loaded.encoder)
    encoder._modules = dict(encoder._modules)  # else the layers would be changed in both
    encoder.layers = nn.ModuleList(_PatternLayer(layer, pattern) for layer in encoder.layers)
    return replace(loaded, encoder=encoder)


class _PatternLayer(nn.Module):
    """An encoder layer whose tokens see only what the pattern lets them."""

    def __init__(self, layer, pattern):
        super().__init__()
        self.layer, self.pattern = layer, pattern

    @property
    def num_heads(self):
        return self.layer.num_heads

    def forward(self, x, *, attn_mask=None, **options):
        mask = self.pattern(x.shape[1]).to(x.device)
        _check_mask(mask)
        return self.layer(x, attn_mask=mask if attn_mask is None else mask & attn_mask, **options)


def _check_mask(attn_mask):
    if not isinstance(attn_mask, torch.Tensor) or attn_mask.dtype != torch.bool:
        kind = getattr(attn_mask, "dtype", type(attn_mask).__name__)
        raise TypeError(f"attn_mask must be a boolean tensor (True = may attend), not {kind}")
    if attn_mask.dim() != 2 or 0 in attn_mask.shape:
        shape = tuple(attn_mask.shape)
        raise ValueError(f"attn_mask has shape {shape}, but (query_len, key_len) was expected")
