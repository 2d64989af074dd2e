"""kv_cache_bytes_per_token: faults in what is kept, in what is multiplied, and in the unit."""

WRONG = {
    "kept": {
        "keys alone": "only the keys, or only the values",
        "queries too": "three vectors were counted where two are kept",
    },
    "heads": {
        "one head": "one key/value head was counted",
        "heads twice": "the number of heads was multiplied in twice",
    },
    "times": {
        "one number": "a key was counted as one number",
        "one layer": "one layer was counted",
        "squared": "the product was squared",
    },
    "unit": {
        "numbers": "the numbers were counted, not their bytes",
        "bits": "bits, not bytes",
        "from bits": "read as bits and divided by 8",
        "kibibytes": "the result is in KiB",
        "float": "the result is a float",
        "nothing": "returned None",
    },
}
SAME = ()


def build(*faults):
    def kv_cache_bytes_per_token(num_layers, num_kv_heads, head_dim, itemsize):
        numbers = 1 if "one number" in faults else head_dim
        if "one head" not in faults:
            numbers *= num_kv_heads
        if "heads twice" in faults:
            numbers *= num_kv_heads
        if "one layer" not in faults:
            numbers *= num_layers
        if "queries too" in faults:
            numbers *= 3
        elif "keys alone" not in faults:
            numbers += numbers

        count = numbers if "numbers" in faults else numbers * itemsize
        if "bits" in faults:
            count *= 8
        elif "from bits" in faults:
            count //= 8
        if "squared" in faults:
            count **= 2
        if "kibibytes" in faults:
            return count / 2**10
        if "float" in faults:
            return count * 1.0
        return None if "nothing" in faults else count

    return kv_cache_bytes_per_token


def loop(num_layers, num_kv_heads, head_dim, itemsize):
    total = 0
    for _ in range(num_layers):
        key = num_kv_heads * head_dim * itemsize
        value = num_kv_heads * head_dim * itemsize
        total += key + value
    return total


def product(*sizes):
    import math

    return 2 * math.prod(sizes)


def from_the_whole_cache(num_layers, num_kv_heads, head_dim, itemsize):
    from mhalib.cost import kv_cache_bytes

    sizes = {"num_heads": num_kv_heads, "d_model": num_kv_heads * head_dim}
    return kv_cache_bytes(**sizes, key_len=1, num_layers=num_layers, itemsize=itemsize)


RIGHT = (loop, product, from_the_whole_cache)
