"""Floors 0 and 1: values, gradients and masks, on every path, against the per-head loop."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import mhalib
from mhalib import masks, projections, reference

#            batch, query heads, kv heads, query_len, key_len, head_dim, value_dim
SHAPES = {
    "as many": (2, 3, 3, 5, 5, 4, 4),
    "8 to 4": (2, 8, 4, 3, 7, 4, 4),
    "6 to 2": (1, 6, 2, 5, 4, 3, 5),
    "4 to 1": (2, 4, 1, 4, 6, 2, 3),
    "one query, 6 to 2": (2, 6, 2, 1, 5, 3, 4),
    "one query, one key": (2, 4, 2, 1, 1, 3, 3),
    "ones": (1, 1, 1, 1, 1, 1, 1),
}
MASKS = ["none", "bool 2", "bool 4", "padding", "per head", "per query", "float 2", "float 4"]
CAUSAL = ["no", "top-left", "bottom-right", "per sample", "before all keys"]
TOLERANCE = {  # relative to the largest number
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def inputs(shape, dtype=torch.float64):
    batch, num_heads, num_kv_heads, query_len, key_len, head_dim, value_dim = SHAPES[shape]
    return (
        normal(batch, num_heads, query_len, head_dim, dtype=dtype, seed=1),
        normal(batch, num_kv_heads, key_len, head_dim, dtype=dtype, seed=2),
        normal(batch, num_kv_heads, key_len, value_dim, dtype=dtype, seed=3),
    )


def mask_of(kind, shape, dtype=torch.float64):
    """Masks that hide about a third, and everything from one query (where it has several)."""
    if kind == "none":
        return None
    batch, num_heads, _, query_len, key_len, *_ = SHAPES[shape]
    allowed = normal(batch, num_heads, query_len, key_len, seed=4) > -0.4
    allowed[0, 0, -1] = False
    scores = normal(batch, num_heads, query_len, key_len, seed=5, dtype=dtype)
    return {
        "bool 2": allowed[0, 0],
        "bool 4": allowed,
        "padding": masks.padding([key_len, 0][:batch], key_len),
        "per head": allowed[:1, :, :1],
        "per query": allowed[:, :1, :, :1],
        "float 2": scores[0, 0].masked_fill(~allowed[0, 0], -math.inf),
        "float 4": scores.masked_fill(~allowed, -math.inf),
    }[kind]


def causal_of(kind, shape):
    batch, _, _, query_len, key_len, *_ = SHAPES[shape]
    offset = {
        "top-left": 0,
        "bottom-right": key_len - query_len,
        "per sample": torch.arange(batch) - 1,
        "before all keys": -query_len,
    }
    return {} if kind == "no" else {"is_causal": True, "query_offset": offset[kind]}


def loop(query, key, value, attn_mask=None, is_causal=False, query_offset=None):
    """The per-head loop on tensors that are already split: (output, weights) as float64."""
    arrays = [mhalib.merge_heads(x).detach().double().numpy() for x in (query, key, value)]
    if attn_mask is not None:
        attn_mask = attn_mask if attn_mask.dtype == torch.bool else attn_mask.double()
        attn_mask = attn_mask.numpy()
    if isinstance(query_offset, torch.Tensor):
        query_offset = query_offset.numpy()
    num_heads, num_kv_heads = query.shape[1], key.shape[1]
    output, weights = reference.multi_head_attention(
        *arrays,
        *(np.eye(x.shape[-1]) for x in arrays),
        np.eye(num_heads * value.shape[-1]),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        attn_mask=attn_mask,
        is_causal=is_causal,
        query_offset=query_offset,
    )
    return mhalib.split_heads(torch.from_numpy(output), num_heads), torch.from_numpy(weights)


def assert_close(actual, expected, tolerance):
    error = (actual.detach().double() - expected.double()).abs().max()
    assert error <= tolerance * max(1.0, expected.abs().max()), f"off by {error}"


# ---------------------------------------------------------------- values on every path


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", MASKS)
def test_all_paths_agree_with_the_loop(kind, shape, dtype):
    tensors = inputs(shape, dtype)
    for causal in CAUSAL:
        options = {"attn_mask": mask_of(kind, shape, dtype)} | causal_of(causal, shape)
        expected, expected_weights = loop(*tensors, **options)
        output, weights = mhalib.scaled_dot_product_attention(*tensors, **options)
        fused = mhalib.fused_attention(*tensors, **options)
        in_blocks = mhalib.blockwise_attention(*tensors, **options, block_size=2)
        with torch.no_grad():  # the weights are then written over the scores
            assert torch.equal(mhalib.scaled_dot_product_attention(*tensors, **options)[1], weights)
        assert output.dtype == weights.dtype == fused.dtype == in_blocks.dtype == dtype
        assert_close(output, expected, TOLERANCE[dtype])
        assert_close(in_blocks, expected, TOLERANCE[dtype])
        assert_close(weights, expected_weights, TOLERANCE[dtype])
        assert_close(fused, expected, TOLERANCE[dtype])
        total = weights.double().sum(dim=-1)  # 1, or 0 where nothing may be attended to
        assert ((total - total.round()).abs() <= TOLERANCE[dtype]).all()


def test_numpy_in_float32_agrees_too_and_keeps_its_dtype():
    query, key, value = (x.numpy() for x in inputs("as many", torch.float32))
    options = {"attn_mask": mask_of("float 4", "as many", torch.float32).numpy(), "scale": 0.3}
    output, weights = reference.attention(query, key, value, **options)
    assert output.dtype == weights.dtype == np.float32
    wide, _ = reference.attention(
        *(x.astype(np.float64) for x in (query, key, value)),
        attn_mask=options["attn_mask"].astype(np.float64),
        scale=0.3,
    )
    np.testing.assert_allclose(output, wide, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", ["as many", "6 to 2"])
def test_non_contiguous_inputs(shape):
    tensors = inputs(shape)
    crooked = [x.transpose(1, 3).contiguous().transpose(1, 3) for x in tensors]
    assert not any(x.is_contiguous() for x in crooked)
    expected, _ = loop(*tensors)
    output, _ = mhalib.scaled_dot_product_attention(*crooked)
    assert_close(output, expected, 1e-12)
    assert_close(mhalib.fused_attention(*crooked), expected, 1e-12)


def test_longer_than_one_block_of_the_fused_kernel():
    query, key, value = (normal(1, 2, 600, 8, dtype=torch.float32, seed=seed) for seed in range(3))
    mask = normal(1, 1, 600, 600, seed=7) > 0
    mask[..., 5, :] = False  # nothing at all
    mask[..., 6, :512] = False  # nothing in the first block
    mask[..., 7, 512:] = False  # nothing in the last
    output, _ = mhalib.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert_close(mhalib.fused_attention(query, key, value, attn_mask=mask), output, 1e-5)


def test_scale_and_its_default():
    query, key, value = inputs("as many")
    default, _ = mhalib.scaled_dot_product_attention(query, key, value)
    for scale in (0.5, np.float32(0.5), 1 / math.sqrt(4)):
        output, _ = mhalib.scaled_dot_product_attention(query, key, value, scale=scale)
        assert_close(output, default, 1e-12)  # head_dim is 4
        assert_close(mhalib.fused_attention(query, key, value, scale=scale), default, 1e-12)
    doubled, _ = mhalib.scaled_dot_product_attention(query * 2, key, value, scale=0.25)
    assert_close(doubled, default, 1e-12)
    assert_close(mhalib.fused_attention(query * 2, key, value, scale=0.25), default, 1e-12)
    arrays = (query.numpy() * 2, key.numpy(), value.numpy())
    doubled, _ = reference.attention(*arrays, scale=0.25)
    assert_close(torch.from_numpy(doubled), default, 1e-12)


def test_lowest_float_as_a_mask_beside_real_masking():
    """Some libraries hide with the lowest float: left padding of that kind under a causal mask."""
    query, key, value = inputs("as many", torch.float32)
    mask = torch.zeros(5, 5)
    mask[:, :2] = torch.finfo(torch.float32).min
    output, weights = mhalib.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=True
    )
    fused = mhalib.fused_attention(query, key, value, attn_mask=mask, is_causal=True)
    np.testing.assert_allclose(weights.sum(dim=-1), 1, rtol=1e-6)
    assert_close(output, fused, 1e-5)
    _, weights = reference.attention(
        query.numpy(), key.numpy(), value.numpy(), attn_mask=mask.numpy(), is_causal=True
    )
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-6)


def test_inputs_are_not_changed():
    tensors = inputs("8 to 4")
    mask = mask_of("float 4", "8 to 4")
    before = [x.clone() for x in (*tensors, mask)]
    options = {"attn_mask": mask, "is_causal": True, "query_offset": 1}
    mhalib.scaled_dot_product_attention(*tensors, **options)
    mhalib.fused_attention(*tensors, **options)
    loop(*tensors, **options)
    for x, old in zip((*tensors, mask), before, strict=True):
        assert torch.equal(x, old)


def test_shared_keys_and_values_are_never_copied_out():
    class LargestResult(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.numel = max(self.numel, result.numel())
            return result

    query = normal(1, 8, 1, 16, dtype=torch.bfloat16)
    key = value = normal(1, 2, 64, 16, dtype=torch.bfloat16)
    with LargestResult() as largest:
        mhalib.scaled_dot_product_attention(query, key, value)
    assert largest.numel == key.numel()  # its float32 copy, and not four times that


# ---------------------------------------------------------------- nothing to attend to


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("kind", ["bool", "float", "padding", "offset"])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_fully_masked_rows_are_zero_with_finite_gradients(kind, num_kv_heads, dtype):
    query = normal(2, 4, 3, 8, dtype=dtype).requires_grad_()
    key = normal(2, num_kv_heads, 3, 8, dtype=dtype, seed=1).requires_grad_()
    value = normal(2, num_kv_heads, 3, 8, dtype=dtype, seed=2).requires_grad_()
    allowed = torch.tensor([[True, True, False], [False, False, False], [True, False, False]])
    options, rows = {
        "bool": ({"attn_mask": allowed}, (..., 1, slice(None))),
        "float": (
            {"attn_mask": torch.zeros(3, 3, dtype=dtype).masked_fill(~allowed, -math.inf)},
            (..., 1, slice(None)),
        ),
        "padding": ({"attn_mask": masks.padding([3, 0], 3)}, (1,)),
        "offset": ({"is_causal": True, "query_offset": -2}, (..., slice(0, 2), slice(None))),
    }[kind]

    def explicit():
        output, weights = mhalib.scaled_dot_product_attention(query, key, value, **options)
        assert (weights[rows] == 0).all()
        return output

    def explicit_with_anomalies_watched():  # no NaN on the way either
        with torch.autograd.detect_anomaly(check_nan=True):
            output = explicit()
            output.sum().backward()
        return output

    for path in (
        explicit,
        lambda: mhalib.fused_attention(query, key, value, **options),
    ):
        output = path()
        assert (output[rows] == 0).all()
        assert output.isfinite().all()
        assert (output != 0).any()
        gradients = torch.autograd.grad(output.float().square().sum(), (query, key, value))
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert (gradients[0][rows] == 0).all()
    with pytest.warns(UserWarning, match="Anomaly Detection"):
        explicit_with_anomalies_watched()

    output, weights = loop(query, key, value, **options)
    assert (output[rows] == 0).all()
    assert (weights[rows] == 0).all()


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_layer_gives_its_output_bias_where_nothing_may_be_attended_to(need_weights):
    layer = mhalib.MultiHeadAttention(12, 3)
    x = normal(2, 4, 12, dtype=torch.float32).requires_grad_()
    output = layer(x, attn_mask=masks.padding([4, 0], 4), need_weights=need_weights)
    output = output[0] if need_weights else output
    torch.testing.assert_close(output[1], layer.out_proj.bias.expand(4, 12))
    output.square().sum().backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


# ---------------------------------------------------------------- gradients


def leaves(*tensors):
    return [x.clone().requires_grad_() for x in tensors]


def test_gradients_of_split_merge_and_repeat():
    assert gradcheck(lambda x: mhalib.split_heads(x, 3), leaves(normal(2, 4, 6)))
    assert gradcheck(mhalib.merge_heads, leaves(normal(2, 3, 4, 2)))
    assert gradcheck(lambda x: mhalib.repeat_kv(x, 3), leaves(normal(2, 2, 3, 2)))


@pytest.mark.parametrize("kind", ["none", "bool 4", "padding", "float 2"])
@pytest.mark.parametrize("causal", ["no", "bottom-right", "per sample"])
def test_gradients_of_attention(kind, causal):
    options = {"attn_mask": mask_of(kind, "6 to 2")} | causal_of(causal, "6 to 2")
    tensors = leaves(*inputs("6 to 2"))
    assert gradcheck(
        lambda *qkv: mhalib.scaled_dot_product_attention(*qkv, **options), tensors, fast_mode=True
    )
    assert gradcheck(lambda *qkv: mhalib.fused_attention(*qkv, **options), tensors, fast_mode=True)


def test_gradient_of_an_additive_mask():
    query, key, value = inputs("8 to 4")
    assert gradcheck(
        lambda mask: mhalib.scaled_dot_product_attention(query, key, value, attn_mask=mask),
        leaves(normal(3, 7)),
        fast_mode=True,
    )


def test_gradients_of_multi_head_attention():
    tensors = leaves(normal(2, 3, 6), *(normal(6, 6, seed=seed) for seed in range(4)))
    assert gradcheck(
        lambda *args: mhalib.multi_head_attention(*args, num_heads=2), tensors, fast_mode=True
    )


@pytest.mark.parametrize("need_weights", [False, True])
def test_gradients_of_the_layer(need_weights):
    layer = mhalib.MultiHeadAttention(8, 4, 2, head_dim=3, kdim=5, vdim=7).double()
    mask = normal(2, 4, 3, 5, seed=9) > -0.5
    mask[0, 0, 1] = False
    names = [name for name, _ in layer.named_parameters()]

    def run(query, key, value, *parameters):
        options = {"attn_mask": mask, "is_causal": True, "query_offset": 2}
        return torch.func.functional_call(
            layer,
            dict(zip(names, parameters, strict=True)),
            (query, key, value),
            {"need_weights": need_weights} | options,
        )

    tensors = leaves(
        normal(2, 3, 8), normal(2, 5, 5, seed=1), normal(2, 5, 7, seed=2), *layer.parameters()
    )
    assert gradcheck(run, tensors, fast_mode=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_both_paths_have_the_same_gradients(dtype):
    options = {"attn_mask": mask_of("bool 4", "8 to 4"), "is_causal": True, "query_offset": 3}
    tensors = leaves(*inputs("8 to 4", dtype))
    output, _ = mhalib.scaled_dot_product_attention(*tensors, **options)
    fused = mhalib.fused_attention(*tensors, **options)
    direction = normal(*output.shape, dtype=dtype, seed=8)
    explicit_gradients = torch.autograd.grad(output, tensors, direction)
    fused_gradients = torch.autograd.grad(fused, tensors, direction)
    for actual, expected in zip(fused_gradients, explicit_gradients, strict=True):
        assert_close(actual, expected, TOLERANCE[dtype])


# ---------------------------------------------------------------- heads


def test_split_heads_gives_each_head_its_stretch_of_features():
    x = torch.arange(2.0 * 3 * 8).reshape(2, 3, 8)
    heads = mhalib.split_heads(x, 4)
    assert heads.shape == (2, 4, 3, 2)
    for head in range(4):
        assert torch.equal(heads[:, head], x[:, :, 2 * head : 2 * head + 2])


def test_merge_heads_undoes_split_heads():
    x = normal(2, 3, 8)
    assert torch.equal(mhalib.merge_heads(mhalib.split_heads(x, 4)), x)
    heads = normal(2, 4, 3, 2)
    assert torch.equal(mhalib.split_heads(mhalib.merge_heads(heads), 4), heads)


def test_repeat_kv_repeats_consecutively():
    x = torch.arange(3.0)[None, :, None, None]
    assert mhalib.repeat_kv(x, 2).flatten().tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(mhalib.repeat_kv(x, 1), x)


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(8, 4), (6, 2), (4, 1)])
def test_grouped_heads_are_repeated_heads(num_heads, num_kv_heads):
    query, key, value = (normal(2, h, 5, 3, seed=h) for h in (num_heads, num_kv_heads, 1))
    value = value.expand_as(key) * torch.arange(1, num_kv_heads + 1)[:, None, None]
    group_size = num_heads // num_kv_heads
    repeated = mhalib.repeat_kv(key, group_size), mhalib.repeat_kv(value, group_size)
    expected, _ = mhalib.scaled_dot_product_attention(query, *repeated)
    output, _ = mhalib.scaled_dot_product_attention(query, key, value)
    assert_close(output, expected, 1e-12)


# ---------------------------------------------------------------- the function and the layer


def test_multi_head_attention_is_the_loop():
    x, *weights = normal(2, 5, 12), *(normal(12, 12, seed=seed) for seed in range(1, 5))
    for dtype in (torch.float64, torch.float32):
        output = mhalib.multi_head_attention(*(t.to(dtype) for t in (x, *weights)), 4)
        arrays = [t.numpy() for t in (x, x, x, *weights)]
        expected, _ = reference.multi_head_attention(*arrays, num_heads=4)
        assert_close(output, torch.from_numpy(expected), TOLERANCE[dtype])


LAYERS = {
    "self": ((12, 3), {}),
    "free head_dim": ((12, 3), {"head_dim": 5}),
    "grouped 8 to 4": ((16, 8, 4), {"bias": False}),
    "grouped 6 to 2, cross": ((12, 6, 2), {"kdim": 5, "vdim": 7, "out_bias": False}),
    "one key head, wide": ((6, 4, 1, 3), {"bias": False, "out_bias": True}),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", LAYERS)
def test_the_layer_is_the_loop_on_both_paths(name, dtype):
    args, kwargs = LAYERS[name]
    torch.manual_seed(0)
    layer = mhalib.MultiHeadAttention(*args, **kwargs).double()
    query = normal(2, 4, layer.q_proj.in_features)
    key = normal(2, 6, layer.k_proj.in_features, seed=1)
    value = normal(2, 6, layer.v_proj.in_features, seed=2)
    mask = normal(2, 1, 4, 6, seed=3) > -0.5
    projections = {
        letter: getattr(layer, f"{name}_proj")
        for letter, name in {"q": "q", "k": "k", "v": "v", "o": "out"}.items()
    }
    biases = {
        f"b_{letter}": projection.bias.detach().numpy()
        for letter, projection in projections.items()
        if projection.bias is not None
    }
    expected, expected_weights = reference.multi_head_attention(
        query.numpy(),
        key.numpy(),
        value.numpy(),
        *(projection.weight.detach().numpy().T for projection in projections.values()),
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        attn_mask=mask.numpy(),
        **biases,
    )
    layer, query, key, value = (x.to(dtype) for x in (layer, query, key, value))
    output, weights = layer(query, key, value, attn_mask=mask, need_weights=True)
    fused = layer(query, key, value, attn_mask=mask)
    for actual, wanted in ((output, expected), (fused, expected), (weights, expected_weights)):
        assert actual.dtype == dtype
        assert_close(actual, torch.from_numpy(wanted), TOLERANCE[dtype])


def test_the_layer_attends_to_itself_when_keys_are_left_out():
    layer = mhalib.MultiHeadAttention(8, 2)
    x, memory = normal(2, 3, 8, dtype=torch.float32), normal(2, 5, 8, dtype=torch.float32, seed=1)
    assert torch.equal(layer(x), layer(x, x, x))
    assert torch.equal(layer(x, memory), layer(x, memory, memory))
    assert not torch.equal(layer(x, memory), layer(x))


def test_the_layer_shows_its_sizes():
    layer = mhalib.MultiHeadAttention(8, 4, 2, head_dim=3, dropout=0.1)
    assert "num_heads=4, num_kv_heads=2, head_dim=3, dropout=0.1" in repr(layer)
    assert layer.k_proj.weight.shape == (2 * 3, 8)
    assert layer.out_proj.weight.shape == (8, 4 * 3)


def test_separate_projections_are_columns_of_one():
    x, weights = normal(2, 3, 8), [normal(8, 2, seed=seed) for seed in range(4)]
    heads = mhalib.split_heads(x @ projections.fuse_projections(weights), 4)
    for head, w in enumerate(weights):
        assert_close(heads[:, head], x @ w, 1e-12)


def test_the_output_projection_is_a_sum_over_heads():
    heads, w_o, b_o = normal(2, 3, 4, 2), normal(6, 5, seed=1), normal(5, seed=2)
    output = projections.output_projection_as_sum(heads, w_o, b_o)
    assert_close(output, mhalib.merge_heads(heads) @ w_o + b_o, 1e-12)
    assert gradcheck(projections.output_projection_as_sum, leaves(heads, w_o, b_o))


# ---------------------------------------------------------------- dropout


def test_dropout_is_unbiased_and_leaves_the_weights_alone():
    query, key = normal(1, 1, 20, 4), normal(1, 1, 30, 4, seed=1)
    value = torch.ones(1, 1, 30, 1, dtype=torch.float64)
    plain, plain_weights = mhalib.scaled_dot_product_attention(query, key, value)
    torch.manual_seed(0)
    totals = []
    for _ in range(300):
        output, weights = mhalib.scaled_dot_product_attention(query, key, value, dropout_p=0.3)
        assert torch.equal(weights, plain_weights)
        totals.append(output)
    assert_close(torch.stack(totals).mean(), plain.mean(), 0.01)
    assert torch.stack(totals).std() > 0.1
    totals = [mhalib.fused_attention(query, key, value, dropout_p=0.3) for _ in range(300)]
    assert_close(torch.stack(totals).mean(), plain.mean(), 0.01)


def test_the_share_of_dropped_weights():
    query = key = torch.zeros(1, 1, 100, 1)  # equal weights
    value = torch.eye(100)[None, None]  # the output is the dropped weights
    torch.manual_seed(0)
    kept, _ = mhalib.scaled_dot_product_attention(query, key, value, dropout_p=0.25)
    assert abs((kept == 0).float().mean().item() - 0.25) < 0.02
    torch.testing.assert_close(kept[kept != 0], torch.full_like(kept[kept != 0], 0.01 / 0.75))
    nothing, _ = mhalib.scaled_dot_product_attention(query, key, value, dropout_p=1.0)
    assert (nothing == 0).all()
    assert (mhalib.fused_attention(query, key, value, dropout_p=1.0) == 0).all()


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_layer_drops_only_while_training(need_weights):
    layer = mhalib.MultiHeadAttention(8, 2, dropout=0.5)
    x = normal(2, 6, 8, dtype=torch.float32)

    def run():
        result = layer(x, need_weights=need_weights)
        return result[0] if need_weights else result

    assert not torch.equal(run(), run())
    layer.eval()
    assert torch.equal(run(), run())


# ---------------------------------------------------------------- masks


def picture(mask):
    return ["".join(".x"[seen] for seen in row) for row in mask.tolist()]


def test_causal_mask():
    assert picture(masks.causal(3)) == ["x..", "xx.", "xxx"]
    assert picture(masks.causal(2, 4, query_offset=0)) == ["x...", "xx.."]
    assert picture(masks.causal(2, 4, query_offset=2)) == ["xxx.", "xxxx"]
    assert picture(masks.causal(3, 2, query_offset=-1)) == ["..", "x.", "xx"]
    assert picture(masks.causal(2, 3, torch.tensor(1))) == ["xx.", "xxx"]
    assert masks.causal(3).dtype == torch.bool


def test_causal_mask_with_an_offset_per_sample():
    mask = masks.causal(2, 3, query_offset=torch.tensor([0, 1, -1]))
    assert mask.shape == (3, 1, 2, 3)
    assert [picture(sample[0]) for sample in mask] == [
        ["x..", "xx."],
        ["xx.", "xxx"],
        ["...", "x.."],
    ]


def test_sliding_window_counts_the_query_itself():
    assert picture(masks.sliding_window(4, window=1)) == ["x...", ".x..", "..x.", "...x"]
    assert picture(masks.sliding_window(4, window=2)) == ["x...", "xx..", ".xx.", "..xx"]
    assert torch.equal(masks.sliding_window(4, window=9), masks.causal(4))
    assert picture(masks.sliding_window(2, 5, window=3, query_offset=3)) == [".xxx.", "..xxx"]


def test_sliding_window_with_an_offset_per_sample():
    mask = masks.sliding_window(2, 4, window=2, query_offset=torch.tensor([0, 2]))
    assert mask.shape == (2, 1, 2, 4)
    assert [picture(sample[0]) for sample in mask] == [["x...", "xx.."], [".xx.", "..xx"]]


def test_padding_mask():
    mask = masks.padding([2, 0, 3], 3)
    assert mask.shape == (3, 1, 1, 3)
    assert picture(mask[:, 0, 0]) == ["xx.", "...", "xxx"]
    assert torch.equal(masks.padding(torch.tensor([2, 0, 3]), 3), mask)


def test_causal_and_mask_compose():
    query, key, value = inputs("as many")
    mask = mask_of("bool 4", "as many")
    together, _ = mhalib.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=True
    )
    by_hand, _ = mhalib.scaled_dot_product_attention(
        query, key, value, attn_mask=mask & masks.causal(5)
    )
    assert torch.equal(together, by_hand)


# ---------------------------------------------------------------- NumPy, by hand


def test_dot_product_cosine_and_neighbours_by_hand():
    assert reference.dot_product(np.array([1, 2]), np.array([3, 4])) == 11
    assert reference.cosine_similarity(np.array([3.0, 0]), np.array([0, 2.0])) == 0
    assert reference.cosine_similarity(np.array([1, 1]), np.array([-2, -2])) == pytest.approx(-1)
    assert reference.cosine_similarity(np.array([3, 4]), np.array([4, 3])) == pytest.approx(0.96)
    vectors = np.array([[1.0, 0], [0, 1], [9, 9], [0, 1], [-1, 0]])
    assert reference.nearest_neighbours(vectors, np.array([0, 5.0]), 4).tolist() == [1, 3, 2, 0]


def test_softmax_by_hand():
    np.testing.assert_allclose(reference.softmax(np.log([1.0, 2, 5])), [0.125, 0.25, 0.625])
    np.testing.assert_allclose(reference.softmax(np.array([1000, 1000])), [0.5, 0.5])
    np.testing.assert_allclose(reference.softmax(np.array([[0.0], [7]])), [[1], [1]])
    assert reference.softmax(np.array([0, -np.inf])).tolist() == [1, 0]


def test_attention_by_hand():
    query, key = np.array([[2.0, 0, 0, 0]]), np.array([[np.log(3), 0, 0, 0], [0, 9, 9, 9]])
    weights = reference.attention_weights(query, key)  # scores log 3 and 0
    np.testing.assert_allclose(weights, [[0.75, 0.25]])
    output, same_weights = reference.attention(query, key, np.array([[4.0], [8.0]]))
    np.testing.assert_allclose(output, [[5.0]])
    np.testing.assert_allclose(same_weights, weights)
