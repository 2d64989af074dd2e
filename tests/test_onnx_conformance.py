"""The ONNX Attention operator's own cases, with the outputs that the `onnx` package ships.

The adapter from ONNX's conventions to ours lives here, so the list of differences is this file:
three-axis inputs, masks of rank 1 and 3, masks shorter than the keys, windows on both sides, and a
causal mask whose offset comes from a past or from the number of real keys.
"""

import math
import warnings

import numpy as np
import pytest
import torch

import mhalib
from mhalib import masks, reference

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the cases of other operators overflow on purpose
    from onnx.backend.test.case.node import collect_testcases

    CASES = {
        case.name.removeprefix("test_attention_"): case
        for case in collect_testcases("Attention")  # honours only the first operator of a process
        if not case.name.endswith("_expanded")
    }

SOFTCAP = "squashes the scores with a tanh, which mhalib does not do"
LEFT_OUT = {
    "3d_diff_heads_sizes_softcap": SOFTCAP,
    "3d_gqa_softcap": SOFTCAP,
    "3d_softcap": SOFTCAP,
    "3d_with_past_and_present_qk_matmul_softcap": SOFTCAP,
    "4d_diff_heads_sizes_softcap": SOFTCAP,
    "4d_gqa_softcap": SOFTCAP,
    "4d_softcap": SOFTCAP,
    "4d_softcap_neginf_mask": SOFTCAP,
    "4d_softcap_neginf_mask_poison": SOFTCAP,
    "4d_with_qk_matmul_softcap": SOFTCAP,
    "local_window_gqa_rank4_mask": SOFTCAP,
}
RUN = [name for name in CASES if name not in LEFT_OUT]
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def test_no_case_vanishes():
    assert len(CASES) == 93
    assert len(RUN) == 82
    assert {name for name in CASES if _attributes(CASES[name]).get("softcap")} == set(LEFT_OUT)


@pytest.mark.parametrize("name", RUN)
def test_explicit_path(name):
    query, key, value, options = _arguments(CASES[name])
    output, weights = mhalib.scaled_dot_product_attention(query, key, value, **options)
    expected = _outputs(CASES[name])
    _assert_output(output, expected["Y"])
    if _attributes(CASES[name]).get("qk_matmul_output_mode") == 3:  # the weights themselves
        _assert_close(weights, expected["qk_matmul_output"])


@pytest.mark.parametrize("name", RUN)
def test_fused_path(name):
    query, key, value, options = _arguments(CASES[name])
    output = mhalib.fused_attention(query, key, value, **options)
    _assert_output(output, _outputs(CASES[name])["Y"])


def _attributes(case):
    values = {1: "f", 2: "i"}  # ONNX's kinds of attribute: float and integer
    return {a.name: getattr(a, values[a.type]) for a in case.model.graph.node[0].attribute}


def _tensors(names, arrays):
    """By name; an optional input or output that was left out has the name ''."""
    return dict(zip((name for name in names if name), map(_tensor, arrays), strict=True))


def _tensor(array):
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":  # NumPy borrows it from ml_dtypes, torch does not know it
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(array)


def _outputs(case):
    return _tensors(case.model.graph.node[0].output, case.data_sets[0][1])


