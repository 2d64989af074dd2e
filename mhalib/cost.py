"""What attention costs, counted exactly: parameters, FLOPs, bytes, and the sizes of real models.

A *layer* is given by the keywords of `attention_parameters`, a *call* of it by the lengths. All
counts are Python integers.
"""

import csv
from collections import namedtuple

from mhalib import checks, data


def attention_parameters(
    *, d_model, num_heads, num_kv_heads=None, head_dim=None, bias=True, out_bias=None
):
    """Parameters of one attention layer: numbers that are learned, by part.

    Args:
        d_model: width of the layer's inputs (queries', keys' and values') and of its output.
        num_heads: query heads.
        num_kv_heads: key/value heads, a divisor of `num_heads`; `num_heads` if None.
        head_dim: width of one head; d_model / num_heads if None, which then must come out even.
        bias: whether the query, key and value projections add a bias.
        out_bias: whether the output projection does; as `bias` if None.

    Returns:
        dict of numbers of parameters: `query`, `key`, `value` and `output` (the weights of the four
        projections), `bias` (all biases) and `total`. Their sizes do not depend on `num_heads` as
        long as the heads together stay as wide.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.

    Source: Vaswani et al. 2017, section 3.2.2.
    """
    num_kv_heads, head_dim = _heads(d_model, num_heads, num_kv_heads, head_dim)
    out_bias = bias if out_bias is None else out_bias
    checks.boolean(bias=bias, out_bias=out_bias)
    wide, narrow = num_heads * head_dim, num_kv_heads * head_dim
    parts = {"query": d_model * wide, "key": d_model * narrow, "value": d_model * narrow}
    parts |= {"output": wide * d_model, "bias": bias * (wide + 2 * narrow) + out_bias * d_model}
    return parts | {"total": sum(parts.values())}


def attention_flops(*, batch=1, query_len, key_len=None, cached_len=0, is_causal=False, **layer):
    """Floating-point operations (FLOPs) of one call of the layer, forward, by part.

    The product of an (m, k) and a (k, n) matrix is 2 · m · k · n FLOPs, a multiplication and an
    addition each: `query`, `key`, `value`, `scores`, `mix` and `output` are what
    `torch.utils.flop_counter.FlopCounterMode` counts. It counts no softmax and no bias, and nothing
    of a fused kernel on the CPU.

    Args:
        batch: sequences.
        query_len: queries in each.
        key_len: keys that each query meets, those in a cache included; `cached_len` + `query_len`
            if None (self-attention).
        cached_len: keys and values that are in a cache already, so that only the other
            key_len - cached_len are projected. Decoding the next token: query_len=1 and
            cached_len=tokens so far. Cross-attention: key_len alone, later also as cached_len.
        is_causal: self-attention in which a token sees itself and what came before. Only these
            pairs are counted in `scores`, `softmax` and `mix`, as for a kernel that skips the
            others. The explicit path computes the full square and hides half of it: leave False.
        layer: the layer, by the keywords of `attention_parameters`: d_model, num_heads, …

    Returns:
        dict of FLOPs: `query`, `key`, `value`, `scores`, `softmax`, `mix`, `output`, `bias` and
        `total`. `softmax`: 4 for each score, namely subtract the maximum, exp (counted as one),
        add up, divide; finding the maximum is comparing, and the scale is part of the queries.
        `bias`: an addition for each number that gets one. The matrix products alone are
        `total` - `softmax` - `bias`.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.

    Source: Vaswani et al. 2017, equation 1 and section 3.2.2, counted.
    """
    call = {"batch": batch, "query_len": query_len, "key_len": key_len, "cached_len": cached_len}
    parameters, wide, narrow, tokens, new, pairs = _sizes(**call, is_causal=is_causal, **layer)
    kv_bias = 2 * narrow * layer.get("bias", True)
    parts = {
        "query": 2 * tokens * parameters["query"],
        "key": 2 * new * parameters["key"],
        "value": 2 * new * parameters["value"],
        "scores": 2 * pairs * wide,
        "softmax": 4 * pairs * layer["num_heads"],
        "mix": 2 * pairs * wide,
        "output": 2 * tokens * parameters["output"],
        "bias": tokens * (parameters["bias"] - kv_bias) + new * kv_bias,
    }
    return parts | {"total": sum(parts.values())}


def attention_bytes(*, query_len, need_weights=False, itemsize=4, moved=False, **attention):
    """Bytes of the activations that one call of the layer computes, by part.

    Args:
        query_len: queries in each sequence.
        need_weights: True for the explicit path, which stores every score and every weight (this
            course's does so in float32, also for half precision); False for a fused kernel, which
            stores neither.
        itemsize: bytes of one number: 4 for float32, 2 for float16 and bfloat16.
        moved: count what each step reads, too: its inputs, the weights of the projections, and the
            keys and values in the cache. These are the bytes that travel to and from memory.
        attention: the other keywords of `attention_flops` and those of `attention_parameters`.
            `is_causal` changes nothing: the explicit path stores the full square.

    Returns:
        dict of bytes: `query`, `key` and `value` (projected, without what is in a cache), `scores`,
        `softmax` (the weights), `mix` (the heads side by side), `output` and `total`. Training
        keeps all of them but the scores for the way back; without gradients this course's explicit
        path writes the weights over the scores. Not counted: copies that only change the order of
        axes or apply the scale, and the one number for each row that fused kernels keep.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.
    """
    checks.boolean(need_weights=need_weights, moved=moved)
    checks.positive_int(itemsize=itemsize)
    sizes = _sizes(query_len=query_len, **attention | {"is_causal": False})
    parameters, wide, narrow, tokens, new, pairs = sizes
    d_model, scores = attention["d_model"], pairs * attention["num_heads"] * need_weights
    cached = attention.get("batch", 1) * attention.get("cached_len", 0) * narrow
    written = {"query": tokens * wide, "key": new * narrow, "value": new * narrow, "scores": scores}
    written |= {"softmax": scores, "mix": tokens * wide, "output": tokens * d_model}
    read = {"query": tokens * d_model, "key": new * d_model, "value": new * d_model}
    read |= {"scores": written["query"] + written["key"] + cached, "softmax": scores}
    read |= {"mix": scores + written["value"] + cached, "output": written["mix"]}
    reads = {part: read[part] + parameters.get(part, 0) for part in read}
    parts = {part: itemsize * (written[part] + moved * reads[part]) for part in written}
    return parts | {"total": sum(parts.values())}


