"""The exercise of lesson 05 on pruning: heads really removed."""

import torch

from mhalib import heads
from mhalib.exercises.catalogue import Case, Exercise, Slip
from mhalib.exercises.lesson_04 import counting, normal


def _four(d_model, num_heads, head_dim):
    """Four matrices without two equal numbers."""
    wide = num_heads * head_dim
    shapes = ((d_model, wide),) * 3 + ((wide, d_model),)
    return tuple(counting(*shape) + 1000 * number for number, shape in enumerate(shapes))


def _random(d_model, num_heads, head_dim, **options):
    wide = num_heads * head_dim
    return normal(*((d_model, wide),) * 3, (wide, d_model), **options)


def _transposed_in_memory(*weights):
    """The same numbers as the weight of an nn.Linear, transposed, has them in memory."""
    return tuple(w.T.contiguous().T for w in weights)


def _features(w_q, num_heads):
    """(num_heads, head_dim): the columns of each head."""
    return torch.arange(w_q.shape[1]).reshape(num_heads, -1)


def _kept(w_q, num_heads, keep):
    return _features(w_q, num_heads)[list(keep)].flatten()


def _columns(w, kept):
    return w[:, kept]


def _rows(w, kept):
    return w[kept]


def _whole(w, kept):
    return w


def _zero_columns(w, kept):
    return w * torch.isin(torch.arange(w.shape[1]), kept)


def _zero_rows(w, kept):
    return _zero_columns(w.T, kept).T


def _cut(*, choose=_kept, q=_columns, k=_columns, v=_columns, o=_rows):
    """A slip: pruning in which one of the steps is done another way."""

    def wrong(w_q, w_k, w_v, w_o, num_heads, keep):
        kept = choose(w_q, num_heads, keep)
        return q(w_q, kept), k(w_k, kept), v(w_v, kept), o(w_o, kept)

    return wrong


def _other_heads(choose):
    """`_kept` with another list of heads."""
    return lambda w_q, num_heads, keep: _kept(w_q, num_heads, choose(num_heads, keep))


def _by_rows_of_w_q(w_q, num_heads, keep):
    head_dim = w_q.shape[0] // num_heads
    return torch.cat([torch.arange(head * head_dim, (head + 1) * head_dim) for head in keep])


def _dealt(w_q, num_heads, keep):
    return torch.arange(w_q.shape[1]).reshape(-1, num_heads).T[list(keep)].flatten()


