"""The cost formulas against what PyTorch counts, allocates and holds."""

import inspect
import itertools
import random
import re

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import mhalib
from mhalib import KVCache, MultiHeadAttention, checks, cost, data, masks

PRODUCTS = ("query", "key", "value", "scores", "mix", "output")


def random_layer(rng):
    num_kv_heads = rng.randint(1, 4)
    num_heads = num_kv_heads * rng.randint(1, 4)
    head_dim = rng.choice([None, 1, 3, 8])
    return {
        "d_model": num_heads * rng.randint(1, 6) if head_dim is None else rng.randint(1, 20),
        "num_heads": num_heads,
        "num_kv_heads": rng.choice([None, num_kv_heads]),
        "head_dim": head_dim,
        "bias": rng.choice([True, False]),
        "out_bias": rng.choice([None, True, False]),
    }


def random_call(rng):
    return {
        "batch": rng.randint(1, 3),
        "query_len": rng.randint(1, 7),
        "key_len": rng.choice([None, rng.randint(1, 9)]),
    }


LAYERS = [random_layer(random.Random(seed)) for seed in range(30)]
CALLS = [random_call(random.Random(seed)) for seed in range(30)]
BOTH = [pytest.param(*both, id=str(n)) for n, both in enumerate(zip(LAYERS, CALLS, strict=True))]


def run(layer, call, **options):
    """The layer, run on this call; the inputs are made before anything is counted."""
    module = MultiHeadAttention(**layer).eval()
    query = torch.randn(call["batch"], call["query_len"], layer["d_model"])
    key = None
    if call["key_len"]:
        key = torch.randn(call["batch"], call["key_len"], layer["d_model"])
    return lambda: module(query, key, **options)


def counted(function):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        function()
    return counter


def products(flops):
    return flops["total"] - flops["softmax"] - flops["bias"]


def sizes_of(layer):
    """(num_heads, num_kv_heads, head_dim), as the layer itself has them."""
    module = MultiHeadAttention(**layer)
    return module.num_heads, module.num_kv_heads, module.head_dim


# parameters


@pytest.mark.parametrize("layer", LAYERS)
def test_parameters_are_those_of_the_layer(layer):
    module = MultiHeadAttention(**layer)
    parameters = cost.attention_parameters(**layer)
    assert parameters["total"] == sum(p.numel() for p in module.parameters())
    for part, projection in {
        "query": module.q_proj,
        "key": module.k_proj,
        "value": module.v_proj,
        "output": module.out_proj,
    }.items():
        assert parameters[part] == projection.weight.numel()
    assert parameters["bias"] == sum(p.numel() for p in module.parameters() if p.dim() == 1)
    assert list(parameters) == ["query", "key", "value", "output", "bias", "total"]


def test_parameters_are_those_of_torch():
    theirs = torch.nn.MultiheadAttention(24, 4)
    ours = cost.attention_parameters(d_model=24, num_heads=4)
    assert ours["total"] == sum(p.numel() for p in theirs.parameters())


# FLOPs


@pytest.mark.parametrize(("layer", "call"), BOTH)
def test_flops_of_the_products_are_those_of_the_counter(layer, call):
    flops = cost.attention_flops(**layer, **call)
    counter = counted(run(layer, call, need_weights=True))
    assert products(flops) == counter.get_total_flops()
    by_operation = counter.get_flop_counts()["Global"]
    assert by_operation.pop(torch.ops.aten.bmm) == flops["scores"] + flops["mix"]
    assert sum(by_operation.values()) == sum(
        flops[part] for part in ("query", "key", "value", "output")
    )
    assert flops["total"] == sum(flops[part] for part in flops if part != "total")
    assert list(flops) == [*PRODUCTS[:4], "softmax", *PRODUCTS[4:], "bias", "total"]


@pytest.mark.parametrize(("layer", "call"), BOTH)
def test_the_counter_sees_nothing_of_the_fused_kernel_on_a_cpu(layer, call):
    """The trap: the same output, and no FLOPs for scores and mix."""
    flops = cost.attention_flops(**layer, **call)
    counter = counted(run(layer, call, need_weights=False))
    assert counter.get_total_flops() == products(flops) - flops["scores"] - flops["mix"]


