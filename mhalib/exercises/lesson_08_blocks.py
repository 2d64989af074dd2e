"""The exercises of lesson 08, Long inputs, few bits: attention to one block of keys at a time."""

import math

import numpy as np
import torch

from mhalib import pieces
from mhalib.exercises.catalogue import Case, Exercise, Fault, Slip, call_in_order
from mhalib.exercises.observing import largest_new

NEVER = -math.inf


def _inputs(batch, num_heads, query_len, key_len, head_dim, block_size, mask=None, **options):
    """Query, key, value, block_size and, if there is one, attn_mask; fresh at every call."""
    rng = np.random.default_rng(options.get("seed", 0))
    size, dtype = options.get("size", 1.0), options.get("dtype", torch.float32)

    def tensor(length, scale):
        numbers = rng.standard_normal((batch, num_heads, length, head_dim)) * scale
        return torch.from_numpy(numbers).to(dtype)

    given = (tensor(query_len, size), tensor(key_len, size), tensor(key_len, 1.0), block_size)
    return given if mask is None else (*given, mask())


def _of(*sizes, **options):
    return lambda: _inputs(*sizes, **options)


def _in_order(*, rising):
    """Two queries of one direction, and keys sorted by their score with them."""
    query, key, value, block_size = _inputs(1, 1, 2, 6, 4, 3, seed=3, size=1.5)
    query = query[:, :, :1] * torch.tensor([[1.0], [0.7]])
    order = (key[0, 0] @ query[0, 0, 0]).argsort(descending=not rising)
    return query, key[:, :, order], value, block_size


def _equal_scores():
    query, *rest = _inputs(1, 1, 2, 5, 3, 2, seed=2)
    return torch.zeros_like(query), *rest


def _very_low(mask=None):
    """float64 scores around -20,000."""
    _, key, value, *rest = _inputs(1, 2, 3, 8, 4, 3, mask, seed=13, dtype=torch.float64)
    return torch.ones(1, 2, 3, 4, dtype=torch.float64), key - 10_000, value, *rest


def _split_from_rows():
    """Heads that were split off by a transpose: not contiguous."""
    *heads, block_size = _inputs(2, 3, 4, 7, 5, 3, seed=16)
    return (*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in heads), block_size)


def _pattern():
    """(3, 8): every row sees some, not all, of each block of three."""
    rows = ([1, 0, 1, 0, 1, 1, 1, 0], [0, 1, 0, 1, 0, 1, 0, 1], [1, 1, 0, 0, 0, 1, 1, 0])
    return torch.tensor(rows).bool()


def _hidden(first, last):
    """A maker of (3, 8) masks: the second row sees nothing from key `first` up to `last`."""

    def make():
        mask = torch.ones(3, 8, dtype=torch.bool)
        mask[1, first:last] = False
        mask[2, 4] = False
        return mask

    return make


def _causal():
    return torch.ones(6, 6, dtype=torch.bool).tril()


def _frugal(reason, step):
    """A call that allows no tensor as large as all scores of one head."""

    def call(function, *arguments):
        query_len, key_len = arguments[0].shape[2], arguments[1].shape[2]
        output, elements = largest_new(call_in_order, function, *arguments)
        if elements >= query_len * key_len:
            raise Fault(
                f"a tensor of {elements} numbers was made on the way, and the scores of "
                f"{query_len} queries with {key_len} keys are {query_len * key_len}: "
                "the numbers are right, but all scores of a head were there at once",
                reason,
                step,
            )
        return output

    return call


def _safe(scores, maximum):
    return torch.exp(scores - pieces._finite(maximum))


def _keys(key_len, block_size):
    return [slice(start, start + block_size) for start in range(0, key_len, block_size)]


