"""Argument checks of the experiments: as `checks`, for what only they take."""

from mhalib.checks import describe, integer, integers, of_kind, same, tensor


def shares(**arrays):
    """No number in a named array is negative, and together they make 1."""
    for name, x in arrays.items():
        if (x < 0).any() or abs(x.sum() - 1) > 1e-6:
            raise ValueError(
                f"{name} must be shares of 1, none negative, but they sum to {x.sum():.4g}"
            )


def alike(rank, **lists):
    """Every named value is a list of float tensors of this rank, all of one shape and dtype."""
    for name, tensors in lists.items():
        if not isinstance(tensors, (list, tuple)) or not tensors:
            raise TypeError(
                f"{name} must be a list of tensors, at least one, not {describe(tensors)}"
            )
        named = {f"{name}[{number}]": x for number, x in enumerate(tensors)}
        tensor(rank, **named)
        same("the shape", **{name: tuple(x.shape) for name, x in named.items()})


def output_projection(heads, w_o, b_o):
    """The heads' features are the rows of `w_o`, and its columns those of `b_o`."""
    for rank, name, x in ((4, "heads", heads), (2, "w_o", w_o), (1, "b_o", b_o)):
        tensor(rank, **{name: x})
    same("the width", heads=heads.shape[1] * heads.shape[3], w_o=w_o.shape[0])
    same("the output width", w_o=w_o.shape[1], b_o=b_o.shape[0])


def gate(gate, heads):
    """`gate` is None, or holds one vector of floats per layer, as long as it has heads."""
    if gate is not None and len(gate) != len(heads):
        raise ValueError(f"gate has {len(gate)} rows, but there are {len(heads)} layers")
    for layer, num_heads in enumerate(heads if gate is not None else ()):
        of_kind(f"gate[{layer}]", gate[layer], numpy=False)
        same("the number of heads", layer=num_heads, **{f"gate[{layer}]": gate[layer].numel()})


def attention_maps(weights, min_len=1):
    """`weights` is a float tensor (..., n, n) with n at least `min_len`."""
    tensor(weights=weights)
    shape = tuple(weights.shape)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < min_len:
        raise ValueError(f"weights has shape {shape}, but (..., n, n), n >= {min_len} was expected")


def pairs(**tensors):
    """Every named value is a (count, 3) integer tensor with at least one row."""
    for name, x in tensors.items():
        of_kind(name, x, numpy=False)
        integers(name, x)
        if x.dim() != 2 or x.shape[1] != 3 or not len(x):
            raise ValueError(f"{name} has shape {tuple(x.shape)}, but (count, 3) was expected")


def head_numbers(keep, num_heads):
    """`keep` lists different heads from 0 to num_heads - 1, at least one."""
    integer(**{f"keep[{place}]": number for place, number in enumerate(keep)})
    if not len(keep) or len(set(keep)) < len(keep) or not set(keep) <= set(range(num_heads)):
        raise ValueError(f"keep={list(keep)} must be different heads from 0 to {num_heads - 1}")


def token_ids(token_ids, vocab_size, num_positions):
    """`token_ids` is (batch, seq_len), whole numbers below `vocab_size`, not too many in a row."""
    of_kind("token_ids", token_ids, numpy=False)
    integers("token_ids", token_ids)
    shape = tuple(token_ids.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"token_ids has shape {shape}, but (batch, seq_len) >= 1 was expected")
    if shape[1] > num_positions:
        raise ValueError(
            f"the text has {shape[1]} tokens, but the model has only {num_positions} positions"
        )
    for number in (int(token_ids.min()), int(token_ids.max())):
        if not 0 <= number < vocab_size:
            raise ValueError(f"token_ids holds {number}, not between 0 and {vocab_size - 1}")


def softmax_pieces(**pieces):
    """Every named value is (maximum, total, output), all of one dtype and of the same rows."""
    for name, piece in pieces.items():
        if not isinstance(piece, (tuple, list)) or len(piece) != 3:
            given = f"{len(piece)} values" if isinstance(piece, (tuple, list)) else describe(piece)
            raise TypeError(f"{name} must be a tuple (maximum, total, output), not {given}")
    parts = {
        f"{part} of {name}": x
        for name, piece in pieces.items()
        for part, x in zip(("maximum", "total", "output"), piece, strict=True)
    }
    tensor(**parts)
    shapes = {name: tuple(x.shape) for name, x in parts.items()}
    outputs = {name: shape for name, shape in shapes.items() if name.startswith("output")}
    same("the shape of output", **outputs)
    one_a_row = {"one number a row": (*next(iter(outputs.values()))[:-1], 1)}
    numbers = {name: shape for name, shape in shapes.items() if name not in outputs}
    same("the shape of maximum and total", **numbers, **one_a_row)


def block_mask(attn_mask, query, key):
    """`attn_mask` is None, or boolean and exactly (query_len, key_len), so that it can be cut."""
    if attn_mask is None:
        return
    of_kind("attn_mask", attn_mask, numpy=False, otherwise=" or None")
    form = (str(attn_mask.dtype), tuple(attn_mask.shape))
    same("dtype and shape", attn_mask=form, expected=("torch.bool", (query.shape[2], key.shape[2])))
