"""Argument checks: each raises at once and names the argument, its value and what is expected."""

import operator

import numpy as np


def positive_int(**numbers):
    """Every named number is an integer of at least 1."""
    at_least(1, **numbers)


def integer(**numbers):
    """Every named number is an integer."""
    for name, number in numbers.items():
        _integer(name, number)


def at_least(minimum, **numbers):
    """Every named number is an integer of at least `minimum`."""
    for name, number in numbers.items():
        _integer(name, number)
        if number < minimum:
            raise ValueError(f"{name}={number} must be at least {minimum}")


def _integer(name, number, otherwise=""):
    is_bool = isinstance(number, bool) or str(getattr(number, "dtype", "")).endswith("bool")
    try:
        operator.index(None if is_bool else number)
    except TypeError:
        raise TypeError(f"{name}={describe(number)} must be an integer{otherwise}") from None


def boolean(**flags):
    """Every named value is True or False."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name}={describe(flag)} must be True or False")


def divides(**pair):
    """The first named number divides the second: `divides(num_heads=7, d_model=512)` raises."""
    (name, divisor), (whole_name, whole) = pair.items()
    if whole % divisor:
        raise ValueError(f"{name}={divisor} must divide {whole_name}={whole}")


def heads(d_model, num_heads, num_kv_heads, head_dim):
    """Key/value heads divide the heads; the heads divide d_model where no `head_dim` is given."""
    positive_int(d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads)
    divides(num_kv_heads=num_kv_heads, num_heads=num_heads)
    if head_dim is None:
        divides(num_heads=num_heads, d_model=d_model)
    else:
        positive_int(head_dim=head_dim)


def probability(**numbers):
    """Every named number lies between 0 and 1, both included."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{name}={describe(number)} must be a number between 0 and 1")
        if not 0 <= number <= 1:
            raise ValueError(f"{name}={number} must lie between 0 and 1")


def one_of(options, **choices):
    """Every named value is one of `options`."""
    for name, choice in choices.items():
        if choice not in options:
            listed = ", ".join(map(repr, options))
            raise ValueError(f"{name}={describe(choice)} must be one of {listed}")


def array(rank=None, min_rank=None, **arrays):
    """Every named value is a non-empty NumPy array of real numbers with that many axes."""
    for name, x in arrays.items():
        of_kind(name, x, numpy=True)
        if x.dtype.kind != "f" and x.dtype not in (np.int32, np.int64):  # smaller ones overflow
            raise TypeError(f"{name} must hold floats, int32 or int64, but its dtype is {x.dtype}")
        _shape(name, x.shape, rank, min_rank)


def tensor(rank=None, **tensors):
    """Every named value is a non-empty float tensor of this rank; all share dtype and device."""
    for name, x in tensors.items():
        of_kind(name, x, numpy=False)
        if not x.is_floating_point():
            raise TypeError(f"{name} must be a floating-point tensor, but its dtype is {x.dtype}")
        _shape(name, x.shape, rank)
    for what in ("dtype", "device"):
        if len({getattr(x, what) for x in tensors.values()}) > 1:
            listed = ", ".join(f"{name} has {getattr(x, what)}" for name, x in tensors.items())
            raise TypeError(f"all inputs must share one {what}, but {listed}")


def of_kind(name, x, numpy, otherwise=""):
    """`x` is a NumPy array, or without `numpy` a torch.Tensor."""
    if numpy:
        kind, kind_name = np.ndarray, "NumPy array"
    else:
        import torch

        kind, kind_name = torch.Tensor, "torch.Tensor"
    if not isinstance(x, kind):
        raise TypeError(f"{name} must be a {kind_name}{otherwise}, not {describe(x)}")


_AXES = {
    1: "(length,)",
    2: "(rows, columns)",
    3: "(batch, seq_len, d_model)",
    4: "(batch, num_heads, seq_len, head_dim)",
}


