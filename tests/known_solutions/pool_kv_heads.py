"""pool_kv_heads: faults in the groups, in what is made of one, and in what comes back."""

import torch

WRONG = {
    "groups": {
        "dealt": "every num_kv_heads-th head was taken into a group",
        "one group": "the mean of all heads stands in every group",
        "num_kv_heads as size": "num_kv_heads was used as the number of heads in a group",
        "features": "neighbouring features were averaged",
        "over the groups": "the mean runs over the groups",
        "over the features": "the mean runs over the features of a head",
    },
    "pooled": {
        "sum": "the heads of a group were added up",
        "first": "the first head of each group was kept",
        "last": "the last head of each group was kept",
        "median": "the median was taken",
        "every head": "there are as many as before",
    },
    "kept": {
        "first heads": "the first num_kv_heads heads were kept",
        "as it was": "w came back as it was",
    },
    "return": {
        "own axis": "the heads still have an axis of their own",
        "transposed": "as an nn.Linear keeps its weight",
        "same memory": "the result lies in the memory of w",
        "in place": "the input w was changed",
        "float32": "default dtype",
        "detached": "the values left the graph",
    },
}
SAME = ()


def build(*faults):
    def pool(heads, dim):
        if "sum" in faults:
            return heads.sum(dim)
        if "first" in faults or "last" in faults:
            return heads.select(dim, -1 if "last" in faults else 0)
        if "median" in faults:
            return heads.median(dim).values
        if "every head" in faults:
            return torch.repeat_interleave(heads.mean(dim), heads.shape[dim], dim=1)
        return heads.mean(dim)

    def pool_kv_heads(w, num_heads, num_kv_heads):
        rows, columns = w.shape
        head_dim = columns // num_heads
        group_size = num_heads // num_kv_heads
        if "as it was" in faults or ("same memory" in faults and group_size == 1):
            return w.T if "transposed" in faults else w
        if "first heads" in faults:
            pooled = w[:, : head_dim * num_kv_heads].unflatten(1, (num_kv_heads, head_dim)).clone()
        elif "dealt" in faults:
            pooled = pool(w.view(rows, group_size, num_kv_heads, head_dim), 1)
        elif "one group" in faults:
            pooled = pool(w.unflatten(1, (1, num_heads, head_dim)), 2)
            pooled = torch.cat([pooled] * num_kv_heads, dim=1)
        elif "num_kv_heads as size" in faults:
            pooled = pool(w.unflatten(1, (-1, num_kv_heads, head_dim)), 2)
        elif "features" in faults:
            pooled = pool(w.unflatten(1, (num_kv_heads, head_dim, group_size)), 3)
        elif "over the groups" in faults:
            pooled = pool(w.unflatten(1, (num_kv_heads, group_size, head_dim)), 1)
        elif "over the features" in faults:
            pooled = pool(w.unflatten(1, (num_kv_heads, group_size, head_dim)), 3)
        else:
            pooled = pool(w.unflatten(1, (num_kv_heads, group_size, head_dim)), 2)

        if "in place" in faults:
            with torch.no_grad():
                w *= 0.5
        if "own axis" not in faults:
            pooled = pooled.reshape(rows, -1)
        if "transposed" in faults:
            pooled = pooled.transpose(0, 1)
        if "float32" in faults:
            return pooled.float()
        return pooled.detach() if "detached" in faults else pooled

    return pool_kv_heads


def step_by_step(w, num_heads, num_kv_heads):
    head_dim = w.shape[1] // num_heads
    group_size = num_heads // num_kv_heads
    groups = []
    for first in range(0, num_heads, group_size):
        members = range(first, first + group_size)
        total = sum(w[:, head * head_dim : (head + 1) * head_dim] for head in members)
        groups.append(total / group_size)
    return torch.cat(groups, dim=1)


def with_einsum(w, num_heads, num_kv_heads):
    groups = w.unflatten(1, (num_kv_heads, num_heads // num_kv_heads, -1))
    return torch.einsum("mgsd->mgd", groups).flatten(1) * num_kv_heads / num_heads


def with_chunk(w, num_heads, num_kv_heads):
    groups = [
        torch.stack(group.chunk(num_heads // num_kv_heads, dim=1)).mean(dim=0)
        for group in torch.chunk(w, num_kv_heads, dim=1)
    ]
    return torch.hstack(groups)


def with_a_matrix(w, num_heads, num_kv_heads):
    size = num_heads // num_kv_heads
    share = torch.eye(num_kv_heads, dtype=w.dtype).repeat_interleave(size, dim=0) / size
    return w @ torch.kron(share, torch.eye(w.shape[1] // num_heads, dtype=w.dtype))


def with_view_of_the_rows(w, num_heads, num_kv_heads):
    rows = w.T.reshape(num_kv_heads, num_heads // num_kv_heads, -1, w.shape[0])
    return rows.mean(dim=1).reshape(-1, w.shape[0]).T


RIGHT = (step_by_step, with_einsum, with_chunk, with_a_matrix, with_view_of_the_rows)
