"""A small language model that spells: from the letters so far to the next letter of a word.

Two decoder layers of 8 query heads share 8, 4, 2 or 1 key/value heads. Letters are tokens 1 to 26;
token 0 opens a word and closes it. The words are those of the word vectors.
"""

import copy
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mhalib import checks, data, experiment_checks
from mhalib.cache import KVCache
from mhalib.modules import MultiHeadAttention
from mhalib.progress import bar
from mhalib.sharing import shared_layer
from mhalib.threads import one_thread

NUM_TOKENS, LONGEST = 27, 14
D_MODEL, NUM_HEADS, NUM_LAYERS, D_HIDDEN = 64, 8, 2, 128
STEPS, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 400, 256, 3e-3, 0.1
HELD_OUT = 1000
FILE = "spelling-models.safetensors"


def words():
    """English words of 3 to 14 letters a to z, shuffled, always in the same way.

    Returns:
        (train, held_out): lists of words; the 1,000 held out are for measuring only.

    Source: the 10,000 words of `data.word_vectors`.
    """
    fitting = [
        word
        for word in data.word_vectors()[0]
        if word.isascii() and word.isalpha() and 3 <= len(word) <= LONGEST
    ]
    shuffled = [fitting[i] for i in np.random.default_rng(0).permutation(len(fitting))]
    return shuffled[:-HELD_OUT], shuffled[-HELD_OUT:]


def encode(words):
    """What the model reads, and what it should say next.

    Args:
        words: list of words of 1 to 14 letters a to z.

    Returns:
        (tokens, targets): (batch, longest word + 1) integer tensors. "cat" is read as 0 3 1 20 and
        should be continued by 3 1 20 0. Short words are filled up, tokens by 0, targets by -100.

    Raises:
        ValueError: no words, or something else among them.
    """
    words = list(words)
    for word in words:
        if not (word.isascii() and word.isalpha() and word.islower() and len(word) <= LONGEST):
            raise ValueError(f"{word!r} is not a word of 1 to {LONGEST} letters a to z")
    checks.positive_int(**{"the number of words": len(words)})
    letters = [[ord(letter) - 96 for letter in word] for word in words]
    width = max(map(len, letters)) + 1
    tokens = [[0, *word] + [0] * (width - 1 - len(word)) for word in letters]
    targets = [[*word, 0] + [-100] * (width - 1 - len(word)) for word in letters]
    return torch.tensor(tokens), torch.tensor(targets)


class SpellingModel(nn.Module):
    """Letter and place embeddings, two decoder layers, and a score for each token to come next.

    Args:
        num_kv_heads: key/value heads in each layer, a divisor of 8.

    Raises:
        TypeError, ValueError: another number.
    """

    def __init__(self, num_kv_heads=NUM_HEADS):
        super().__init__()
        self.letters = nn.Embedding(NUM_TOKENS, D_MODEL)
        self.places = nn.Embedding(LONGEST + 1, D_MODEL)
        self.layers = nn.ModuleList(DecoderLayer(num_kv_heads) for _ in range(NUM_LAYERS))
        self.norm = nn.LayerNorm(D_MODEL)
        self.read_out = nn.Linear(D_MODEL, NUM_TOKENS)
        for embedding in (self.letters, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    @property
    def num_kv_heads(self):
        """Key/value heads in each layer."""
        return self.layers[0].attention.num_kv_heads

    def forward(self, tokens, caches=None):
        """The scores of what comes next, after every token.

        Args:
            tokens: (batch, seq_len) integers from 0 to 26: whole words, or what follows the tokens
                that are in the caches.
            caches: None, or what `new_caches` gave; the new tokens are added. Under
                `torch.no_grad()` only.

        Returns:
            (batch, seq_len, 27) tensor of scores.

        Raises:
            TypeError, ValueError: tokens that do not fit, or more than 15 in a row.
        """
        seen = 0 if caches is None else int(caches[0].lengths[0])
        experiment_checks.token_ids(tokens, NUM_TOKENS, LONGEST + 1 - seen)
        x = self.letters(tokens) + self.places.weight[seen : seen + tokens.shape[1]]
        for number, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[number])
        return self.read_out(self.norm(x))

    def new_caches(self, batch=1):
        """An empty `KVCache` of 15 slots for each layer, for `batch` words side by side."""
        sizes = batch, self.num_kv_heads, D_MODEL // NUM_HEADS
        return [KVCache(*sizes, max_len=LONGEST + 1) for _ in self.layers]