def test_the_trap_in_numbers():
    layer = {"d_model": 128, "num_heads": 8}
    call = {"batch": 2, "query_len": 64, "key_len": None}
    flops = cost.attention_flops(**layer, **call)
    assert counted(run(layer, call, need_weights=True)).get_total_flops() == products(flops)
    fused = counted(run(layer, call, need_weights=False)).get_total_flops()
    assert (fused, products(flops), flops["total"]) == (16_777_216, 20_971_520, 21_299_200)


@pytest.mark.parametrize("layer", LAYERS[:12])
def test_flops_of_decoding_with_a_cache(layer):
    batch, query_len, cached_len = 2, 3, 5
    module = MultiHeadAttention(**layer)
    cache = KVCache(batch, module.num_kv_heads, module.head_dim, max_len=8)
    x = torch.randn(batch, cached_len + query_len, layer["d_model"])
    options = {"is_causal": True, "cache": cache, "need_weights": True}
    prefill = counted(lambda: module(x[:, :cached_len], **options)).get_total_flops()
    assert prefill == products(cost.attention_flops(**layer, batch=batch, query_len=cached_len))
    step = counted(lambda: module(x[:, cached_len:], **options)).get_total_flops()
    call = {"batch": batch, "query_len": query_len, "cached_len": cached_len}
    flops = cost.attention_flops(**layer, **call)
    assert step == products(flops)
    assert flops == cost.attention_flops(**layer, **call, key_len=query_len + cached_len)


@pytest.mark.parametrize("num_kv_heads", [8, 2, 1])
def test_a_cache_saves_the_work_of_all_earlier_tokens(num_kv_heads):
    """At 2,048 tokens: what one token costs with a cache, and without one."""
    layer = {"d_model": 64, "num_heads": 8, "num_kv_heads": num_kv_heads}
    module = MultiHeadAttention(**layer)
    x = torch.randn(1, 2048, 64)
    cache = KVCache(1, num_kv_heads, 8, max_len=2048)
    options = {"is_causal": True, "need_weights": True}
    with torch.no_grad():
        module(x[:, :-1], is_causal=True, cache=cache)
    with_cache = counted(lambda: module(x[:, -1:], cache=cache, **options)).get_total_flops()
    without = counted(lambda: module(x, **options)).get_total_flops()
    assert with_cache == products(cost.attention_flops(**layer, query_len=1, cached_len=2047))
    assert without == products(cost.attention_flops(**layer, query_len=2048))
    assert without >= 20 * with_cache
    assert without == 2048 * with_cache


def test_cross_attention_whose_keys_are_cached_projects_none():
    sizes = {"d_model": 12, "num_heads": 3, "batch": 2, "query_len": 4, "key_len": 7}
    first = cost.attention_flops(**sizes)
    later = cost.attention_flops(**sizes, cached_len=7)
    assert later["key"] == later["value"] == 0
    unchanged = ("query", "scores", "softmax", "mix", "output")
    assert all(first[part] == later[part] for part in unchanged)
    assert first["bias"] - later["bias"] == 2 * 2 * 7 * 12


@pytest.mark.parametrize(("query_len", "cached_len"), [(1, 0), (1, 6), (5, 0), (4, 3), (8, 1)])
def test_causal_pairs_are_those_of_the_mask(query_len, cached_len):
    layer = {"d_model": 6, "num_heads": 2, "num_kv_heads": 1, "head_dim": 5}
    call = {"batch": 3, "query_len": query_len, "cached_len": cached_len}
    may_attend = masks.causal(query_len, query_len + cached_len, cached_len)
    pairs = 3 * int(may_attend.sum())
    causal = cost.attention_flops(**layer, **call, is_causal=True)
    assert causal["scores"] == causal["mix"] == 2 * pairs * 2 * 5
    assert causal["softmax"] == 4 * pairs * 2
    full = cost.attention_flops(**layer, **call)
    assert all(causal[part] == full[part] for part in ("query", "key", "value", "output", "bias"))


def test_the_explicit_path_computes_the_full_square_under_a_causal_mask():
    layer, call = {"d_model": 8, "num_heads": 2}, {"batch": 2, "query_len": 6, "key_len": None}
    hidden = counted(run(layer, call, need_weights=True, is_causal=True)).get_total_flops()
    assert hidden == products(cost.attention_flops(**layer, **call))
    assert hidden > products(cost.attention_flops(**layer, **call, is_causal=True))


