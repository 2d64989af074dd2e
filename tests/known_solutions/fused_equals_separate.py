"""fused_equals_separate: faults in which matrices are joined, how, and in what comes back."""

import torch

WRONG = {
    "matrices": {
        "backwards": "the heads stand in reverse order",
        "only the first": "every head got the matrix of the first",
        "columns backwards": "within each head the columns are in reverse order",
    },
    "join": {
        "below": "one below the other",
        "stacked": "a new axis; x @ w needs one matrix",
        "stacked in the middle": "a new axis in the middle",
        "sum": "the matrices were added up",
        "mean": "the matrices were averaged",
        "interleaved": "the columns are taken in turn",
        "stack and reshape": "stack and reshape without a transpose",
        "block diagonal": "block-diagonal",
        "list": "the list itself came back",
    },
    "return": {
        "transposed": "rows and columns are swapped",
        "float32": "default dtype",
        "detached": "the values left the graph",
        "numpy": "NumPy",
    },
}
SAME = ()


def build(*faults):
    def fused_equals_separate(weights):
        if "backwards" in faults:
            weights = list(reversed(weights))
        elif "only the first" in faults:
            weights = [weights[0] for _ in weights]
        elif "columns backwards" in faults:
            weights = [torch.fliplr(weight) for weight in weights]
        d_model, head_dim = weights[0].shape

        if "list" in faults:
            return weights
        if "below" in faults:
            fused = torch.vstack(weights)
        elif "stacked" in faults:
            fused = torch.stack(weights, dim=0)
        elif "stacked in the middle" in faults:
            fused = torch.stack(weights, dim=1)
        elif "sum" in faults:
            fused = torch.stack(weights).sum(0)
        elif "mean" in faults:
            fused = torch.stack(weights).sum(0) / len(weights)
        elif "interleaved" in faults:
            columns = [weight[:, j] for j in range(head_dim) for weight in weights]
            fused = torch.stack(columns, dim=1)
        elif "stack and reshape" in faults:
            fused = torch.stack(weights).reshape(d_model, len(weights) * head_dim)
        elif "block diagonal" in faults:
            fused = torch.block_diag(*weights)
        else:
            fused = torch.hstack(weights)

        if "transposed" in faults:
            return fused.mT
        if "float32" in faults:
            return fused.float()
        if "numpy" in faults:
            return fused.detach().numpy()
        return fused.detach() if "detached" in faults else fused

    return fused_equals_separate


def with_cat(weights):
    return torch.cat(weights, dim=-1)


def with_stack_and_flatten(weights):
    return torch.stack(weights, dim=1).flatten(1)


def with_permute(weights):
    heads = torch.stack(weights)
    return heads.permute(1, 0, 2).reshape(heads.shape[1], -1)


def with_transposes(weights):
    return torch.cat([weight.T for weight in weights]).T


def with_a_loop(weights):
    d_model, head_dim = weights[0].shape
    fused = torch.empty(d_model, len(weights) * head_dim, dtype=weights[0].dtype)
    for head, weight in enumerate(weights):
        fused[:, head * head_dim : (head + 1) * head_dim] = weight
    return fused


def with_the_unit_matrix(weights):
    unit = torch.eye(weights[0].shape[0], dtype=weights[0].dtype)
    return torch.cat([unit @ weight for weight in weights], dim=1)


def with_einsum(weights):
    return torch.einsum("hdk->dhk", torch.stack(weights)).flatten(start_dim=1)


RIGHT = (
    with_cat,
    with_stack_and_flatten,
    with_permute,
    with_transposes,
    with_a_loop,
    with_the_unit_matrix,
    with_einsum,
)
