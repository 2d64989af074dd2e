"""split_heads: faults in the cut, in the order of the axes, and in what comes back."""

import torch

WRONG = {
    "cut": {
        "dealt": "the features were dealt out in turn",
        "num_heads as width": "num_heads was used as the width of a head",
        "copied": "every head got all features",
        "backwards": "the heads stand in reverse order",
    },
    "axes": {
        "reshape only": "reshape alone keeps the numbers in their order in memory",
        "not moved": "the heads still stand behind the tokens",
        "last two swapped": "the last two axes are swapped",
        "heads and features swapped": "two other axes were swapped: num_heads and head_dim",
        "swapped too early": "the transpose came before the cut",
        "heads first": "the heads stand before the batch",
        "folded into the batch": "batch and heads were folded into one axis",
        "joined along the tokens": "the heads were joined along the tokens",
    },
    "return": {
        "pieces": "the pieces came back one by one",
        "numpy": "NumPy",
        "float32": "default dtype",
        "detached": "the values left the graph",
    },
}
SAME = ()


def build(*faults):
    def split_heads(x, num_heads):
        batch, seq_len, d_model = x.shape
        if "num_heads as width" in faults:
            num_heads = d_model // num_heads
        head_dim = d_model // num_heads
        features = torch.arange(d_model)
        if "dealt" in faults:
            x = x[..., features.view(head_dim, num_heads).T.flatten()]
        elif "backwards" in faults:
            x = x[..., features.view(num_heads, head_dim).flip(0).flatten()]
        elif "copied" in faults:
            x = torch.cat([x] * num_heads, dim=-1)
            head_dim = d_model

        shape = (batch, num_heads, seq_len, head_dim)
        if "reshape only" in faults:
            heads = torch.reshape(x, shape)
        elif "swapped too early" in faults:
            heads = torch.reshape(x.mT, shape)
        else:
            order = {
                "not moved": "blhd",
                "last two swapped": "bhdl",
                "heads and features swapped": "bldh",
                "heads first": "hbld",
            }
            order = next((order[fault] for fault in faults if fault in order), "bhld")
            cut = x.unflatten(-1, (num_heads, head_dim))
            heads = torch.einsum(f"blhd->{order}", cut)
            if "folded into the batch" in faults:
                heads = heads.reshape(batch * num_heads, seq_len, head_dim)
            elif "joined along the tokens" in faults:
                heads = heads.reshape(batch, num_heads * seq_len, head_dim)

        if "pieces" in faults:
            return heads.unbind(dim=1)
        if "numpy" in faults:
            return heads.detach().numpy()
        if "float32" in faults:
            return heads.float()
        return heads.detach() if "detached" in faults else heads

    return split_heads


def with_view(x, num_heads):
    batch, seq_len, d_model = x.size()
    return x.view(batch, seq_len, num_heads, d_model // num_heads).transpose(1, 2)


def with_permute(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1).permute(0, 2, 1, 3).contiguous()


def with_unflatten(x, num_heads):
    return x.unflatten(2, (num_heads, -1)).swapaxes(1, 2)


def with_chunk(x, num_heads):
    return torch.stack(torch.chunk(x, num_heads, dim=-1), dim=1)


def with_split(x, num_heads):
    pieces = torch.split(x, x.shape[-1] // num_heads, dim=2)
    return torch.cat([piece.unsqueeze(1) for piece in pieces], dim=1)


def with_einsum(x, num_heads):
    return torch.einsum("blhd->bhld", x.unflatten(-1, (num_heads, -1)))


def with_a_loop(x, num_heads):
    batch, seq_len, d_model = x.shape
    head_dim = d_model // num_heads
    heads = x.new_empty(batch, num_heads, seq_len, head_dim)
    for head in range(num_heads):
        heads[:, head] = x[:, :, head * head_dim : (head + 1) * head_dim]
    return heads


RIGHT = (
    with_view,
    with_permute,
    with_unflatten,
    with_chunk,
    with_split,
    with_einsum,
    with_a_loop,
)