def test_bias_is_an_addition_for_each_number():
    sizes = {"d_model": 8, "num_heads": 4, "num_kv_heads": 2, "head_dim": 3}
    call = {"batch": 2, "query_len": 5, "key_len": 7}
    only_in = cost.attention_flops(**sizes, **call, out_bias=False)["bias"]
    only_out = cost.attention_flops(**sizes, **call, bias=False, out_bias=True)["bias"]
    assert only_in == 2 * (5 * 12 + 2 * 7 * 6)
    assert only_out == 2 * 5 * 8
    assert cost.attention_flops(**sizes, **call)["bias"] == only_in + only_out


# bytes


def allocated(function, gradients=False):
    """What each operation allocated: (name, bytes) in the order run."""
    activities = [ProfilerActivity.CPU]
    with torch.set_grad_enabled(gradients):
        function()
        with profile(activities=activities, profile_memory=True, record_shapes=True) as profiler:
            function()
    rows = profiler.events()
    return [(row.name, row.self_cpu_memory_usage) for row in rows if row.self_cpu_memory_usage > 0]


@pytest.mark.parametrize(
    ("layer", "call"),
    [(layer, call) for layer, call in zip(LAYERS, CALLS, strict=True) if layer["bias"]][:10],
)
def test_bytes_are_those_that_the_profiler_reports(layer, call):
    found = allocated(run(layer, call, need_weights=True), gradients=True)
    expected = cost.attention_bytes(**layer, **call, need_weights=True)
    linear = [count for name, count in found if name in ("aten::addmm", "aten::mm")]
    products = [count for name, count in found if name == "aten::bmm"]
    softmax = [count for name, count in found if name == "aten::_softmax"]
    assert linear == [expected[part] for part in ("query", "key", "value", "output")]
    assert products == [expected["scores"], expected["mix"]]
    assert softmax == [expected["softmax"]]
    assert expected["total"] == sum(linear + products + softmax)


@pytest.mark.parametrize("is_causal", [False, True])
def test_without_gradients_the_weights_are_written_over_the_scores(is_causal):
    layer, call = {"d_model": 8, "num_heads": 2}, {"batch": 1, "query_len": 128, "key_len": None}
    expected = cost.attention_bytes(**layer, query_len=128, need_weights=True)
    found = allocated(run(layer, call, need_weights=True, is_causal=is_causal))
    large = [(name, count) for name, count in found if count >= expected["scores"]]
    assert large == [("aten::bmm", expected["scores"])]


@pytest.mark.parametrize("query_len", [1, 16])
@pytest.mark.parametrize("need_weights", [False, True])
def test_shared_keys_and_values_are_never_expanded(query_len, need_weights):
    """Eight key/value heads for 64 heads: no step copies the keys once, let alone eight times."""
    layer = MultiHeadAttention(256, 64, 8, 16)
    cache = KVCache(1, 8, 16, max_len=2048)
    keys, scores = 8 * 2048 * 16 * 4, 64 * 2048 * query_len * 4
    x = torch.randn(1, 2048, 256)
    with torch.no_grad():
        layer(x[:, :-query_len], is_causal=True, cache=cache)

    def step():
        cache.lengths.fill_(2048 - query_len)
        layer(x[:, -query_len:], is_causal=True, cache=cache, need_weights=need_weights)

    found = [count for _, count in allocated(step)]
    assert found.count(scores) == need_weights
    assert sum(found) - need_weights * scores < keys