class DecoderLayer(nn.Module):
    """Normalise, attend to what came before, add; normalise, two matrices, add.

    Args:
        num_kv_heads: as in `SpellingModel`.
    """

    def __init__(self, num_kv_heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(D_MODEL)
        self.attention = MultiHeadAttention(D_MODEL, NUM_HEADS, num_kv_heads, bias=False)
        self.hidden_norm = nn.LayerNorm(D_MODEL)
        self.hidden = nn.Linear(D_MODEL, D_HIDDEN)
        self.back = nn.Linear(D_HIDDEN, D_MODEL)

    def forward(self, x, cache=None):
        """(batch, seq_len, d_model) tensor -> the same shape."""
        x = x + self.attention(self.attention_norm(x), is_causal=True, cache=cache)
        return x + self.back(F.gelu(self.hidden(self.hidden_norm(x))))


def loss(model, words):
    """How badly the model spells: the mean of -log(share given to the true next token).

    Args:
        model: a `SpellingModel`.
        words: list of words of 1 to 14 letters a to z.

    Returns:
        float, nats per character. Every letter counts once, and so does the end of each word; what
        fills up short words does not. Who gives all 27 tokens the same share has log 27 = 3.296.

    Raises:
        ValueError: something else among the words.
    """
    tokens, targets = encode(words)
    with torch.no_grad(), one_thread():
        scores = model(tokens)
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten()).item()


def train(num_kv_heads, seed, *, steps=STEPS, progress=True):
    """Train a `SpellingModel` from scratch on the training words.

    Args:
        num_kv_heads: a divisor of 8.
        seed: decides the initial numbers and the batches of 256 random words.
        steps: AdamW steps: one cycle up to a rate of 3e-3, weight decay 0.1.
        progress: show a bar where someone can watch it.

    Returns:
        The trained model. The global random state is left as it was.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    checks.integer(seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = SpellingModel(num_kv_heads)
    return _fit(model, seed, steps, LEARNING_RATE, progress)


def train_further(model, *, steps=40, rate=1e-3, seed=0, progress=True):
    """A copy of the model, trained for some more steps at a constant rate.

    Args:
        model: a `SpellingModel`; it is left as it is.
        steps: AdamW steps on batches of 256 words.
        rate: learning rate of all these steps.
        seed: decides the batches.
        progress: show a bar where someone can watch it.

    Returns:
        The copy.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    checks.integer(seed=seed)
    return _fit(copy.deepcopy(model), seed, steps, rate, progress, constant=True)


@torch.enable_grad()
def _fit(model, seed, steps, rate, progress, constant=False):
    checks.positive_int(steps=steps)
    tokens, targets = encode(words()[0])
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY, fused=True
    )
    schedule = None if constant else torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    label = f"training {model.num_kv_heads} KV head(s)"
    with one_thread(), bar(steps, progress, label) as tick:
        for _ in range(steps):
            rows = torch.randint(len(tokens), (BATCH_SIZE,), generator=generator)
            scores = model(tokens[rows])
            error = F.cross_entropy(scores.flatten(0, 1), targets[rows].flatten())
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            tick()
    return model