def arithmetic_intensity(*, query_len, need_weights=False, itemsize=4, **attention):
    """FLOPs per byte moved to and from memory: low where memory, not arithmetic, sets the pace.

    Args:
        query_len: queries in each sequence. Prefill: all tokens; decoding: 1, with `cached_len`.
        need_weights, itemsize: as `attention_bytes`.
        attention: the other keywords of `attention_flops` and those of `attention_parameters`.

    Returns:
        dict of FLOPs per byte, floats: every part whose bytes are moved, and `total`. Every step
        reads its inputs, and the projections their weights, once, and writes its result once.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.

    Source: Williams, Waterman and Patterson 2009 (roofline); Shazeer 2019 counts it for decoding.
    """
    attention |= {"query_len": query_len}
    flops = attention_flops(**attention)
    moved = attention_bytes(need_weights=need_weights, itemsize=itemsize, moved=True, **attention)
    return {part: flops[part] / count for part, count in moved.items() if count}


def kv_cache_bytes(
    *, d_model, num_heads, num_kv_heads=None, head_dim=None, batch=1, key_len, num_layers, itemsize
):
    """Bytes of a cache: a key and a value for each position, key/value head and layer.

    Args:
        d_model, num_heads, num_kv_heads, head_dim: as `attention_parameters`.
        batch: sequences.
        key_len: positions in the cache, for each sequence.
        num_layers: attention layers of the model.
        itemsize: bytes of one number: 4 for float32, 2 for float16 and bfloat16.

    Returns:
        int, bytes. `num_heads` and `d_model` play no part where the other two sizes are given.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.

    Source: Shazeer 2019; Ainslie et al. 2023.
    """
    num_kv_heads, head_dim = _heads(d_model, num_heads, num_kv_heads, head_dim)
    checks.positive_int(batch=batch, key_len=key_len, num_layers=num_layers, itemsize=itemsize)
    return 2 * batch * key_len * num_layers * num_kv_heads * head_dim * itemsize


def largest_batch_that_fits(*, memory_bytes, num_parameters, itemsize, cache_bytes):
    """How many sequences a memory holds beside the model's own weights.

    Args:
        memory_bytes: bytes of memory.
        num_parameters: of the whole model, each stored once.
        itemsize: bytes of one parameter.
        cache_bytes: bytes of the key/value cache of one sequence, from `kv_cache_bytes`.

    Returns:
        int, sequences; 0 where not even the weights fit. Activations are not counted, so it is an
        upper bound.

    Raises:
        TypeError, ValueError: a number that is not a positive integer.
    """
    checks.positive_int(memory_bytes=memory_bytes, num_parameters=num_parameters)
    checks.positive_int(itemsize=itemsize, cache_bytes=cache_bytes)
    return max(0, memory_bytes - num_parameters * itemsize) // cache_bytes


RealModel = namedtuple("RealModel", "name num_layers sizes source")


def real_models():
    """The attention sizes of published models, from `data/real-models.csv`.

    Returns:
        A list of `RealModel` tuples, oldest first: `name`; `num_layers`, its attention layers;
        `sizes`, a dict of d_model, num_heads, num_kv_heads and head_dim; `source`. For example
        `kv_cache_bytes(**model.sizes, num_layers=model.num_layers, key_len=4096, itemsize=2)`.

    Raises:
        FileNotFoundError, ValueError: the file is missing or damaged, with how to mend it.
    """
    with data.path("real-models.csv").open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    return [
        RealModel(model, int(layers), dict(zip(names[2:-1], map(int, sizes), strict=True)), source)
        for model, layers, *sizes, source in rows
    ]


def _heads(d_model, num_heads, num_kv_heads, head_dim):
    """`num_kv_heads` and `head_dim`, filled in where they are None."""
    num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    checks.heads(d_model, num_heads, num_kv_heads, head_dim)
    return num_kv_heads, d_model // num_heads if head_dim is None else head_dim


def _sizes(*, batch=1, query_len, key_len=None, cached_len=0, is_causal=False, **layer):
    """(parameters, width of all query heads, of all key heads, queries, keys to project, pairs)."""
    parameters = attention_parameters(**layer)
    checks.boolean(is_causal=is_causal)
    checks.at_least(0, cached_len=cached_len)
    checks.positive_int(batch=batch, query_len=query_len)
    key_len = cached_len + query_len if key_len is None else key_len
    checks.positive_int(key_len=key_len)
    checks.at_most(cached_len=cached_len, key_len=key_len)
    pairs = query_len * key_len
    if is_causal:
        checks.same("all tokens and all keys", tokens=cached_len + query_len, key_len=key_len)
        pairs -= query_len * (query_len - 1) // 2
    wide, narrow = (parameters[part] // layer["d_model"] for part in ("query", "key"))
    tokens, new = batch * query_len, batch * (key_len - cached_len)
    return parameters, wide, narrow, tokens, new, batch * pairs
