"""Make spelling-models.safetensors: eight small language models of lesson 07, trained.

    python data/make_spelling_models.py

Trains `mhalib.spelling` with 8, 4, 2 and 1 key/value heads and two seeds each, on one thread:
about three minutes. The losses printed are those of the weights as stored, in float16. The same
bytes come out each time on one kind of processor; another kind rounds otherwise, and after 400
steps the losses may differ by some thousandths.
"""

import argparse
import hashlib
from itertools import product
from pathlib import Path

from mhalib import spelling

OUT = Path(__file__).resolve().parent / spelling.FILE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=OUT, help="the file to write (default: %(default)s)"
    )
    out = parser.parse_args().out
    trained, held_out = spelling.words()
    models = {}
    for num_kv_heads, seed in product((8, 4, 2, 1), (0, 1)):
        model = spelling.train(num_kv_heads, seed)
        models[num_kv_heads, seed] = model.half().float()  # as stored
        losses = [spelling.loss(model, words) for words in (held_out, trained)]
        print(f"{num_kv_heads} KV heads, seed {seed}: held out {losses[0]:.4f}", end=", ")
        print(f"trained on {losses[1]:.4f}", flush=True)
    spelling.save(out, models)
    print(f"{hashlib.sha256(out.read_bytes()).hexdigest()}  {out.name}")


if __name__ == "__main__":
    main()