def _shape(name, shape, rank=None, min_rank=None):
    if len(shape) != (rank or len(shape)):
        wrong = f"but {_AXES[rank]} was expected"
    elif len(shape) < (min_rank or 0):
        wrong = f"but {min_rank} or more axes were expected"
    elif 0 in shape:
        wrong = "which is empty: every axis must be at least 1"
    else:
        return
    raise ValueError(f"{name} has shape {tuple(shape)}, {wrong}")


def not_zero(**vectors):
    """No named vector, and no row of a named matrix, is all zeros."""
    for name, x in vectors.items():
        if not x.any(axis=-1).all():
            raise ValueError(f"{name} holds a vector of zeros, which has no direction to compare")


def at_most(**pair):
    """The first named number is not above the second."""
    (name, number), (limit_name, limit) = pair.items()
    if number > limit:
        raise ValueError(f"{name}={number} must be at most {limit_name}={limit}")


def last_axis(name, x, width_name, width):
    """The last axis of `x` is as long as the layer was built for."""
    if x.shape[-1] != width:
        raise ValueError(f"{name} has width {x.shape[-1]}, but {width_name}={width} was expected")


def like_parameters(name, x, parameter):
    """`x` has the dtype and device of the layer's parameters."""
    for what in ("dtype", "device"):
        given, expected = getattr(x, what), getattr(parameter, what)
        if given != expected:
            raise TypeError(
                f"{name} has {what} {given}, but the layer's parameters have {expected}"
            )


def same(what, **sizes):
    """All named sizes are equal; `what` says in words which size they are."""
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(f"{what} must be the same, but {listed}")


def attention_shapes(query, key, value):
    """Query, key and value fit each other: equal leading axes, key_len and head_dim."""
    same("batch and head axes", query=query.shape[:-2], key=key.shape[:-2], value=value.shape[:-2])
    same("head_dim", query=query.shape[-1], key=key.shape[-1])
    same("the number of keys and values", key=key.shape[-2], value=value.shape[-2])


def grouped_shapes(query, key, value):
    """As `attention_shapes`, but keys and values may have fewer heads, a divisor of the query's."""
    same("batch", query=query.shape[0], key=key.shape[0], value=value.shape[0])
    same("the number of key and value heads", key=key.shape[1], value=value.shape[1])
    divides(num_kv_heads=key.shape[1], num_heads=query.shape[1])
    same("head_dim", query=query.shape[-1], key=key.shape[-1])
    same("the number of keys and values", key=key.shape[-2], value=value.shape[-2])