def _online(
    *,
    keys=_keys,
    scale=lambda query: 1 / math.sqrt(query.shape[-1]),
    hide=lambda scores, mask, keys: scores.masked_fill(~mask[:, keys], NEVER),
    peak=lambda old, block: torch.maximum(old, block),
    power=_safe,
    own=lambda block, both: both,
    shrink_total=_safe,
    shrink_output=_safe,
    step=lambda output, total: output,
    end=lambda output, total: output / total,
):
    """A slip: attention in blocks with one of the steps done another way."""

    def wrong(query, key, value, block_size, attn_mask=None):
        rows = query.shape[:3]
        maximum, total = query.new_full((*rows, 1), NEVER), query.new_zeros(*rows, 1)
        output = torch.zeros_like(query)
        for block in keys(key.shape[2], block_size):
            scores = query @ key[:, :, block].mT * scale(query)
            if attn_mask is not None:
                scores = hide(scores, attn_mask, block)
            block_maximum = scores.amax(dim=-1, keepdim=True)
            both = peak(maximum, block_maximum)
            powers = power(scores, own(block_maximum, both))
            total = total * shrink_total(maximum, both) + powers.sum(dim=-1, keepdim=True)
            output = output * shrink_output(maximum, both) + powers @ value[:, :, block]
            output, maximum = step(output, total), both
        return end(output, total)

    return wrong


def _joined(join):
    """A slip: every block is softmaxed by itself, and the blocks' outputs are joined."""

    def wrong(query, key, value, block_size, attn_mask=None):
        outputs, lengths = [], []
        for block in _keys(key.shape[2], block_size):
            scores = query @ key[:, :, block].mT / math.sqrt(query.shape[-1])
            if attn_mask is not None:
                scores = scores.masked_fill(~attn_mask[:, block], NEVER)
            outputs.append(scores.softmax(dim=-1).nan_to_num() @ value[:, :, block])
            lengths.append(scores.shape[-1])
        return join(torch.stack(outputs), torch.tensor(lengths, dtype=query.dtype))

    return wrong


def _unchanged(old, new):
    return torch.ones_like(old)


def _upside_down(old, new):
    return torch.where(old == NEVER, 0.0, torch.exp(new - old))