def _arguments(case):
    """ONNX's inputs and attributes -> query, key, value and the options of our functions."""
    given = _tensors(case.model.graph.node[0].input, case.data_sets[0][0])
    attributes = _attributes(case)
    query, key, value = given["Q"], given["K"], given["V"]
    if query.dim() == 3:
        query = mhalib.split_heads(query, attributes["q_num_heads"])
        key = mhalib.split_heads(key, attributes["kv_num_heads"])
        value = mhalib.split_heads(value, attributes["kv_num_heads"])
    offset = 0
    if "past_key" in given:
        offset = given["past_key"].shape[2]
        key = torch.cat([given["past_key"], key], dim=2)
        value = torch.cat([given["past_value"], value], dim=2)
    query_len, key_len = query.shape[2], key.shape[2]

    allowed = torch.ones(query_len, key_len, dtype=torch.bool)
    if "nonpad_kv_seqlen" in given:
        offset = given["nonpad_kv_seqlen"] - query_len
        allowed = allowed & masks.padding(given["nonpad_kv_seqlen"], key_len)
    left = attributes.get("left_window_size", -1)
    right = attributes.get("right_window_size", -1)
    is_causal = bool(attributes.get("is_causal", 0))
    if left >= 0 and is_causal:  # ONNX does not count the query itself, we do
        window = masks.sliding_window(query_len, key_len, window=left + 1, query_offset=offset)
        allowed = allowed & window
    elif left >= 0:
        distance = torch.arange(key_len) - torch.arange(query_len)[:, None] - offset
        allowed = allowed & (-left <= distance) & (distance <= right)

    mask = allowed
    if "attn_mask" in given:
        mask = given["attn_mask"]
        hidden = False if mask.dtype == torch.bool else -math.inf
        mask = torch.nn.functional.pad(mask, (0, key_len - mask.shape[-1]), value=hidden)
        if mask.dim() in (1, 3):  # right-aligned, so three axes are (heads, query_len, key_len)
            mask = mask[None]
        mask = mask & allowed if mask.dtype == torch.bool else mask.masked_fill(~allowed, -math.inf)
    elif allowed.all():
        mask = None
    options = {"attn_mask": mask, "is_causal": is_causal, "scale": attributes.get("scale")}
    return query, key, value, options | ({"query_offset": offset} if is_causal else {})


def _assert_output(output, expected):
    _assert_close(mhalib.merge_heads(output) if expected.dim() == 3 else output, expected)


def _assert_close(actual, expected):
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# The suite has no 8:4 or 6:2 heads, so that `head // num_kv_heads` would pass, nothing in half
# precision large enough to overflow, and no more than 18 keys.
def _per_head_loop(query, key, value, num_heads, num_kv_heads, **options):
    """The loop of `mhalib.reference` on heads that are already split."""
    query, key, value = (mhalib.merge_heads(x).double().numpy() for x in (query, key, value))
    return reference.multi_head_attention(
        query,
        key,
        value,
        w_q=np.eye(query.shape[-1]),
        w_k=np.eye(key.shape[-1]),
        w_v=np.eye(value.shape[-1]),
        w_o=np.eye(value.shape[-1] // num_kv_heads * num_heads),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        **options,
    )


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(8, 4), (6, 2), (8, 2), (4, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("largeness", [1, 150])
def test_groups_of_heads_in_every_precision(num_heads, num_kv_heads, dtype, largeness):
    generator = torch.Generator().manual_seed(num_heads * 10 + num_kv_heads)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    query = normal(2, num_heads, 5, 8) * largeness
    key = normal(2, num_kv_heads, 40, 8) * largeness
    value = normal(2, num_kv_heads, 40, 6)
    if largeness > 1:
        scores = query.double() @ mhalib.repeat_kv(key, num_heads // num_kv_heads).double().mT
        assert scores.abs().max() > torch.finfo(torch.float16).max  # raw scores overflow fp16
    options = {"is_causal": True, "query_offset": 35}
    expected, expected_weights = _per_head_loop(
        query, key, value, num_heads, num_kv_heads, **options
    )
    output, weights = mhalib.scaled_dot_product_attention(query, key, value, **options)
    fused = mhalib.fused_attention(query, key, value, **options)

    tolerance = {torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
    for actual in (output, fused):
        assert actual.dtype == dtype
        np.testing.assert_allclose(
            mhalib.merge_heads(actual).double(), expected, rtol=tolerance, atol=tolerance
        )
    np.testing.assert_allclose(weights.double(), expected_weights, rtol=tolerance, atol=tolerance)
