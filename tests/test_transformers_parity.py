"""The layer beside the attention of BERT and of Llama in `transformers`, with random weights."""

import math
import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # configurations are made by hand, nothing is fetched

from transformers import BertConfig, LlamaConfig
from transformers.models.bert.modeling_bert import BertSelfAttention, BertSelfOutput
from transformers.models.llama.modeling_llama import LlamaAttention

from mhalib import MultiHeadAttention, masks

BATCH, SEQ_LEN = 2, 6


def random_module(module, dtype):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.to(dtype).eval()


def copy_into(layer, *projections):
    """Copy four Linear layers, in the order query, key, value, output."""
    ours = (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj)
    for projection, theirs in zip(ours, projections, strict=True):
        projection.load_state_dict(theirs.state_dict())
    return layer


def additive(allowed, dtype):
    """Their eager attention adds a mask of four axes to the scores."""
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, -math.inf)


def assert_same(layer, x, options, expected, expected_weights, tolerance):
    output, weights = layer(x, need_weights=True, **options)
    tolerance = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(output, expected, **tolerance)
    torch.testing.assert_close(weights, expected_weights, **tolerance)
    torch.testing.assert_close(layer(x, **options), expected, **tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("lengths", [None, [6, 3]], ids=["whole", "padded"])
def test_bert_self_attention(lengths, dtype, tolerance):
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=24, num_attention_heads=4, attn_implementation="eager", vocab_size=10
    )
    attention = random_module(BertSelfAttention(config), dtype)
    output_layer = random_module(BertSelfOutput(config), dtype)
    layer = MultiHeadAttention(24, 4).to(dtype)
    copy_into(layer, attention.query, attention.key, attention.value, output_layer.dense)

    x = torch.randn(BATCH, SEQ_LEN, 24, dtype=dtype)
    mask = None if lengths is None else masks.padding(lengths, SEQ_LEN)
    context, weights = attention(x, attention_mask=None if mask is None else additive(mask, dtype))
    expected = output_layer.dense(context)  # their residual and LayerNorm come after it
    assert_same(layer, x, {"attn_mask": mask}, expected, weights, tolerance)
    torch.testing.assert_close(
        output_layer.LayerNorm(layer(x, attn_mask=mask) + x), output_layer(context, x)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "bias"),
    [(4, 4, 8, False), (8, 4, 4, False), (6, 2, 10, True), (4, 1, 8, False)],
)
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "open"])
def test_llama_attention_without_rotation(num_heads, num_kv_heads, head_dim, bias, causal, dtype):
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        attention_bias=bias,
        attn_implementation="eager",
        vocab_size=10,
    )
    attention = random_module(LlamaAttention(config, layer_idx=0), dtype)
    layer = MultiHeadAttention(24, num_heads, num_kv_heads, head_dim, bias=bias).to(dtype)
    copy_into(layer, attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)

    x = torch.randn(BATCH, SEQ_LEN, 24, dtype=dtype)
    no_rotation = torch.ones(1, SEQ_LEN, head_dim), torch.zeros(1, SEQ_LEN, head_dim)
    allowed = masks.causal(SEQ_LEN) if causal else torch.ones(SEQ_LEN, SEQ_LEN, dtype=torch.bool)
    expected, weights = attention(
        x,
        position_embeddings=tuple(part.to(dtype) for part in no_rotation),
        attention_mask=additive(allowed, dtype)[None, None],
    )
    # their softmax runs in float32, whatever the dtype
    assert_same(layer, x, {"is_causal": causal}, expected, weights, tolerance=1e-5)


def test_llama_with_real_rotation_would_differ():
    """The oracle is sharp: cos and sin of real angles change its output."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=8, num_attention_heads=2, attn_implementation="eager", vocab_size=10
    )
    attention = random_module(LlamaAttention(config, layer_idx=0), torch.float64)
    x = torch.randn(1, SEQ_LEN, 8, dtype=torch.float64)
    angles = torch.arange(SEQ_LEN, dtype=torch.float64)[None, :, None].expand(1, SEQ_LEN, 4)
    still, turned = (
        attention(x, position_embeddings=(a.cos(), a.sin()), attention_mask=None)[0]
        for a in (angles * 0, angles)
    )
    assert (still - turned).abs().max() > 1e-3
