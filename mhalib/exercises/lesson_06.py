"""The exercises of lesson 06, What heads cost: parameters and FLOPs. See lesson_06_memory."""

import inspect

from mhalib import cost
from mhalib.exercises.catalogue import Case, Exercise, Fault, Slip, call_in_order

PARTS = ("query", "key", "value", "scores", "mix", "output")

FLOAT = "the result is a float (2.0 and not 2): the division / makes one, // does not"


def sizes(shows, *numbers, **options):
    """A case with these arguments."""
    return Case(shows, lambda: numbers, **options)


def _parameters(*, kv=None, out=None, matrices=1, bias=None, head_dim=None):
    """A slip: the count of parameters with one of its steps done another way."""

    def wrong(d_model, num_heads, num_kv_heads, width, has_bias):
        width = head_dim(d_model, num_heads, num_kv_heads) if head_dim else width
        wide, narrow = num_heads * width, num_kv_heads * width
        narrow = kv(d_model, wide, narrow) if kv else narrow
        into = out(d_model, wide, narrow) if out else wide * d_model
        biases = bias(d_model, wide, narrow) if bias else wide + 2 * narrow + d_model
        return d_model * wide + (matrices + 1) * d_model * narrow + into + has_bias * biases

    return wrong


def _total(function, *given):
    """The learner's number; of a dict its total."""
    result = call_in_order(function, *given)
    return result["total"] if isinstance(result, dict) and "total" in result else result


