"""kv_cache_bytes: faults in what a position keeps, in what is multiplied, and in the unit."""

WRONG = {
    "kept": {
        "keys alone": "only the keys, or only the values",
    },
    "width": {
        "query heads": "num_heads heads were kept",
        "d_model": "d_model numbers were kept",
        "divided width": "computed as d_model // num_heads",
        "group size": "num_heads // num_kv_heads heads were kept",
        "one head": "one key/value head was counted",
    },
    "times": {
        "no batch": "the batch plays no part",
        "one layer": "one layer was counted",
        "one position": "one position was counted",
        "squared": "grows with key_len squared",
    },
    "unit": {
        "numbers": "the numbers were counted, not their bytes",
        "bits": "bits, not bytes",
        "gibibytes": "the result is in GiB",
        "float": "the result is a float",
        "nothing": "returned None",
    },
}
SAME = ()


def build(*faults):
    def kv_cache_bytes(
        d_model, num_heads, num_kv_heads, head_dim, batch, key_len, num_layers, itemsize
    ):
        key = num_kv_heads * head_dim
        if "query heads" in faults:
            key = num_heads * head_dim
        elif "d_model" in faults:
            key = d_model
        elif "divided width" in faults:
            key = num_kv_heads * (d_model // num_heads)
        elif "group size" in faults:
            key = (num_heads // num_kv_heads) * head_dim
        elif "one head" in faults:
            key = head_dim

        numbers = key if "keys alone" in faults else key + key
        if "one position" not in faults:
            numbers *= key_len
        if "squared" in faults:
            numbers *= key_len
        if "no batch" not in faults:
            numbers *= batch
        if "one layer" not in faults:
            numbers *= num_layers

        if "numbers" in faults:
            return numbers
        if "bits" in faults:
            return numbers * itemsize * 8
        if "gibibytes" in faults:
            return numbers * itemsize / 1024**3
        if "float" in faults:
            return numbers * itemsize * 1.0
        return None if "nothing" in faults else numbers * itemsize

    return kv_cache_bytes


def loop(d_model, num_heads, num_kv_heads, head_dim, batch, key_len, num_layers, itemsize):
    total = 0
    for _ in range(num_layers):
        keys = batch * num_kv_heads * key_len * head_dim
        values = batch * num_kv_heads * key_len * head_dim
        total += (keys + values) * itemsize
    return total


def product(*sizes):
    import math

    return 2 * math.prod(sizes[2:])


def by_torch(d_model, num_heads, num_kv_heads, head_dim, batch, key_len, num_layers, itemsize):
    import torch

    shape = (2, num_layers, batch, num_kv_heads, key_len, head_dim)
    return torch.empty(shape, dtype=torch.uint8, device="meta").nbytes * itemsize


RIGHT = (loop, product, by_torch)
