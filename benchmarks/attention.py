"""How fast is `mhalib.MultiHeadAttention`? Against what people would use instead, and the limit.

    python -m benchmarks.attention                     # everything, about five minutes
    python -m benchmarks.attention --shapes 8x256x512x8 --seconds 2 --results my-results

All contestants hold the same weights and get the same input, and their outputs are compared before
any time is taken. A round runs each of them once, in a new order. Times are compared within their
round, so what slows the machine down for a while slows down all of them. Each shape has a process
of its own.
"""

import argparse
import itertools
import json
import os
import platform
import random
import shlex
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # configurations are made by hand, nothing is fetched

import torch
from tqdm import tqdm
from transformers.models.llama import modeling_llama

from benchmarks import contestants, report
from mhalib import cost

SHAPES = [(8, 256, 512, 8), (32, 100, 512, 8), (1, 1024, 512, 8), (8, 1024, 768, 12)]
MODES = ["forward", "forward + backward"]
LIMIT = "plain matrix product"
FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"


def flops(shape, is_causal, num_kv_heads=None):
    """Of the matrix products of one forward pass; if causal, of the pairs that may attend only."""
    batch, seq_len, d_model, num_heads = shape
    layer = {"d_model": d_model, "num_heads": num_heads, "num_kv_heads": num_kv_heads}
    parts = cost.attention_flops(batch=batch, query_len=seq_len, is_causal=is_causal, **layer)
    return parts["total"] - parts["softmax"] - parts["bias"]


def plain_product(shape, is_causal, mode):
    """A function that runs matrix products with exactly the FLOPs of the attention, in place."""
    batch, seq_len, d_model, _ = shape
    rows = batch * seq_len
    columns = flops(shape, is_causal) // (2 * rows * d_model)
    x, w, y = torch.randn(rows, d_model), torch.randn(d_model, columns), torch.randn(rows, columns)
    out, grad_x, grad_w = torch.empty_like(y), torch.empty_like(x), torch.empty_like(w)

    def run():
        torch.mm(x, w, out=out)
        if mode != "forward":
            torch.mm(y, w.T, out=grad_x)
            torch.mm(x.T, y, out=grad_w)

    return run


def one_pass(contestant, x, mode):
    """A function that runs one pass; backward, with gradients for the input and all weights."""
    if mode == "forward":

        def run():
            with torch.no_grad():
                contestant.run(x)

        return run

    x = x.clone().requires_grad_()
    leaves = [x, *contestant.module.parameters()]
    grad_output = torch.randn_like(x)

    def run():
        output, _ = contestant.run(x)
        torch.autograd.grad(output, leaves, grad_output)

    return run


def check_equal(entries, x):
    """All give the output of the first of their kind, and those with weights the same weights."""
    first, first_weights = {}, None
    with torch.no_grad():
        for entry in entries:
            output, weights = entry.run(x)
            expected = first.setdefault(entry.grouped, output)
            if not torch.allclose(output, expected, rtol=1e-3, atol=1e-4):
                raise AssertionError(f"{entry.name} gives another output")
            if entry.gives_weights:
                first_weights = weights if first_weights is None else first_weights
                if not torch.allclose(weights, first_weights, rtol=1e-3, atol=1e-5):
                    raise AssertionError(f"{entry.name} gives other weights")


@contextmanager
def no_rotation():
    """Llama's layer turns queries and keys, the others do not: it is spared the work."""
    with mock.patch.object(modeling_llama, "apply_rotary_pos_emb", lambda q, k, cos, sin: (q, k)):
        yield


def measure(entries, shape, is_causal, mode, *, seconds, min_rounds, clock=time.perf_counter):
    """Seconds of each contestant and of the limit, round by round: {name: [seconds, …]}."""
    batch, seq_len, d_model, _ = shape
    x = torch.randn(batch, seq_len, d_model)
    check_equal(entries, x)
    runs = {e.name: one_pass(e, x, mode) for e in entries if mode == MODES[0] or not e.only_forward}
    runs[LIMIT] = plain_product(shape, is_causal, mode)
    for name in (LIMIT, contestants.OURS):  # wake up what the comparison above has not used
        runs[name]()
    times = {name: [] for name in runs}
    order = random.Random(0)
    end = time.perf_counter() + seconds
    while len(times[LIMIT]) < min_rounds or time.perf_counter() < end:
        for name in order.sample(list(runs), len(runs)):
            start = clock()
            runs[name]()
            times[name].append(clock() - start)
    return times


def spread(numbers, digits):
    """Median and quartiles."""
    low, median, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return {"median": round(median, digits), "quartiles": [round(low, digits), round(high, digits)]}


def ratio(times, baseline):
    """Median and quartiles of one's time over the other's, round by round."""
    return spread([one / other for one, other in zip(times, baseline, strict=True)], 4)


