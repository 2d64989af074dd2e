"""Does it pay to have more heads? Two small tasks for one attention layer of constant width.

Images: which of ten digits is written here (real handwriting, from scikit-learn). Text: is this an
English word, or one with two neighbouring letters swapped? Only the cut into heads differs.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mhalib import checks, data
from mhalib.modules import MultiHeadAttention
from mhalib.threads import one_thread

D_MODEL, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 48, 128, 1e-2, 0.05


@dataclass(frozen=True, eq=False)
class Task:
    """What to classify: tokens and answers, split into train and test.

    Attributes:
        name: "images" or "text".
        train, test: (tokens, answers) each. Tokens are (n, 16, 4) floats, or (n, 6) integers for
            letters; answers are (n,) integers.
        num_classes: how many answers there are.
        steps: batches of 128 that `train_many` takes.
    """

    name: str
    train: tuple
    test: tuple
    num_classes: int
    steps: int


def images():
    """Handwritten digits, 8 by 8 pixels, as 16 tokens of 2 by 2 pixels each.

    Returns:
        A `Task` of ten classes: 1,200 images to train on and 597 to test on.

    Source: E. Alpaydin and C. Kaynak 1998, in scikit-learn as `load_digits`.
    """
    from sklearn.datasets import load_digits  # here, because it takes a second to load

    digits = load_digits()
    squares = digits.images.reshape(-1, 4, 2, 4, 2).swapaxes(2, 3)  # (n, 4, 4, 2, 2)
    tokens = torch.tensor(squares.reshape(-1, 16, 4) / 16, dtype=torch.float32)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(tokens)))
    pairs = tokens[order], torch.from_numpy(digits.target)[order]
    train, test = zip(*(both.tensor_split([1200]) for both in pairs), strict=True)
    return Task("images", train, test, num_classes=10, steps=250)


def words():
    """English words of 4 to 6 letters, and the same words with two neighbouring letters swapped.

    Returns:
        A `Task` of two classes: 0 for a word, 1 for a swapped one. A token is a letter, 1 to 26;
        0 fills up to 6. A word and its swapped form are together in `train`, or in `test` (1,000).

    Source: the 10,000 words of `data.word_vectors`.
    """
    known = dict.fromkeys(data.word_vectors()[0])
    rng = np.random.default_rng(0)
    word_of = {}  # by its swapped form, which must be no word, nor that of another word
    for word in known:
        if word.isascii() and word.isalpha() and 4 <= len(word) <= 6:
            swapped = _swap(word, rng)
            if swapped not in known:
                word_of.setdefault(swapped, word)
    letters = [[_letters(word), _letters(swapped)] for swapped, word in word_of.items()]
    tokens = torch.tensor(letters)[torch.from_numpy(rng.permutation(len(letters)))]  # (n, 2, 6)
    train, test = (
        (part.flatten(0, 1), torch.tensor([0, 1]).repeat(len(part)))
        for part in (tokens[:-1000], tokens[-1000:])
    )
    return Task("text", train, test, num_classes=2, steps=400)


def _letters(word):
    return [ord(letter) - 96 for letter in word] + [0] * (6 - len(word))


def _swap(word, rng):
    """`word` with two different neighbouring letters swapped, at a random place."""
    places = [i for i in range(len(word) - 1) if word[i] != word[i + 1]]
    i = int(rng.choice(places))
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


class Classifier(nn.Module):
    """Tokens and places added, one attention layer with a residual, the mean over tokens, a matrix.

    Args:
        task: a `Task`.
        num_heads: a divisor of 48, the width. The number of parameters does not depend on it.

    Raises:
        TypeError, ValueError: heads that do not divide the width.
    """

    def __init__(self, task, num_heads):
        super().__init__()
        tokens, _ = task.train
        if tokens.is_floating_point():
            self.tokens = nn.Linear(tokens.shape[2], D_MODEL)
            nn.init.normal_(self.tokens.weight)
        else:
            self.tokens = nn.Embedding(27, D_MODEL)
        self.places = nn.Embedding(tokens.shape[1], D_MODEL)
        self.attention = MultiHeadAttention(D_MODEL, num_heads)
        self.read_out = nn.Linear(D_MODEL, task.num_classes)

    def forward(self, tokens):
        """(batch, seq_len, …) tokens -> (batch, num_classes) scores."""
        x = self.tokens(tokens) + self.places.weight  # (batch, seq_len, d_model)
        x = x + self.attention(x)
        return self.read_out(x.mean(dim=1))


@dataclass(frozen=True)
class Result:
    """One training: `num_heads`, `seed`, `accuracy` on the test set, processor `seconds`."""

    num_heads: int
    seed: int
    accuracy: float
    seconds: float


def train_many(task, heads, seeds=range(3), *, steps=None):
    """Train and test a `Classifier` for every number of heads and every seed.

    Args:
        task: a `Task`, from `images` or `words`.
        heads: numbers of heads, each a divisor of 48. With one seed all of them start from the same
            numbers and see the same batches.
        seeds: integers.
        steps: AdamW steps (one cycle up to 1e-2, weight decay 0.05); those of the task if None.

    Returns:
        {number of heads: list of `Result`, one for each seed}. All run on one thread and take
        turns, so that a slow minute of the machine slows them all.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    heads, seeds = list(heads), list(seeds)
    steps = task.steps if steps is None else steps
    checks.positive_int(steps=steps, **{f"heads[{i}]": count for i, count in enumerate(heads)})
    checks.integer(**{f"seeds[{i}]": seed for i, seed in enumerate(seeds)})
    results = {num_heads: [] for num_heads in heads}
    for seed in seeds:
        for num_heads in heads:
            with one_thread(), torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                model = Classifier(task, num_heads)
                start = time.process_time()
                _fit(model, task, steps)
                seconds = time.process_time() - start
            results[num_heads].append(Result(num_heads, seed, _test(model, task), seconds))
    return results


@torch.enable_grad()
def _fit(model, task, steps):
    tokens, answers = task.train
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
    )
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    for _ in range(steps):
        rows = torch.randint(len(answers), (BATCH_SIZE,))
        loss = F.cross_entropy(model(tokens[rows]), answers[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()


def _test(model, task):
    tokens, answers = task.test
    with torch.inference_mode():
        return (model.eval()(tokens).argmax(dim=1) == answers).double().mean().item()
