"""blockwise_attention: faults in the rescaling, the maximum, the blocks, the mask and the end."""

import math

import torch
import torch.nn.functional as F

WRONG = {
    "rescale": {
        "total not rescaled": "the running total was not rescaled",
        "output not rescaled": "the running output was not rescaled",
        "nothing rescaled": "neither the running total nor the running output",
        "upside down": "the factor is upside down",
    },
    "maximum": {
        "not subtracted": "no maximum was subtracted",
        "block's own": "a block counts from its own maximum",
        "latest": "the latest block's maximum took the place",
        "NaN": "-inf minus -inf is NaN",
    },
    "join": {
        "mean": "the blocks' outputs were averaged",
        "sum": "the blocks' outputs were added",
        "by length": "the blocks count by their number of keys",
        "last": "only the last block came back",
    },
    "divide": {
        "every time": "divided by the total after each block",
        "never": "the output was not divided by the total",
    },
    "blocks": {
        "last left out": "the last keys were left out",
        "first only": "only the first block was used",
        "overlapping": "the blocks overlap",
        "whole": "the whole matrix of scores was made",
        "of queries": "the queries were taken in blocks",
    },
    "scale": {
        "none": "the scores were not scaled",
        "twice": "divided by head_dim, not by its root",
    },
    "mask": {
        "reversed": "the wrong way round",
        "ignored": "the mask was not used",
        "first columns": "every block got the mask's first columns",
        "filled with 0": "exp(0) is 1",
        "filled with -100": "set to -100",
    },
    "return": {
        "all three": "returned 3 values",
        "float32": "default dtype",
        "detached": "the values left the graph",
        "in place": "writes into the caller's own array",
    },
}
SAME = ()
JOINS = ("mean", "sum", "by length", "last")


def hidden(scores, mask, start, faults):
    """The block's scores with the mask, or with what a fault makes of it."""
    if mask is None or "ignored" in faults:
        return scores
    length = scores.shape[-1]
    first = 0 if "first columns" in faults else start
    shown = mask.narrow(1, first, length)
    if "reversed" in faults:
        shown = shown.logical_not()
    fill = 0.0 if "filled with 0" in faults else -math.inf
    fill = -100.0 if "filled with -100" in faults else fill
    return torch.where(shown, scores, fill)


def blocks_of(faults, key_len, block_size):
    starts = list(range(0, key_len, block_size))
    if "whole" in faults or "of queries" in faults:
        return [(0, key_len)]
    if "first only" in faults:
        starts = starts[:1]
    elif "last left out" in faults and key_len >= block_size:
        starts = [start for start in starts if start + block_size <= key_len]
    extra = 1 if "overlapping" in faults else 0
    return [(start, min(start + block_size + extra, key_len)) for start in starts]


