"""The exercises of lesson 04 on projections: the sum inside W_o, and heads fused into one."""

import torch

from mhalib import functional, projections
from mhalib.exercises.catalogue import Case, Exercise, Slip
from mhalib.exercises.lesson_04 import counting, normal


def _heads(batch, num_heads, seq_len, head_dim, d_out, seed=0, dtype=torch.float32):
    """Heads, an output matrix and a bias."""
    shapes = (batch, num_heads, seq_len, head_dim), (num_heads * head_dim, d_out), (d_out,)
    return normal(*shapes, seed=seed, dtype=dtype)


def _without_bias(*heads_w_o_b_o):
    heads, w_o, b_o = heads_w_o_b_o
    return heads, w_o, torch.zeros_like(b_o)


def _from_split_heads(heads, w_o, b_o):
    """The same numbers as split_heads and a transposed nn.Linear weight leave them in memory."""
    return heads.transpose(1, 2).contiguous().transpose(1, 2), w_o.T.contiguous().T, b_o


def _rows(w_o, num_heads):
    """(num_heads, head_dim, d_out): the block of rows of each head."""
    return w_o.reshape(num_heads, -1, w_o.shape[1])


def _summed(*, blocks=_rows, join=lambda products: products.sum(dim=1), bias=lambda b_o, n: b_o):
    """A slip: the sum over heads in which one of the steps is done another way."""

    def wrong(heads, w_o, b_o):
        num_heads = heads.shape[1]
        products = heads @ blocks(w_o, num_heads)
        return join(products) + bias(b_o, num_heads)

    return wrong


