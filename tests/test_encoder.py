"""The encoder: beside BERT in `transformers` with random weights, its gate, its errors."""

import os

import pytest
import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # configurations are made by hand, nothing is fetched

from transformers import BertConfig, BertModel

from mhalib import pretrained
from mhalib.encoder import Encoder, NoHeads
from mhalib.functional import scaled_dot_product_attention, split_heads

SIZES = {
    "vocab_size": 50,
    "d_model": 12,
    "num_layers": 3,
    "num_heads": 3,
    "d_hidden": 20,
    "num_positions": 9,
}


def small_encoder(seed=0, **sizes):
    """Weights large enough that a fault shows."""
    torch.manual_seed(seed)
    encoder = Encoder(**SIZES | sizes)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.4)
    return encoder.double().eval()


def tokens(*shape):
    return torch.randint(50, shape, generator=torch.Generator().manual_seed(1))


def bert_like(encoder):
    """The same weights in `transformers`."""
    config = BertConfig(
        vocab_size=50,
        hidden_size=12,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=9,
        layer_norm_eps=encoder.embedding_norm.eps,
        attn_implementation="eager",
    )
    bert = BertModel(config, add_pooling_layer=False).double().eval()
    bert.load_state_dict(
        {pretrained._their_name(name): tensor for name, tensor in encoder.state_dict().items()}
    )
    return bert


@pytest.mark.parametrize("lengths", [None, [7, 7], [7, 4]], ids=["whole", "equal", "padded"])
def test_same_as_bert(lengths):
    encoder, token_ids = small_encoder(norm_eps=1e-6), tokens(2, 7)
    real = torch.arange(7) < torch.tensor(lengths or [7, 7])[:, None]
    with torch.no_grad():
        hidden, weights = encoder(token_ids, lengths, need_weights=True)
        theirs = bert_like(encoder)(
            token_ids,
            attention_mask=real.long(),
            output_attentions=True,
            output_hidden_states=True,
        )
    assert len(hidden) == 4
    assert len(weights) == 3
    for mine, other in zip(hidden, theirs.hidden_states, strict=True):
        torch.testing.assert_close(mine[real], other[real])
    for mine, other in zip(weights, theirs.attentions, strict=True):
        torch.testing.assert_close(mine.transpose(1, 2)[real], other.transpose(1, 2)[real])


def test_with_and_without_weights_and_with_and_without_company():
    encoder, token_ids = small_encoder(), tokens(2, 7)
    fused = encoder(token_ids, [7, 4])
    explicit, _ = encoder(token_ids, [7, 4], need_weights=True)
    alone = encoder(token_ids[1:, :4])
    for a, b, c in zip(fused, explicit, alone, strict=True):
        torch.testing.assert_close(a[0], b[0])
        torch.testing.assert_close(a[1, :4], b[1, :4])
        torch.testing.assert_close(a[1:, :4], c)


def test_starts_as_bert_does():
    encoder = Encoder(**SIZES | {"d_model": 120, "d_hidden": 300})
    for module in encoder.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            assert 0.015 < float(module.weight.detach().std()) < 0.025
        if isinstance(module, nn.Linear):
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all()
            assert not module.bias.any()


# the gate


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_gate_scales_what_each_head_hands_to_w_o(need_weights):
    layer = small_encoder().layers[0]
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    gate = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)
    attention = layer.attention
    query, key, value = (
        split_heads(projection(x), 3)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    heads, _ = scaled_dot_product_attention(query, key, value)
    by_hand = sum(
        gate[h] * heads[:, h] @ attention.out_proj.weight[:, 4 * h : 4 * h + 4].T for h in range(3)
    )
    by_hand = layer.attention_norm(x + by_hand + attention.out_proj.bias)
    expected = layer.output_norm(
        by_hand + layer.contract(nn.functional.gelu(layer.expand(by_hand)))
    )
    output, weights = layer(x, gate=gate, need_weights=need_weights)
    torch.testing.assert_close(output, expected)
    assert (weights is not None) == need_weights


def test_an_open_gate_changes_nothing_and_the_layer_is_left_as_it_was():
    encoder, token_ids = small_encoder(), tokens(2, 5)
    before = encoder(token_ids)
    shut = encoder(token_ids, gate=torch.zeros(3, 3, dtype=torch.float64))
    for a, b in zip(
        before, encoder(token_ids, gate=torch.ones(3, 3, dtype=torch.float64)), strict=True
    ):
        torch.testing.assert_close(a, b)
    assert not torch.allclose(before[1], shut[1])
    torch.testing.assert_close(encoder(token_ids), before)


def test_the_gates_gradient_is_the_slope():
    encoder, token_ids = small_encoder(), tokens(1, 5)

    def loss(gate):
        return encoder(token_ids, gate=gate)[-1].square().sum(dim=-1).sin().sum()

    gate = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, gate)
    rows = [row.clone().requires_grad_() for row in gate.detach()]
    assert torch.autograd.gradcheck(lambda *rows: loss(rows), rows)


def test_no_heads():
    bias = torch.arange(4.0)
    rest = NoHeads(bias)
    x = torch.randn(2, 3, 4)
    output, weights = rest(x, need_weights=True)
    assert rest.num_heads == 0
    assert weights.shape == (2, 0, 3, 3)
    assert output.shape == rest(x).shape == (2, 3, 4)
    assert (output == bias).all()


# errors


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"token_ids": [1, 2]}, TypeError, "token_ids must be a torch.Tensor"),
        ({"token_ids": torch.ones(1, 3)}, TypeError, "token_ids must hold integers"),
        ({"token_ids": torch.tensor([1, 2])}, ValueError, r"\(2,\), but \(batch, seq_len\)"),
        ({"token_ids": torch.ones(1, 0).long()}, ValueError, r"\(1, 0\), but"),
        ({"token_ids": tokens(1, 10)}, ValueError, "the text has 10 tokens, but .* only 9 pos"),
        ({"token_ids": torch.tensor([[50]])}, ValueError, "holds 50, not between 0 and 49"),
        ({"token_ids": torch.tensor([[-1]])}, ValueError, "holds -1"),
        ({"token_ids": tokens(2, 3), "lengths": [3, 4]}, ValueError, "lengths=.* max_len=3"),
        ({"token_ids": tokens(2, 3), "need_weights": 1}, TypeError, "need_weights=1"),
        ({"token_ids": tokens(2, 3), "gate": torch.ones(2, 3)}, ValueError, "gate has 2 rows"),
        (
            {"token_ids": tokens(2, 3), "gate": torch.ones(3, 2)},
            ValueError,
            r"layer has 3, gate\[0\] has 2",
        ),
        ({"token_ids": tokens(2, 3), "gate": [[1, 1, 1]] * 3}, TypeError, r"gate\[0\] must be a t"),
    ],
)
def test_what_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Encoder(**SIZES)(**arguments)


def test_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="num_heads=5 must divide d_model=12"):
        Encoder(**SIZES | {"num_heads": 5})
    with pytest.raises(ValueError, match="num_layers=0 must be at least 1"):
        Encoder(**SIZES | {"num_layers": 0})
