"""repeat_kv: faults in the order of the copies, in the axis, the number, and in the result."""

import torch

WRONG = {
    "order": {
        "tiled": "the heads were tiled",
        "first head": "every head is a copy of head 0",
    },
    "axis": {
        "tokens": "the tokens were repeated, not the heads",
        "features": "a head became wider",
        "samples": "the batch became larger",
        "before the split": "each feature was repeated by itself",
        "no axis": "one long row",
    },
    "number": {
        "num_kv_heads times": "repeated num_kv_heads times",
        "as num_heads": "read as the number of all query heads",
        "one too many": "there is one copy too many",
        "once": "nothing was repeated",
    },
    "return": {
        "five axes": "the copies have an axis of their own",
        "list": "list",
        "numpy": "NumPy",
        "float32": "default dtype",
        "detached": "the values left the graph",
    },
}
SAME = ()


def build(*faults):
    def repeat_kv(x, group_size):
        batch, num_kv_heads, seq_len, head_dim = x.shape
        if "num_kv_heads times" in faults:
            group_size = num_kv_heads
        elif "as num_heads" in faults:
            group_size = max(group_size // num_kv_heads, 1)
        elif "one too many" in faults:
            group_size += 1
        elif "once" in faults:
            group_size = 1
        axes = {"tokens": 2, "features": 3, "samples": 0}
        axis = next((axes[fault] for fault in faults if fault in axes), 1)

        if "before the split" in faults:
            side_by_side = x.permute(0, 2, 1, 3).reshape(batch, seq_len, -1, 1)
            copies = side_by_side.expand(-1, -1, -1, group_size).flatten(2)
            copies = copies.view(batch, seq_len, -1, head_dim).permute(0, 2, 1, 3)
        elif "no axis" in faults:
            copies = torch.repeat_interleave(x, group_size)
        elif "tiled" in faults:
            copies = torch.cat([x] * group_size, dim=axis)
        elif "first head" in faults:
            copies = torch.cat([x[:, :1]] * num_kv_heads * group_size, dim=axis)
        else:
            parts = x.split(1, dim=axis)
            copies = torch.cat([part for part in parts for _ in range(group_size)], dim=axis)

        if "five axes" in faults:
            return copies.unflatten(axis, (-1, group_size)) if copies.dim() == 4 else copies
        if "list" in faults:
            return list(copies)
        if "numpy" in faults:
            return copies.detach().numpy()
        if "float32" in faults:
            return copies.float()
        return copies.detach() if "detached" in faults else copies

    return repeat_kv


def with_expand(x, group_size):
    batch, num_kv_heads, seq_len, head_dim = x.shape
    x = x[:, :, None].expand(batch, num_kv_heads, group_size, seq_len, head_dim)
    return x.reshape(batch, num_kv_heads * group_size, seq_len, head_dim)


def with_stack(x, group_size):
    return torch.stack([x] * group_size, dim=2).flatten(1, 2)


def with_an_index(x, group_size):
    return x[:, torch.arange(x.shape[1] * group_size) // group_size]


def with_repeat(x, group_size):
    return x.unsqueeze(2).repeat(1, 1, group_size, 1, 1).flatten(1, 2)


def with_a_loop(x, group_size):
    copies = x.new_empty(x.shape[0], x.shape[1] * group_size, *x.shape[2:])
    for head in range(copies.shape[1]):
        copies[:, head] = x[:, head // group_size]
    return copies


def with_einsum(x, group_size):
    return torch.einsum("bhld,g->bhgld", x, x.new_ones(group_size)).flatten(1, 2)


def tiled_and_put_in_order(x, group_size):
    tiled = x.repeat(1, group_size, 1, 1)
    return tiled.unflatten(1, (group_size, -1)).transpose(1, 2).flatten(1, 2)


RIGHT = (
    with_expand,
    with_stack,
    with_an_index,
    with_repeat,
    with_a_loop,
    with_einsum,
    tiled_and_put_in_order,
)
