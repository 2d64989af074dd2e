"""A BERT-shaped encoder built from `MultiHeadAttention`: read it from top to bottom.

Token ids go in. Each layer lets every token attend to all tokens, then passes each token through
two matrices of its own; after either step the result is added to what came in, and normalised.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from mhalib import checks, experiment_checks, masks
from mhalib.modules import MultiHeadAttention


class Encoder(nn.Module):
    """Embeddings and a stack of encoder layers, as in BERT; without dropout, for use and not for
    training. Its weights start as BERT's do: normal with a spread of 0.02, biases 0.

    Args:
        vocab_size: number of different tokens.
        d_model: width of a token's vector, from the embedding to the last layer.
        num_layers: how many layers, one after the other.
        num_heads: heads in each layer, a divisor of `d_model`.
        d_hidden: width between the two matrices that each token passes through.
        num_positions: the longest text, in tokens.
        num_types: kinds of segment; a plain text is all of type 0.
        norm_eps: added to the variance in every LayerNorm.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.

    Source: Devlin et al. 2019; Vaswani et al. 2017, section 3.1 (norm after each step).
    """

    def __init__(
        self,
        vocab_size,
        d_model,
        num_layers,
        num_heads,
        d_hidden,
        num_positions,
        num_types=2,
        norm_eps=1e-12,
    ):
        super().__init__()
        checks.positive_int(
            vocab_size=vocab_size, num_layers=num_layers, d_hidden=d_hidden, num_types=num_types
        )
        checks.positive_int(num_positions=num_positions)
        self.num_positions = num_positions
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position_embedding = nn.Embedding(num_positions, d_model)
        self.type_embedding = nn.Embedding(num_types, d_model)
        self.embedding_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_hidden, norm_eps) for _ in range(num_layers)
        )
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, token_ids, lengths=None, *, gate=None, need_weights=False):
        """Every layer's vectors, for one text or for several of different lengths.

        Args:
            token_ids: (batch, seq_len) integer tensor; short texts are filled up at the end.
            lengths: (batch,) integers, how many tokens of each text are real; all if None.
            gate: a factor for each head's output: (num_layers, num_heads) tensor, or a list with
                one vector per layer. 1 leaves a head as it is, 0 switches it off. No gate if None.
            need_weights: also return the attention weights, from the explicit path.

        Returns:
            hidden: tuple of num_layers + 1 tensors (batch, seq_len, d_model), the embeddings first.
            With `need_weights` (hidden, weights), weights being a tuple of num_layers tensors
            (batch, num_heads, seq_len, seq_len). Rows of filled-up places mean nothing.

        Raises:
            TypeError, ValueError: arguments that do not fit, named.
        """
        experiment_checks.token_ids(
            token_ids, self.token_embedding.num_embeddings, self.num_positions
        )
        experiment_checks.gate(gate, [layer.num_heads for layer in self.layers])
        checks.boolean(need_weights=need_weights)
        seq_len = token_ids.shape[1]
        attn_mask = None if lengths is None else masks.padding(lengths, seq_len)
        if attn_mask is not None and attn_mask.all():
            attn_mask = None  # nothing to hide, so no time spent on hiding it

        positions = torch.arange(seq_len, device=token_ids.device)
        x = self.token_embedding(token_ids)  # (batch, seq_len, d_model)
        x = x + self.position_embedding(positions) + self.type_embedding.weight[0]
        hidden, weights = [self.embedding_norm(x)], []
        for number, layer in enumerate(self.layers):
            x, of_layer = layer(
                hidden[-1],
                attn_mask=attn_mask,
                gate=None if gate is None else gate[number],
                need_weights=need_weights,
            )
            hidden.append(x)
            weights.append(of_layer)
        return (tuple(hidden), tuple(weights)) if need_weights else tuple(hidden)


class EncoderLayer(nn.Module):
    """Attention, then two matrices for each token alone; each is added, then normalised.

    Args:
        d_model, num_heads, d_hidden, norm_eps: as in `Encoder`.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.

    Source: Vaswani et al. 2017, section 3.1 and figure 1, left; GELU: Devlin et al. 2019, A.2.
    """

    def __init__(self, d_model, num_heads, d_hidden, norm_eps=1e-12):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, num_heads)
        self.attention_norm = nn.LayerNorm(d_model, eps=norm_eps)
        self.expand = nn.Linear(d_model, d_hidden)
        self.contract = nn.Linear(d_hidden, d_model)
        self.output_norm = nn.LayerNorm(d_model, eps=norm_eps)

    @property
    def num_heads(self):
        """How many heads this layer has; fewer than it was built with once some are removed."""
        return self.attention.num_heads

    def forward(self, x, *, attn_mask=None, gate=None, need_weights=False):
        """One layer.

        Args:
            x: (batch, seq_len, d_model) tensor.
            attn_mask: as in `MultiHeadAttention`; True = may attend.
            gate: (num_heads,) tensor of factors for the heads' outputs, or None.
            need_weights: whether to return the attention weights.

        Returns:
            (x, weights): (batch, seq_len, d_model), and (batch, num_heads, seq_len, seq_len) or
            None without `need_weights`.

        Raises:
            TypeError, ValueError: arguments that do not fit, named.
        """
        attended, weights = self._attend(x, gate, attn_mask, need_weights)
        x = self.attention_norm(x + attended)
        alone = self.contract(F.gelu(self.expand(x)))  # (batch, seq_len, d_hidden) in between
        return self.output_norm(x + alone), weights

    def _attend(self, x, gate, attn_mask, need_weights):
        """The gate scales the columns of W_o that read a head: the same as scaling its output."""
        options = {"attn_mask": attn_mask, "need_weights": need_weights}
        if gate is None or not self.num_heads:
            result = self.attention(x, **options)
        else:
            factors = gate.repeat_interleave(self.attention.head_dim)
            w_o = {"out_proj.weight": self.attention.out_proj.weight * factors}
            result = functional_call(self.attention, w_o, (x,), options)
        return result if need_weights else (result, None)


class NoHeads(nn.Module):
    """What is left of `MultiHeadAttention` once all its heads are removed: the output's bias.

    Args:
        bias: (d_model,) tensor, `out_proj.bias` of the layer that it replaces.
    """

    num_heads = 0

    def __init__(self, bias):
        super().__init__()
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, query, *, attn_mask=None, need_weights=False):
        """The same for every token.

        Args:
            query: (batch, seq_len, d_model) tensor, of which only the shape is used.
            attn_mask: accepted and not used.
            need_weights: also return weights, of no head.

        Returns:
            output: (batch, seq_len, d_model) tensor; or (output, weights) with weights of shape
            (batch, 0, seq_len, seq_len).

        Raises:
            Nothing.
        """
        batch, seq_len = query.shape[:2]
        output = self.bias.expand(batch, seq_len, -1)
        return (output, query.new_empty(batch, 0, seq_len, seq_len)) if need_weights else output