_attention_parameters = Exercise(
    name="attention_parameters",
    lesson="06",
    minutes=8,
    difficulty=1,
    framework="numpy",
    contract=(
        "attention_parameters(d_model, num_heads, num_kv_heads, head_dim, bias): four whole "
        "numbers, and True or False\n"
        "-> whole number: the parameters of the query, key, value and output projections of one "
        "attention layer, and with bias=True those of their four biases\n"
        "num_heads * head_dim need not be d_model; a dict with this number as its total is right, "
        "too"
    ),
    arguments=("d_model", "num_heads", "num_kv_heads", "head_dim", "bias"),
    reference=cost.attention_parameters,
    cases=(
        sizes("one head, without biases", 3, 1, 1, 2, False, call=_total),
        sizes("one head, with biases", 3, 1, 1, 2, True, call=_total),
        sizes("two heads", 8, 2, 2, 4, False, call=_total),
        sizes("fewer key and value heads", 8, 4, 2, 2, False, call=_total),
        sizes("one key and value head", 10, 5, 1, 2, True, call=_total),
        sizes("heads together wider than d_model", 6, 4, 2, 3, True, call=_total),
        sizes("heads together narrower than d_model", 9, 2, 2, 3, False, call=_total),
        sizes("the sizes of BERT-base", 768, 12, 12, 64, True, call=_total),
        sizes("the sizes of Llama-2-70B", 8192, 64, 8, 128, False, call=_total),
    ),
    slips=(
        Slip(
            _parameters(out=lambda d_model, wide, narrow: 0),
            "the weights of the output projection are missing",
            "add num_heads * head_dim * d_model: W_o takes all heads, side by side, back to "
            "d_model numbers",
        ),
        Slip(
            _parameters(kv=lambda d_model, wide, narrow: wide),
            "keys and values were counted with num_heads heads",
            "use num_kv_heads for the key and the value projection",
        ),
        Slip(
            _parameters(matrices=0),
            "keys and values were counted once, as if they shared a projection",
            "count d_model * num_kv_heads * head_dim twice, for W_k and for W_v",
        ),
        Slip(
            _parameters(head_dim=lambda d_model, num_heads, num_kv_heads: d_model // num_heads),
            "the width of a head was computed as d_model // num_heads",
            "use the head_dim that is given: heads together may be wider than d_model, or narrower",
        ),
        Slip(
            lambda d_model, num_heads, num_kv_heads, head_dim, bias: (
                4 * d_model * d_model + bias * 4 * d_model
            ),
            "every projection was counted as d_model × d_model",
            "a projection has as many columns as its heads are wide together: heads * head_dim",
        ),
        Slip(
            _parameters(out=lambda d_model, wide, narrow: d_model * d_model),
            "the output projection was counted as d_model × d_model",
            "its rows meet all heads side by side: num_heads * head_dim rows, d_model columns",
        ),
        Slip(
            _parameters(out=lambda d_model, wide, narrow: narrow * d_model),
            "the output projection was counted with num_kv_heads heads",
            "it takes what the num_heads query heads found: num_heads * head_dim rows",
        ),
        Slip(
            lambda d_model, num_heads, num_kv_heads, head_dim, bias: (
                num_heads * _parameters()(d_model, num_heads, num_kv_heads, head_dim, bias)
            ),
            "the whole was multiplied by the number of heads, which is in the widths already",
            "num_heads * head_dim columns serve all heads: leave the last factor out",
        ),
        Slip(
            lambda d_model, num_heads, num_kv_heads, head_dim, bias: _parameters()(
                d_model, 1, 1, head_dim, bias
            ),
            "one head was counted",
            "a projection has a stretch of head_dim columns for every head",
        ),
        Slip(
            lambda *given: _parameters()(*given[:-1], True),
            "the biases were counted although bias is False",
            "add them only if bias is True",
        ),
        Slip(
            lambda *given: _parameters()(*given[:-1], False),
            "the biases are missing although bias is True",
            "add one number for each output of the four projections",
        ),
        Slip(
            _parameters(bias=lambda d_model, wide, narrow: wide + 2 * narrow),
            "the bias of the output projection is missing",
            "add its d_model numbers",
        ),
        Slip(
            _parameters(bias=lambda d_model, wide, narrow: 2 * wide + 2 * narrow),
            "the bias of the output projection was counted as wide as the heads",
            "a bias has a number for each output, and the layer's output has d_model",
        ),
        Slip(
            _parameters(bias=lambda d_model, wide, narrow: 4 * d_model),
            "every bias was counted as d_model numbers",
            "a bias has a number for each output of its projection: heads * head_dim for query, "
            "key and value",
        ),
        Slip(
            _parameters(bias=lambda d_model, wide, narrow: 3 * wide + d_model),
            "the biases of keys and values were counted with num_heads heads",
            "they have num_kv_heads * head_dim numbers each",
        ),
        Slip(lambda *given: float(_parameters()(*given)), FLOAT, "count with whole numbers"),
    ),
    hints=(
        "A projection from m numbers to n numbers has m * n weights, and n biases.",
        "W_q leads from d_model to num_heads * head_dim numbers; W_k and W_v from d_model to "
        "num_kv_heads * head_dim; W_o from num_heads * head_dim back to d_model.",
        "Name the two widths first: wide = num_heads * head_dim, narrow = num_kv_heads * head_dim.",
        "True counts as 1 in a product and False as 0: bias * (wide + 2 * narrow + d_model).",
    ),
    solution_note="It counts by part; the exercise asks for its total.",
)


def _flops_by_part(function, *given):
    """The learner's dict as a tuple in the order of `PARTS`."""
    code = getattr(function, "__code__", None)
    by_name = code and code.co_flags & inspect.CO_VARKEYWORDS and not code.co_argcount
    if by_name:  # the reference, which takes no argument by position
        result = function(**dict(zip(_attention_flops.arguments, given, strict=True)))
    else:
        result = call_in_order(function, *given)
    if result is None:
        return None
    if not isinstance(result, dict):
        raise Fault(
            f"a value of type {type(result).__name__} came back, but a dict was expected",
            "the contract asks for the FLOPs by part, so that you see where they go",
            'end with return {"query": …, "key": …, and so on}',
        )
    missing = [part for part in PARTS if part not in result]
    if missing:
        raise Fault(
            f"the dict has no {' and no '.join(missing)}",
            "one of the six matrix products was left out, or its name is spelled another way",
            f"return all six: {', '.join(PARTS)}",
        )
    return tuple(result[part] for part in PARTS)


def _flops(
    *,
    two=lambda inner: 2 * inner,
    scores_heads=lambda heads, kv_heads: heads,
    scores_width=lambda d_model, head_dim: head_dim,
    pairs=lambda q, k: q * k,
    batch=lambda b: (b, b),
    lengths=lambda q, k: (q, k, q),
    kv_heads=lambda heads, kv_heads: kv_heads,
    head_dim=lambda d_model, heads, head_dim: head_dim,
    left_out=(),
    last=lambda number: number,
):
    """A slip: the count of FLOPs with one of its steps done another way."""

    def wrong(d_model, heads, kv, dim, b, q, k):
        kv, dim = kv_heads(heads, kv), head_dim(d_model, heads, dim)
        for_projections, for_pairs = batch(b)
        n_query, n_key, n_output = (for_projections * length for length in lengths(q, k))
        met = for_pairs * scores_heads(heads, kv) * pairs(q, k)
        width = scores_width(d_model, dim)
        counts = {
            "query": n_query * two(d_model) * heads * dim,
            "key": n_key * two(d_model) * kv * dim,
            "value": n_key * two(d_model) * kv * dim,
            "scores": met * two(width),
            "mix": met * two(k) // k * width,
            "output": n_output * two(heads * dim) * d_model,
        }
        return {part: 0 if part in left_out else last(n) for part, n in counts.items()}

    return wrong


_attention_flops = Exercise(
    name="attention_flops",
    lesson="06",
    minutes=10,
    difficulty=2,
    framework="numpy",
    contract=(
        "attention_flops(d_model, num_heads, num_kv_heads, head_dim, batch, query_len, key_len): "
        "seven whole numbers\n"
        '-> dict of whole numbers: the FLOPs of the six matrix products, "query", "key", "value" '
        '(the projections), "scores" (query times key), "mix" (weights times value) and "output"\n'
        "An (m, k) matrix times a (k, n) matrix is 2 * m * k * n FLOPs. No mask, no cache: every "
        "query meets every key, and all key_len keys are projected. Softmax and biases are not "
        "counted"
    ),
    arguments=(
        "d_model",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "batch",
        "query_len",
        "key_len",
    ),
    reference=cost.attention_flops,
    returns=PARTS,
    cases=(
        sizes("one head, one query and one key", 3, 1, 1, 2, 1, 1, 1, call=_flops_by_part),
        sizes("one query and four keys", 3, 1, 1, 2, 1, 1, 4, call=_flops_by_part),
        sizes("five queries and two keys", 3, 1, 1, 2, 1, 5, 2, call=_flops_by_part),
        sizes("a batch of three", 3, 1, 1, 2, 3, 2, 4, call=_flops_by_part),
        sizes("three heads", 6, 3, 3, 2, 1, 4, 4, call=_flops_by_part),
        sizes("fewer key and value heads", 8, 4, 2, 2, 2, 3, 5, call=_flops_by_part),
        sizes("heads together wider than d_model", 5, 6, 2, 3, 2, 4, 3, call=_flops_by_part),
        sizes("the sizes of BERT-base", 768, 12, 12, 64, 1, 512, 512, call=_flops_by_part),
        sizes("the sizes of Llama-2-70B", 8192, 64, 8, 128, 4, 4096, 4096, call=_flops_by_part),
    ),
    slips=(
        Slip(
            _flops(two=lambda inner: inner),
            "every product is half of what it should be: a multiplication and an addition are two "
            "operations",
            "count 2 * m * k * n for each product",
        ),
        Slip(
            _flops(two=lambda inner: 2 * inner - 1),
            "k numbers need only k - 1 additions, and that was counted; counters round up to "
            "2 * m * k * n",
            "count 2 * m * k * n, as the contract says",
        ),
        Slip(
            _flops(left_out=("scores", "mix")),
            "scores and mix are 0: only the projections were counted, as some published counts do",
            "scores and mix are products too, without parameters: one (query_len, head_dim) times "
            "(head_dim, key_len) for each head, and one back",
        ),
        Slip(
            _flops(scores_heads=lambda heads, kv_heads: kv_heads),
            "scores and mix were counted with num_kv_heads heads",
            "every query head meets the keys, whoever shares them: num_heads",
        ),
        Slip(
            _flops(scores_heads=lambda heads, kv_heads: 1),
            "scores and mix were counted for one head",
            "multiply them by num_heads",
        ),
        Slip(
            _flops(scores_width=lambda d_model, head_dim: d_model),
            "each head's scores and mix were counted as d_model wide",
            "inside a head the vectors have head_dim numbers",
        ),
        Slip(
            _flops(pairs=lambda q, k: q * q),
            "scores and mix grow with query_len * query_len",
            "each of query_len queries meets each of key_len keys",
        ),
        Slip(
            _flops(pairs=lambda q, k: q * k // 2),
            "scores and mix were halved, as if under a causal mask",
            "there is no mask here: query_len * key_len pairs",
        ),
        Slip(
            _flops(pairs=lambda q, k: q),
            "scores and mix were counted for one key",
            "each query meets key_len keys",
        ),
        Slip(
            _flops(batch=lambda b: (1, 1)),
            "the batch plays no part",
            "multiply every product by batch",
        ),
        Slip(
            _flops(batch=lambda b: (b, 1)),
            "the batch plays no part in scores and mix",
            "each sequence has scores of its own: multiply them by batch",
        ),
        Slip(
            _flops(lengths=lambda q, k: (q, q, q)),
            "keys and values were counted with query_len tokens",
            "key_len tokens are projected to keys and values",
        ),
        Slip(
            _flops(lengths=lambda q, k: (k, k, k)),
            "queries and outputs were counted with key_len tokens",
            "there are query_len queries, and as many outputs",
        ),
        Slip(
            _flops(lengths=lambda q, k: (q, k, k)),
            "the output was counted with key_len tokens",
            "the layer has an output for each query: query_len",
        ),
        Slip(
            _flops(kv_heads=lambda heads, kv_heads: heads),
            "the key and value projections were counted with num_heads heads",
            "they have num_kv_heads * head_dim columns",
        ),
        Slip(
            _flops(head_dim=lambda d_model, heads, head_dim: d_model // heads),
            "the width of a head was computed as d_model // num_heads",
            "use the head_dim that is given",
        ),
        Slip(
            _flops(last=float),
            "the numbers are floats (24.0 and not 24)",
            "count with whole numbers: * keeps them whole, / does not",
        ),
    ),
    hints=(
        "First the projections. All tokens of the batch go through W_q as one product: "
        "(batch * query_len, d_model) times (d_model, num_heads * head_dim).",
        "W_k and W_v are met by batch * key_len tokens, and have num_kv_heads * head_dim columns. "
        "W_o takes batch * query_len rows of num_heads * head_dim numbers to d_model.",
        "Scores: for each sequence and query head, (query_len, head_dim) times (head_dim, "
        "key_len). Sharing keys saves no products.",
        "Mix: for each sequence and query head, (query_len, key_len) times (key_len, head_dim): "
        "as many FLOPs as the scores.",
    ),
    solution_note=(
        "It takes its arguments by name, and counts softmax, biases, caches and causal masks, too."
    ),
)


EXERCISES = (_attention_parameters, _attention_flops)
