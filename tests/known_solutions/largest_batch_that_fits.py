"""largest_batch_that_fits: faults in what is free, in the division, and where nothing fits."""

import math

WRONG = {
    "free": {
        "no weights": "the whole memory was given to the caches",
        "parameters": "parameters were taken from bytes",
        "weights each": "every sequence brought its own copy of the weights",
    },
    "cache": {
        "itemsize again": "cache_bytes was multiplied by itemsize",
    },
    "division": {
        "nearest": "rounded to the nearest",
        "up": "the number was rounded up",
        "fraction": "a part of a sequence was counted",
        "through a float": "the last ones were lost",
        "float": "the result is a float",
        "one more": "one sequence too many",
        "not the last": "a sequence that fits exactly was left out",
    },
    "least": {
        "negative": "a batch cannot be negative",
        "one": "a batch of 1 came back where none fits",
    },
}
SAME = ()


def build(*faults):
    def largest_batch_that_fits(memory_bytes, num_parameters, itemsize, cache_bytes):
        weights = num_parameters * itemsize
        if "parameters" in faults:
            weights = num_parameters
        each = cache_bytes * itemsize if "itemsize again" in faults else cache_bytes
        free = memory_bytes - weights
        if "no weights" in faults:
            free = memory_bytes
        elif "weights each" in faults:
            free, each = memory_bytes, each + weights

        if "nearest" in faults:
            count = round(free / each)
        elif "up" in faults:
            count = math.ceil(free / each)
        elif "fraction" in faults:
            count = free / each
        elif "through a float" in faults:
            count = math.trunc(free / each)
        elif "float" in faults:
            count = (free - free % each) / each
        elif "one more" in faults:
            count = free // each + 1
        elif "not the last" in faults:
            count = (free - 1) // each
        else:
            count = free // each

        if "negative" in faults:
            return count
        return max(count, 1 if "one" in faults else 0)

    return largest_batch_that_fits


def one_by_one(memory_bytes, num_parameters, itemsize, cache_bytes):
    free = memory_bytes - num_parameters * itemsize
    count, step = 0, 1
    while step * cache_bytes <= free:
        step *= 2
    while step:
        if (count + step) * cache_bytes <= free:
            count += step
        step //= 2
    return count


def with_divmod(memory_bytes, num_parameters, itemsize, cache_bytes):
    weights = num_parameters * itemsize
    if weights > memory_bytes:
        return 0
    count, _ = divmod(memory_bytes - weights, cache_bytes)
    return count


def with_range(memory_bytes, num_parameters, itemsize, cache_bytes):
    return len(range(cache_bytes, memory_bytes - num_parameters * itemsize + 1, cache_bytes))


RIGHT = (one_by_one, with_divmod, with_range)
