"""output_projection_as_sum: faults in the blocks of w_o, in the sum, and in the bias."""

import torch

WRONG = {
    "blocks": {
        "backwards": "the blocks of w_o are in reverse order",
        "dealt": "the rows of w_o were dealt out in turn",
        "columns": "the blocks are columns of w_o",
        "always the first": "every head met the first block",
        "columns backwards": "the columns of w_o are in reverse order",
        "reshaped heads": "the heads were joined by reshape without a transpose",
    },
    "sum": {
        "mean": "the heads' products were averaged",
        "none": "the heads' products were not added up",
        "over the tokens": "the sum runs over the tokens",
        "side by side": "put side by side",
        "overwritten": "only the last head came back",
        "one too few": "the last head is missing",
        "float32": "default dtype",
        "detached": "the values left the graph",
    },
    "bias": {
        "per head": "the bias was added once for each head",
        "left out": "the bias was not added",
        "shared out": "only a part of the bias",
    },
}
SAME = ()


def build(*faults):
    def output_projection_as_sum(heads, w_o, b_o):
        batch, num_heads, seq_len, head_dim = heads.shape
        if "reshaped heads" in faults:
            mixed = heads.reshape(batch, seq_len, num_heads, head_dim)
            heads = mixed.permute(0, 2, 1, 3)
        if "columns" in faults:
            w_o = w_o.T
        elif "columns backwards" in faults:
            w_o = w_o.flip(1)

        products = []
        for head in range(num_heads):
            first = head * head_dim
            if "backwards" in faults:
                first = (num_heads - 1 - head) * head_dim
            elif "always the first" in faults:
                first = 0
            block = w_o[first : first + head_dim]
            if "dealt" in faults:
                block = w_o[head::num_heads]
            products.append(heads.select(1, head) @ block)

        if "per head" in faults:
            b_o = b_o * num_heads
        elif "left out" in faults:
            b_o = b_o * 0
        elif "shared out" in faults:
            b_o = b_o / num_heads

        if "mean" in faults:
            total = sum(products) / num_heads
        elif "none" in faults:
            total = torch.stack(products, dim=1)
        elif "over the tokens" in faults:
            total = torch.stack(products, dim=1).sum(dim=2)
        elif "side by side" in faults:
            total, b_o = torch.cat(products, dim=-1), torch.cat([b_o] * num_heads)
        elif "overwritten" in faults:
            total = products[-1]
        elif "one too few" in faults:
            total = sum(products[:-1]) if num_heads > 1 else torch.zeros_like(products[0])
        else:
            total = sum(products)

        total = total + b_o
        if "float32" in faults:
            return total.float()
        return total.detach() if "detached" in faults else total

    return output_projection_as_sum


def with_a_loop(heads, w_o, b_o):
    head_dim = heads.shape[-1]
    output = b_o.expand(heads.shape[0], heads.shape[2], -1)
    for head in range(heads.shape[1]):
        output = output + heads[:, head] @ w_o[head * head_dim : (head + 1) * head_dim]
    return output


def with_chunks(heads, w_o, b_o):
    blocks = torch.chunk(w_o, heads.shape[1], dim=0)
    return sum(head @ block for head, block in zip(heads.unbind(1), blocks, strict=True)) + b_o


def with_einsum(heads, w_o, b_o):
    blocks = w_o.unflatten(0, heads.shape[1::2])
    return torch.einsum("bhld,hdo->blo", heads, blocks) + b_o


def in_place_from_the_bias(heads, w_o, b_o):
    batch, _, seq_len, head_dim = heads.shape
    output = torch.zeros(batch, seq_len, w_o.shape[1], dtype=heads.dtype)
    for head, block in enumerate(w_o.split(head_dim)):
        output += torch.matmul(heads[:, head], block)
    output += b_o
    return output


def merged_at_once(heads, w_o, b_o):
    return heads.transpose(1, 2).flatten(2) @ w_o + b_o


def with_a_block_matrix(heads, w_o, b_o):
    padded = torch.zeros_like(heads.transpose(1, 2).flatten(2))
    total = b_o
    for head in range(heads.shape[1]):
        columns = slice(head * heads.shape[3], (head + 1) * heads.shape[3])
        alone = padded.clone()
        alone[..., columns] = heads[:, head]
        total = total + alone @ w_o
    return total


RIGHT = (
    with_a_loop,
    with_chunks,
    with_einsum,
    in_place_from_the_bias,
    merged_at_once,
    with_a_block_matrix,
)