def projections(query, key, value, w_q, w_k, w_v, w_o, num_heads, num_kv_heads):
    """The weight matrices fit their inputs and the numbers of heads."""
    same("batch", query=query.shape[0], key=key.shape[0], value=value.shape[0])
    same("the number of keys and values", key=key.shape[1], value=value.shape[1])
    for name, x, w in (("query", query, w_q), ("key", key, w_k), ("value", value, w_v)):
        same("the width", **{name: x.shape[-1], f"w_{name[0]} (rows)": w.shape[0]})
    divides(num_heads=num_heads, **{"the columns of w_q": w_q.shape[1]})
    divides(num_kv_heads=num_kv_heads, **{"the columns of w_k": w_k.shape[1]})
    divides(num_kv_heads=num_kv_heads, **{"the columns of w_v": w_v.shape[1]})
    same("head_dim", w_q=w_q.shape[1] // num_heads, w_k=w_k.shape[1] // num_kv_heads)
    same(
        "the concatenated width", heads=num_heads * (w_v.shape[1] // num_kv_heads), w_o=w_o.shape[0]
    )


def square_projections(x, **weights):
    """`x` has three axes, and every weight matrix is (d_model, d_model) for its d_model."""
    _shape("x", tuple(x.shape), rank=3)
    d_model = x.shape[-1]
    for name, w in weights.items():
        if tuple(w.shape) != (d_model, d_model):
            raise ValueError(
                f"{name} has shape {tuple(w.shape)}, but ({d_model}, {d_model}) was expected, "
                f"because x has d_model={d_model}"
            )


def scale(scale):
    """`scale` is None or a finite number."""
    if scale is None:
        return
    if isinstance(scale, bool) or not isinstance(scale, (int, float, np.integer, np.floating)):
        raise TypeError(f"scale={describe(scale)} must be a number, or None for 1/sqrt(head_dim)")
    if not np.isfinite(scale):
        raise ValueError(f"scale={scale} must be finite")


def attn_mask(attn_mask, scores_shape, like):
    """`attn_mask` is None, boolean, or additive of `like`'s dtype, and broadcasts to the scores.

    Rank 2 is (query_len, key_len); otherwise the mask has the rank of the scores.
    """
    if attn_mask is None:
        return
    of_kind("attn_mask", attn_mask, numpy=isinstance(like, np.ndarray))
    if getattr(attn_mask, "device", None) != getattr(like, "device", None):
        raise TypeError(
            f"attn_mask has device {attn_mask.device}, but the query's {like.device} was expected"
        )
    dtype = str(attn_mask.dtype).removeprefix("torch.")
    if dtype != "bool" and attn_mask.dtype != like.dtype:
        raise TypeError(
            f"attn_mask has dtype {dtype}, but must be boolean (True = may attend) or, to be added "
            f"to the scores, of the query's dtype {str(like.dtype).removeprefix('torch.')}"
        )
    shape, scores_shape = tuple(attn_mask.shape), tuple(scores_shape)
    if len(shape) == 3 and len(scores_shape) == 4:
        raise ValueError(
            f"attn_mask has shape {shape}: three axes are ambiguous (ONNX reads the first as "
            "heads, PyTorch as batch x heads). Give (query_len, key_len) or four axes, "
            "with 1 where it broadcasts"
        )
    fits = len(shape) in (2, len(scores_shape)) and all(
        size in (1, target) for size, target in zip(shape[::-1], scores_shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"attn_mask has shape {shape}, but {scores_shape[-2:]} (query_len, key_len), or "
            f"{len(scores_shape)} axes that broadcast to {scores_shape}, was expected"
        )
    if dtype != "bool":
        zero_or_one = (attn_mask == 0) | (attn_mask == 1)
        if bool(zero_or_one.all()) and bool((attn_mask == 1).any()):
            raise ValueError(
                "attn_mask holds only the numbers 0 and 1, which would be added to the scores and "
                "hide nothing. Give a boolean mask (True = may attend), or 0 and -inf"
            )


def query_offset(query_offset, query_len, key_len, batch=None, numpy=False):
    """`query_offset` is an integer, or a (batch,) vector of integers; None needs equal lengths."""
    if query_offset is None:
        if query_len != key_len:
            raise ValueError(
                f"query_len={query_len} and key_len={key_len} differ, so a causal mask needs "
                f"query_offset (key j is seen by query i when j <= i + query_offset): "
                f"query_offset=0 aligns top-left, as PyTorch's is_causal and ONNX do; "
                f"query_offset={key_len - query_len} (key_len - query_len) aligns bottom-right, "
                f"as flash-attention does and decoding with a cache needs"
            )
        return
    if not hasattr(query_offset, "shape") or query_offset.shape == ():
        _integer("query_offset", query_offset, ", or a (batch,) vector of integers")
        return
    of_kind("query_offset", query_offset, numpy, " or an integer")
    integers("query_offset", query_offset)
    expected = "(batch,)" if batch is None else f"({batch},)"
    if len(query_offset.shape) != 1 or (batch is not None and len(query_offset) != batch):
        raise ValueError(
            f"query_offset has shape {tuple(query_offset.shape)}, but {expected} was expected"
        )


def mask_options(query, key, mask, is_causal, offset):
    """`attn_mask`, `is_causal` and `query_offset` fit each other and the scores."""
    only_with_is_causal(is_causal, offset)
    attn_mask(mask, (*query.shape[:3], key.shape[2]), like=query)
    if is_causal:
        query_offset(offset, query.shape[2], key.shape[2], len(query))


def lengths(lengths, max_len):
    """`lengths` is a (batch,) tensor or list of integers between 0 and `max_len`."""
    positive_int(max_len=max_len)
    if isinstance(lengths, (list, tuple)):
        for number in lengths:
            _integer("every number in lengths", number)
        shape = (len(lengths),)
    else:
        of_kind("lengths", lengths, numpy=False, otherwise=" or a list of integers")
        integers("lengths", lengths)
        shape = tuple(lengths.shape)
    if len(shape) != 1 or shape == (0,):
        raise ValueError(f"lengths has shape {shape}, but (batch,) was expected, at least one long")
    if min(lengths) < 0 or max(lengths) > max_len:
        listed = [int(number) for number in lengths]
        raise ValueError(f"lengths={listed} must lie between 0 and max_len={max_len}")


def the_one_given(**numbers):
    """One of the named numbers is a positive integer, the others are None; returns that one."""
    given = {name: number for name, number in numbers.items() if number is not None}
    if len(given) != 1:
        listed = " or ".join(numbers)
        raise ValueError(f"{listed} must be given, one and not both, but {len(given)} were given")
    positive_int(**given)
    return next(iter(given.values()))


def float_storage(dtype, device):
    """Tensors of this `dtype`, a floating-point one, can be made on this `device`."""
    import torch

    try:
        tensor(an_element=torch.empty(1, dtype=dtype, device=device))
    except (RuntimeError, TypeError) as error:
        raise TypeError(f"no float tensor with this dtype and device: {error}") from None


def cache_entry(cache, key, value):
    """The new keys and values are of the cache's shape and kind, and need no gradients."""
    tensor(rank=4, key=key, value=value, cache=cache.key)
    same("the shape", key=tuple(key.shape), value=tuple(value.shape))
    for axis, name in ((0, "batch"), (1, "num_kv_heads"), (3, "head_dim")):
        same(name, key=key.shape[axis], cache=cache.key.shape[axis])
    if key.requires_grad or value.requires_grad:
        raise ValueError(
            "key and value need gradients, which a cache cannot pass on: call under torch.no_grad()"
        )


def cache_room(max_len, before, new):
    """No sequence has more tokens than there is room for."""
    for sequence, (old, more) in enumerate(zip(before, new, strict=True)):
        if old + more > max_len:
            raise ValueError(
                f"the cache has room for max_len={max_len} tokens, but sequence {sequence} "
                f"would have {old} + {more}"
            )


def with_cache(cache_type, cache, is_causal, **absent):
    """`cache` is a cache, attention is causal, and all other named arguments are left out."""
    if not isinstance(cache, cache_type):
        raise TypeError(f"cache must be a {cache_type.__name__} or None, not {describe(cache)}")
    boolean(is_causal=is_causal)
    for name, argument in absent.items():
        if argument is not None:
            raise ValueError(f"{name} was given with a cache, which knows it better: leave it out")
    if not is_causal:
        raise ValueError("is_causal=False was given, but attention with a cache is always causal")


def integers(name, x):
    """`x` holds integers."""
    if not str(x.dtype).removeprefix("torch.").startswith(("int", "uint")):
        raise TypeError(f"{name} must hold integers, but its dtype is {x.dtype}")


def biases(matrices, **biases):
    """Every named bias is a number, or an array with one for each column of its matrix."""
    for matrix, (name, bias) in zip(matrices, biases.items(), strict=True):
        if isinstance(bias, (int, float)) and not isinstance(bias, bool):
            continue
        of_kind(name, bias, numpy=True, otherwise=" or a number")
        array(rank=1, **{name: bias})
        same("the width", **{name: len(bias), f"w{name[1:]} (columns)": matrix.shape[1]})


def only_with_is_causal(is_causal, query_offset):
    """`is_causal` is a bool, and a `query_offset` comes only with it."""
    boolean(is_causal=is_causal)
    if query_offset is not None and not is_causal:
        raise ValueError("query_offset was given, but has a meaning only with is_causal=True")


def describe(value):
    """The value itself where it is short, else its type."""
    text = repr(value)
    return (
        text
        if isinstance(value, (int, float, str, type(None))) and len(text) < 40
        else type(value).__name__
    )
