"""The exercises of lesson 06, What heads cost: the cache, and what fits beside the weights."""

import math

from mhalib import cost
from mhalib.exercises.catalogue import Exercise, Slip
from mhalib.exercises.lesson_06 import FLOAT, sizes


def _cache(
    *,
    per_position=lambda d_model, heads, kv_heads, head_dim: kv_heads * head_dim,
    per_call=lambda batch, key_len, layers: batch * key_len * layers,
    unit=lambda numbers, itemsize: numbers * itemsize,
    two=2,
):
    """A slip: the bytes of the cache with one of the steps done another way."""

    def wrong(d_model, heads, kv_heads, head_dim, batch, key_len, layers, itemsize):
        width = per_position(d_model, heads, kv_heads, head_dim)
        return unit(two * per_call(batch, key_len, layers) * width, itemsize)

    return wrong


_kv_cache_bytes = Exercise(
    name="kv_cache_bytes",
    lesson="06",
    minutes=5,
    difficulty=1,
    framework="numpy",
    contract=(
        "kv_cache_bytes(d_model, num_heads, num_kv_heads, head_dim, batch, key_len, num_layers, "
        "itemsize): eight whole numbers, not all of which play a part\n"
        "-> whole number: the bytes of a cache that keeps, in every layer, the key and the value "
        "of key_len positions of batch sequences; itemsize is the bytes of one number"
    ),
    arguments=(
        "d_model",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "batch",
        "key_len",
        "num_layers",
        "itemsize",
    ),
    reference=cost.kv_cache_bytes,
    cases=(
        sizes("one position, one layer, one byte a number", 3, 1, 1, 3, 1, 1, 1, 1),
        sizes("two bytes a number", 3, 1, 1, 3, 1, 1, 1, 2),
        sizes("five positions", 3, 1, 1, 3, 1, 5, 1, 4),
        sizes("three layers", 3, 1, 1, 3, 1, 5, 3, 4),
        sizes("four sequences", 3, 1, 1, 3, 4, 5, 1, 2),
        sizes("three heads", 6, 3, 3, 2, 1, 1, 1, 1),
        sizes("fewer key and value heads", 12, 6, 2, 2, 2, 7, 3, 2),
        sizes("heads together wider than d_model", 5, 4, 2, 3, 1, 3, 2, 4),
        sizes("the sizes of Llama-2-7B", 4096, 32, 32, 128, 1, 4096, 32, 2),
        sizes("the sizes of Llama-2-70B", 8192, 64, 8, 128, 16, 4096, 80, 2),
    ),
    slips=(
        Slip(
            _cache(two=1),
            "only the keys, or only the values, were counted",
            "multiply by 2: a key and a value for each position",
        ),
        Slip(
            _cache(per_position=lambda d_model, heads, kv_heads, head_dim: heads * head_dim),
            "num_heads heads were kept; the query heads share their keys and values",
            "use num_kv_heads: queries are not kept",
        ),
        Slip(
            _cache(per_position=lambda d_model, heads, kv_heads, head_dim: d_model),
            "d_model numbers were kept for each key and value",
            "a key has num_kv_heads * head_dim numbers, whatever d_model is",
        ),
        Slip(
            _cache(
                per_position=lambda d_model, heads, kv_heads, head_dim: (
                    kv_heads * (d_model // heads)
                )
            ),
            "the width of a head was computed as d_model // num_heads",
            "use the head_dim that is given",
        ),
        Slip(
            _cache(
                per_position=lambda d_model, heads, kv_heads, head_dim: heads // kv_heads * head_dim
            ),
            "num_heads // num_kv_heads heads were kept: that is how many query heads share one",
            "use num_kv_heads itself",
        ),
        Slip(
            _cache(per_position=lambda d_model, heads, kv_heads, head_dim: head_dim),
            "one key/value head was counted",
            "multiply by num_kv_heads",
        ),
        Slip(
            _cache(per_call=lambda batch, key_len, layers: key_len * layers),
            "the batch plays no part",
            "every sequence has a cache of its own: multiply by batch",
        ),
        Slip(
            _cache(per_call=lambda batch, key_len, layers: batch * key_len),
            "one layer was counted",
            "every layer keeps its own keys and values: multiply by num_layers",
        ),
        Slip(
            _cache(per_call=lambda batch, key_len, layers: batch * layers),
            "one position was counted",
            "multiply by key_len",
        ),
        Slip(
            _cache(per_call=lambda batch, key_len, layers: batch * key_len**2 * layers),
            "the cache grows with key_len squared, as scores do; scores are not kept",
            "multiply by key_len once",
        ),
        Slip(
            _cache(unit=lambda numbers, itemsize: numbers),
            "the numbers were counted, not their bytes",
            "multiply by itemsize",
        ),
        Slip(
            _cache(unit=lambda numbers, itemsize: 8 * numbers * itemsize),
            "this is eight times too much: bits, not bytes",
            "itemsize is in bytes already: leave the 8 out",
        ),
        Slip(
            _cache(unit=lambda numbers, itemsize: numbers * itemsize / 2**30),
            "the result is in GiB, 2**30 bytes each",
            "return bytes, as a whole number",
        ),
        Slip(
            _cache(unit=lambda numbers, itemsize: float(numbers * itemsize)),
            FLOAT,
            "multiply whole numbers only",
        ),
    ),
    hints=(
        "Ask of every size: would the cache grow if it doubled? Two of the eight play no part.",
        "For one position of one sequence, a layer keeps num_kv_heads keys of head_dim numbers, "
        "and as many values.",
        "2 * num_kv_heads * head_dim numbers, for each position, sequence and layer; itemsize "
        "bytes each.",
    ),
)


def _batch(
    *,
    free=lambda memory, parameters, itemsize: memory - parameters * itemsize,
    each=lambda cache, parameters, itemsize: cache,
    divide=lambda free, each: free // each,
    least=0,
):
    """A slip: the largest batch with one of the steps done another way."""

    def wrong(memory, parameters, itemsize, cache):
        left = free(memory, parameters, itemsize)
        count = divide(left, each(cache, parameters, itemsize))
        return count if least is None else max(least, count)

    return wrong


_largest_batch_that_fits = Exercise(
    name="largest_batch_that_fits",
    lesson="06",
    minutes=8,
    difficulty=2,
    framework="numpy",
    contract=(
        "largest_batch_that_fits(memory_bytes, num_parameters, itemsize, cache_bytes): four whole "
        "numbers\n"
        "-> whole number: how many sequences the memory holds, when the model's num_parameters "
        "parameters of itemsize bytes each lie in it once, and each sequence needs cache_bytes "
        "for its keys and values; 0 where not even the weights fit"
    ),
    arguments=("memory_bytes", "num_parameters", "itemsize", "cache_bytes"),
    reference=cost.largest_batch_that_fits,
    cases=(
        sizes("memory for exactly two sequences", 90, 10, 1, 40),
        sizes("two bytes a parameter", 180, 10, 2, 40),
        sizes("some memory left over", 110, 10, 2, 40),
        sizes("almost enough for one more", 139, 10, 2, 40),
        sizes("too little for one sequence", 50, 10, 2, 40),
        sizes("weights that fill the memory", 20, 10, 2, 40),
        sizes("weights that do not fit", 15, 10, 2, 40),
        sizes("weights far too large", 10, 100, 4, 40),
        sizes("the sizes of Llama-2-7B and 80 GB", 80 * 10**9, 6_738_415_616, 2, 2**31),
        sizes(
            "numbers longer than a float can hold",
            (10**9 + 7) * 10**9 - 1 + 2 * 10**9,
            10**9,
            2,
            10**9 + 7,
        ),
    ),
    slips=(
        Slip(
            _batch(free=lambda memory, parameters, itemsize: memory),
            "the whole memory was given to the caches; the weights lie in it, too",
            "take num_parameters * itemsize away first",
        ),
        Slip(
            _batch(free=lambda memory, parameters, itemsize: memory - parameters),
            "parameters were taken from bytes: each parameter needs itemsize bytes",
            "take num_parameters * itemsize away",
        ),
        Slip(
            _batch(
                free=lambda memory, parameters, itemsize: memory,
                each=lambda cache, parameters, itemsize: cache + parameters * itemsize,
            ),
            "every sequence brought its own copy of the weights",
            "the weights are there once: take them from the memory, then divide by cache_bytes",
        ),
        Slip(
            _batch(each=lambda cache, parameters, itemsize: cache * itemsize),
            "cache_bytes was multiplied by itemsize, but it is in bytes already",
            "divide by cache_bytes itself",
        ),
        Slip(
            _batch(divide=lambda free, each: round(free / each)),
            "the number was rounded to the nearest, so a sequence that nearly fits was let in",
            "round down: //",
        ),
        Slip(
            _batch(divide=lambda free, each: math.ceil(free / each)),
            "the number was rounded up, so the last sequence does not fit whole",
            "round down: //",
        ),
        Slip(
            _batch(divide=lambda free, each: free / each),
            "a part of a sequence was counted: / gives a float",
            "round down to a whole number: //",
        ),
        Slip(
            _batch(divide=lambda free, each: int(free / each)),
            "/ makes a float, which holds about 16 digits; the last ones were lost before int "
            "rounded down",
            "divide whole numbers by //, which is exact at any length",
        ),
        Slip(
            _batch(divide=lambda free, each: float(free // each)),
            FLOAT,
            "divide whole numbers by //, with whole numbers on both sides",
        ),
        Slip(
            _batch(divide=lambda free, each: free // each + 1),
            "there is one sequence too many",
            "// says how often cache_bytes goes in whole: add nothing",
        ),
        Slip(
            _batch(divide=lambda free, each: (free - 1) // each),
            "a sequence that fits exactly was left out",
            "memory may be used to the last byte: divide all that is free by cache_bytes",
        ),
        Slip(
            _batch(least=None),
            "a batch cannot be negative: where the weights do not fit, nothing does",
            "return max(0, …)",
        ),
        Slip(
            _batch(divide=lambda free, each: int(free / each), least=None),
            "the batch is negative where the weights are far too large; and / makes a float, which "
            "holds about 16 digits",
            "return max(0, …), and divide whole numbers by //",
        ),
        Slip(
            _batch(least=1),
            "a batch of 1 came back where none fits",
            "return 0 there: max(0, …)",
        ),
    ),
    hints=(
        "What is in memory before the first sequence comes? How many bytes are left then?",
        "num_parameters * itemsize bytes are taken. // says how often cache_bytes goes into the "
        "rest.",
        "The rest may be negative, and // rounds down: -5 // 40 is -1. max(0, …) makes it 0.",
    ),
)

EXERCISES = (_kv_cache_bytes, _largest_batch_that_fits)
