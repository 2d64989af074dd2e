"""merge_heads: faults in the heads, in how they are joined, and in what comes back."""

import torch

WRONG = {
    "heads": {
        "backwards": "the heads stand in reverse order",
        "only the first": "only head 0 came back",
    },
    "join": {
        "reshape only": "reshape alone keeps the numbers in their order in memory",
        "not joined": "not joined into one axis",
        "collected": "the features were collected in turn",
        "sum": "the heads were added up",
        "mean": "the heads were averaged",
        "along the tokens": "the heads were joined along the tokens",
        "tokens and features swapped": "two other axes were swapped: seq_len and head_dim",
        "heads and features swapped": "two other axes were swapped: num_heads and head_dim",
        "view": "view never moves them",
    },
    "return": {
        "features backwards": "the features of a token stand in reverse order",
        "turned": "features and tokens are swapped",
        "detached": "the values left the graph",
        "numpy": "NumPy",
    },
}
SAME = ()


def build(*faults):
    def merge_heads(x):
        if "only the first" in faults:
            x = x[:, 0:1]
        elif "backwards" in faults:
            x = torch.flip(x, dims=(1,))
        batch, num_heads, seq_len, head_dim = x.shape
        shape = (batch, seq_len, num_heads * head_dim)

        if "reshape only" in faults:
            merged = torch.reshape(x, shape)
        elif "not joined" in faults:
            merged = torch.einsum("bhld->blhd", x)
        elif "collected" in faults:
            merged = torch.stack(list(x.unbind(1)), dim=-1).reshape(shape)
        elif "sum" in faults:
            merged = torch.einsum("bhld->bld", x)
        elif "mean" in faults:
            merged = torch.einsum("bhld->bld", x) / num_heads
        elif "along the tokens" in faults:
            merged = torch.cat(list(x.unbind(1)), dim=1)
        elif "tokens and features swapped" in faults:
            merged = torch.einsum("bhld->bhdl", x).reshape(shape)
        elif "heads and features swapped" in faults:
            merged = torch.einsum("bhld->bdlh", x).reshape(shape)
        elif "view" in faults:
            merged = x.permute(0, 2, 1, 3).view(shape)
        else:
            merged = torch.cat(list(x.unbind(1)), dim=-1)

        if "features backwards" in faults:
            return torch.flip(merged, dims=(-1,))
        if "turned" in faults:
            return merged.mT
        if "numpy" in faults:
            return merged.detach().numpy()
        return merged.detach() if "detached" in faults else merged

    return merge_heads


def with_contiguous_view(x):
    batch, num_heads, seq_len, head_dim = x.size()
    return x.transpose(1, 2).contiguous().view(batch, seq_len, num_heads * head_dim)


def with_flatten(x):
    return x.swapaxes(1, 2).flatten(start_dim=2)


def with_permute(x):
    return x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def with_cat(x):
    return torch.cat([x[:, head] for head in range(x.shape[1])], dim=2)


def with_hstack(x):
    return torch.stack([torch.hstack(tuple(sample)) for sample in x])


def with_einsum(x):
    return torch.einsum("bhld->blhd", x).flatten(-2)


def with_a_loop(x):
    batch, num_heads, seq_len, head_dim = x.shape
    merged = torch.zeros(batch, seq_len, num_heads * head_dim, dtype=x.dtype)
    for head in range(num_heads):
        merged[..., head * head_dim : (head + 1) * head_dim] += x[:, head]
    return merged


RIGHT = (
    with_contiguous_view,
    with_flatten,
    with_permute,
    with_cat,
    with_hstack,
    with_einsum,
    with_a_loop,
)
