"""The layer beside PyTorch's `nn.MultiheadAttention`, whose masks say True = *blocked*."""

import math

import pytest
import torch
from torch import nn

from mhalib import MultiHeadAttention

#          embed_dim, heads, kdim, vdim, batch, query_len, key_len (None: self-attention)
SHAPES = {
    "self": (12, 3, None, None, 2, 5, None),
    "one head": (6, 1, None, None, 1, 4, None),
    "one token": (8, 8, None, None, 3, 1, None),
    "cross": (12, 4, None, None, 2, 3, 6),
    "cross, other widths": (12, 2, 5, 7, 2, 4, 6),
    "cross, other keys": (8, 4, 5, None, 1, 6, 2),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 4e-2}


def theirs_of(shape, *, bias=True, batch_first=True, dtype=torch.float64, **options):
    embed_dim, num_heads, kdim, vdim, *_ = SHAPES[shape]
    torch.manual_seed(0)
    module = nn.MultiheadAttention(
        embed_dim, num_heads, kdim=kdim, vdim=vdim, bias=bias, batch_first=batch_first, **options
    )
    for parameter in module.parameters():  # PyTorch starts biases at 0, which would hide them
        nn.init.normal_(parameter, std=0.4)
    return module.to(dtype)


def inputs_of(shape, dtype=torch.float64):
    embed_dim, _, kdim, vdim, batch, query_len, key_len = SHAPES[shape]
    torch.manual_seed(1)
    query = torch.randn(batch, query_len, embed_dim, dtype=dtype)
    if key_len is None:
        return query, query, query
    key = torch.randn(batch, key_len, kdim or embed_dim, dtype=dtype)
    return query, key, torch.randn(batch, key_len, vdim or embed_dim, dtype=dtype)


def masks_of(kind, shape, dtype):
    """(keyword arguments for theirs, our attn_mask). No row is wholly blocked: theirs gives NaN."""
    _, num_heads, _, _, batch, query_len, key_len = SHAPES[shape]
    key_len = key_len or query_len
    torch.manual_seed(2)
    blocked = torch.rand(query_len, key_len) < 0.4
    blocked[:, 0] = False
    per_head = torch.rand(batch, num_heads, query_len, key_len) < 0.4
    per_head[..., 0] = False
    padded = torch.rand(batch, key_len) < 0.4
    padded[:, 0] = False
    bias = torch.randn(query_len, key_len, dtype=dtype)
    blocked_bias = bias.masked_fill(blocked, -math.inf)
    return {
        "none": ({}, None),
        "bool": ({"attn_mask": blocked}, ~blocked),
        "bool per head": ({"attn_mask": per_head.flatten(0, 1)}, ~per_head),
        "float": ({"attn_mask": blocked_bias}, blocked_bias),
        "padding": ({"key_padding_mask": padded}, ~padded[:, None, None]),
        "both": (
            {"attn_mask": blocked, "key_padding_mask": padded},
            ~blocked & ~padded[:, None, None],
        ),
        "both float": (
            {
                "attn_mask": bias,
                "key_padding_mask": bias.new_zeros(padded.shape).masked_fill(padded, -math.inf),
            },
            bias.masked_fill(padded[:, None, None], -math.inf),
        ),
    }[kind]