def build(*faults):
    def blockwise_attention(query, key, value, block_size, attn_mask=None):
        if "in place" in faults:
            query = query.div_(math.sqrt(query.shape[-1]))
        elif "twice" in faults:
            query = query / query.shape[-1]
        elif "none" not in faults:
            query = query / math.sqrt(query.shape[-1])
        if "of queries" in faults and query.shape[2] > block_size:
            parts = [
                blockwise_attention_of(
                    query[:, :, first : first + block_size],
                    key,
                    value,
                    block_size,
                    None if attn_mask is None else attn_mask[first : first + block_size],
                )
                for first in range(0, query.shape[2], block_size)
            ]
            parts = list(zip(*parts, strict=True)) if isinstance(parts[0], tuple) else parts
            result = (
                tuple(torch.cat(part, dim=2) for part in parts)
                if isinstance(parts[0], tuple)
                else torch.cat(parts, dim=2)
            )
        else:
            result = blockwise_attention_of(query, key, value, block_size, attn_mask)
        if isinstance(result, torch.Tensor):
            result = result.float() if "float32" in faults else result
            result = result.detach() if "detached" in faults else result
        return result

    def blockwise_attention_of(query, key, value, block_size, attn_mask):
        running = torch.full_like(query[..., :1], -math.inf)
        total = torch.zeros_like(running)
        output = torch.zeros_like(query)
        outputs, lengths = [], []
        for start, end in blocks_of(faults, key.shape[2], block_size):
            scores = torch.einsum("bhqd,bhkd->bhqk", query, key[:, :, start:end])
            scores = hidden(scores, attn_mask, start, faults)
            if any(fault in JOINS for fault in faults):
                safe = scores.amax(-1, keepdim=True).clamp(min=-1e30)
                powers = (scores - safe).exp()
                sums = powers.sum(-1, keepdim=True).clamp(min=1e-30)
                outputs.append(powers / sums @ value[:, :, start:end])
                lengths.append(end - start)
                continue

            top = scores.amax(dim=-1, keepdim=True)
            new = top if "latest" in faults else torch.maximum(running, top)
            base = top if "block's own" in faults else new
            if "not subtracted" in faults:
                powers, factor = scores.exp(), torch.ones_like(new)
            elif "NaN" in faults:
                powers, factor = (scores - base).exp(), (running - new).exp()
            else:
                lowest = -1e30
                powers = (scores - base.clamp(min=lowest)).exp()
                factor = (running - new.clamp(min=lowest)).exp()
            if "upside down" in faults:
                factor = torch.where(running == -math.inf, 0.0, (new - running).exp())
            kept = "nothing rescaled" in faults
            total = total * (1 if kept or "total not rescaled" in faults else factor)
            output = output * (1 if kept or "output not rescaled" in faults else factor)
            total = total + powers.sum(dim=-1, keepdim=True)
            output = output + torch.matmul(powers, value[:, :, start:end])
            running = new
            if "every time" in faults:
                output = output / total

        if outputs:
            stacked = torch.stack(outputs)
            shares = query.new_tensor(lengths).view(-1, 1, 1, 1, 1)
            if "mean" in faults:
                return stacked.mean(0)
            if "by length" in faults:
                return (stacked * shares).sum(0) / shares.sum()
            return stacked.sum(0) if "sum" in faults else outputs[-1]
        if "never" not in faults and "every time" not in faults:
            output = output / total
        return (output, running, total) if "all three" in faults else output

    return blockwise_attention


def merged_pieces(query, key, value, block_size, attn_mask=None):
    merge = _merge
    piece = None
    for start in range(0, key.size(2), block_size):
        block = slice(start, start + block_size)
        scores = query @ key[:, :, block].mT / math.sqrt(query.size(-1))
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask[:, block], -torch.inf)
        maximum = scores.amax(-1, keepdim=True)
        powers = torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0))
        new = (maximum, powers.sum(-1, keepdim=True), powers @ value[:, :, block])
        piece = new if piece is None else merge(piece, new)
    return piece[2] / piece[1]


def _merge(left, right):
    maximum = torch.maximum(left[0], right[0])
    base = maximum.masked_fill(maximum == -torch.inf, 0)
    left_by, right_by = torch.exp(left[0] - base), torch.exp(right[0] - base)
    return maximum, left[1] * left_by + right[1] * right_by, left[2] * left_by + right[2] * right_by


def very_negative_fill(query, key, value, block_size, attn_mask=None):
    """-1e9 hides a key in float32: what it left behind is wiped out by the next real score."""
    batch, heads, query_len, head_dim = query.shape
    maximum = query.new_full((batch, heads, query_len, 1), -1e9)
    total, output = torch.zeros_like(maximum), torch.zeros_like(query)
    for start in range(0, key.shape[2], block_size):
        scores = query @ key[:, :, start : start + block_size].mT / head_dim**0.5
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask[:, start : start + block_size], -1e9)
        new = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        powers, factor = (scores - new).exp(), (maximum - new).exp()
        total = total * factor + powers.sum(-1, keepdim=True)
        output = output * factor + powers @ value[:, :, start : start + block_size]
        maximum = new
    return output / total