_blockwise_attention = Exercise(
    name="blockwise_attention",
    lesson="08",
    minutes=15,
    difficulty=3,
    framework="torch",
    contract=(
        "blockwise_attention(query, key, value, block_size, attn_mask=None): tensors of shape "
        "(batch, num_heads, query_len, head_dim) and twice (batch, num_heads, key_len, head_dim); "
        "a whole number: keys taken at a time, the last block may be shorter; None or a boolean "
        "(query_len, key_len) mask, True = may attend\n"
        "Every query may see some key, though a whole block may be hidden from it. No tensor of "
        "query_len x key_len numbers may be made on the way.\n"
        "-> (batch, num_heads, query_len, head_dim) tensor: the output of attention"
    ),
    arguments=("query", "key", "value", "block_size", "attn_mask"),
    reference=pieces.attention_in_pieces,
    returns=("the output",),
    cases=(
        Case("one block", _of(1, 1, 2, 3, 4, 3)),
        Case("two blocks and equal scores", _equal_scores),
        Case("two blocks, the larger scores in the first", lambda: _in_order(rising=False)),
        Case("two blocks, the larger scores in the second", lambda: _in_order(rising=True)),
        Case("four blocks in any order", _of(1, 1, 3, 8, 4, 2, seed=4, size=1.5)),
        Case("a last block that is shorter", _of(1, 1, 3, 8, 4, 3, seed=5, size=1.5)),
        Case("blocks of one key", _of(1, 1, 2, 5, 3, 1, seed=6)),
        Case("a block longer than the text", _of(1, 1, 2, 4, 3, 100, seed=7)),
        Case("two samples and three heads", _of(2, 3, 4, 7, 5, 3, seed=8)),
        Case("float64 and scores around -20000", _very_low),
        Case(
            "float64 and scores of some thousands, up and down",
            _of(1, 2, 3, 8, 4, 3, seed=15, size=60.0, dtype=torch.float64),
        ),
        Case("a mask that hides some keys of each block", _of(2, 2, 3, 8, 4, 3, _pattern, seed=9)),
        Case(
            "a mask that hides the last block from a query",
            _of(1, 2, 3, 8, 4, 3, _hidden(6, 8), seed=10),
        ),
        Case(
            "a mask that hides the block in the middle from a query",
            _of(1, 2, 3, 8, 4, 3, _hidden(3, 6), seed=11),
        ),
        Case(
            "a mask that hides the first block from a query",
            _of(1, 2, 3, 8, 4, 3, _hidden(0, 3), seed=12),
        ),
        Case("a causal mask", _of(2, 3, 6, 6, 4, 2, _causal, seed=14)),
        Case("float64, scores around -20000 and a mask", lambda: _very_low(_hidden(0, 3))),
        Case("heads that were split off by a transpose", _split_from_rows),
        Case(
            "many queries and many keys",
            _of(1, 2, 64, 64, 4, 8, seed=18),
            call=_frugal(
                "the whole matrix of scores was made, or put together from its blocks; it grows "
                "with the square of the length, which blocks are to avoid",
                "forget a block's scores as soon as its total and its output are added",
            ),
        ),
        Case(
            "few queries and many keys",
            _of(1, 2, 8, 200, 2, 8, seed=19),
            call=_frugal(
                "the queries were taken in blocks, but each of them meets all keys at once",
                "let the loop run over the keys, block_size at a time: "
                "range(0, key.shape[2], block_size)",
            ),
        ),
        Case(
            "gradients in float64",
            _of(2, 2, 3, 7, 3, 3, seed=20, dtype=torch.float64),
            gradients=True,
        ),
        Case(
            "gradients in float64 where a mask hides a block",
            _of(1, 2, 3, 8, 4, 3, _hidden(0, 3), seed=21, dtype=torch.float64),
            gradients=True,
        ),
    ),
    slips=(
        Slip(
            _online(shrink_total=_unchanged),
            "the running total was not rescaled when the maximum rose",
            "multiply it by exp(old maximum - new maximum) before the block's sum is added",
        ),
        Slip(
            _online(shrink_output=_unchanged),
            "the running output was not rescaled when the maximum rose",
            "multiply it by exp(old maximum - new maximum) before the block's output is added",
        ),
        Slip(
            _online(shrink_total=_unchanged, shrink_output=_unchanged),
            "neither the running total nor the running output was rescaled when the maximum rose",
            "multiply both by exp(old maximum - new maximum) before the block is added",
        ),
        Slip(
            _online(own=lambda block, both: block),
            "a block counts from its own maximum, and what came before from the largest so far",
            "subtract the same maximum everywhere: the larger of the old one and the block's",
        ),
        Slip(
            _online(
                own=lambda block, both: block, shrink_total=_unchanged, shrink_output=_unchanged
            ),
            "every block counts from its own maximum, and they were added as they are",
            "let all count from one maximum, the largest so far, and rescale when it rises",
        ),
        Slip(
            _online(shrink_total=_upside_down, shrink_output=_upside_down),
            "the factor is upside down: what came before grows when the maximum rises",
            "multiply by exp(old maximum - new maximum), which is at most 1",
        ),
        Slip(
            _online(
                power=lambda scores, maximum: scores.exp(),
                shrink_total=_unchanged,
                shrink_output=_unchanged,
            ),
            "no maximum was subtracted: exp of a very low score is 0, and of a large one infinite",
            "subtract the largest score so far before exp, and rescale when it rises",
        ),
        Slip(
            _online(peak=lambda old, block: block),
            "the latest block's maximum took the place of the largest one: exp(old - new) "
            "overflows when the maximum falls, and is infinite after a hidden block",
            "never let it fall: torch.maximum(old maximum, block's maximum)",
        ),
        Slip(
            _online(power=lambda scores, maximum: torch.exp(scores - maximum)),
            "a query that has seen no key yet has a maximum of -inf, and -inf minus -inf is NaN",
            "subtract 0 there instead: maximum.masked_fill(maximum == -math.inf, 0)",
        ),
        Slip(
            _joined(lambda outputs, lengths: outputs.mean(dim=0)),
            "every block had a softmax of its own, and the blocks' outputs were averaged",
            "a block counts by its share of the whole sum: keep totals and outputs undivided, "
            "and divide once, at the end",
        ),
        Slip(
            _joined(lambda outputs, lengths: outputs.sum(dim=0)),
            "every block had a softmax of its own, and the blocks' outputs were added",
            "the weights of all blocks together sum to 1: keep totals and outputs undivided, and "
            "divide once, at the end",
        ),
        Slip(
            _joined(lambda outputs, lengths: torch.tensordot(lengths / lengths.sum(), outputs, 1)),
            "every block had a softmax of its own, and the blocks count by their number of keys",
            "a block counts by the sum of its exponentials, not by its length",
        ),
        Slip(
            _joined(lambda outputs, lengths: outputs[-1]),
            "only the last block came back",
            "what came before has to be kept, and the new block added to it",
        ),
        Slip(
            _online(step=lambda output, total: output / total, end=lambda output, total: output),
            "the output was divided by the total after each block, and then added to as if it had "
            "not been",
            "divide once, after the last block",
        ),
        Slip(
            _online(end=lambda output, total: output),
            "the output was not divided by the total",
            "divide once, after the last block",
        ),
        Slip(
            _online(keys=lambda n, size: _keys(n, size)[: max(1, n // size)]),
            "the last keys were left out: a shorter last block counts too",
            "let the loop run over range(0, key_len, block_size); a slice that reaches too far "
            "is cut off",
        ),
        Slip(
            _online(keys=lambda n, size: _keys(n, size)[:1]),
            "only the first block was used",
            "let the loop run over range(0, key_len, block_size)",
        ),
        Slip(
            _online(keys=lambda n, size: [slice(b.start, b.stop + 1) for b in _keys(n, size)]),
            "the blocks overlap: the first key of each counts twice",
            "a slice ends before its second number: start : start + block_size",
        ),
        Slip(
            _online(scale=lambda query: 1),
            "the scores were not scaled",
            "divide the scores by math.sqrt(query.shape[-1]) before the softmax",
        ),
        Slip(
            _online(scale=lambda query: 1 / query.shape[-1]),
            "the scores were divided by head_dim, not by its root",
            "divide once, by math.sqrt(query.shape[-1])",
        ),
        Slip(
            _online(hide=lambda scores, mask, keys: scores.masked_fill(mask[:, keys], NEVER)),
            "the mask is read the wrong way round: what may be attended to was hidden",
            "True means may attend, so fill where the mask is False: ~attn_mask",
        ),
        Slip(
            _online(hide=lambda scores, mask, keys: scores),
            "the mask was not used",
            "fill a block's scores with -inf where its part of the mask is False",
        ),
        Slip(
            _online(
                hide=lambda scores, mask, keys: scores.masked_fill(
                    ~mask[:, : scores.shape[-1]], NEVER
                )
            ),
            "every block got the mask's first columns",
            "cut the mask as the keys are cut: attn_mask[:, start : start + block_size]",
        ),
        Slip(
            _online(hide=lambda scores, mask, keys: scores * mask[:, keys]),
            "the hidden scores were set to 0, and exp(0) is 1: they still get a weight",
            "set them to -inf, whose exp is 0",
        ),
        Slip(
            _online(hide=lambda scores, mask, keys: scores.masked_fill(~mask[:, keys], -100.0)),
            "the hidden scores were set to -100, and other scores are below that",
            "set them to -inf, which no score is below",
        ),
    ),
    hints=(
        "Keep a piece for all queries, as in merge_softmax_pieces: begin with the piece of no keys "
        "(maximum -inf, total 0, output 0), and merge one block after the other into it.",
        "for start in range(0, key.shape[2], block_size): the block's keys are "
        "key[:, :, start : start + block_size]. A slice that reaches past the end is cut off.",
        "A block's piece: scores (scaled and masked), their maximum = "
        "scores.amax(dim=-1, keepdim=True), powers = exp(scores - maximum), total = the sum of "
        "powers, output = powers @ its values.",
        "A query from which a whole block is hidden has a maximum of -inf there: subtract 0 "
        "instead, or -inf minus -inf gives NaN.",
        "After the last block: output / total.",
    ),
    solution_note=(
        "It is merge_softmax_pieces in a loop, and answers a query that sees no key with zeros. "
        "mhalib.blockwise_attention also takes the queries in blocks, skips blocks that a causal "
        "mask hides, and shares key heads."
    ),
)

EXERCISES = (_blockwise_attention,)