_output_projection_as_sum = Exercise(
    name="output_projection_as_sum",
    lesson="04",
    minutes=8,
    difficulty=2,
    framework="torch",
    contract=(
        "output_projection_as_sum(heads, w_o, b_o): (batch, num_heads, seq_len, head_dim), "
        "(num_heads * head_dim, d_out) and (d_out,) tensors\n-> (batch, seq_len, d_out) tensor: "
        "the sum over heads of head @ its block of head_dim rows of w_o, and b_o added once"
    ),
    arguments=("heads", "w_o", "b_o"),
    reference=projections.output_projection_as_sum,
    cases=(
        Case(
            "one head and a bias of zeros",
            lambda: (counting(1, 1, 2, 2), counting(2, 3), torch.zeros(3)),
        ),
        Case(
            "two heads of one feature and a bias of zeros",
            lambda: (torch.tensor([[[[1.0]], [[10.0]]]]), counting(2, 3) + 1, torch.zeros(3)),
        ),
        Case(
            "two heads of two features and a bias of zeros",
            lambda: _without_bias(*_heads(1, 2, 3, 2, 5, seed=1)),
        ),
        Case(
            "an output as wide as the heads together, and a bias of zeros",
            lambda: _without_bias(*_heads(1, 2, 3, 2, 4, seed=2)),
        ),
        Case("one head and a bias", lambda: _heads(1, 1, 2, 3, 4, seed=3)),
        Case("two heads and a bias", lambda: _heads(1, 2, 3, 2, 4, seed=4)),
        Case("as many tokens as heads", lambda: _heads(1, 3, 3, 2, 6, seed=5)),
        Case("two samples and odd sizes", lambda: _heads(2, 5, 7, 3, 11, seed=6)),
        Case(
            "heads as split_heads gives them",
            lambda: _from_split_heads(*_heads(2, 3, 4, 2, 6, seed=7)),
        ),
        Case("float64", lambda: _heads(2, 4, 3, 2, 5, seed=8, dtype=torch.float64)),
        Case(
            "gradients in float64",
            lambda: _heads(2, 3, 4, 2, 5, seed=9, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _summed(bias=lambda b_o, num_heads: num_heads * b_o),
            "the bias was added once for each head",
            "add b_o after the sum over heads, once",
        ),
        Slip(
            _summed(bias=lambda b_o, num_heads: 0),
            "the bias was not added",
            "add b_o to the sum, once",
        ),
        Slip(
            _summed(bias=lambda b_o, num_heads: b_o / num_heads),
            "only a part of the bias was added: b_o divided by the number of heads",
            "add the whole b_o once, after the sum",
        ),
        Slip(
            _summed(blocks=lambda w_o, num_heads: _rows(w_o, num_heads).flip(0)),
            "the blocks of w_o are in reverse order: head 0 met the last rows",
            "give head h the rows h * head_dim to (h + 1) * head_dim",
        ),
        Slip(
            _summed(
                blocks=lambda w_o, num_heads: torch.stack(
                    [w_o[head::num_heads] for head in range(num_heads)]
                )
            ),
            "the rows of w_o were dealt out in turn: every num_heads-th row to one head",
            "cut w_o into stretches: head h has the rows h * head_dim to (h + 1) * head_dim",
        ),
        Slip(
            _summed(
                blocks=lambda w_o, num_heads: torch.stack(
                    w_o.T[: w_o.shape[0]].split(w_o.shape[0] // num_heads)
                )
            ),
            "the blocks are columns of w_o, not rows",
            "the rows belong to the heads' features: w_o[h * head_dim : (h + 1) * head_dim]",
        ),
        Slip(
            _summed(blocks=lambda w_o, num_heads: _rows(w_o, num_heads)[:1]),
            "every head met the first block of rows",
            "move the block along: it begins at row h * head_dim",
        ),
        Slip(
            _summed(join=lambda products: products.mean(dim=1)),
            "the heads' products were averaged, so the result is num_heads times too small",
            "use sum in the place of mean",
        ),
        Slip(
            _summed(join=lambda products: products),
            "the heads' products were not added up: the axis of heads is still there",
            "sum over the heads, dim=1",
        ),
        Slip(
            _summed(join=lambda products: products.sum(dim=2)),
            "the sum runs over the tokens",
            "sum over the heads, dim=1",
        ),
        Slip(
            _summed(join=functional.merge_heads, bias=lambda b_o, num_heads: b_o.repeat(num_heads)),
            "the heads' products were put side by side, not added up",
            "add them: every head writes into all d_out features",
        ),
        Slip(
            _summed(join=lambda products: products[:, -1]),
            "only the last head came back: each head's product took the place of the one before",
            "start from zero and add: total = total + head @ block",
        ),
        Slip(
            _summed(join=lambda products: products[:, :-1].sum(dim=1)),
            "the last head is missing from the sum",
            "let the loop run over all heads: range(num_heads)",
        ),
        Slip(
            lambda heads, w_o, b_o: heads.reshape(heads.shape[0], heads.shape[2], -1) @ w_o + b_o,
            "the heads were joined by reshape without a transpose, so a row is filled from several "
            "tokens",
            "multiply each head by its own rows and add up; or merge with transpose(1, 2) first",
        ),
        Slip(
            lambda heads, w_o, b_o: functional.merge_heads(heads.flip(1)) @ w_o.flip(1) + b_o,
            "the columns of w_o are in reverse order",
            "cut w_o along its rows and leave the columns alone",
        ),
    ),
    hints=(
        "Head h fills the features h * head_dim to (h + 1) * head_dim of the merged row, and these "
        "meet the rows of w_o with the same numbers. No other row of w_o ever sees head h.",
        "In a loop: heads[:, h] has the shape (batch, seq_len, head_dim), and "
        "w_o[h * head_dim : (h + 1) * head_dim] the shape (head_dim, d_out).",
        "Add up the products of all heads, and b_o once, after the loop. Without a loop: "
        "w_o.reshape(num_heads, head_dim, -1) holds all blocks, and @ multiplies them one by one.",
    ),
)


def _as_a_list(function, *weights):
    return function(list(weights))


def _weights(num_heads, d_model, head_dim, **options):
    return normal(*[(d_model, head_dim)] * num_heads, **options)


def _case(shows, make, **options):
    return Case(shows, make, call=_as_a_list, **options)


_fused_equals_separate = Exercise(
    name="fused_equals_separate",
    lesson="04",
    minutes=5,
    difficulty=2,
    framework="torch",
    contract=(
        "fused_equals_separate(weights): list of num_heads tensors, each (d_model, head_dim)\n"
        "-> one (d_model, num_heads * head_dim) tensor w: head h of split_heads(x @ w, num_heads) "
        "is x @ weights[h], for every x"
    ),
    arguments=tuple(f"weights[{head}]" for head in range(5)),
    reference=projections.fuse_projections,
    cases=(
        _case("one head", lambda: (counting(2, 3),)),
        _case("two heads", lambda: counting(2, 3, 2).unbind()),
        _case("two square matrices", lambda: counting(2, 2, 2).unbind()),
        _case("heads of one feature", lambda: counting(3, 4, 1).unbind()),
        _case("as many heads as rows", lambda: _weights(3, 3, 2, seed=1)),
        _case("five heads of odd sizes", lambda: _weights(5, 7, 3, seed=2)),
        _case(
            "weights that do not lie side by side in memory",
            lambda: tuple(w.T for w in _weights(3, 2, 6, seed=3)),
        ),
        _case("float64", lambda: _weights(4, 5, 2, seed=4, dtype=torch.float64)),
        _case(
            "gradients in float64",
            lambda: _weights(3, 4, 2, seed=5, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            lambda weights: torch.cat(weights),
            "the matrices stand one below the other (torch.cat joins along dim=0)",
            "put them side by side: torch.cat(weights, dim=1)",
        ),
        Slip(
            lambda weights: torch.stack(weights),
            "torch.stack gave the heads a new axis; x @ w needs one matrix",
            "put the columns side by side: torch.cat(weights, dim=1)",
        ),
        Slip(
            lambda weights: torch.stack(weights, dim=1),
            "the matrices are stacked along a new axis in the middle; x @ w needs one matrix",
            "join the last two axes, or use torch.cat(weights, dim=1)",
        ),
        Slip(
            sum,
            "the matrices were added up, so the heads can no longer be told apart",
            "put their columns side by side: torch.cat(weights, dim=1)",
        ),
        Slip(
            lambda weights: torch.stack(weights).mean(dim=0),
            "the matrices were averaged",
            "put their columns side by side: torch.cat(weights, dim=1)",
        ),
        Slip(
            lambda weights: torch.stack(weights, dim=-1).flatten(1),
            "the columns are taken in turn, one of every head; split_heads cuts stretches",
            "keep the columns of a head side by side: torch.cat(weights, dim=1)",
        ),
        Slip(
            lambda weights: torch.cat(weights[::-1], dim=1),
            "the heads stand in reverse order",
            "begin with weights[0]",
        ),
        Slip(
            lambda weights: torch.cat(weights, dim=1).T,
            "rows and columns are swapped: this is the form of nn.Linear's weight",
            "return it as x @ w needs it: (d_model, num_heads * head_dim)",
        ),
        Slip(
            lambda weights: torch.stack(weights).reshape(weights[0].shape[0], -1),
            "stack and reshape without a transpose: a row is filled from several rows of one head",
            "put the columns side by side: torch.cat(weights, dim=1)",
        ),
        Slip(
            lambda weights: torch.block_diag(*weights),
            "this is block-diagonal: each head would see only its own piece of x",
            "every head sees the whole x: torch.cat(weights, dim=1)",
        ),
        Slip(
            lambda weights: torch.cat([weights[0]] * len(weights), dim=1),
            "every head got the matrix of the first",
            "use each of the matrices once, in order",
        ),
        Slip(
            lambda weights: torch.cat([w.flip(1) for w in weights], dim=1),
            "within each head the columns are in reverse order",
            "put the matrices side by side as they are",
        ),
        Slip(
            lambda weights: weights,
            "the list itself came back",
            "join the matrices into one: torch.cat(weights, dim=1)",
        ),
    ),
    hints=(
        "Column j of w makes feature j of x @ w: a column meets the whole x and nothing else.",
        "split_heads gives head h the features h * head_dim to (h + 1) * head_dim. Which columns "
        "make these features, and whose are they to be?",
        "Put the columns of weights[0] first, then those of weights[1], and so on: side by side.",
        "torch.cat(list, dim=1) joins matrices along their columns.",
    ),
    solution_note="In mhalib this function is called fuse_projections.",
)

EXERCISES = (_output_projection_as_sum, _fused_equals_separate)
