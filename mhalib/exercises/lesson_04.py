"""The exercises of lesson 04, Many heads: split and merge. The others are in lesson_04_…"""

import math

import numpy as np
import torch

from mhalib import functional
from mhalib.exercises.catalogue import Case, Exercise, Slip


def counting(*shape, dtype=torch.float32):
    """The numbers 0, 1, 2 … in this shape, so that a message shows which one came where."""
    return torch.arange(math.prod(shape), dtype=dtype).reshape(shape)


def normal(*shapes, seed=0, dtype=torch.float32):
    """Tensors of normally distributed numbers, the same at every call."""
    rng = np.random.default_rng(seed)
    return tuple(torch.from_numpy(rng.standard_normal(shape)).to(dtype) for shape in shapes)


def reshaped(x, num_heads):
    """What a split without transpose gives: the right shape, the wrong numbers."""
    batch, seq_len, d_model = x.shape
    return x.reshape(batch, num_heads, seq_len, d_model // num_heads)


def cut(x, num_heads):
    """Features cut into heads, where they stand: (batch, seq_len, num_heads, head_dim)."""
    return x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads)


def dealt(x, num_heads):
    """Feature f given to head f % num_heads, as cards are dealt."""
    return x.reshape(*x.shape[:2], x.shape[2] // num_heads, num_heads).permute(0, 3, 1, 2)


def collected(x):
    """Undo `dealt`: one feature of every head in turn."""
    return x.permute(0, 2, 3, 1).flatten(2)


_TRANSPOSE = ".reshape(batch, seq_len, num_heads, head_dim).transpose(1, 2)"

_split_heads = Exercise(
    name="split_heads",
    lesson="04",
    minutes=6,
    difficulty=2,
    framework="torch",
    contract=(
        "split_heads(x, num_heads): (batch, seq_len, d_model) tensor, and a number of heads that "
        "divides d_model\n-> (batch, num_heads, seq_len, head_dim) tensor with head_dim = "
        "d_model // num_heads; head 0 holds the first head_dim features of every token, head 1 "
        "the next, and so on"
    ),
    arguments=("x", "num_heads"),
    reference=functional.split_heads,
    cases=(
        Case("one token", lambda: (counting(1, 1, 6), 2)),
        Case("one head", lambda: (counting(1, 3, 4), 1)),
        Case("two tokens and two heads", lambda: (counting(1, 2, 4), 2)),
        Case("three tokens and two heads", lambda: (counting(1, 3, 4), 2)),
        Case("as many heads as features", lambda: (counting(1, 3, 4), 4)),
        Case("two samples", lambda: (counting(2, 5, 12), 3)),
        Case("odd sizes", lambda: (*normal((3, 7, 15), seed=1), 5)),
        Case(
            "a batch that stood on the second axis",
            lambda: (normal((4, 2, 6), seed=2)[0].transpose(0, 1), 3),
        ),
        Case(
            "features that do not lie side by side in memory",
            lambda: (normal((2, 4, 16), seed=3)[0][..., ::2], 2),
        ),
        Case("float64", lambda: (*normal((2, 3, 8), seed=4, dtype=torch.float64), 4)),
        Case(
            "gradients in float64",
            lambda: (*normal((2, 3, 6), seed=5, dtype=torch.float64), 3),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            reshaped,
            "reshape alone keeps the numbers in their order in memory, so a head gets a stretch "
            "of tokens and not its features of every token",
            f"cut the last axis first and then move the heads: x{_TRANSPOSE}",
        ),
        Slip(
            cut,
            "the features are cut into heads, but the heads still stand behind the tokens",
            "swap the two axes: .transpose(1, 2)",
        ),
        Slip(
            dealt,
            "the features were dealt out in turn, feature f to head f % num_heads; head 0 is to "
            "hold the first head_dim features",
            "write num_heads before head_dim where the last axis is cut",
        ),
        Slip(
            lambda x, num_heads: cut(x, num_heads).permute(0, 2, 3, 1),
            "the last two axes are swapped: (head_dim, seq_len), as for a transposed key",
            "end with seq_len, head_dim: after the cut, .transpose(1, 2) is all that is needed",
        ),
        Slip(
            lambda x, num_heads: cut(x, num_heads).transpose(2, 3),
            "two other axes were swapped: num_heads and head_dim",
            "swap seq_len and num_heads, the axes 1 and 2",
        ),
        Slip(
            lambda x, num_heads: x.transpose(1, 2).reshape(
                x.shape[0], num_heads, x.shape[1], x.shape[2] // num_heads
            ),
            "the transpose came before the cut: it swapped tokens and features, not tokens and "
            "heads",
            f"cut first, swap then: x{_TRANSPOSE}",
        ),
        Slip(
            lambda x, num_heads: cut(x, num_heads).permute(2, 0, 1, 3),
            "the heads stand before the batch (torch.stack puts its new axis first)",
            "the order is batch, num_heads, seq_len, head_dim; torch.stack(…, dim=1) gives it",
        ),
        Slip(
            lambda x, num_heads: cut(x, num_heads).transpose(1, 2).flatten(0, 1),
            "batch and heads were folded into one axis",
            "keep four axes: (batch, num_heads, seq_len, head_dim)",
        ),
        Slip(
            lambda x, num_heads: cut(x, num_heads).transpose(1, 2).flatten(1, 2),
            "the heads were joined along the tokens (torch.cat makes no new axis)",
            "give the heads an axis of their own: torch.stack(…, dim=1)",
        ),
        Slip(
            lambda x, num_heads: x.chunk(num_heads, dim=-1),
            "the pieces came back one by one, not as one tensor",
            "put them together with torch.stack(…, dim=1)",
        ),
        Slip(
            lambda x, num_heads: cut(x, x.shape[2] // num_heads).transpose(1, 2),
            "num_heads was used as the width of a head",
            "a head is head_dim = x.shape[-1] // num_heads features wide",
        ),
        Slip(
            lambda x, num_heads: x[:, None].expand(-1, num_heads, -1, -1),
            "every head got all features: they were copied, not cut",
            "give each head its own d_model // num_heads features",
        ),
        Slip(
            lambda x, num_heads: cut(x, num_heads).transpose(1, 2).flip(1),
            "the heads stand in reverse order",
            "let head 0 hold the first features",
        ),
    ),
    hints=(
        "Only the last axis is cut; every token keeps its place. For d_model = 4 and two heads, "
        "head 0 holds features 0 and 1 of every token, head 1 features 2 and 3.",
        "Cut first: x.reshape(batch, seq_len, num_heads, head_dim) cuts the last axis in two and "
        "moves nothing, with head_dim = d_model // num_heads.",
        "Then swap tokens and heads: .transpose(1, 2). A reshape to (batch, num_heads, seq_len, "
        "head_dim) at once has the right shape and the wrong numbers.",
    ),
)

_merge_heads = Exercise(
    name="merge_heads",
    lesson="04",
    minutes=4,
    difficulty=2,
    framework="torch",
    contract=(
        "merge_heads(x): (batch, num_heads, seq_len, head_dim) tensor -> (batch, seq_len, "
        "num_heads * head_dim) tensor: for every token the features of head 0, then those of "
        "head 1, and so on; it undoes split_heads"
    ),
    arguments=("x",),
    reference=functional.merge_heads,
    cases=(
        Case("one token", lambda: (counting(1, 2, 1, 3),)),
        Case("one head", lambda: (counting(1, 1, 3, 4),)),
        Case("two tokens and two heads", lambda: (counting(1, 2, 2, 3),)),
        Case("three tokens and two heads", lambda: (counting(1, 2, 3, 2),)),
        Case("heads of one feature", lambda: (counting(1, 4, 3, 1),)),
        Case("two samples", lambda: (counting(2, 3, 5, 4),)),
        Case("odd sizes", lambda: normal((3, 5, 7, 3), seed=1)),
        Case(
            "heads as split_heads gives them",
            lambda: (functional.split_heads(normal((2, 4, 6), seed=2)[0], 3),),
        ),
        Case(
            "features that do not lie side by side in memory",
            lambda: (normal((2, 3, 4, 10), seed=3)[0][..., ::2],),
        ),
        Case("float64", lambda: normal((2, 4, 3, 2), seed=4, dtype=torch.float64)),
        Case(
            "gradients in float64",
            lambda: normal((2, 3, 4, 2), seed=5, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            lambda x: x.reshape(x.shape[0], x.shape[2], -1),
            "reshape alone keeps the numbers in their order in memory, so a row is filled from "
            "several tokens of one head",
            "bring the heads back behind the tokens first: x.transpose(1, 2), then reshape",
        ),
        Slip(
            lambda x: x.transpose(1, 2),
            "the heads are back behind the tokens, but not joined into one axis",
            "join the last two: .reshape(batch, seq_len, num_heads * head_dim)",
        ),
        Slip(
            collected,
            "the features were collected in turn, one of every head; the features of a head are "
            "to stay side by side",
            "keep num_heads before head_dim: x.transpose(1, 2) does, then reshape",
        ),
        Slip(
            lambda x: x.sum(dim=1),
            "the heads were added up, so what each one found is lost in the sum",
            "put them side by side: transpose(1, 2), then reshape",
        ),
        Slip(
            lambda x: x.mean(dim=1),
            "the heads were averaged",
            "put them side by side: transpose(1, 2), then reshape",
        ),
        Slip(
            lambda x: x.flatten(1, 2),
            "the heads were joined along the tokens, one below the other",
            "join them along the features: transpose(1, 2) first, then the last two axes",
        ),
        Slip(
            lambda x: x.transpose(2, 3).reshape(x.shape[0], x.shape[2], -1),
            "two other axes were swapped: seq_len and head_dim",
            "swap num_heads and seq_len, the axes 1 and 2",
        ),
        Slip(
            lambda x: x.transpose(1, 3).reshape(x.shape[0], x.shape[2], -1),
            "two other axes were swapped: num_heads and head_dim",
            "swap num_heads and seq_len, the axes 1 and 2",
        ),
        Slip(
            lambda x: x.permute(0, 1, 3, 2).flatten(1, 2).transpose(1, 2).flip(2),
            "the features of a token stand in reverse order",
            "begin with the first feature of head 0",
        ),
        Slip(
            lambda x: x.flip(1).transpose(1, 2).flatten(2),
            "the heads stand in reverse order",
            "begin with the features of head 0",
        ),
        Slip(
            lambda x: x[:, 0],
            "only head 0 came back",
            "put the features of all heads side by side",
        ),
        Slip(
            lambda x: x.transpose(1, 2).flatten(2).transpose(1, 2),
            "features and tokens are swapped: (batch, features, seq_len)",
            "end with the features: transpose(1, 2), then join the last two axes",
        ),
        Slip(
            lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1),
            "after a transpose the numbers no longer lie in this order in memory, and view never "
            "moves them",
            "use .reshape, which copies where it must, or .contiguous() before .view",
        ),
    ),
    hints=(
        "It is split_heads backwards, so its two steps come in the opposite order.",
        "First swap heads and tokens: x.transpose(1, 2) has the shape (batch, seq_len, num_heads, "
        "head_dim), and each token has its heads beside it again.",
        "Then join the last two axes: .reshape(batch, seq_len, num_heads * head_dim). Without the "
        "swap the shape would be right and the numbers would not.",
    ),
)


EXERCISES = (_split_heads, _merge_heads)
