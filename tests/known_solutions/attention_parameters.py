"""attention_parameters: faults in the weights, in the biases, and in what comes back."""

WRONG = {
    "weights": {
        "no output": "the weights of the output projection are missing",
        "all heads": "keys and values were counted with num_heads heads",
        "one for both": "keys and values were counted once",
        "divided width": "computed as d_model // num_heads",
        "square": "every projection was counted as d_model × d_model",
        "square output": "the output projection was counted as d_model × d_model",
        "narrow output": "the output projection was counted with num_kv_heads heads",
        "heads again": "multiplied by the number of heads",
        "one head": "one head was counted",
    },
    "biases": {
        "always": "the biases were counted although bias is False",
        "never": "the biases are missing although bias is True",
        "no output bias": "the bias of the output projection is missing",
        "wide output bias": "the bias of the output projection was counted as wide as the heads",
        "d_model each": "every bias was counted as d_model numbers",
        "all heads' biases": "the biases of keys and values were counted with num_heads heads",
    },
    "return": {
        "float": "the result is a float",
        "list": "came back as a list",
        "nothing": "returned None",
    },
}
SAME = ()


def build(*faults):
    def attention_parameters(d_model, num_heads, num_kv_heads, head_dim, bias):
        query_heads, kv_heads, times = num_heads, num_kv_heads, 1
        if "divided width" in faults:
            head_dim = d_model // num_heads
        elif "heads again" in faults:
            times = num_heads
        elif "one head" in faults:
            query_heads = kv_heads = 1

        columns = {
            "q": query_heads * head_dim,
            "k": kv_heads * head_dim,
            "v": kv_heads * head_dim,
            "o": d_model,
        }
        rows = dict.fromkeys("qkv", d_model) | {"o": query_heads * head_dim}
        biases = dict(columns)
        if "all heads" in faults:
            columns["k"] = columns["v"] = columns["q"]
        elif "one for both" in faults:
            columns["v"] = 0
        elif "no output" in faults:
            columns["o"] = 0
        elif "square output" in faults:
            rows["o"] = d_model
        elif "narrow output" in faults:
            rows["o"] = columns["k"]
        elif "square" in faults:
            rows = dict.fromkeys("qkvo", d_model)
            columns = biases = dict(rows)

        if "no output bias" in faults:
            biases["o"] = 0
        elif "wide output bias" in faults:
            biases["o"] = biases["q"]
        elif "d_model each" in faults:
            biases = dict.fromkeys("qkvo", d_model)
        elif "all heads' biases" in faults:
            biases["k"] = biases["v"] = biases["q"]

        count = sum(rows[name] * columns[name] for name in "qkvo")
        if (bias or "always" in faults) and "never" not in faults:
            count += sum(biases.values())
        count *= times
        if "float" in faults:
            return count / 1
        if "list" in faults:
            return [count]
        return None if "nothing" in faults else count

    return attention_parameters


def by_layers(d_model, num_heads, num_kv_heads, head_dim, bias):
    def linear(in_features, out_features):
        return (in_features + 1) * out_features if bias else in_features * out_features

    wide, narrow = num_heads * head_dim, num_kv_heads * head_dim
    return linear(d_model, wide) + 2 * linear(d_model, narrow) + linear(wide, d_model)


def per_head(d_model, num_heads, num_kv_heads, head_dim, bias):
    total = 0
    for _ in range(num_heads):
        total += 2 * d_model * head_dim + bias * head_dim
    for _ in range(num_kv_heads):
        total += 2 * (d_model * head_dim + bias * head_dim)
    return total + (d_model if bias else 0)


def by_torch(d_model, num_heads, num_kv_heads, head_dim, bias):
    from torch import nn

    wide, narrow = num_heads * head_dim, num_kv_heads * head_dim
    shapes = [(d_model, wide), (d_model, narrow), (d_model, narrow), (wide, d_model)]
    layers = [nn.Linear(*shape, bias=bias, device="meta") for shape in shapes]
    return sum(p.numel() for layer in layers for p in layer.parameters())


def with_parts(d_model, num_heads, num_kv_heads, head_dim, bias):
    weights = 2 * d_model * head_dim * (num_heads + num_kv_heads)
    biases = (num_heads + 2 * num_kv_heads) * head_dim + d_model if bias else 0
    return {"weights": weights, "biases": biases, "total": weights + biases}


RIGHT = (by_layers, per_head, by_torch, with_parts)
