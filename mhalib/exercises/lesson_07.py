"""The exercises of lesson 07 on heads that are shared: repeat, pool, count. See lesson_07_…"""

import torch

from mhalib import functional, sharing
from mhalib.exercises.catalogue import Case, Exercise, Fault, Slip, call_in_order
from mhalib.exercises.lesson_04 import counting, normal
from mhalib.exercises.lesson_06 import FLOAT, sizes


def _before_the_split(x, group_size):
    """Every feature repeated, while the heads of a token still lie side by side."""
    features = functional.merge_heads(x).repeat_interleave(group_size, dim=-1)
    return functional.split_heads(features, x.shape[1] * group_size)


_INTERLEAVE = "x.repeat_interleave(group_size, dim=1)"

_repeat_kv = Exercise(
    name="repeat_kv",
    lesson="07",
    minutes=5,
    difficulty=1,
    framework="torch",
    contract=(
        "repeat_kv(x, group_size): (batch, num_kv_heads, seq_len, head_dim) tensor, and how many "
        "query heads share a key/value head\n"
        "-> (batch, num_kv_heads * group_size, seq_len, head_dim) tensor: every head group_size "
        "times, one after the other: with two heads and group_size = 2 the heads 0, 0, 1, 1"
    ),
    arguments=("x", "group_size"),
    reference=functional.repeat_kv,
    cases=(
        Case("one head for two", lambda: (counting(1, 1, 2, 2), 2)),
        Case("a group of one", lambda: (counting(1, 2, 3, 2), 1)),
        Case("two heads, each for two", lambda: (counting(1, 2, 2, 2), 2)),
        Case("two heads, each for three", lambda: (counting(1, 2, 3, 2), 3)),
        Case("four heads, each for two", lambda: (counting(1, 4, 3, 2), 2)),
        Case("two samples", lambda: (counting(2, 3, 4, 2), 2)),
        Case("odd sizes", lambda: (*normal((3, 5, 7, 3), seed=1), 3)),
        Case(
            "heads as split_heads gives them",
            lambda: (functional.split_heads(normal((2, 4, 6), seed=2)[0], 3), 2),
        ),
        Case(
            "features that do not lie side by side in memory",
            lambda: (normal((2, 2, 3, 8), seed=3)[0][..., ::2], 4),
        ),
        Case("float64", lambda: (*normal((2, 2, 3, 4), seed=4, dtype=torch.float64), 2)),
        Case(
            "gradients in float64",
            lambda: (*normal((2, 2, 3, 2), seed=5, dtype=torch.float64), 3),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            lambda x, group_size: x.repeat(1, group_size, 1, 1),
            "the heads were tiled, 0, 1, 0, 1: repeat (and tile, and cat of copies) puts the whole "
            "row of heads down again, so query head 1 meets the key head of another group",
            f"repeat every head where it stands: {_INTERLEAVE}",
        ),
        Slip(
            lambda x, group_size: x.repeat_interleave(group_size, dim=2),
            "the tokens were repeated, not the heads: dim=2 is seq_len here (dim=1 before a "
            "transpose)",
            f"repeat the heads, axis 1 of (batch, num_kv_heads, seq_len, head_dim): {_INTERLEAVE}",
        ),
        Slip(
            lambda x, group_size: x.repeat_interleave(group_size, dim=3),
            "the features were repeated, so a head became wider",
            f"repeat the heads, axis 1: {_INTERLEAVE}",
        ),
        Slip(
            lambda x, group_size: x.repeat_interleave(group_size, dim=0),
            "the samples were repeated, so the batch became larger",
            f"repeat the heads, axis 1: {_INTERLEAVE}",
        ),
        Slip(
            _before_the_split,
            "each feature was repeated by itself, as happens when the repeating comes before the "
            "heads have an axis of their own: no head is one of the given heads any more",
            f"repeat whole heads, axis 1: {_INTERLEAVE}",
        ),
        Slip(
            lambda x, group_size: x.repeat_interleave(group_size),
            "without dim, repeat_interleave makes one long row of all numbers",
            f"say which axis: {_INTERLEAVE}",
        ),
        Slip(
            lambda x, group_size: x[:, :, None].expand(-1, -1, group_size, -1, -1),
            "the copies have an axis of their own: (batch, num_kv_heads, group_size, …)",
            "join the two axes of heads: .flatten(1, 2), or .reshape to four axes",
        ),
        Slip(
            lambda x, group_size: x.repeat_interleave(x.shape[1], dim=1),
            "every head was repeated num_kv_heads times: how many groups there are, and not how "
            "many query heads are in one",
            "repeat it group_size times",
        ),
        Slip(
            lambda x, group_size: x.repeat_interleave(max(1, group_size // x.shape[1]), dim=1),
            "group_size was read as the number of all query heads and divided by num_kv_heads",
            "group_size is the number of query heads for each key/value head: repeat so many times",
        ),
        Slip(
            lambda x, group_size: x.repeat_interleave(group_size + 1, dim=1),
            "there is one copy too many: group_size counts the head itself",
            "repeat it group_size times in all",
        ),
        Slip(
            lambda x, group_size: x[:, :1].expand(-1, x.shape[1] * group_size, -1, -1),
            "every head is a copy of head 0",
            "give each key/value head its own group",
        ),
        Slip(
            lambda x, group_size: x,
            "nothing was repeated",
            _INTERLEAVE,
        ),
    ),
    hints=(
        "Write down the heads of the result for two heads and group_size = 3: it is 0, 0, 0, 1, "
        "1, 1, because neighbouring query heads share a head.",
        "The heads are axis 1. x.repeat(1, group_size, 1, 1) gives 0, 1, 0, 1, 0, 1: the right "
        "shape, and most query heads meet the wrong keys.",
        "torch.repeat_interleave, or the method of that name, repeats each entry of an axis where "
        "it stands. Tell it the axis, dim=1.",
    ),
)


def _groups(w, num_heads, num_kv_heads):
    """(d_model, num_kv_heads, group_size, head_dim)"""
    return w.reshape(w.shape[0], num_kv_heads, -1, w.shape[1] // num_heads)


def _new_tensor(function, w, *numbers):
    """The result; a Fault where it lies in the memory of w."""
    pooled = call_in_order(function, w, *numbers)
    places = [x.untyped_storage().data_ptr() for x in (w, pooled) if isinstance(x, torch.Tensor)]
    if len(places) == 2 and places[0] == places[1]:
        raise Fault(
            "the result lies in the memory of w",
            "w itself came back, or a view of it, so whoever trains the one changes the other",
            "let a mean over groups of one make it, or return w.clone()",
        )
    return pooled


_pool_kv_heads = Exercise(
    name="pool_kv_heads",
    lesson="07",
    minutes=8,
    difficulty=2,
    framework="torch",
    contract=(
        "pool_kv_heads(w, num_heads, num_kv_heads): (d_model, num_heads * head_dim) tensor, used "
        "as x @ w, its number of heads, and the number it shall have, which divides num_heads\n"
        "-> new (d_model, num_kv_heads * head_dim) tensor: head g is the mean of the heads of "
        "group g, which are num_heads // num_kv_heads consecutive ones"
    ),
    arguments=("w", "num_heads", "num_kv_heads"),
    reference=sharing.pool_kv_heads,
    cases=(
        Case("two heads of one feature to one", lambda: (counting(1, 2), 2, 1)),
        Case("two heads of two features to one", lambda: (counting(1, 4), 2, 1)),
        Case("two input features", lambda: (counting(2, 4), 2, 1)),
        Case("four heads to two", lambda: (counting(2, 8), 4, 2)),
        Case("six heads to two", lambda: (*normal((3, 12), seed=1), 6, 2)),
        Case("six heads to three", lambda: (*normal((3, 12), seed=2), 6, 3)),
        Case("as many heads as before", lambda: (counting(2, 6), 3, 3), call=_new_tensor),
        Case("odd sizes", lambda: (*normal((7, 45), seed=3), 15, 5)),
        Case(
            "the weight of an nn.Linear, transposed",
            lambda: (normal((12, 4), seed=4)[0].T, 6, 2),
        ),
        Case("float64", lambda: (*normal((5, 8), seed=5, dtype=torch.float64), 4, 2)),
        Case(
            "gradients in float64",
            lambda: (*normal((3, 12), seed=6, dtype=torch.float64), 6, 2),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            lambda w, heads, kv_heads: (
                w.reshape(w.shape[0], -1, kv_heads, w.shape[1] // heads).mean(dim=1).flatten(1)
            ),
            "every num_kv_heads-th head was taken into a group (0, 2, 4 and 1, 3, 5), but "
            "neighbours share a head",
            "cut the columns with the groups first: .reshape(d_model, num_kv_heads, group_size, "
            "head_dim), and take the mean over axis 2",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads).sum(dim=2).flatten(1),
            "the heads of a group were added up, which makes all scores larger",
            "take their mean",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads)[:, :, 0].flatten(1),
            "the first head of each group was kept, and the others thrown away",
            "take the mean of all heads of the group",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads)[:, :, -1].flatten(1),
            "the last head of each group was kept, and the others thrown away",
            "take the mean of all heads of the group",
        ),
        Slip(
            lambda w, heads, kv_heads: w[:, : kv_heads * (w.shape[1] // heads)],
            "the first num_kv_heads heads were kept, and the others thrown away",
            "take the mean of each group of consecutive heads",
        ),
        Slip(
            lambda w, heads, kv_heads: (
                w.reshape(w.shape[0], heads, -1).mean(dim=1).repeat(1, kv_heads)
            ),
            "the mean of all heads stands in every group",
            "take the mean of each group by itself",
        ),
        Slip(
            lambda w, heads, kv_heads: (
                w.reshape(w.shape[0], kv_heads, -1, heads // kv_heads).mean(dim=3).flatten(1)
            ),
            "neighbouring features were averaged, and not the same feature of neighbouring heads",
            "the last axis of the cut is head_dim and stays: .reshape(d_model, num_kv_heads, "
            "group_size, head_dim).mean(dim=2)",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads).mean(dim=3).flatten(1),
            "the mean runs over the features of a head: each became one number",
            "take it over the heads of a group, axis 2 of (d_model, num_kv_heads, group_size, "
            "head_dim)",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads).mean(dim=1).flatten(1),
            "the mean runs over the groups, so there are as many heads as a group had",
            "take it over the heads of a group, axis 2 of (d_model, num_kv_heads, group_size, "
            "head_dim)",
        ),
        Slip(
            lambda w, heads, kv_heads: (
                w.reshape(w.shape[0], -1, kv_heads, w.shape[1] // heads).mean(dim=2).flatten(1)
            ),
            "num_kv_heads was used as the number of heads in a group; it is the number of groups",
            "a group has num_heads // num_kv_heads heads",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads).mean(dim=2),
            "the heads still have an axis of their own",
            "put their features side by side again: .flatten(1), or .reshape(d_model, -1)",
        ),
        Slip(
            lambda w, heads, kv_heads: (
                _groups(w, heads, kv_heads)
                .mean(dim=2, keepdim=True)
                .expand(-1, -1, heads // kv_heads, -1)
                .flatten(1)
            ),
            "every head was replaced by the mean of its group, and there are as many as before",
            "keep one head for each group",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads).median(dim=2)[0].flatten(1),
            "the median was taken, not the mean",
            "take the mean of the heads of a group",
        ),
        Slip(
            lambda w, heads, kv_heads: _groups(w, heads, kv_heads).mean(dim=2).flatten(1).T,
            "the result is transposed, as an nn.Linear keeps its weight",
            "return it as x @ w needs it: (d_model, num_kv_heads * head_dim)",
        ),
        Slip(
            lambda w, heads, kv_heads: w,
            "w came back as it was",
            "take the mean of each group of consecutive heads",
        ),
    ),
    hints=(
        "Head h owns the columns h * head_dim to (h + 1) * head_dim of w, with head_dim = "
        "w.shape[1] // num_heads. Group 0 has the first num_heads // num_kv_heads heads.",
        "Cut the columns into groups, heads and features: w.reshape(d_model, num_kv_heads, "
        "group_size, head_dim). That moves nothing.",
        "Take the mean over the heads of a group, .mean(dim=2), and put the heads that are left "
        "side by side again: .flatten(1).",
    ),
)


_kv_cache_bytes_per_token = Exercise(
    name="kv_cache_bytes_per_token",
    lesson="07",
    minutes=4,
    difficulty=1,
    framework="numpy",
    contract=(
        "kv_cache_bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize): four whole "
        "numbers\n"
        "-> whole number of bytes by which the cache of one sequence grows with each token: in "
        "every layer a key and a value for each of the num_kv_heads heads, head_dim numbers each, "
        "itemsize bytes a number"
    ),
    arguments=("num_layers", "num_kv_heads", "head_dim", "itemsize"),
    reference=sharing.kv_cache_bytes_per_token,
    cases=(
        sizes("one head of three features", 1, 1, 3, 1),
        sizes("two bytes a number", 1, 1, 3, 2),
        sizes("five key/value heads", 1, 5, 3, 4),
        sizes("seven layers", 7, 1, 3, 2),
        sizes("the sizes of Llama-2-7B", 32, 32, 128, 2),
        sizes("the sizes of Llama-2-70B", 80, 8, 128, 2),
        sizes("one key/value head, as in Gemma-2B", 18, 1, 256, 2),
    ),
    slips=(
        Slip(
            lambda layers, heads, width, itemsize: layers * heads * width * itemsize,
            "only the keys, or only the values, were counted",
            "count both: 2 * …",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 3 * layers * heads * width * itemsize,
            "three vectors were counted where two are kept: a query is used once, and no later "
            "token needs it",
            "count keys and values: 2 * …",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 2 * layers * width * itemsize,
            "one key/value head was counted",
            "multiply by num_kv_heads",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 2 * layers * heads * itemsize,
            "a key was counted as one number",
            "a key has head_dim numbers, and a value too: multiply by head_dim",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 2 * heads * width * itemsize,
            "one layer was counted",
            "each layer has keys and values of its own: multiply by num_layers",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 2 * layers * heads * width,
            "the numbers were counted, not their bytes",
            "multiply by itemsize",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 16 * layers * heads * width * itemsize,
            "this is eight times too much: bits, not bytes",
            "itemsize is in bytes already: leave the 8 out",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 2 * layers * heads * width * itemsize // 8,
            "itemsize was read as bits and divided by 8; it is in bytes",
            "multiply by itemsize, and leave the 8 out",
        ),
        Slip(
            lambda layers, heads, width, itemsize: (2 * layers * heads * width * itemsize) ** 2,
            "the product was squared, as the number of scores is; keys and values grow by the same "
            "amount with every token",
            "count what one token adds: 2 * num_layers * num_kv_heads * head_dim * itemsize",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 2 * layers * heads**2 * width * itemsize,
            "the number of heads was multiplied in twice",
            "a token has one key for each key/value head: num_kv_heads * head_dim numbers",
        ),
        Slip(
            lambda layers, heads, width, itemsize: 2 * layers * heads * width * itemsize / 1024,
            "the result is in KiB, 1,024 bytes each",
            "return bytes, as a whole number",
        ),
        Slip(
            lambda layers, heads, width, itemsize: float(2 * layers * heads * width * itemsize),
            FLOAT,
            "multiply whole numbers only",
        ),
    ),
    hints=(
        "What does a later token need from this one? Its key and its value, from every layer and "
        "every key/value head. Not its query.",
        "A key has head_dim numbers, and so has a value: 2 * num_kv_heads * head_dim numbers in "
        "one layer.",
        "Multiply by the number of layers and by the bytes of one number.",
    ),
)

EXERCISES = (_repeat_kv, _pool_kv_heads, _kv_cache_bytes_per_token)