def with_split(query, key, value, block_size, attn_mask=None):
    """Kept divided all the time: a mean of means, weighted by what each has summed."""
    seen, output = None, None
    masks = [None] * key.shape[2]
    if attn_mask is not None:
        masks = attn_mask.split(block_size, dim=1)
    blocks = zip(key.split(block_size, dim=2), value.split(block_size, dim=2), masks, strict=False)
    for k, v, mask in blocks:
        scores = torch.einsum("bhqd,bhkd->bhqk", query * query.shape[-1] ** -0.5, k)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e30)
        new = scores.logsumexp(dim=-1, keepdim=True)
        mixed = scores.softmax(dim=-1) @ v
        if seen is None:
            seen, output = new, mixed
        else:
            both = torch.logaddexp(seen, new)
            output = output * (seen - both).exp() + mixed * (new - both).exp()
            seen = both
    return output


def two_passes(query, key, value, block_size, attn_mask=None):
    """First the maximum of all blocks, then the sums: nothing to rescale."""
    starts = range(0, key.shape[2], block_size)

    def scores(start):
        block = slice(start, start + block_size)
        found = query @ key[:, :, block].mT / math.sqrt(query.shape[-1])
        return found if attn_mask is None else found.masked_fill(~attn_mask[:, block], -torch.inf)

    with torch.no_grad():
        maximum = torch.cat([scores(s).amax(-1, keepdim=True) for s in starts], -1)
        maximum = maximum.amax(-1, keepdim=True)
    total = sum((scores(s) - maximum).exp().sum(-1, keepdim=True) for s in starts)
    powers = ((scores(s) - maximum).exp() @ value[:, :, s : s + block_size] for s in starts)
    return sum(powers) / total


def padded(query, key, value, block_size, attn_mask=None):
    """Keys filled up to whole blocks, and the padding hidden."""
    query_len, key_len = query.shape[2], key.shape[2]
    extra = -key_len % block_size
    key, value = F.pad(key, (0, 0, 0, extra)), F.pad(value, (0, 0, 0, extra))
    if attn_mask is not None:
        attn_mask = F.pad(attn_mask, (0, extra))
    maximum = query.new_full((*query.shape[:3], 1), -torch.inf)
    total = output = 0
    for start in range(0, key_len, block_size):
        stop = start + block_size
        scores = query @ key[:, :, start:stop].mT / math.sqrt(query.shape[-1])
        shown = torch.arange(start, stop).expand(query_len, -1) < key_len
        if attn_mask is not None:
            shown = shown & attn_mask[:, start:stop]
        scores = scores.where(shown, -torch.inf)
        new = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        base = new.nan_to_num(neginf=0.0)
        factor, powers = (maximum - base).exp(), (scores - base).exp()
        total = total * factor + powers.sum(-1, keepdim=True)
        output = output * factor + powers @ value[:, :, start:stop]
        maximum = new
    return output / total


def with_nan_to_num(query, key, value, block_size, attn_mask=None):
    """NaN is made where a block is hidden, and replaced: its gradient ends at the mask."""
    maximum = query.new_full((*query.shape[:3], 1), -torch.inf)
    total, output = torch.zeros_like(maximum), torch.zeros_like(query)
    for start in range(0, key.shape[2], block_size):
        block = slice(start, start + block_size)
        scores = query @ key[:, :, block].mT / math.sqrt(query.shape[-1])
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask[:, block], -torch.inf)
        new = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        powers = (scores - new).exp().nan_to_num(0.0)
        factor = (maximum - new).exp().nan_to_num(0.0)
        total = total * factor + powers.sum(-1, keepdim=True)
        output = output * factor + powers @ value[:, :, block]
        maximum = new
    return output / total


def query_blocks_too(query, key, value, block_size, attn_mask=None):
    parts = []
    for first in range(0, query.shape[2], 3):
        mask = None if attn_mask is None else attn_mask[first : first + 3]
        parts.append(merged_pieces(query[:, :, first : first + 3], key, value, block_size, mask))
    return torch.cat(parts, dim=2)


def fused(query, key, value, block_size, attn_mask=None):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


RIGHT = (
    merged_pieces,
    very_negative_fill,
    with_split,
    two_passes,
    padded,
    with_nan_to_num,
    query_blocks_too,
    fused,
)
