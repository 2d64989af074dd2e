"""prune_heads: faults in which features stay, in which axis is cut, and in what comes back."""

import torch

WRONG = {
    "features": {
        "old order": "not in the order of keep",
        "complement": "the heads in keep were removed",
        "interleaved": "every num_heads-th feature was taken",
        "single features": "one column for each head",
        "first ones": "whichever keep names",
        "one head": "only the first head in keep stayed",
        "last head": "only the last head in keep stayed",
        "all between": "everything between the first and the last kept head",
        "from one": "the heads were counted from 1",
        "width of d_model": "the width of a head was computed from d_model",
    },
    "axes": {
        "swapped": "rows and columns are swapped",
        "all rows": "rows were cut in all four",
        "all columns": "w_o lost columns",
        "w_o whole": "w_o is whole",
        "w_o both": "w_o lost rows and columns",
        "w_q and w_k whole": "w_q and w_k are whole",
        "w_k whole": "w_k is whole",
        "w_v whole": "w_v is whole",
        "zeros": "set to 0 and are still there",
        "zeros in w_o": "no matrix became smaller",
    },
    "return": {
        "transposed": "the four matrices are transposed",
        "w_o missing": "3 values, but 4 were expected",
        "float32": "default dtype",
        "numpy": "NumPy",
        "detached": "no gradient flows back",
    },
}
SAME = ()


def build(*faults):
    def prune_heads(w_q, w_k, w_v, w_o, num_heads, keep):
        stay = _features(faults, w_q, num_heads, keep)
        q = k = v = _columns
        o = _rows
        if "swapped" in faults:
            q = k = v = _rows
            o = _columns
        elif "all rows" in faults:
            q = k = v = _rows
        elif "all columns" in faults:
            o = _columns
        elif "w_o whole" in faults:
            o = _whole
        elif "w_o both" in faults:
            o = _rows_and_columns
        elif "w_q and w_k whole" in faults:
            q = k = _whole
        elif "w_k whole" in faults:
            k = _whole
        elif "w_v whole" in faults:
            v = _whole
        elif "zeros" in faults:
            q = k = v = _zeros_in_columns
            o = _zeros_in_rows
        elif "zeros in w_o" in faults:
            q = k = v = _whole
            o = _zeros_in_rows
        matrices = (q(w_q, stay), k(w_k, stay), v(w_v, stay), o(w_o, stay))

        if "transposed" in faults:
            return tuple(w.mT for w in matrices)
        if "w_o missing" in faults:
            return matrices[:3]
        if "float32" in faults:
            return tuple(w.float() for w in matrices)
        if "numpy" in faults:
            return tuple(w.detach().numpy() for w in matrices)
        return tuple(w.detach() for w in matrices) if "detached" in faults else matrices

    return prune_heads


def _features(faults, w_q, num_heads, keep):
    wide = w_q.shape[1]
    head_dim = wide // num_heads
    if "single features" in faults:
        return list(keep)
    if "interleaved" in faults:
        return [feature for head in keep for feature in range(head, wide, num_heads)]
    if "width of d_model" in faults:
        head_dim = len(w_q) // num_heads
    elif "old order" in faults:
        keep = [head for head in range(num_heads) if head in keep]
    elif "complement" in faults:
        keep = [head for head in range(num_heads) if head not in keep]
    elif "first ones" in faults:
        keep = range(len(keep))
    elif "one head" in faults:
        keep = [keep[0]]
    elif "last head" in faults:
        keep = [keep[-1]]
    elif "all between" in faults:
        keep = range(min(keep), max(keep) + 1)
    elif "from one" in faults:
        keep = [(head - 1) % num_heads for head in keep]
    return [head * head_dim + place for head in keep for place in range(head_dim)]


def _columns(w, stay):
    return w[:, stay]


def _rows(w, stay):
    return w[stay, :]


def _whole(w, stay):
    return w


def _rows_and_columns(w, stay):
    return w[stay][:, [feature for feature in stay if feature < w.shape[1]]]


def _zeros_in_columns(w, stay):
    mask = torch.zeros(w.shape[1], dtype=w.dtype)
    mask[stay] = 1
    return w * mask


def _zeros_in_rows(w, stay):
    return _zeros_in_columns(w.mT, stay).mT


def with_slices(w_q, w_k, w_v, w_o, num_heads, keep):
    head_dim = w_q.shape[1] // num_heads
    stretches = [slice(head * head_dim, (head + 1) * head_dim) for head in keep]
    smaller = [torch.cat([w[:, stretch] for stretch in stretches], 1) for w in (w_q, w_k, w_v)]
    return (*smaller, torch.cat([w_o[stretch] for stretch in stretches]))


def with_reshape(w_q, w_k, w_v, w_o, num_heads, keep):
    d_model = w_q.shape[0]
    q, k, v = (w.reshape(d_model, num_heads, -1)[:, keep].flatten(1) for w in (w_q, w_k, w_v))
    return q, k, v, w_o.reshape(num_heads, -1, w_o.shape[1])[keep].flatten(0, 1)


def with_chunk(w_q, w_k, w_v, w_o, num_heads, keep):
    def cut(w, dim):
        pieces = w.chunk(num_heads, dim=dim)
        return torch.cat([pieces[head] for head in keep], dim=dim)

    return [cut(w_q, 1), cut(w_k, 1), cut(w_v, 1), cut(w_o, 0)]


def with_index_select(w_q, w_k, w_v, w_o, num_heads, keep):
    head_dim = w_o.shape[0] // num_heads
    index = (torch.tensor(keep)[:, None] * head_dim + torch.arange(head_dim)).flatten()
    w_q, w_k, w_v = (w.index_select(-1, index) for w in (w_q, w_k, w_v))
    return w_q, w_k, w_v, w_o.index_select(0, index)


def with_transposes(w_q, w_k, w_v, w_o, num_heads, keep):
    def rows(w):
        return w.unflatten(0, (num_heads, -1))[keep].flatten(0, 1)

    return rows(w_q.T).T, rows(w_k.T).T, rows(w_v.T).T, rows(w_o)


def with_a_matrix_of_ones(w_q, w_k, w_v, w_o, num_heads, keep):
    wide = w_q.shape[1]
    unit = torch.eye(wide, dtype=w_q.dtype).reshape(num_heads, -1, wide)
    pick = torch.cat([unit[head] for head in keep])
    return w_q @ pick.T, w_k @ pick.T, w_v @ pick.T, pick @ w_o


def with_copying(w_q, w_k, w_v, w_o, num_heads, keep):
    d_model, head_dim = w_q.shape[0], w_q.shape[1] // num_heads
    wide = len(keep) * head_dim
    q, k, v = (torch.empty(d_model, wide, dtype=w_q.dtype) for _ in range(3))
    o = torch.empty(wide, w_o.shape[1], dtype=w_o.dtype)
    for new, old in enumerate(keep):
        for place in range(head_dim):
            to, of = new * head_dim + place, old * head_dim + place
            q[:, to], k[:, to], v[:, to], o[to] = w_q[:, of], w_k[:, of], w_v[:, of], w_o[of]
    return q, k, v, o


RIGHT = (
    with_slices,
    with_reshape,
    with_chunk,
    with_index_select,
    with_transposes,
    with_a_matrix_of_ones,
    with_copying,
)