def converted(model, num_kv_heads, how="mean", seed=0):
    """A copy of the model whose layers share fewer key/value heads, not trained any further.

    Args:
        model: a `SpellingModel`; it is left as it is.
        num_kv_heads: a divisor of the model's.
        how: "mean", "first" or "random", as in `sharing.shared_layer`.
        seed: decides the random numbers, other ones in each layer.

    Returns:
        The copy.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    checks.integer(seed=seed)
    copied = copy.deepcopy(model)
    for number, layer in enumerate(copied.layers):
        layer_seed = seed * NUM_LAYERS + number
        layer.attention = shared_layer(layer.attention, num_kv_heads, how, seed=layer_seed)
    return copied


def copied_out(model, *, tiled=False):
    """A copy of the model in which every query head has its own copy of the KV head it shares.

    Args:
        model: a `SpellingModel`; it is left as it is.
        tiled: in the wrong order: KV heads 0, 1, 0, 1 for the query heads, and not 0, 0, 1, 1.

    Returns:
        A `SpellingModel` of 8 KV heads: the same function if not tiled.

    Raises:
        TypeError: `tiled` is not a bool.
    """
    checks.boolean(tiled=tiled)
    order = torch.arange(model.num_kv_heads)
    group_size = NUM_HEADS // model.num_kv_heads
    order = order.repeat(group_size) if tiled else order.repeat_interleave(group_size)
    copied = SpellingModel(NUM_HEADS)
    weights = copy.deepcopy(model.state_dict())
    for name, weight in weights.items():
        if "k_proj" in name or "v_proj" in name:
            heads = weight.reshape(model.num_kv_heads, -1, D_MODEL)
            weights[name] = heads[order].flatten(0, 1)
    copied.load_state_dict(weights)
    return copied


def load(num_kv_heads, seed):
    """A model that is trained already, as `data/make_spelling_models.py` made it.

    Args:
        num_kv_heads: 8, 4, 2 or 1.
        seed: 0 or 1.

    Returns:
        A `SpellingModel` in float32; its weights were stored in float16.

    Raises:
        ValueError: another number, or a damaged file.
        FileNotFoundError: the file is missing, with how to mend it.
    """
    from safetensors import safe_open  # here, because only this function needs it

    checks.one_of((8, 4, 2, 1), num_kv_heads=num_kv_heads)
    checks.one_of((0, 1), seed=seed)
    model = SpellingModel(num_kv_heads)
    with safe_open(data.path(FILE), "pt") as file:
        weights = {
            name: file.get_tensor(f"{num_kv_heads} KV heads, seed {seed}: {name}").float()
            for name in model.state_dict()
        }
    model.load_state_dict(weights)
    return model


def save(path, models):
    """Write models where `load` finds them, with 16 bits for each number.

    Args:
        path: the file to write.
        models: {(num_kv_heads, seed): `SpellingModel`}.
    """
    from safetensors.torch import save as to_bytes

    tensors = {
        f"{num_kv_heads} KV heads, seed {seed}: {name}": weight.half().contiguous()
        for (num_kv_heads, seed), model in models.items()
        for name, weight in model.state_dict().items()
    }
    Path(path).write_bytes(to_bytes(tensors))


def write(model, start="", *, seed=None, cached=True):
    """Let the model write a word, letter by letter.

    Args:
        model: a `SpellingModel`.
        start: the letters to begin with, 0 to 13 of them.
        seed: None to take the likeliest token each time; an integer to draw by the model's shares.
        cached: keep keys and values in caches, so that each step reads one token; False reads all
            tokens again in each step. The word is the same.

    Returns:
        The word, with its start, of 14 letters at most.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    checks.boolean(cached=cached)
    tokens = encode([start])[0] if start else torch.zeros(1, 1, dtype=torch.long)
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    caches = model.new_caches() if cached else None
    word, new = start, tokens
    with torch.no_grad(), one_thread():
        while len(word) < LONGEST:
            scores = model(new if cached else tokens, caches)[0, -1]
            if generator is None:
                token = int(scores.argmax())
            else:
                token = int(scores.softmax(dim=0).multinomial(1, generator=generator))
            if token == 0:
                break
            word += chr(96 + token)
            new = torch.tensor([[token]])
            tokens = torch.cat([tokens, new], dim=1)
    return word