def summary(entries, times, shape, is_causal, mode):
    """What one block of measurements says, ready for JSON."""

    def against_fastest(ours, is_peer):
        peers = [e.name for e in entries if e.name in times and not e.ours and is_peer(e)]
        peer = min(peers, key=lambda name: statistics.median(times[name]))
        return {"peer": peer} | ratio(times[ours], times[peer])

    peers = {
        contestants.OURS: lambda e: not e.grouped,
        contestants.OURS_WITH_WEIGHTS: lambda e: e.gives_weights and e.name.startswith("nn."),
        contestants.OURS_GROUPED: lambda e: e.grouped,
    }
    return {
        "shape": list(shape),
        "is_causal": is_causal,
        "mode": mode,
        "rounds": len(times[LIMIT]),
        "gflop": round(flops(shape, is_causal) * (1 if mode == MODES[0] else 3) / 1e9, 3),
        "milliseconds": {name: spread([1000 * t for t in ts], 3) for name, ts in times.items()},
        "relative": {name: ratio(ts, times[contestants.OURS]) for name, ts in times.items()},
        "against_fastest": {
            ours: against_fastest(ours, is_peer) for ours, is_peer in peers.items()
        },
        "share_of_limit": ratio(times[LIMIT], times[contestants.OURS]),
    }


def run(shapes, modes, *, seconds, min_rounds, cpu_clock=False, bar=True):
    """Measure every block and describe the machine: the content of the JSON file."""
    blocks = list(itertools.product(shapes, (False, True), modes))
    clock = time.process_time if cpu_clock else time.perf_counter
    clock_name = "CPU time" if cpu_clock else "wall time"
    results = {"about": about("benchmarks.attention") | {"clock": clock_name}, "blocks": []}
    with no_rotation(), tqdm(total=len(blocks), disable=not bar, unit="block") as progress:
        for shape, causal, mode in blocks:
            causal_too = ", causal" if causal else ""
            progress.set_description(f"{report.shape_name(shape)}{causal_too}, {mode}")
            torch.manual_seed(0)
            entries = contestants.contestants(shape, causal)
            rounds = {"seconds": seconds, "min_rounds": min_rounds, "clock": clock}
            times = measure(entries, shape, causal, mode, **rounds)
            results["blocks"].append(summary(entries, times, shape, causal, mode))
            progress.update()
    return results


def each_in_a_fresh_process(shapes, modes, *, threads=None, **options):
    """As `run`, but no shape inherits the memory that another has asked for and given back."""
    results = None
    for shape in shapes:
        setup = (torch.set_num_threads, (threads,)) if threads else (None, ())
        with ProcessPoolExecutor(1, get_context("spawn"), *setup) as process:
            found = process.submit(run, [shape], modes, **options).result()
        results = results or found | {"blocks": []}
        results["blocks"] += found["blocks"]
    return results


def about(module):
    """Machine, versions, date and command."""
    packages = ("torch", "transformers", "mhalib")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        "dtype": "float32",
    }


def processor():
    """Its name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def shape_of(text):
    """(batch, seq_len, d_model, num_heads) from "8x256x512x8"."""
    sizes = tuple(int(size) for size in text.split("x"))
    if len(sizes) != 4 or min(sizes) < 1 or sizes[2] % sizes[3]:
        raise argparse.ArgumentTypeError(
            f"{text} must be BATCHxLENGTHxD_MODELxHEADS, and HEADS must divide D_MODEL"
        )
    return sizes


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", type=shape_of, default=SHAPES, metavar="BxNxDxH")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--seconds", type=float, default=8, help="for each block, at least")
    parser.add_argument("--min-rounds", type=int, default=4, help="of each block (default: 4)")
    parser.add_argument(
        "--threads", type=int, help="threads of PyTorch; its own choice if left out"
    )
    parser.add_argument(
        "--cpu-clock",
        action="store_true",
        help="time on the processor; for a busy machine, with "
        "--threads 1, since threads that wait for each other count as well",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for JSON and figure")
    options = parser.parse_args(arguments)
    if options.min_rounds < 2:
        parser.error("--min-rounds must be at least 2, or there is no spread")
    rounds = {"seconds": options.seconds, "min_rounds": options.min_rounds}
    rounds |= {"threads": options.threads, "cpu_clock": options.cpu_clock}
    results = each_in_a_fresh_process(options.shapes, options.modes, **rounds)
    print(report.table(results))
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / "attention.json"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    report.figure(results).savefig(options.results / "attention.png", facecolor="white")
    print(f"Written to {options.results}.")
    if options.results == RESULTS:
        report.update(FOLDER / "README.md", "results", results, report.table(results))


if __name__ == "__main__":
    main()
