"""word_attention: faults on the side that is attended to, that asks, and at tokens of no word."""

import torch

WRONG = {
    "to": {
        "mean to": "the weights to the pieces of a word were averaged",
        "first to": "of the word attended to, only the first piece",
        "last to": "of the word attended to, only the last piece",
        "largest to": "only the one with the largest weight",
        "tokens to": "still a column for each token",
    },
    "from": {
        "sum from": "so a word of two pieces attends twice as",
        "first from": "of the word that asks, only the first piece",
        "last from": "of the word that asks, only the last piece",
        "all tokens from": "divided by the number of all tokens",
        "tokens from": "still a row for each token",
    },
    "both": {
        "first": "only the first piece of each word",
        "last": "only the last piece of each word",
        "sum and mean swapped": "sum and mean changed places",
    },
    "no word": {
        "own word": "a word of their own, number -1",
        "last word": "pieces of the last word",
        "first word": "pieces of the first word",
        "ends": "the first and the last token were cut off",
    },
    "result": {
        "transposed": "rows and columns are swapped",
        "rows stretched": "stretched to sum to 1",
        "backwards": "the words stand in reverse order",
    },
    "return": {
        "float32": "default dtype",
        "numpy": "NumPy",
        "detached": "no gradient flows back",
    },
}
SAME = ()


def build(*faults):
    def word_attention(weights, word_of_token):
        n = weights.shape[-1]
        if "ends" in faults:
            weights, word_of_token = weights[..., 1:-1, 1:-1], word_of_token[1:-1]
        words = word_of_token.tolist()
        last_word = max(words)
        if "first word" in faults:
            words = [max(word, 0) for word in words]
        elif "last word" in faults:
            words = [last_word if word < 0 else word for word in words]
        first_word = min(words) if "own word" in faults else 0
        pieces = [
            [token for token, of in enumerate(words) if of == word]
            for word in range(first_word, last_word + 1)
        ]

        if "tokens to" in faults:
            table = weights
        else:
            table = torch.stack([_to(faults, weights, places) for places in pieces], dim=-1)
        if "tokens from" not in faults:
            rows = [_from(faults, table, places, n) for places in pieces]
            table = torch.stack(rows, dim=-2)

        if "transposed" in faults:
            table = table.transpose(-2, -1)
        elif "rows stretched" in faults:
            table = table / table.sum(dim=-1, keepdim=True)
        elif "backwards" in faults:
            table = torch.flip(table, (-2, -1))
        if "numpy" in faults:
            return table.detach().numpy()
        if "float32" in faults:
            return table.float()
        return table.detach() if "detached" in faults else table

    return word_attention


def _to(faults, weights, places):
    columns = weights[..., places]
    if "mean to" in faults or "sum and mean swapped" in faults:
        return columns.mean(dim=-1)
    if "first to" in faults or "first" in faults:
        return weights[..., places[0]]
    if "last to" in faults or "last" in faults:
        return weights[..., places[-1]]
    return columns.amax(dim=-1) if "largest to" in faults else columns.sum(dim=-1)


def _from(faults, table, places, n):
    rows = table[..., places, :]
    if "sum from" in faults or "sum and mean swapped" in faults:
        return rows.sum(dim=-2)
    if "first from" in faults or "first" in faults:
        return rows[..., 0, :]
    if "last from" in faults or "last" in faults:
        return rows[..., -1, :]
    return rows.sum(dim=-2) / n if "all tokens from" in faults else rows.mean(dim=-2)


def with_masks(weights, word_of_token):
    is_piece = [word_of_token == word for word in range(int(word_of_token.max()) + 1)]
    columns = torch.stack([weights[..., mask].sum(dim=-1) for mask in is_piece], dim=-1)
    return torch.stack([columns[..., mask, :].mean(dim=-2) for mask in is_piece], dim=-2)


def rows_first(weights, word_of_token):
    words = word_of_token[word_of_token >= 0].unique()
    rows = torch.stack([weights[..., word_of_token == word, :].mean(-2) for word in words], -2)
    return torch.stack([rows[..., word_of_token == word].sum(-1) for word in words], -1)


def with_one_hot(weights, word_of_token):
    keep = word_of_token >= 0
    weights = weights[..., keep, :][..., keep]
    pieces = torch.nn.functional.one_hot(word_of_token[keep]).to(weights.dtype)
    return torch.diag(1 / pieces.sum(0)) @ pieces.T @ weights @ pieces


def with_einsum(weights, word_of_token):
    words = torch.arange(word_of_token.max() + 1)
    to = (word_of_token[:, None] == words).to(weights.dtype)
    return torch.einsum("iv,...ij,jw->...vw", to / to.sum(0), weights, to)


def with_a_word_more(weights, word_of_token):
    """Tokens of no word become word 0, which is cut off in the end."""
    pieces = torch.nn.functional.one_hot(word_of_token + 1).to(weights.dtype)
    means = pieces / pieces.sum(dim=0).clamp(min=1)
    return (means.T @ weights @ pieces)[..., 1:, 1:]


def with_index_add(weights, word_of_token):
    keep = (word_of_token >= 0).nonzero().flatten()
    index = word_of_token[keep]
    words = int(index.max()) + 1
    count = torch.bincount(index).to(weights.dtype)
    shape = weights.shape[:-2]
    inner = weights[..., keep[:, None], keep]
    columns = weights.new_zeros(*shape, len(keep), words).index_add(-1, index, inner)
    rows = weights.new_zeros(*shape, words, words).index_add(-2, index, columns)
    return rows / count[:, None]


def with_four_loops(weights, word_of_token):
    words = int(word_of_token.max()) + 1
    count = [int((word_of_token == word).sum()) for word in range(words)]
    result = torch.zeros(*weights.shape[:-2], words, words, dtype=weights.dtype)
    for i, asks in enumerate(word_of_token.tolist()):
        for j, asked in enumerate(word_of_token.tolist()):
            if asks >= 0 and asked >= 0:
                result[..., asks, asked] += weights[..., i, j] / count[asks]
    return result


RIGHT = (
    with_masks,
    rows_first,
    with_one_hot,
    with_einsum,
    with_a_word_more,
    with_index_add,
    with_four_loops,
)