def run_theirs(module, query, key, value, **options):
    """Batch first in and out, with the weights of each head."""
    if not module.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    output, weights = module(query, key, value, average_attn_weights=False, **options)
    return output if module.batch_first else output.transpose(0, 1), weights


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_and_weights(shape, bias, dtype):
    inputs = inputs_of(shape, dtype)
    for batch_first in (True, False):
        theirs = theirs_of(shape, bias=bias, batch_first=batch_first, dtype=dtype)
        ours = MultiHeadAttention.from_torch(theirs)
        for kind in ("none", "bool", "bool per head", "float", "padding", "both", "both float"):
            their_masks, our_mask = masks_of(kind, shape, dtype)
            expected, expected_weights = run_theirs(theirs, *inputs, **their_masks)
            output, weights = ours(*inputs, attn_mask=our_mask, need_weights=True)
            fused = ours(*inputs, attn_mask=our_mask)
            assert weights.shape == expected_weights.shape  # one map per head
            for actual, wanted in (
                (output, expected),
                (fused, expected),
                (weights, expected_weights),
            ):
                tolerance = TOLERANCE[dtype]
                torch.testing.assert_close(actual, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("need_weights", [True, False], ids=["explicit", "fused"])
@pytest.mark.parametrize("kind", ["none", "both", "float"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(shape, kind, need_weights):
    theirs = theirs_of(shape)
    ours = MultiHeadAttention.from_torch(theirs)
    their_masks, our_mask = masks_of(kind, shape, torch.float64)
    their_inputs = [x.clone().requires_grad_() for x in inputs_of(shape)]
    our_inputs = [x.clone().requires_grad_() for x in inputs_of(shape)]
    expected, _ = run_theirs(theirs, *their_inputs, **their_masks)
    output = ours(*our_inputs, attn_mask=our_mask, need_weights=need_weights)
    output = output[0] if need_weights else output
    direction = torch.randn_like(expected)
    expected.backward(direction)
    output.backward(direction)

    if theirs.in_proj_weight is not None:
        wanted = list(theirs.in_proj_weight.grad.chunk(3))
    else:
        wanted = [getattr(theirs, f"{name}_proj_weight").grad for name in "qkv"]
    wanted += [*theirs.in_proj_bias.grad.chunk(3), *(p.grad for p in theirs.out_proj.parameters())]
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    actual = [projection.weight.grad for projection in projections]
    actual += [projection.bias.grad for projection in projections]
    actual += [parameter.grad for parameter in ours.out_proj.parameters()]
    wanted += [x.grad for x in their_inputs]
    actual += [x.grad for x in our_inputs]
    for ours_, theirs_ in zip(actual, wanted, strict=True):
        torch.testing.assert_close(ours_, theirs_, rtol=1e-10, atol=1e-12)


def test_causal():
    theirs, inputs = theirs_of("self"), inputs_of("self")
    blocked = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    expected, _ = run_theirs(theirs, *inputs, attn_mask=blocked, is_causal=True)
    output = MultiHeadAttention.from_torch(theirs)(inputs[0], is_causal=True)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)


def test_their_masks_given_as_they_are_would_be_wrong():
    theirs, inputs = theirs_of("self"), inputs_of("self")
    their_masks, our_mask = masks_of("bool", "self", torch.float64)
    expected, _ = run_theirs(theirs, *inputs, **their_masks)
    reversed_mask = ~our_mask
    output = MultiHeadAttention.from_torch(theirs)(*inputs, attn_mask=reversed_mask)
    assert (output - expected).abs().max() > 0.1


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(shape, bias, dtype):
    theirs = theirs_of(shape, bias=bias, dtype=dtype, dropout=0.25).eval()
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    assert ours.dropout == back.dropout == 0.25
    assert not ours.training
    assert not back.training
    assert back.batch_first
    assert back.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
        assert back.state_dict()[name].dtype == dtype
    inputs = inputs_of(shape, dtype)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        ours(*inputs), run_theirs(back, *inputs)[0], rtol=tolerance, atol=tolerance
    )


def test_weights_are_copied_and_not_shared():
    theirs = theirs_of("self")
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    before = ours.q_proj.weight.clone()
    with torch.no_grad():
        theirs.in_proj_weight.zero_()
        back.in_proj_weight.zero_()
    assert torch.equal(ours.q_proj.weight, before)
    assert all(parameter.requires_grad for parameter in (*ours.parameters(), *back.parameters()))
    assert theirs_of("self").training
    assert MultiHeadAttention.from_torch(theirs).training


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_what_the_layer_does_not_have(option):
    module = nn.MultiheadAttention(8, 2, **{option: True})
    with pytest.raises(ValueError, match=f"module uses {option}=True"):
        MultiHeadAttention.from_torch(module)


def test_from_torch_needs_their_layer():
    with pytest.raises(TypeError, match=r"module must be an nn\.MultiheadAttention.*Linear"):
        MultiHeadAttention.from_torch(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((8, 4, 2), {}, "num_kv_heads=2 is not num_heads=4"),
        ((8, 2), {"head_dim": 3}, "num_heads=2 times head_dim=3 is not d_model=8"),
        ((8, 2), {"out_bias": False}, "bias and out_bias differ"),
    ],
)
def test_what_their_layer_does_not_have(args, options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(*args, **options).to_torch()