_prune_heads = Exercise(
    name="prune_heads",
    lesson="05",
    minutes=12,
    difficulty=3,
    framework="torch",
    contract=(
        "prune_heads(w_q, w_k, w_v, w_o, num_heads, keep): three (d_model, num_heads * head_dim) "
        "tensors and one (num_heads * head_dim, d_model), all used as x @ w; keep: list of the "
        "heads that stay, counted from 0, at least one\n"
        "-> (w_q, w_k, w_v, w_o), smaller: the kept heads alone, in the order of keep. They give "
        "what the whole matrices give when the other heads' outputs are set to 0\n"
        "head_dim need not be d_model // num_heads: heads may have been removed before; gradients "
        "reach the four tensors"
    ),
    arguments=("w_q", "w_k", "w_v", "w_o", "num_heads", "keep"),
    reference=heads.prune_heads,
    returns=("w_q", "w_k", "w_v", "w_o"),
    cases=(
        Case("keep = [1], two heads of one feature", lambda: (*_four(2, 2, 1), 2, [1])),
        Case("keep = [0], the only head", lambda: (*_four(3, 1, 3), 1, [0])),
        Case("keep = [1], three heads", lambda: (*_four(6, 3, 2), 3, [1])),
        Case("keep = [0, 2], three heads", lambda: (*_four(6, 3, 2), 3, [0, 2])),
        Case("keep = [2, 0], in this order", lambda: (*_four(6, 3, 2), 3, [2, 0])),
        Case("keep = [0, 1, 2], all heads", lambda: (*_four(6, 3, 2), 3, [0, 1, 2])),
        Case(
            "keep = [1, 2], heads together narrower than d_model",
            lambda: (*_four(12, 3, 2), 3, [1, 2]),
        ),
        Case(
            "keep = [0, 2, 3], heads together wider than d_model",
            lambda: (*_four(4, 4, 3), 4, [0, 2, 3]),
        ),
        Case("keep = [4, 0, 3], odd sizes", lambda: (*_random(7, 5, 3, seed=1), 5, [4, 0, 3])),
        Case(
            "keep = [1, 3], weights that do not lie side by side in memory",
            lambda: (*_transposed_in_memory(*_random(8, 4, 2, seed=2)), 4, [1, 3]),
        ),
        Case(
            "keep = [0, 3], float64",
            lambda: (*_random(8, 4, 2, seed=3, dtype=torch.float64), 4, [0, 3]),
        ),
        Case(
            "keep = [2, 1], gradients in float64",
            lambda: (*_random(6, 3, 2, seed=4, dtype=torch.float64), 3, [2, 1]),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _cut(q=_rows, k=_rows, v=_rows, o=_columns),
            "rows and columns are swapped: in x @ w the columns of w make the features",
            "cut the columns of w_q, w_k and w_v and the rows of w_o",
        ),
        Slip(
            _cut(q=_rows, k=_rows, v=_rows),
            "rows were cut in all four; but in w_q, w_k and w_v a head owns columns",
            "cut w[:, kept] for these three, and w_o[kept]",
        ),
        Slip(
            _cut(o=_columns),
            "w_o lost columns, which belong to the features of the output",
            "cut its rows, which meet the features of the heads: w_o[kept]",
        ),
        Slip(
            _cut(o=_whole),
            "w_o is whole: its rows still wait for the features of the heads that are gone",
            "cut its rows too: w_o[kept]",
        ),
        Slip(
            _cut(o=lambda w, kept: w[kept][:, kept[kept < w.shape[1]]]),
            "w_o lost rows and columns; its columns belong to the features of the output",
            "cut only its rows: w_o[kept]",
        ),
        Slip(
            _cut(q=_whole, k=_whole),
            "w_q and w_k are whole: a head that is gone needs no queries and keys either",
            "cut the columns of w_q, w_k and w_v alike",
        ),
        Slip(
            _cut(k=_whole),
            "w_k is whole: queries and keys no longer fit each other",
            "cut the columns of w_q, w_k and w_v alike",
        ),
        Slip(
            _cut(v=_whole),
            "w_v is whole: there are values for heads that are gone",
            "cut the columns of w_q, w_k and w_v alike",
        ),
        Slip(
            _cut(q=_zero_columns, k=_zero_columns, v=_zero_columns, o=_zero_rows),
            "the other heads were set to 0 and are still there: the output is right, and nothing "
            "was saved",
            "index with the features that stay: w_q[:, kept]",
        ),
        Slip(
            _cut(q=_whole, k=_whole, v=_whole, o=_zero_rows),
            "the rows of w_o were set to 0 and no matrix became smaller",
            "index with the features that stay: w_o[kept], and w_q[:, kept] and so on",
        ),
        Slip(
            _cut(choose=_other_heads(lambda num_heads, keep: sorted(keep))),
            "the heads stand in the order they had before, not in the order of keep; a mask of "
            "True and False has no order",
            "go through keep in its order, or index with it: features[keep]",
        ),
        Slip(
            _cut(
                choose=_other_heads(
                    lambda num_heads, keep: [h for h in range(num_heads) if h not in keep]
                )
            ),
            "the heads in keep were removed, and the others stayed",
            "the numbers in keep are those of the heads that stay",
        ),
        Slip(
            _cut(choose=_dealt),
            "every num_heads-th feature was taken: features dealt out in turn",
            "a head owns features side by side: h * head_dim to (h + 1) * head_dim",
        ),
        Slip(
            _cut(choose=lambda w_q, num_heads, keep: torch.tensor(keep)),
            "the numbers in keep were used as those of features: one column for each head",
            "a head owns head_dim features: h * head_dim to (h + 1) * head_dim",
        ),
        Slip(
            _cut(choose=_other_heads(lambda num_heads, keep: range(len(keep)))),
            "the first len(keep) heads stayed, whichever keep names",
            "go through the numbers in keep",
        ),
        Slip(
            _cut(choose=_other_heads(lambda num_heads, keep: keep[:1])),
            "only the first head in keep stayed",
            "collect the features of all heads in keep",
        ),
        Slip(
            _cut(choose=_other_heads(lambda num_heads, keep: keep[-1:])),
            "only the last head in keep stayed: each took the place of the one before",
            "collect the features of all heads in keep",
        ),
        Slip(
            _cut(choose=_other_heads(lambda num_heads, keep: range(min(keep), max(keep) + 1))),
            "everything between the first and the last kept head stayed too",
            "take the features of each head in keep by itself",
        ),
        Slip(
            _cut(choose=_other_heads(lambda num_heads, keep: [head - 1 for head in keep])),
            "the heads were counted from 1",
            "count from 0: head h owns the features h * head_dim to (h + 1) * head_dim",
        ),
        Slip(
            _cut(choose=_by_rows_of_w_q),
            "the width of a head was computed from d_model, the rows of w_q; head_dim need not be "
            "d_model // num_heads",
            "compute it from the columns: w_q.shape[1] // num_heads",
        ),
        Slip(
            lambda *given: tuple(w.T for w in _cut()(*given)),
            "the four matrices are transposed, as an nn.Linear keeps them",
            "return them as x @ w needs them",
        ),
    ),
    hints=(
        "In x @ w, column j of w makes feature j. Head h owns the features h * head_dim to "
        "(h + 1) * head_dim: these columns of w_q, w_k and w_v. In w_o they meet the rows with the "
        "same numbers.",
        "head_dim is w_q.shape[1] // num_heads. Collect the numbers of all features that stay, "
        "head by head in the order of keep; call them kept.",
        "torch.arange(w_q.shape[1]).reshape(num_heads, -1) has a row of feature numbers for each "
        "head; [keep] picks rows and .flatten() makes one list of them.",
        "Then w_q[:, kept], w_k[:, kept], w_v[:, kept] and w_o[kept].",
    ),
)

EXERCISES = (_prune_heads,)
