"""How fast is a step with the cache, and attention in blocks? Against what others would use.

    python -m benchmarks.long_inputs                                # about two minutes
    python -m benchmarks.long_inputs --seconds 2 --results my-results

Decoding: the 2,048th token, with `KVCache` and with the static cache of `transformers`, in layers
of the same weights. Both caches are full to the last slot then, so that neither is slowed by empty
ones. Blocks: causal attention over 16,384 tokens, with `blockwise_attention` and with PyTorch's
fused kernel. Outputs are compared before any time is taken, and times within their round.
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm
from transformers import StaticCache

from benchmarks import attention, contestants, report
from mhalib import KVCache, MultiHeadAttention, blockwise_attention, cost
from mhalib.memory import peak_bytes

LAYERS = [(512, 8, 8), (512, 8, 2), (2048, 32, 8)]  # d_model, num_heads, num_kv_heads
TOKENS = 2048
BLOCKS = (16_384, 8, 64)  # tokens, heads, head_dim
CACHE, STATIC, WHOLE = "mhalib.KVCache", "StaticCache (transformers)", "no cache"
BLOCKWISE, FUSED = "mhalib.blockwise_attention", "fused kernel"


def one_more_token(sizes, tokens):
    """{name: (run, forget)}: how to compute the last of `tokens` tokens, and to undo that."""
    torch.manual_seed(0)
    layer = contestants.random_layer(MultiHeadAttention(*sizes)).eval()
    x = torch.randn(1, tokens, layer.d_model)
    cache = KVCache(1, layer.num_kv_heads, layer.head_dim, max_len=tokens)
    layer(x[:, :-1], is_causal=True, cache=cache)

    module, no_angles = contestants.llama(layer, True).module, (None, None)
    static = StaticCache(module.config, max_cache_len=tokens)
    module(x[:, :-1], no_angles, None, static)
    seen = static.layers[0].cumulative_length
    return {
        CACHE: (
            lambda: layer(x[:, -1:], is_causal=True, cache=cache),
            lambda: cache.lengths.sub_(1),
        ),
        STATIC: (lambda: module(x[:, -1:], no_angles, None, static)[0], lambda: seen.sub_(1)),
        WHOLE: (lambda: layer(x, is_causal=True)[:, -1:], lambda: None),
    }


def whole_attention(tokens, num_heads, head_dim):
    """{name: (run, forget)}: causal attention over all tokens; there is nothing to undo."""
    torch.manual_seed(0)
    given = torch.randn(3, 1, num_heads, tokens, head_dim)
    return {
        BLOCKWISE: (lambda: blockwise_attention(*given, is_causal=True), lambda: None),
        FUSED: (lambda: F.scaled_dot_product_attention(*given, is_causal=True), lambda: None),
    }


def measure(runs, *, seconds, min_rounds):
    """Seconds of each, round by round: {name: [seconds, ...]}."""
    expected = None
    for name, (run, forget) in runs.items():
        output = run()
        forget()
        expected = output if expected is None else expected
        if not torch.allclose(output, expected, rtol=1e-3, atol=1e-4):
            raise AssertionError(f"{name} gives another output")
    times = {name: [] for name in runs}
    order, end = random.Random(0), time.perf_counter() + seconds
    while len(times[next(iter(runs))]) < min_rounds or time.perf_counter() < end:
        for name in order.sample(list(runs), len(runs)):
            run, forget = runs[name]
            run()  # what another one's numbers have driven out of the processor's memory comes back
            forget()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
            forget()
    return times


def block(what, times, peer, **more):
    """What one comparison says, ready for JSON; the first of `times` is ours."""
    ours = next(iter(times))
    return {
        "what": what,
        "rounds": len(times[ours]),
        "milliseconds": {n: attention.spread([1000 * t for t in ts], 3) for n, ts in times.items()},
        "against_peer": {"peer": peer} | attention.ratio(times[ours], times[peer]),
    } | more


def decoding(sizes, tokens, **rounds):
    d_model, num_heads, num_kv_heads = sizes
    layer = {"d_model": d_model, "num_heads": num_heads, "num_kv_heads": num_kv_heads}
    step = cost.attention_flops(**layer, query_len=1, cached_len=tokens - 1)["total"]
    again = cost.attention_flops(**layer, query_len=tokens)["total"]
    with attention.no_rotation():
        times = measure(one_more_token(sizes, tokens), **rounds)
    what = f"token {tokens} of d_model {d_model}, {num_heads} heads, {num_kv_heads} key/value heads"
    faster = attention.ratio(times[WHOLE], times[CACHE])
    return block(what, times, STATIC, flops=again / step, without_cache=faster)


def blocks(sizes, **rounds):
    tokens, num_heads, head_dim = sizes
    runs = whole_attention(*sizes)
    memory = {name: peak_bytes(run) for name, (run, _) in runs.items()}
    times = measure(runs, **rounds)
    what = f"{tokens} tokens, {num_heads} heads of {head_dim}, causal"
    return block(what, times, FUSED, memory=memory, scores=4 * num_heads * tokens**2)


def run(layers, tokens, sizes, *, seconds, min_rounds, bar=True):
    """Measure everything and describe the machine: the content of the JSON file."""
    rounds = {"seconds": seconds, "min_rounds": min_rounds}
    about = attention.about("benchmarks.long_inputs") | {"clock": "wall time"}
    with torch.no_grad(), tqdm(total=len(layers) + 1, disable=not bar, unit="block") as progress:
        found = []
        for layer in layers:
            found.append(decoding(layer, tokens, **rounds))
            progress.update()
        found.append(blocks(sizes, **rounds))
        progress.update()
    return {"about": about, "blocks": found}


def table(results):
    """Our time over the peer's, and what else was counted."""
    rows = [["what", "ms", "over the peer's time", "beside it"], ["---"] * 4]
    for found in results["blocks"]:
        ours = next(iter(found["milliseconds"].values()))
        peer = found["against_peer"]
        low, high = peer["quartiles"]
        if "memory" in found:
            mine, theirs = (number / 1e6 for number in found["memory"].values())
            beside = f"extra memory {mine:.0f} MB, fused {theirs:.0f} MB, a plain one's scores "
            beside += f"{found['scores'] / 1e6:,.0f} MB"
        else:
            faster = found["without_cache"]["median"]
            beside = f"without a cache {found['flops']:,.0f} × the FLOPs, {faster:,.0f} × the time"
        rows.append(
            [
                found["what"],
                f"{ours['median']:.2f}",
                f"**{peer['median']:.2f}** ({low:.2f} to {high:.2f}) {peer['peer']}",
                beside,
            ]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8, help="for each row, at least")
    parser.add_argument("--min-rounds", type=int, default=4, help="of each row (default: 4)")
    parser.add_argument("--results", type=Path, default=attention.RESULTS, help="folder for JSON")
    options = parser.parse_args(arguments)
    if options.min_rounds < 2:
        parser.error("--min-rounds must be at least 2, or there is no spread")
    rounds = {"seconds": options.seconds, "min_rounds": options.min_rounds}
    results = run(LAYERS, TOKENS, BLOCKS, **rounds)
    print(table(results))
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "long_inputs.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"Written to {path}.")
    if options.results == attention.RESULTS:
        report.update(attention.FOLDER / "README.md", "long inputs", results, table(results))


if __name__ == "__main__":
    main()
