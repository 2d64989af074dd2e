"""Every public function of floors 0 and 1 against wrong arguments.

Each is a ValueError or a TypeError whose message says which argument, what was given and what is
expected, without the name of an inner helper.
"""

import inspect
import itertools
import math
import re

import numpy as np
import pytest
import torch

import mhalib
from mhalib import MultiHeadAttention, masks, projections, reference


def tensor(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def array(*shape, dtype=np.float64):
    return np.ones(shape, dtype=dtype)


def refuses(call, error, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert caught.type is error
    assert re.search(message, str(caught.value)), f"{message!r} is not in {caught.value}"
    for inner in ("_kind", "_integer", "checks.", "<class", "<function"):
        assert inner not in str(caught.value)


def cases(table):
    """{"name": (call, error, message)} -> parameters with readable names."""
    return pytest.mark.parametrize(
        ("call", "error", "message"), [pytest.param(*row, id=name) for name, row in table.items()]
    )


# ---------------------------------------------------------------- split, merge, repeat

X3, X4 = tensor(2, 3, 8), tensor(2, 4, 3, 2)


@cases(
    {
        "split, two axes": (
            lambda: mhalib.split_heads(tensor(3, 8), 2),
            ValueError,
            r"x has shape \(3, 8\), but \(batch, seq_len, d_model\) was expected",
        ),
        "split, five heads of eight": (
            lambda: mhalib.split_heads(X3, 5),
            ValueError,
            "num_heads=5 must divide d_model=8",
        ),
        "split, no head": (
            lambda: mhalib.split_heads(X3, 0),
            ValueError,
            "num_heads=0.*at least 1",
        ),
        "split, negative": (lambda: mhalib.split_heads(X3, -2), ValueError, "num_heads=-2"),
        "split, float": (
            lambda: mhalib.split_heads(X3, 2.0),
            TypeError,
            "num_heads=2.0 must be an integer",
        ),
        "split, bool": (
            lambda: mhalib.split_heads(X3, True),
            TypeError,
            "num_heads=True must be an integer",
        ),
        "split, NumPy bool": (
            lambda: mhalib.split_heads(X3, np.True_),
            TypeError,
            "num_heads=bool must be an integer",
        ),
        "split, text": (
            lambda: mhalib.split_heads(X3, "2"),
            TypeError,
            "num_heads='2' must be an integer",
        ),
        "split, None": (lambda: mhalib.split_heads(X3, None), TypeError, "num_heads=None"),
        "split, NaN": (lambda: mhalib.split_heads(X3, math.nan), TypeError, "num_heads=nan"),
        "split, array": (
            lambda: mhalib.split_heads(array(2, 3, 8), 2),
            TypeError,
            r"x must be a torch\.Tensor, not ndarray",
        ),
        "split, list": (
            lambda: mhalib.split_heads([[[1.0]]], 1),
            TypeError,
            r"x must be a torch\.Tensor, not list",
        ),
        "split, nothing": (
            lambda: mhalib.split_heads(None, 1),
            TypeError,
            r"x must be a torch\.Tensor, not None",
        ),
        "split, integers": (
            lambda: mhalib.split_heads(X3.long(), 2),
            TypeError,
            r"x must be a floating-point tensor, but its dtype is torch\.int64",
        ),
        "split, bools": (lambda: mhalib.split_heads(X3.bool(), 2), TypeError, r"torch\.bool"),
        "split, complex": (lambda: mhalib.split_heads(X3.cfloat(), 2), TypeError, "complex64"),
        "split, empty sequence": (
            lambda: mhalib.split_heads(tensor(2, 0, 8), 2),
            ValueError,
            r"x has shape \(2, 0, 8\), which is empty: every axis must be at least 1",
        ),
        "merge, three axes": (
            lambda: mhalib.merge_heads(X3),
            ValueError,
            r"x has shape \(2, 3, 8\), but \(batch, num_heads, seq_len, head_dim\)",
        ),
        "merge, array": (lambda: mhalib.merge_heads(array(1, 1, 1, 1)), TypeError, "x must be"),
        "merge, empty batch": (lambda: mhalib.merge_heads(tensor(0, 1, 1, 1)), ValueError, "empty"),
        "repeat, three axes": (lambda: mhalib.repeat_kv(X3, 2), ValueError, r"x has shape \(2, 3,"),
        "repeat, zero times": (
            lambda: mhalib.repeat_kv(X4, 0),
            ValueError,
            "group_size=0 must be at least 1",
        ),
        "repeat, float": (lambda: mhalib.repeat_kv(X4, 1.5), TypeError, "group_size=1.5"),
        "fuse, nothing": (
            lambda: projections.fuse_projections([]),
            TypeError,
            "weights must be a list of tensors, at least one",
        ),
        "fuse, one tensor": (
            lambda: projections.fuse_projections(tensor(2, 3, 4)),
            TypeError,
            "weights must be a list of tensors, at least one, not Tensor",
        ),
        "fuse, two shapes": (
            lambda: projections.fuse_projections([tensor(8, 2), tensor(8, 3)]),
            ValueError,
            r"the shape must be the same, but weights\[0\] has \(8, 2\), weights\[1\] has \(8, 3",
        ),
        "sum of heads, w_o turned": (
            lambda: projections.output_projection_as_sum(X4, tensor(5, 8), tensor(8)),
            ValueError,
            "the width must be the same, but heads has 8, w_o has 5",
        ),
        "sum of heads, bias of another width": (
            lambda: projections.output_projection_as_sum(X4, tensor(8, 5), tensor(8)),
            ValueError,
            "the output width must be the same, but w_o has 5, b_o has 8",
        ),
        "sum of heads, merged": (
            lambda: projections.output_projection_as_sum(X3, tensor(8, 5), tensor(5)),
            ValueError,
            r"heads has shape \(2, 3, 8\), but \(batch, num_heads, seq_len, head_dim\)",
        ),
    }
)
def test_heads(call, error, message):
    refuses(call, error, message)


# ---------------------------------------------------------------- attention, on both paths


def qkv(batch=2, num_heads=4, num_kv_heads=2, query_len=3, key_len=5, head_dim=6, value_dim=7):
    return {
        "query": tensor(batch, num_heads, query_len, head_dim),
        "key": tensor(batch, num_kv_heads, key_len, head_dim),
        "value": tensor(batch, num_kv_heads, key_len, value_dim),
    }


BOTH_CONVENTIONS = (
    "query_len=3 and key_len=5 differ.*query_offset=0 aligns top-left, as PyTorch's is_causal and "
    r"ONNX do; query_offset=2 \(key_len - query_len\) aligns bottom-right, as flash-attention"
)
ATTENTION = {
    "query of three axes": ({"query": X3}, ValueError, r"query has shape \(2, 3, 8\), but \(batch"),
    "key of three axes": ({"key": X3}, ValueError, r"key has shape \(2, 3, 8\)"),
    "value of five axes": ({"value": tensor(1, 1, 1, 1, 1)}, ValueError, r"value has shape"),
    "array for query": ({"query": array(2, 4, 3, 6)}, TypeError, r"query must be a torch\.Tensor"),
    "None for value": ({"value": None}, TypeError, r"value must be a torch\.Tensor, not None"),
    "text for key": ({"key": "key"}, TypeError, "key must be.*not 'key'"),
    "batches differ": (
        qkv() | {"key": tensor(3, 2, 5, 6)},
        ValueError,
        "batch must be the same, but query has 2, key has 3, value has 2",
    ),
    "a batch of one is not spread": (
        {"key": tensor(1, 2, 5, 6), "value": tensor(1, 2, 5, 7)},
        ValueError,
        "batch must be the same, but query has 2, key has 1",
    ),
    "key and value heads differ": (
        {"value": tensor(2, 4, 5, 7)},
        ValueError,
        "number of key and value heads must be the same, but key has 2, value has 4",
    ),
    "three key heads for four": (
        qkv(num_kv_heads=3),
        ValueError,
        "num_kv_heads=3 must divide num_heads=4",
    ),
    "more key heads": (qkv(num_kv_heads=8), ValueError, "num_kv_heads=8 must divide num_heads=4"),
    "head widths differ": (
        {"key": tensor(2, 2, 5, 4)},
        ValueError,
        "head_dim must be the same, but query has 6, key has 4",
    ),
    "more keys than values": (
        {"value": tensor(2, 2, 4, 7)},
        ValueError,
        "number of keys and values must be the same, but key has 5, value has 4",
    ),
    "no query": (qkv(query_len=0), ValueError, r"query has shape \(2, 4, 0, 6\), which is empty"),
    "no key": (qkv(key_len=0), ValueError, r"key has shape \(2, 2, 0, 6\), which is empty"),
    "no batch": (qkv(batch=0), ValueError, "query has shape.*empty"),
    "integers": (
        {"query": tensor(2, 4, 3, 6).long()},
        TypeError,
        "query must be a floating-point tensor",
    ),
    "mixed dtypes": (
        {"key": tensor(2, 2, 5, 6).double()},
        TypeError,
        r"one dtype, but query has torch\.float32, key has torch\.float64",
    ),
    "mixed devices": (
        {"value": tensor(2, 2, 5, 7).to("meta")},
        TypeError,
        "one device, but query has cpu, key has cpu, value has meta",
    ),
    "mask of one axis": (
        {"attn_mask": tensor(5).bool()},
        ValueError,
        r"attn_mask has shape \(5,\), but \(3, 5\) \(query_len, key_len\), or 4 axes that "
        r"broadcast to \(2, 4, 3, 5\), was expected",
    ),
    "mask without axes": (
        {"attn_mask": torch.tensor(True)},
        ValueError,
        r"attn_mask has shape \(\)",
    ),
    "mask of three axes": (
        {"attn_mask": tensor(4, 3, 5).bool()},
        ValueError,
        r"attn_mask has shape \(4, 3, 5\): three axes are ambiguous \(ONNX.*PyTorch as batch x h",
    ),
    "mask of five axes": ({"attn_mask": tensor(1, 1, 1, 3, 5).bool()}, ValueError, "attn_mask has"),
    "mask too long": (
        {"attn_mask": tensor(3, 6).bool()},
        ValueError,
        r"attn_mask has shape \(3, 6\)",
    ),
    "mask turned round": (
        {"attn_mask": tensor(5, 3).bool()},
        ValueError,
        r"attn_mask has shape \(5, 3\), but \(3, 5\)",
    ),
    "mask per key head": (
        {"attn_mask": tensor(2, 2, 3, 5).bool()},
        ValueError,
        r"attn_mask has shape \(2, 2, 3, 5\).*\(2, 4, 3, 5\)",
    ),
    "empty mask": ({"attn_mask": tensor(0, 5).bool()}, ValueError, r"attn_mask has shape \(0, 5\)"),
    "integer mask": (
        {"attn_mask": tensor(3, 5).long()},
        TypeError,
        r"attn_mask has dtype int64, but must be boolean \(True = may attend\) or.*float32",
    ),
    "mask of another float": (
        {"attn_mask": tensor(3, 5).double() * 2},
        TypeError,
        "attn_mask has dtype float64.*query's dtype float32",
    ),
    "mask of 0 and 1": (
        {"attn_mask": tensor(3, 5).tril()},
        ValueError,
        r"attn_mask holds only the numbers 0 and 1.*boolean mask \(True = may attend\), or 0 a",
    ),
    "array mask": (
        {"attn_mask": array(3, 5, dtype=bool)},
        TypeError,
        r"attn_mask must be a torch\.Tensor, not ndarray",
    ),
    "list mask": (
        {"attn_mask": [[True]]},
        TypeError,
        r"attn_mask must be a torch\.Tensor, not list",
    ),
    "text mask": ({"attn_mask": "causal"}, TypeError, "attn_mask must be.*not 'causal'"),
    "mask elsewhere": (
        {"attn_mask": torch.ones(3, 5, dtype=torch.bool, device="meta")},
        TypeError,
        "attn_mask has device meta, but the query's cpu was expected",
    ),
    "causal without offset": ({"is_causal": True}, ValueError, BOTH_CONVENTIONS),
    "causal as a number": ({"is_causal": 1}, TypeError, "is_causal=1 must be True or False"),
    "causal as text": ({"is_causal": "yes"}, TypeError, "is_causal='yes' must be True or False"),
    "causal as None": ({"is_causal": None}, TypeError, "is_causal=None must be True or False"),
    "causal as mask": ({"is_causal": masks.causal(3)}, TypeError, "is_causal=Tensor must be True"),
    "offset alone": (
        {"query_offset": 0},
        ValueError,
        "query_offset was given, but has a meaning only with is_causal=True",
    ),
    "offset as float": (
        {"is_causal": True, "query_offset": 2.0},
        TypeError,
        r"query_offset=2.0 must be an integer, or a \(batch,\) vector of integers",
    ),
    "offset as bool": (
        {"is_causal": True, "query_offset": True},
        TypeError,
        "query_offset=True must be an integer",
    ),
    "offset as a bool tensor": (
        {"is_causal": True, "query_offset": torch.tensor(True)},
        TypeError,
        "query_offset=Tensor must be an integer",
    ),
    "offset as text": (
        {"is_causal": True, "query_offset": "2"},
        TypeError,
        "query_offset='2' must",
    ),
    "offset as list": (
        {"is_causal": True, "query_offset": [0, 1]},
        TypeError,
        r"query_offset=list must be an integer, or a \(batch,\) vector",
    ),
    "offset as array": (
        {"is_causal": True, "query_offset": np.array([0, 1])},
        TypeError,
        r"query_offset must be a torch\.Tensor or an integer, not ndarray",
    ),
    "offset as float tensor": (
        {"is_causal": True, "query_offset": tensor(2)},
        TypeError,
        r"query_offset must hold integers, but its dtype is torch\.float32",
    ),
    "offsets for another batch": (
        {"is_causal": True, "query_offset": torch.tensor([0, 1, 2])},
        ValueError,
        r"query_offset has shape \(3,\), but \(2,\) was expected",
    ),
    "one offset in a vector": (
        {"is_causal": True, "query_offset": torch.tensor([0])},
        ValueError,
        r"query_offset has shape \(1,\), but \(2,\)",
    ),
    "offset of two axes": (
        {"is_causal": True, "query_offset": torch.tensor([[0], [1]])},
        ValueError,
        r"query_offset has shape \(2, 1\), but \(2,\)",
    ),
    "scale NaN": ({"scale": math.nan}, ValueError, "scale=nan must be finite"),
    "scale infinite": ({"scale": -math.inf}, ValueError, "scale=-inf must be finite"),
    "scale as text": ({"scale": "1"}, TypeError, r"scale='1' must be a number, or None for 1/sqrt"),
    "scale as bool": ({"scale": True}, TypeError, "scale=True must be a number"),
    "scale complex": ({"scale": np.complex64(1j)}, TypeError, "scale=complex64 must be a number"),
    "scale as a tensor": ({"scale": torch.tensor(1.0)}, TypeError, "scale=Tensor must be a number"),
    "dropout above 1": ({"dropout_p": 1.5}, ValueError, "dropout_p=1.5 must lie between 0 and 1"),
    "dropout below 0": ({"dropout_p": -0.1}, ValueError, "dropout_p=-0.1 must lie between"),
    "dropout NaN": ({"dropout_p": math.nan}, ValueError, "dropout_p=nan must lie between 0 and 1"),
    "dropout as bool": ({"dropout_p": True}, TypeError, "dropout_p=True must be a number between"),
    "dropout as None": ({"dropout_p": None}, TypeError, "dropout_p=None must be a number between"),
    "dropout as text": ({"dropout_p": "0.1"}, TypeError, "dropout_p='0.1' must be a number"),
}


ATTEND = [
    mhalib.scaled_dot_product_attention,
    mhalib.fused_attention,
    mhalib.blockwise_attention,
]


@pytest.mark.parametrize(
    ("name", "attend"),
    [
        (name, attend)
        for name, attend in itertools.product(ATTENTION, ATTEND)
        if set(ATTENTION[name][0]) <= set(inspect.signature(attend).parameters)
    ],
)
def test_attention(name, attend):
    wrong, error, message = ATTENTION[name]
    refuses(lambda: attend(**(qkv() | wrong)), error, message)


@pytest.mark.parametrize("attend", ATTEND)
def test_what_is_not_wrong(attend):
    """Beside each refusal above, its neighbour that is allowed."""
    for options in (
        {"attn_mask": tensor(3, 5).tril() - 1},
        {"attn_mask": tensor(3, 5).bool()},
        {"attn_mask": tensor(1, 5).bool()},
        {"attn_mask": torch.nn.Parameter(tensor(1, 4, 1, 1) * 2)},
        {"is_causal": True, "query_offset": np.int64(1)},
        {"is_causal": True, "query_offset": torch.tensor(1)},
        {"is_causal": True, "query_offset": torch.tensor([0, 1], dtype=torch.uint8)},
        {"is_causal": True, "query_offset": -1},
        {"scale": 0},
        {"scale": -1.0},
    ):
        attend(**qkv(), **options)
    if attend is not mhalib.blockwise_attention:
        for dropout_p in (0, 1):
            attend(**qkv(), dropout_p=dropout_p)


@pytest.mark.parametrize("attend", ATTEND)
def test_nan_and_infinity_are_answered_with_nan(attend):
    """A documented result and no error: NaN in what a query may see makes its output NaN."""

    def output(**changes):
        result = attend(**(qkv() | changes))
        return result[0] if isinstance(result, tuple) else result

    query, key, value = qkv().values()
    query[0, 1, 2] = math.nan
    affected = output(query=query).isnan()
    assert affected[0, 1, 2].all()
    assert affected.sum() == 7  # one query of one head
    key[0, 1, 4] = math.nan
    affected = output(key=key).isnan()
    assert affected[0, 2:].all()  # the two query heads that share the key head
    assert affected.sum() == 2 * 3 * 7
    value[1, 0, 0, 0] = math.nan
    affected = output(value=value).isnan()
    assert affected[1, :2, :, 0].all()
    assert affected.sum() == 2 * 3
    mask = torch.zeros(3, 5)
    mask[1, 2] = math.nan
    affected = output(attn_mask=mask).isnan()
    assert affected[:, :, 1].all()
    assert affected.sum() == 2 * 4 * 7


def test_nan_in_a_numpy_mask_is_answered_with_nan():
    mask = np.zeros((3, 5))
    mask[1, 2] = math.nan
    output, _ = reference.attention(**ARRAYS, attn_mask=mask)
    assert np.isnan(output).any(axis=-1).tolist() == [[False, True, False]] * 2


# ---------------------------------------------------------------- the function from its parts

SQUARE = [tensor(8, 8)] * 4


@cases(
    {
        "two axes": (
            lambda: mhalib.multi_head_attention(tensor(3, 8), *SQUARE, 2),
            ValueError,
            r"x has shape \(3, 8\), but \(batch, seq_len, d_model\) was expected",
        ),
        "a matrix that does not fit": (
            lambda: mhalib.multi_head_attention(X3, *SQUARE[:2], tensor(8, 6), tensor(8, 8), 2),
            ValueError,
            r"w_v has shape \(8, 6\), but \(8, 8\) was expected, because x has d_model=8",
        ),
        "a vector for a matrix": (
            lambda: mhalib.multi_head_attention(X3, tensor(8), *SQUARE[:3], 2),
            ValueError,
            r"w_q has shape \(8,\)",
        ),
        "heads": (
            lambda: mhalib.multi_head_attention(X3, *SQUARE, 3),
            ValueError,
            "num_heads=3 must divide d_model=8",
        ),
        "heads as bool": (
            lambda: mhalib.multi_head_attention(X3, *SQUARE, True),
            TypeError,
            "num_heads=True must be an integer",
        ),
        "mixed dtypes": (
            lambda: mhalib.multi_head_attention(X3.half(), *SQUARE, 2),
            TypeError,
            r"one dtype, but x has torch\.float16, w_q has torch\.float32",
        ),
        "array": (
            lambda: mhalib.multi_head_attention(X3, array(8, 8), *SQUARE[:3], 2),
            TypeError,
            r"w_q must be a torch\.Tensor, not ndarray",
        ),
        "empty": (
            lambda: mhalib.multi_head_attention(tensor(2, 0, 8), *SQUARE, 2),
            ValueError,
            r"x has shape \(2, 0, 8\), which is empty",
        ),
    }
)
def test_multi_head_attention(call, error, message):
    refuses(call, error, message)


fuse, as_sum = projections.fuse_projections, projections.output_projection_as_sum


@cases(
    {
        "fuse, nothing": (
            lambda: fuse([]),
            TypeError,
            "weights must be a list of tensors, at least",
        ),
        "fuse, a tensor": (lambda: fuse(tensor(2, 8, 2)), TypeError, "weights.*list.*not Tensor"),
        "fuse, shapes": (
            lambda: fuse([tensor(8, 2), tensor(8, 3)]),
            ValueError,
            r"shape must be the same, but weights\[0\] has \(8, 2\), weights\[1\] has \(8, 3\)",
        ),
        "fuse, vectors": (lambda: fuse([tensor(8)]), ValueError, r"weights\[0\] has shape \(8,\)"),
        "fuse, arrays": (lambda: fuse([array(8, 2)]), TypeError, r"weights\[0\] must be a torch"),
        "sum, three axes": (
            lambda: as_sum(X3, tensor(8, 5), tensor(5)),
            ValueError,
            r"heads has shape \(2, 3, 8\), but \(batch, num_heads",
        ),
        "sum, rows": (
            lambda: as_sum(X4, tensor(6, 5), tensor(5)),
            ValueError,
            "width must be the same, but heads has 8, w_o has 6",
        ),
        "sum, bias": (
            lambda: as_sum(X4, tensor(8, 5), tensor(1)),
            ValueError,
            "output width must be the same, but w_o has 5, b_o has 1",
        ),
        "sum, no bias": (lambda: as_sum(X4, tensor(8, 5), None), TypeError, "b_o must be a torch"),
    }
)
def test_projections(call, error, message):
    refuses(call, error, message)


# ---------------------------------------------------------------- masks


@cases(
    {
        "causal, no query": (lambda: masks.causal(0), ValueError, "query_len=0 must be at least 1"),
        "causal, float": (lambda: masks.causal(3.0), TypeError, "query_len=3.0 must be an integer"),
        "causal, bool": (
            lambda: masks.causal(True),
            TypeError,
            "query_len=True must be an integer",
        ),
        "causal, no key": (lambda: masks.causal(3, 0), ValueError, "key_len=0 must be at least 1"),
        "causal, lengths": (lambda: masks.causal(3, 5), ValueError, BOTH_CONVENTIONS),
        "causal, float offset": (
            lambda: masks.causal(3, 5, 0.5),
            TypeError,
            "query_offset=0.5 must",
        ),
        "causal, array": (
            lambda: masks.causal(3, 3, np.array([1, 2])),
            TypeError,
            r"query_offset must be a torch\.Tensor or an integer, not ndarray",
        ),
        "causal, two axes": (
            lambda: masks.causal(3, 3, torch.ones(2, 2).long()),
            ValueError,
            r"query_offset has shape \(2, 2\), but \(batch,\) was expected",
        ),
        "window of none": (
            lambda: masks.sliding_window(3, window=0),
            ValueError,
            "window=0 must be at least 1",
        ),
        "window as float": (
            lambda: masks.sliding_window(3, window=1.5),
            TypeError,
            "window=1.5 must be an integer",
        ),
        "window, lengths": (
            lambda: masks.sliding_window(3, 5, window=2),
            ValueError,
            BOTH_CONVENTIONS,
        ),
        "padding, too long": (
            lambda: masks.padding([2, 5], 4),
            ValueError,
            r"lengths=\[2, 5\] must lie between 0 and max_len=4",
        ),
        "padding, negative": (
            lambda: masks.padding(torch.tensor([2, -1]), 4),
            ValueError,
            r"lengths=\[2, -1\] must lie between 0 and max_len=4",
        ),
        "padding, floats": (
            lambda: masks.padding(tensor(2), 4),
            TypeError,
            r"lengths must hold integers, but its dtype is torch\.float32",
        ),
        "padding, a mask": (
            lambda: masks.padding(tensor(2).bool(), 4),
            TypeError,
            r"lengths must hold integers, but its dtype is torch\.bool",
        ),
        "padding, one float": (
            lambda: masks.padding([1, 2.5], 4),
            TypeError,
            "every number in lengths=2.5 must be an integer",
        ),
        "padding, one bool": (lambda: masks.padding([1, True], 4), TypeError, "lengths=True must"),
        "padding, nested": (
            lambda: masks.padding([[1], [2]], 4),
            TypeError,
            "in lengths=list must",
        ),
        "padding, two axes": (
            lambda: masks.padding(torch.ones(2, 1).long(), 4),
            ValueError,
            r"lengths has shape \(2, 1\), but \(batch,\) was expected",
        ),
        "padding, nothing": (lambda: masks.padding([], 4), ValueError, r"lengths has shape \(0,\)"),
        "padding, a number": (
            lambda: masks.padding(3, 4),
            TypeError,
            r"lengths must be a torch\.Tensor or a list of integers, not 3",
        ),
        "padding, array": (
            lambda: masks.padding(np.array([1, 2]), 4),
            TypeError,
            r"lengths must be a torch\.Tensor or a list of integers, not ndarray",
        ),
        "padding, None": (lambda: masks.padding(None, 4), TypeError, "lengths must be.*not None"),
        "padding, text": (lambda: masks.padding("12", 4), TypeError, "lengths must be.*not '12'"),
        "padding, max_len": (
            lambda: masks.padding([1], 0),
            ValueError,
            "max_len=0 must be at least",
        ),
    }
)
def test_masks(call, error, message):
    refuses(call, error, message)


# ---------------------------------------------------------------- the layer


@cases(
    {
        "no width": (lambda: MultiHeadAttention(0, 1), ValueError, "d_model=0 must be at least 1"),
        "no head": (lambda: MultiHeadAttention(8, 0), ValueError, "num_heads=0 must be at least 1"),
        "heads": (
            lambda: MultiHeadAttention(8, 3),
            ValueError,
            "num_heads=3 must divide d_model=8",
        ),
        "key heads": (
            lambda: MultiHeadAttention(8, 4, 3),
            ValueError,
            "num_kv_heads=3 must divide num_heads=4",
        ),
        "more key heads": (
            lambda: MultiHeadAttention(8, 2, 4),
            ValueError,
            "num_kv_heads=4 must divide num_heads=2",
        ),
        "head width": (
            lambda: MultiHeadAttention(8, 2, head_dim=0),
            ValueError,
            "head_dim=0 must be at least 1",
        ),
        "width as float": (
            lambda: MultiHeadAttention(8.0, 2),
            TypeError,
            "d_model=8.0 must be an integer",
        ),
        "heads as text": (lambda: MultiHeadAttention(8, "2"), TypeError, "num_heads='2' must"),
        "heads as bool": (lambda: MultiHeadAttention(8, True), TypeError, "num_heads=True must"),
        "kdim": (
            lambda: MultiHeadAttention(8, 2, kdim=-1),
            ValueError,
            "kdim=-1 must be at least 1",
        ),
        "vdim": (lambda: MultiHeadAttention(8, 2, vdim=1.5), TypeError, "vdim=1.5 must be an int"),
        "bias": (
            lambda: MultiHeadAttention(8, 2, bias=1),
            TypeError,
            "bias=1 must be True or False",
        ),
        "out_bias": (
            lambda: MultiHeadAttention(8, 2, out_bias="no"),
            TypeError,
            "out_bias='no' must be True or False",
        ),
        "dropout": (
            lambda: MultiHeadAttention(8, 2, dropout=2),
            ValueError,
            "dropout=2 must lie between 0 and 1",
        ),
        "dropout NaN": (
            lambda: MultiHeadAttention(8, 2, dropout=math.nan),
            ValueError,
            "dropout=nan must lie between 0 and 1",
        ),
    }
)
def test_making_a_layer(call, error, message):
    refuses(call, error, message)


LAYER = {
    "query of two axes": (
        {"query": tensor(3, 8)},
        ValueError,
        r"query has shape \(3, 8\), but \(batch, seq_len, d_model\) was expected",
    ),
    "query of another width": (
        {"query": tensor(2, 3, 6)},
        ValueError,
        "query has width 6, but d_model=8 was expected",
    ),
    "key of another width": (
        {"key": tensor(2, 5, 8)},
        ValueError,
        "key has width 8, but kdim=6 was expected",
    ),
    "value left out although vdim differs": (
        {"value": None},
        ValueError,
        "value has width 6, but vdim=4 was expected",
    ),
    "value without key": (
        {"key": None},
        ValueError,
        "value was given without key: give both, or neither",
    ),
    "batches": (
        {"key": tensor(1, 5, 6)},
        ValueError,
        "batch must be the same, but query has 2, key has 1, value has 2",
    ),
    "keys and values": (
        {"value": tensor(2, 4, 4)},
        ValueError,
        "number of keys and values must be the same, but key has 5, value has 4",
    ),
    "empty": ({"key": tensor(2, 0, 6)}, ValueError, r"key has shape \(2, 0, 6\), which is empty"),
    "integers": ({"query": X3.long()}, TypeError, "query must be a floating-point tensor"),
    "array": ({"query": array(2, 3, 8)}, TypeError, r"query must be a torch\.Tensor, not ndarray"),
    "None": ({"query": None}, TypeError, r"query must be a torch\.Tensor, not None"),
    "mixed dtypes": (
        {"query": X3.double()},
        TypeError,
        r"one dtype, but query has torch\.float64, key has torch\.float32",
    ),
    "another dtype than the layer's": (
        {
            "query": X3.double(),
            "key": tensor(2, 5, 6).double(),
            "value": tensor(2, 5, 4).double(),
        },
        TypeError,
        r"query has dtype torch\.float64, but the layer's parameters have torch\.float32",
    ),
    "another device than the layer's": (
        {
            "query": X3.to("meta"),
            "key": tensor(2, 5, 6).to("meta"),
            "value": tensor(2, 5, 4).to("meta"),
        },
        TypeError,
        "query has device meta, but the layer's parameters have cpu",
    ),
    "need_weights": ({"need_weights": 1}, TypeError, "need_weights=1 must be True or False"),
    "a cache of another kind": (
        {"cache": object()},
        TypeError,
        "cache must be a KVCache or None, not object",
    ),
    "lengths alone": ({"lengths": [1, 2]}, ValueError, "lengths was given.*only with a cache"),
    "mask of three axes": (
        {"attn_mask": tensor(8, 3, 5).bool()},
        ValueError,
        "attn_mask has shape.*three axes are ambiguous",
    ),
    "mask of 0 and 1": (
        {"attn_mask": tensor(3, 5)},
        ValueError,
        "attn_mask holds only the numbers",
    ),
    "causal without offset": ({"is_causal": True}, ValueError, BOTH_CONVENTIONS),
    "offset alone": ({"query_offset": 1}, ValueError, "query_offset was given.*is_causal=True"),
}


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("name", LAYER)
def test_using_a_layer(name, need_weights):
    wrong, error, message = LAYER[name]
    layer = MultiHeadAttention(8, 4, 2, kdim=6, vdim=4)
    right = {"query": X3, "key": tensor(2, 5, 6), "value": tensor(2, 5, 4)}
    refuses(lambda: layer(**({"need_weights": need_weights} | right | wrong)), error, message)


# ---------------------------------------------------------------- NumPy

V, M = array(3), array(4, 3)


@cases(
    {
        "dot, lengths": (
            lambda: reference.dot_product(V, array(4)),
            ValueError,
            "length must be the same, but a has 3, b has 4",
        ),
        "dot, matrix": (
            lambda: reference.dot_product(M, V),
            ValueError,
            r"a has shape \(4, 3\), but \(length,\) was expected",
        ),
        "cosine, lengths": (
            lambda: reference.cosine_similarity(V, array(1)),
            ValueError,
            "length must be the same, but a has 3, b has 1",
        ),
        "cosine, zeros": (
            lambda: reference.cosine_similarity(V, V * 0),
            ValueError,
            "b holds a vector of zeros, which has no direction",
        ),
        "cosine, tensor": (
            lambda: reference.cosine_similarity(tensor(3), V),
            TypeError,
            "a must be a NumPy array, not Tensor",
        ),
        "cosine, list": (
            lambda: reference.cosine_similarity([1, 2], [2, 1]),
            TypeError,
            "a must be a NumPy array, not list",
        ),
        "cosine, text": (
            lambda: reference.cosine_similarity(np.array(["a"]), V),
            TypeError,
            "a must hold floats, int32 or int64, but its dtype is",
        ),
        "cosine, small integers that overflow": (
            lambda: reference.cosine_similarity(array(3, dtype=np.int8), V),
            TypeError,
            "a must hold floats, int32 or int64, but its dtype is int8",
        ),
        "neighbours, none wanted": (
            lambda: reference.nearest_neighbours(M, V, 0),
            ValueError,
            "k=0 must be at least 1",
        ),
        "neighbours, too many": (
            lambda: reference.nearest_neighbours(M, V, 5),
            ValueError,
            "k=5 must be at most rows=4",
        ),
        "neighbours, float": (
            lambda: reference.nearest_neighbours(M, V, 1.0),
            TypeError,
            "k=1.0 must be an integer",
        ),
        "neighbours, widths": (
            lambda: reference.nearest_neighbours(M, array(2), 1),
            ValueError,
            "length of the vectors must be the same, but vectors has 3, query has 2",
        ),
        "neighbours, zeros": (
            lambda: reference.nearest_neighbours(np.eye(3) * [1, 1, 0], V, 1),
            ValueError,
            "vectors holds a vector of zeros",
        ),
        "softmax, no axis": (
            lambda: reference.softmax(np.array(1.0)),
            ValueError,
            r"x has shape \(\), but 1 or more axes were expected",
        ),
        "softmax, empty": (
            lambda: reference.softmax(array(2, 0)),
            ValueError,
            r"x has shape \(2, 0\), which is empty",
        ),
        "softmax, unsigned": (
            lambda: reference.softmax(array(2, dtype=np.uint8)),
            TypeError,
            "x must hold floats, int32 or int64, but its dtype is uint8",
        ),
        "softmax, bools": (lambda: reference.softmax(V > 0), TypeError, "its dtype is bool"),
        "softmax, objects": (lambda: reference.softmax(np.array([None])), TypeError, "is object"),
        "weights, vectors": (
            lambda: reference.attention_weights(V, V),
            ValueError,
            r"query has shape \(3,\), but \(rows, columns\)",
        ),
        "weights, widths": (
            lambda: reference.attention_weights(M, array(4, 2)),
            ValueError,
            "head_dim must be the same, but query has 3, key has 2",
        ),
    }
)
def test_numpy_functions(call, error, message):
    refuses(call, error, message)


ARRAYS = {"query": array(2, 3, 6), "key": array(2, 5, 6), "value": array(2, 5, 7)}
NUMPY_ATTENTION = {
    "vectors": ({"query": V}, ValueError, r"query has shape \(3,\), but 2 or more axes"),
    "tensors": ({"key": tensor(2, 5, 6)}, TypeError, "key must be a NumPy array, not Tensor"),
    "leading axes": (
        {"query": array(1, 3, 6)},
        ValueError,
        r"batch and head axes must be the same, but query has \(1,\), key has \(2,\)",
    ),
    "head_dim": ({"key": array(2, 5, 4)}, ValueError, "head_dim must be the same"),
    "values": ({"value": array(2, 4, 7)}, ValueError, "key has 5, value has 4"),
    "empty": ({"query": array(2, 0, 6)}, ValueError, "query has shape.*empty"),
    "mask shape": ({"attn_mask": array(5, 3) > 0}, ValueError, r"attn_mask has shape \(5, 3\)"),
    "mask of 0 and 1": ({"attn_mask": array(3, 5)}, ValueError, "attn_mask holds only the numbers"),
    "mask dtype": (
        {"attn_mask": array(3, 5, dtype=np.float32) * 2},
        TypeError,
        "attn_mask has dtype float32, but must be boolean.*float64",
    ),
    "mask tensor": (
        {"attn_mask": tensor(3, 5).bool()},
        TypeError,
        "attn_mask must be a NumPy array, not Tensor",
    ),
    "lengths": ({"is_causal": True}, ValueError, BOTH_CONVENTIONS),
    "offset alone": ({"query_offset": 1}, ValueError, "query_offset was given"),
    "offset tensor": (
        {"is_causal": True, "query_offset": torch.tensor([1, 2])},
        TypeError,
        "query_offset must be a NumPy array or an integer, not Tensor",
    ),
    "offsets": (
        {"is_causal": True, "query_offset": np.array([1, 2, 3])},
        ValueError,
        r"query_offset has shape \(3,\), but \(2,\)",
    ),
    "scale": ({"scale": math.inf}, ValueError, "scale=inf must be finite"),
}


@pytest.mark.parametrize("name", NUMPY_ATTENTION)
def test_numpy_attention(name):
    wrong, error, message = NUMPY_ATTENTION[name]
    refuses(lambda: reference.attention(**(ARRAYS | wrong)), error, message)


def test_one_offset_per_sample_needs_samples():
    flat = {name: x[0] for name, x in ARRAYS.items()}
    offsets = {"is_causal": True, "query_offset": np.array([0, 1, 2])}
    refuses(
        lambda: reference.attention(**flat, **offsets),
        ValueError,
        r"query_offset has shape \(3,\), but \(1,\) was expected",
    )


LOOP = {
    "query": array(2, 3, 8),
    "key": array(2, 5, 6),
    "value": array(2, 5, 4),
    "w_q": array(8, 12),
    "w_k": array(6, 6),
    "w_v": array(4, 10),
    "w_o": array(20, 8),
    "num_heads": 4,
    "num_kv_heads": 2,
}
NUMPY_LOOP = {
    "query of two axes": ({"query": array(3, 8)}, ValueError, r"query has shape \(3, 8\), but"),
    "matrix of three axes": ({"w_q": array(1, 8, 12)}, ValueError, r"w_q has shape \(1, 8, 12\)"),
    "batch": ({"key": array(1, 5, 6)}, ValueError, "batch must be the same, but query has 2, key"),
    "keys": (
        {"key": array(2, 4, 6)},
        ValueError,
        "keys and values must be the same, but key has 4",
    ),
    "w_q rows": ({"w_q": array(7, 12)}, ValueError, r"query has 8, w_q \(rows\) has 7"),
    "w_v rows": ({"w_v": array(7, 10)}, ValueError, r"value has 4, w_v \(rows\) has 7"),
    "w_q columns": (
        {"w_q": array(8, 10)},
        ValueError,
        "num_heads=4 must divide the columns of w_q=1",
    ),
    "w_k columns": (
        {"w_k": array(6, 5)},
        ValueError,
        "num_kv_heads=2 must divide the columns of w_k",
    ),
    "w_v columns": (
        {"w_v": array(4, 5)},
        ValueError,
        "num_kv_heads=2 must divide the columns of w_v",
    ),
    "head_dim": (
        {"w_k": array(6, 8)},
        ValueError,
        "head_dim must be the same, but w_q has 3, w_k has 4",
    ),
    "w_o rows": ({"w_o": array(19, 8)}, ValueError, "concatenated width.*heads has 20, w_o has 19"),
    "heads": ({"num_kv_heads": 3}, ValueError, "num_kv_heads=3 must divide num_heads=4"),
    "heads as float": ({"num_heads": 4.0}, TypeError, "num_heads=4.0 must be an integer"),
    "bias of another length": (
        {"b_q": array(3)},
        ValueError,
        r"width must be the same, but b_q has 3, w_q \(columns\) has 12",
    ),
    "bias of two axes": ({"b_o": array(1, 8)}, ValueError, r"b_o has shape \(1, 8\)"),
    "bias as None": ({"b_k": None}, TypeError, "b_k must be a NumPy array or a number, not None"),
    "bias as tensor": ({"b_v": tensor(10)}, TypeError, "b_v must be a NumPy array"),
    "mask of three axes": (
        {"attn_mask": array(4, 3, 5) > 0},
        ValueError,
        "attn_mask has shape.*three axes are ambiguous",
    ),
    "mask": (
        {"attn_mask": array(2, 2, 3, 5) > 0},
        ValueError,
        r"attn_mask has shape \(2, 2, 3, 5\)",
    ),
    "lengths": ({"is_causal": True}, ValueError, BOTH_CONVENTIONS),
    "offsets": (
        {"is_causal": True, "query_offset": np.array([1])},
        ValueError,
        r"query_offset has shape \(1,\), but \(2,\)",
    ),
    "scale": ({"scale": "1"}, TypeError, "scale='1' must be a number"),
}


@pytest.mark.parametrize("name", NUMPY_LOOP)
def test_numpy_loop(name):
    wrong, error, message = NUMPY_LOOP[name]
    reference.multi_head_attention(**LOOP)
    refuses(lambda: reference.multi_head_attention(**(LOOP | wrong)), error, message)


# ---------------------------------------------------------------- nothing slips through

ODD = [None, True, -1, 0, 1.5, math.nan, "text", b"bytes", [], {}, object(), (1, 2), print]
ODD += [
    torch.tensor(1),
    torch.ones(2),
    torch.ones(0),
    np.ones(2),
    np.array("a"),
    tensor(1, 1, 1, 1),
]
RIGHT = {
    mhalib.split_heads: {"x": X3, "num_heads": 2},
    mhalib.merge_heads: {"x": X4},
    mhalib.repeat_kv: {"x": X4, "group_size": 2},
    mhalib.scaled_dot_product_attention: qkv() | {"is_causal": True, "query_offset": 0},
    mhalib.fused_attention: qkv() | {"is_causal": True, "query_offset": 0},
    mhalib.blockwise_attention: qkv() | {"is_causal": True, "query_offset": 0},
    mhalib.KVCache: {"batch": 2, "num_kv_heads": 4, "head_dim": 2, "max_len": 3},
    mhalib.KVCache(2, 4, 2, window=3).append: {"key": X4, "value": X4, "lengths": [1, 2]},
    mhalib.multi_head_attention: dict(
        zip(("x", "w_q", "w_k", "w_v", "w_o", "num_heads"), (X3, *SQUARE, 2), strict=True)
    ),
    projections.fuse_projections: {"weights": [tensor(8, 2), tensor(8, 2)]},
    projections.output_projection_as_sum: {
        "heads": X4,
        "w_o": tensor(8, 5),
        "b_o": tensor(5),
    },
    masks.causal: {"query_len": 3, "key_len": 3, "query_offset": 0},
    masks.sliding_window: {"query_len": 3, "key_len": 3, "window": 2, "query_offset": 0},
    masks.padding: {"lengths": [1, 2], "max_len": 3},
    MultiHeadAttention: {"d_model": 8, "num_heads": 2},
    MultiHeadAttention(8, 2).forward: {"query": X3, "key": X3, "value": X3},
    MultiHeadAttention.from_torch: {"module": torch.nn.MultiheadAttention(8, 2)},
    reference.dot_product: {"a": V, "b": V},
    reference.cosine_similarity: {"a": V, "b": V},
    reference.nearest_neighbours: {"vectors": M, "query": V, "k": 2},
    reference.softmax: {"x": M},
    reference.attention_weights: {"query": M, "key": M},
    reference.attention: ARRAYS | {"is_causal": True, "query_offset": 0},
    reference.multi_head_attention: LOOP | {"is_causal": True, "query_offset": 0},
}


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__qualname__)
def test_anything_for_any_argument(function):
    """Whatever stands in for one argument: it works, or the error names an argument of ours."""
    function(**RIGHT[function])
    names = list(inspect.signature(function).parameters)
    for name in names:
        for odd in ODD:
            try:
                function(**(RIGHT[function] | {name: odd}))
            except (TypeError, ValueError) as error:
                message = str(error)
                named = [n for n in names if re.search(rf"\b{n}\b", message)]
                assert named or "must be the same" in message or "all inputs" in message, (
                    f"{name}={odd!r}: {message}"
                )


def test_every_public_function_is_in_that_table():
    found = {mhalib.functional: [], masks: [], reference: []}
    for module, functions in found.items():
        for name, function in vars(module).items():
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                functions.append(name) if not name.startswith("_") else None
    tested = {function.__qualname__ for function in RIGHT}
    assert {name for functions in found.values() for name in functions} <= tested
