"""attention_flops: faults in a product, in the lengths and the batch, in the heads, in the dict."""

WRONG = {
    "product": {
        "multiplications": "half of what it should be",
        "k - 1 additions": "only k - 1 additions",
    },
    "lengths": {
        "no batch": "multiply every product by batch",
        "no batch in scores": "the batch plays no part in scores and mix",
        "keys as queries": "keys and values were counted with query_len tokens",
        "queries as keys": "queries and outputs were counted with key_len tokens",
        "output as keys": "the output was counted with key_len tokens",
        "squared": "scores and mix grow with query_len * query_len",
        "halved": "as if under a causal mask",
        "one key": "scores and mix were counted for one key",
    },
    "heads": {
        "kv heads": "scores and mix were counted with num_kv_heads heads",
        "one head": "scores and mix were counted for one head",
        "whole width": "each head's scores and mix were counted as d_model wide",
        "all heads": "the key and value projections were counted with num_heads heads",
        "divided width": "computed as d_model // num_heads",
    },
    "return": {
        "no scores": "scores and mix are 0",
        "mix missing": "the dict has no mix",
        "sum": "type int came back, but a dict was expected",
        "floats": "the numbers are floats",
        "nothing": "returned None",
    },
}
SAME = ()


def build(*faults):
    def attention_flops(d_model, num_heads, num_kv_heads, head_dim, batch, query_len, key_len):
        if "divided width" in faults:
            head_dim = d_model // num_heads
        kv_heads = num_heads if "all heads" in faults else num_kv_heads
        wide, narrow = num_heads * head_dim, kv_heads * head_dim

        queries, keys, outputs = query_len, key_len, query_len
        if "keys as queries" in faults:
            keys = query_len
        elif "queries as keys" in faults:
            queries = outputs = key_len
        elif "output as keys" in faults:
            outputs = key_len
        sequences = 1 if "no batch" in faults else batch
        products = {
            "query": (sequences * queries, d_model, wide),
            "key": (sequences * keys, d_model, narrow),
            "value": (sequences * keys, d_model, narrow),
            "output": (sequences * outputs, wide, d_model),
        }
        flops = {name: _product(faults, *sizes) for name, sizes in products.items()}

        times = sequences * num_heads
        if "kv heads" in faults:
            times = sequences * kv_heads
        elif "one head" in faults:
            times = sequences
        if "no batch in scores" in faults:
            times //= batch
        width = d_model if "whole width" in faults else head_dim
        met, inner = key_len, key_len
        if "squared" in faults:
            met = inner = query_len
        elif "one key" in faults:
            met = inner = 1
        flops["scores"] = times * _product(faults, query_len, width, met)
        flops["mix"] = times * _product(faults, query_len, inner, width)
        if "halved" in faults:
            flops["scores"] = times * query_len * key_len // 2 * 2 * width
            flops["mix"] = flops["scores"]

        if "no scores" in faults:
            flops["scores"] = flops["mix"] = 0
        elif "mix missing" in faults:
            del flops["mix"]
        elif "sum" in faults:
            return sum(flops.values())
        elif "floats" in faults:
            return {name: number * 1.0 for name, number in flops.items()}
        return None if "nothing" in faults else flops

    return attention_flops


def _product(faults, m, k, n):
    if "multiplications" in faults:
        return m * k * n
    return m * n * (2 * k - 1) if "k - 1 additions" in faults else 2 * m * k * n


def in_one_line(d_model, num_heads, num_kv_heads, head_dim, batch, query_len, key_len):
    q, k, pairs = batch * query_len, batch * key_len, batch * query_len * key_len
    project = 2 * d_model * head_dim
    return {
        "query": q * num_heads * project,
        "key": k * num_kv_heads * project,
        "value": k * num_kv_heads * project,
        "scores": 2 * pairs * num_heads * head_dim,
        "mix": 2 * pairs * num_heads * head_dim,
        "output": q * num_heads * project,
    }


def per_head_and_sequence(d_model, num_heads, num_kv_heads, head_dim, batch, query_len, key_len):
    flops = dict.fromkeys(("query", "key", "value", "scores", "mix", "output", "total"), 0)
    for _ in range(batch):
        for _ in range(num_heads):
            flops["query"] += 2 * query_len * d_model * head_dim
            flops["scores"] += 2 * query_len * head_dim * key_len
            flops["mix"] += 2 * query_len * key_len * head_dim
            flops["output"] += 2 * query_len * head_dim * d_model
        for _ in range(num_kv_heads):
            flops["key"] += 2 * key_len * d_model * head_dim
            flops["value"] += 2 * key_len * d_model * head_dim
    flops["total"] = sum(flops.values())
    return flops


def by_counter(d_model, num_heads, num_kv_heads, head_dim, batch, query_len, key_len):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def numbers(*shape):
        return torch.empty(shape, device="meta")

    def count(left, right):
        with FlopCounterMode(display=False) as counter:
            torch.matmul(left, right)
        return counter.get_total_flops()

    wide, narrow = num_heads * head_dim, num_kv_heads * head_dim
    keys = numbers(batch * key_len, d_model)
    heads = batch * num_heads
    return {
        "query": count(numbers(batch * query_len, d_model), numbers(d_model, wide)),
        "key": count(keys, numbers(d_model, narrow)),
        "value": count(keys, numbers(d_model, narrow)),
        "scores": count(numbers(heads, query_len, head_dim), numbers(heads, head_dim, key_len)),
        "mix": count(numbers(heads, query_len, key_len), numbers(heads, key_len, head_dim)),
        "output": count(numbers(batch * query_len, wide), numbers(wide, d_model)),
    }


RIGHT = (in_one_line, per_head_and_sequence, by_counter)