def test_the_fused_kernel_stores_neither_scores_nor_weights():
    layer, call = {"d_model": 16, "num_heads": 4}, {"batch": 2, "query_len": 64, "key_len": None}
    explicit = cost.attention_bytes(**layer, **call, need_weights=True)
    fused = cost.attention_bytes(**layer, **call)
    assert fused["scores"] == fused["softmax"] == 0
    assert explicit["scores"] == 4 * 2 * 4 * 64 * 64
    assert explicit["total"] - fused["total"] == 2 * explicit["scores"]
    largest = max(count for _, count in allocated(run(layer, call, need_weights=False)))
    assert largest < explicit["scores"]
    assert (
        max(count for _, count in allocated(run(layer, call, need_weights=True)))
        == (explicit["scores"])
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("layer", LAYERS[:6])
def test_cache_bytes_are_those_of_two_tensors_per_layer(layer, dtype):
    _, num_kv_heads, head_dim = sizes_of(layer)
    num_layers, batch, key_len = 3, 2, 50

    def make():
        shape = (batch, num_kv_heads, key_len, head_dim)
        return [torch.empty(shape, dtype=dtype) for _ in range(2 * num_layers)]

    names = ("d_model", "num_heads", "num_kv_heads", "head_dim")
    expected = cost.kv_cache_bytes(
        **{name: layer[name] for name in names},
        batch=batch,
        key_len=key_len,
        num_layers=num_layers,
        itemsize=dtype.itemsize,
    )
    assert sum(count for name, count in allocated(make) if name == "aten::empty") == expected
    assert sum(tensor.nbytes for tensor in make()) == expected


def test_bytes_moved_are_those_read_and_written():
    """Each step of a decode by hand: read what it needs once, write the result once."""
    layer = {"d_model": 6, "num_heads": 4, "num_kv_heads": 2, "head_dim": 3, "bias": False}
    call = {"batch": 2, "query_len": 1, "cached_len": 9, "itemsize": 2}
    tokens, wide, narrow, keys, scores = 2, 12, 6, 20, 2 * 4 * 10
    by_hand = {
        "query": tokens * 6 + 6 * wide + tokens * wide,
        "key": tokens * 6 + 6 * narrow + tokens * narrow,
        "value": tokens * 6 + 6 * narrow + tokens * narrow,
        "scores": tokens * wide + keys * narrow + scores,
        "softmax": 2 * scores,
        "mix": scores + keys * narrow + tokens * wide,
        "output": tokens * wide + wide * 6 + tokens * 6,
    }
    moved = cost.attention_bytes(**layer, **call, need_weights=True, moved=True)
    assert moved == {part: 2 * count for part, count in by_hand.items()} | {
        "total": 2 * sum(by_hand.values())
    }
    fused = cost.attention_bytes(**layer, **call, moved=True)
    assert moved["total"] - fused["total"] == 2 * 4 * scores


def test_intensity_is_flops_per_byte_moved():
    layer = {"d_model": 6, "num_heads": 4, "num_kv_heads": 2, "head_dim": 3}
    call = {"batch": 2, "query_len": 4, "cached_len": 9}
    flops = cost.attention_flops(**layer, **call, is_causal=True)
    moved = cost.attention_bytes(**layer, **call, itemsize=2, moved=True, need_weights=True)
    intensity = cost.arithmetic_intensity(
        **layer, **call, itemsize=2, need_weights=True, is_causal=True
    )
    assert intensity == {part: flops[part] / moved[part] for part in moved}


def test_decoding_moves_a_byte_for_each_flop_and_prefill_does_not():
    layer = {"d_model": 4096, "num_heads": 32, "bias": False}
    prefill = cost.arithmetic_intensity(**layer, query_len=1024, itemsize=2)
    decode = cost.arithmetic_intensity(**layer, query_len=1, cached_len=4095, itemsize=2)
    assert prefill["total"] > 600
    assert all(0.99 < number < 1.01 for number in decode.values())
    assert "softmax" not in decode
    shared = cost.arithmetic_intensity(
        **layer, num_kv_heads=8, query_len=1, cached_len=4095, itemsize=2
    )
    assert shared["scores"] == shared["mix"] == pytest.approx(4, rel=0.01)


# published numbers


def model(name):
    return next(model for model in cost.real_models() if model.name == name)


def test_eight_heads_of_64_have_the_parameters_of_one_head_of_512():
    counts = [cost.attention_parameters(d_model=512, num_heads=h) for h in (1, 2, 4, 8, 16, 64)]
    assert all(count == counts[0] for count in counts)
    assert counts[0]["total"] == 4 * 512 * 512 + 4 * 512
    one, eight = (
        cost.attention_flops(d_model=512, num_heads=h, query_len=100, batch=32) for h in (1, 8)
    )
    assert all(one[part] == eight[part] for part in PRODUCTS)
    assert eight["softmax"] == 8 * one["softmax"]
    stored = [
        cost.attention_bytes(d_model=512, num_heads=h, query_len=100, need_weights=True)["scores"]
        for h in (1, 8)
    ]
    assert stored[1] == 8 * stored[0]


def test_cache_of_llama_2_7b():
    llama = model("Llama-2-7B")
    call = {"key_len": 4096, "num_layers": llama.num_layers, "itemsize": 2}
    assert cost.kv_cache_bytes(**llama.sizes, **call) == 2 * 2**30
    shared = llama.sizes | {"num_kv_heads": 8}
    assert cost.kv_cache_bytes(**shared, **call) == 2**30 // 2


def test_what_a_count_without_scores_and_mix_misses():
    """At n = 1024 and d_model = 768, of the layer, of the block, and of GPT-2 small whole."""
    gpt2 = model("GPT-2 small")
    d_model, n = gpt2.sizes["d_model"], 1024
    flops = cost.attention_flops(**gpt2.sizes, query_len=n)
    missed = flops["scores"] + flops["mix"]
    feed_forward = 2 * 2 * n * d_model * 4 * d_model
    to_words = 2 * n * d_model * 50_257
    whole = gpt2.num_layers * (products(flops) + feed_forward) + to_words
    missed_of_whole = gpt2.num_layers * missed
    assert missed / products(flops) == 0.4
    assert missed / (products(flops) + feed_forward) == pytest.approx(0.182, abs=5e-4)
    assert missed_of_whole / whole == pytest.approx(0.133, abs=5e-4)
    assert missed_of_whole / (whole - missed_of_whole) == pytest.approx(0.153, abs=5e-4)


def test_largest_batch_beside_llama_2_7b():
    llama = model("Llama-2-7B")
    call = {"key_len": 4096, "num_layers": llama.num_layers, "itemsize": 2}
    one = cost.kv_cache_bytes(**llama.sizes, **call)
    memory = {"memory_bytes": 80 * 10**9, "num_parameters": 6_738_415_616, "itemsize": 2}
    assert cost.largest_batch_that_fits(**memory, cache_bytes=one) == 30
    assert cost.largest_batch_that_fits(**memory, cache_bytes=one // 4) == 123
    assert cost.largest_batch_that_fits(**memory | {"memory_bytes": 1}, cache_bytes=one) == 0


# the table of real models


def test_real_models_are_as_published():
    models = {model.name: model for model in cost.real_models()}
    assert len(models) == len(cost.real_models()) == 18
    for entry in models.values():
        checks.heads(**entry.sizes)
        assert list(entry.sizes) == ["d_model", "num_heads", "num_kv_heads", "head_dim"]
        assert entry.num_layers > 0
        assert len(entry.source) > 20
    wider = {
        name
        for name, entry in models.items()
        if entry.sizes["num_heads"] * entry.sizes["head_dim"] != entry.sizes["d_model"]
    }
    assert wider == {"T5-11B", "Gemma-7B", "Gemma-2-27B", "Qwen3-0.6B", "Qwen3-32B"}
    assert models["GPT-3 175B"].sizes["d_model"] == 96 * 128 == 12288
    assert models["Llama-2-70B"].sizes == dict(
        d_model=8192, num_heads=64, num_kv_heads=8, head_dim=128
    )


def test_real_models_are_those_that_transformers_has_by_default():
    from transformers import BertConfig, GemmaConfig, GPT2Config, MistralConfig, Phi3Config

    for name, config in {
        "BERT-base": BertConfig(),
        "GPT-2 small": GPT2Config(),
        "Gemma-7B": GemmaConfig(),
        "Mistral-7B": MistralConfig(),
        "Phi-3-mini": Phi3Config(),
    }.items():
        heads = config.num_attention_heads
        assert model(name).num_layers == config.num_hidden_layers
        assert model(name).sizes == {
            "d_model": config.hidden_size,
            "num_heads": heads,
            "num_kv_heads": getattr(config, "num_key_value_heads", None) or heads,
            "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        }


def test_the_table_is_yours_to_change():
    cost.real_models()[0].sizes["num_heads"] = 1
    assert cost.real_models()[0].sizes["num_heads"] == 12


def test_a_missing_table_is_named(tmp_path, monkeypatch):
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  real-models.csv\n")
    monkeypatch.setattr(data, "data_dir", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match=r"real-models\.csv is missing"):
        cost.real_models()


# exact, by keyword, and wrong arguments


def test_counts_are_exact_integers_of_any_size():
    huge = {"d_model": 2**40, "num_heads": 2**20, "query_len": 2**40, "batch": 2**30}
    flops = cost.attention_flops(**huge)
    assert flops["scores"] == 2 * 2**30 * 2**40 * 2**40 * 2**40
    assert cost.attention_flops(**huge, is_causal=True)["scores"] == (
        2 * 2**30 * (2**40 * (2**40 + 1) // 2) * 2**40
    )
    counts = [*flops.values(), *cost.attention_bytes(**huge, need_weights=True).values()]
    assert {type(number) for number in counts} == {int}


def test_cost_needs_no_torch():
    import subprocess
    import sys

    code = "import sys; from mhalib import cost; cost.real_models(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


SIZES = {"d_model": 8, "num_heads": 4}
RIGHT = {
    cost.attention_parameters: SIZES
    | {"num_kv_heads": 2, "head_dim": 3, "bias": True, "out_bias": False},
    cost.attention_flops: SIZES
    | {"batch": 2, "query_len": 3, "key_len": 5, "cached_len": 2, "is_causal": True},
    cost.attention_bytes: SIZES
    | {"query_len": 3, "key_len": 5, "need_weights": True, "itemsize": 2, "moved": True},
    cost.arithmetic_intensity: SIZES | {"query_len": 3, "need_weights": True, "itemsize": 2},
    cost.kv_cache_bytes: SIZES
    | {"num_kv_heads": 2, "head_dim": 3, "batch": 1, "key_len": 5, "num_layers": 2, "itemsize": 2},
    cost.largest_batch_that_fits: {
        "memory_bytes": 100,
        "num_parameters": 10,
        "itemsize": 2,
        "cache_bytes": 40,
    },
}
ODD = (0, -1, 1.5, "3", None, True, float("nan"), [1], np.ones(2), torch.ones(2), object())


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_anything_for_any_argument(function):
    """Whatever stands in for one argument: it works, or the error names an argument of ours."""
    function(**RIGHT[function])
    unclear = {}
    for name, odd in itertools.product(RIGHT[function], ODD):
        try:
            function(**RIGHT[function] | {name: odd})
        except (TypeError, ValueError) as error:
            if not any(re.search(rf"\b{n}\b", str(error)) for n in RIGHT[function]):
                unclear[f"{name}={odd!r}"] = str(error)
    assert not unclear


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_all_arguments_are_given_by_keyword(function):
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    assert kinds <= {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    with pytest.raises(TypeError, match=r"takes 0 positional arguments"):
        function(8, 4)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'num_head'"):
        function(**RIGHT[function], num_head=4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"d_model": 9}, ValueError, "num_heads=4 must divide d_model=9"),
        ({"num_kv_heads": 3}, ValueError, "num_kv_heads=3 must divide num_heads=4"),
        ({"head_dim": 0}, ValueError, "head_dim=0 must be at least 1"),
        ({"bias": 1}, TypeError, "bias=1 must be True or False"),
        ({"query_len": 0}, ValueError, "query_len=0 must be at least 1"),
        ({"batch": 2.0}, TypeError, "batch=2.0 must be an integer"),
        ({"cached_len": -1}, ValueError, "cached_len=-1 must be at least 0"),
        ({"key_len": 4, "cached_len": 5}, ValueError, "cached_len=5 must be at most key_len=4"),
        (
            {"key_len": 4, "is_causal": True},
            ValueError,
            "all tokens and all keys must be the same, but tokens has 3, key_len has 4",
        ),
        ({"is_causal": "yes"}, TypeError, "is_causal='yes' must be True or False"),
    ],
)
def test_sizes_that_do_not_fit_are_named(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        cost.attention_flops(**SIZES | {"query_len": 3} | call)


def test_cost_is_reached_through_the_package():
    assert mhalib.cost is cost
