"""The lending experiment: who lent what to whom, read from one attention layer on the word "lent".

A sentence is five tokens, `[giver, BA, thing, LENT, receiver]`, in the order of the Chinese
小明 把 书 借给了 小红. The verb LENT attends once to all five; three read-outs must tell the giver,
the thing and the receiver from what it brings back.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mhalib import checks
from mhalib.mixing import ROLES, all_three_right
from mhalib.modules import MultiHeadAttention
from mhalib.progress import bar
from mhalib.threads import one_thread

PEOPLE = {"giver": 0, "receiver": 2}  # their columns in an array of roles
PLACES = (0, 2, 4)  # where the roles stand among the five tokens
VERB = 3
BATCH_SIZE, LEARNING_RATE, TEST_SENTENCES = 256, 3e-3, 4000

_WORDS = {
    "en": ("Xiaoming", "BA", "book", "lent", "Xiaohong"),
    "zh": ("小明", "把", "书", "借给了", "小红"),
}


@dataclass(frozen=True)
class Sentence:
    """One lending sentence: its `text`, its five `words` in token order, its `roles` by number.

    `roles` is (giver, thing, receiver); name 0 is Xiaoming, name 1 Xiaohong, thing 0 the book.
    """

    text: str
    words: tuple
    roles: tuple


def sentence(language="en", swapped=False):
    """ "Xiaoming lent the book to Xiaohong", or the reverse.

    Args:
        language: "en" or "zh".
        swapped: let Xiaohong be the giver.

    Returns:
        A `Sentence`. Its words keep the Chinese order in both languages; BA (把) marks the thing.

    Raises:
        TypeError, ValueError: another language, or not a bool.
    """
    checks.one_of(tuple(_WORDS), language=language)
    checks.boolean(swapped=swapped)
    giver, ba, thing, lent, receiver = _WORDS[language]
    if swapped:
        giver, receiver = receiver, giver
    words = (giver, ba, thing, lent, receiver)
    text = f"{giver} lent the {thing} to {receiver}" if language == "en" else "".join(words)
    return Sentence(text, words, (1, 0, 0) if swapped else (0, 0, 1))


class LendingModel(nn.Module):
    """Token and place embeddings added, one attention layer asked by the verb, three read-outs.

    Args:
        num_heads: must divide `d_model`. The number of parameters does not depend on it.
        num_names, num_things: sizes of the vocabulary; givers and receivers share the names.
        d_model: width of embeddings and layer; a head is d_model / num_heads wide.
        readout: "linear"; "mlp" for one hidden layer of 4 d_model with ReLU; or "fixed" for
            linear read-outs that stay as they were drawn, so that the layer must suit them.
        output_projection: whether the heads are mixed by W_o before they are read.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """

    def __init__(
        self,
        num_heads,
        *,
        num_names=64,
        num_things=64,
        d_model=48,
        readout="linear",
        output_projection=True,
    ):
        super().__init__()
        checks.positive_int(num_heads=num_heads, num_things=num_things, d_model=d_model)
        checks.at_least(2, num_names=num_names)
        checks.one_of(("linear", "mlp", "fixed"), readout=readout)
        checks.boolean(output_projection=output_projection)
        self.num_names, self.num_things = num_names, num_things
        self.words = nn.Embedding(num_names + num_things + 2, d_model)  # the last two: BA, LENT
        self.places = nn.Embedding(5, d_model)
        self.attention = MultiHeadAttention(d_model, num_heads, bias=False)
        if not output_projection:
            self.attention.out_proj = nn.Identity()
        self.readouts = nn.ModuleList(
            _read_out(d_model, classes, readout) for classes in (num_names, num_things, num_names)
        )

    def tokens(self, roles):
        """(batch, 3) numbers of giver, thing and receiver -> (batch, 5) token numbers."""
        giver, thing, receiver = roles.unbind(dim=1)
        ba = torch.full_like(giver, self.num_names + self.num_things)
        return torch.stack([giver, ba, thing + self.num_names, ba + 1, receiver], dim=1)

    def forward(self, roles, need_weights=False):
        """Read the three roles of each sentence.

        Args:
            roles: (batch, 3) integer tensor: giver, thing, receiver.
            need_weights: also return what the verb attends to.

        Returns:
            scores: three tensors, (batch, num_names), (batch, num_things) and (batch, num_names);
            with `need_weights` (scores, weights), where weights is (batch, num_heads, 5).
        """
        x = self.words(self.tokens(roles)) + self.places.weight  # (batch, 5, d_model)
        verb = x[:, VERB : VERB + 1]  # (batch, 1, d_model)
        if not need_weights:
            brought = self.attention(verb, x)[:, 0]  # (batch, d_model)
            return [read(brought) for read in self.readouts]
        brought, weights = self.attention(verb, x, need_weights=True)
        return [read(brought[:, 0]) for read in self.readouts], weights[:, :, 0]


def _read_out(d_model, classes, kind):
    if kind == "linear":
        return nn.Linear(d_model, classes)
    if kind == "fixed":
        read_out = nn.Linear(d_model, classes, bias=False).requires_grad_(False)
        nn.init.normal_(read_out.weight, std=0.5)
        return read_out
    return nn.Sequential(
        nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, classes)
    )


@dataclass(frozen=True, eq=False)
class Result:
    """A trained model and what it does on the test sentences.

    Attributes:
        num_heads, seed, model: as trained; the `LendingModel` is in evaluation mode.
        roles: (n, 3) array, the true giver, thing and receiver of each test sentence.
        predicted: (n, 3) array, what the three read-outs say.
        weights: (n, num_heads, 5) array, the attention of the verb.
    """

    num_heads: int
    seed: int
    model: LendingModel
    roles: np.ndarray
    predicted: np.ndarray
    weights: np.ndarray

    @property
    def all_right(self):
        """(n,) booleans: all three roles read right."""
        return (self.predicted == self.roles).all(axis=1)

    @property
    def accuracy(self):
        """Share of sentences read right: "giver", "thing", "receiver", and "all" three at once."""
        right = (self.predicted == self.roles).mean(axis=0)
        by_role = {role: float(share) for role, share in zip(ROLES, right, strict=True)}
        return {**by_role, "all": all_three_right(self.predicted, self.roles)}

    @property
    def mean_weights(self):
        """(num_heads, 5): the attention of the verb, averaged over the sentences."""
        return self.weights.mean(axis=0)

    @property
    def tilt(self):
        """(n, num_heads): |weight of the giver - weight of the receiver| in each sentence."""
        return np.abs(self.weights[..., PLACES[0]] - self.weights[..., PLACES[2]])

    @property
    def confusions(self):
        """For "giver" and "receiver": the shares of sentences in which the read-out names each of
        "giver", "receiver" and "someone else"."""
        shares = {}
        for role, column in PEOPLE.items():
            said = self.predicted[:, column]
            share = {name: float((said == self.roles[:, c]).mean()) for name, c in PEOPLE.items()}
            shares[role] = {**share, "someone else": 1 - sum(share.values())}
        return shares

    def attend(self, sentence):
        """(num_heads, 5): the attention of the verb in one `Sentence`."""
        with torch.inference_mode():
            _, weights = self.model(torch.tensor([sentence.roles]), need_weights=True)
        return weights[0].numpy()

    def read(self, sentence):
        """{role: word} as the read-outs tell it from one `Sentence`, or "another" word."""
        with torch.inference_mode():
            scores = self.model(torch.tensor([sentence.roles]))
        giver, _, thing, _, receiver = sentence.words
        people = {sentence.roles[0]: giver, sentence.roles[2]: receiver}
        known = (people, {sentence.roles[1]: thing}, people)
        numbers = [int(score.argmax()) for score in scores]
        return {
            role: words.get(number, "another")
            for role, words, number in zip(ROLES, known, numbers, strict=True)
        }


def train(num_heads, seed, **options):
    """Train one `LendingModel` and test it.

    With one seed the initial numbers and the training sentences are the same for every
    `num_heads`: only the cut into heads differs. The global random state is left as it was.

    Args:
        num_heads: must divide d_model (48).
        seed: decides initial weights, sentences and held-out pairs.
        **options: as in `train_many`.

    Returns:
        A `Result`.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    (result,) = train_many(num_heads, [seed], **options)
    return result


def train_many(num_heads, seeds=range(8), *, steps=600, held_out=0.0, progress=True, **model):
    """`train` once for each seed, under one progress bar.

    Args:
        num_heads: the same for all.
        seeds: integers.
        steps: batches of 256 random sentences, one Adam step (3e-3) each.
        held_out: share of the pairs of people that never meet in training, in either direction;
            if not 0, the test uses these pairs only. Else it uses every pair.
        progress: show a bar where someone can watch it.
        **model: `num_names`, `readout` and the other options of `LendingModel`.

    Returns:
        A list of `Result`, in the order of the seeds. Each is tested on about 4,000 sentences:
        every test pair equally often, with random things.

    Raises:
        TypeError, ValueError: arguments that do not fit, named.
    """
    seeds = list(seeds)
    checks.integer(**{f"seeds[{i}]": seed for i, seed in enumerate(seeds)})
    checks.positive_int(steps=steps)
    checks.probability(held_out=held_out)
    checks.boolean(progress=progress)
    results = []
    with bar(len(seeds) * steps, progress, f"training {num_heads} head(s)") as tick:
        for seed in seeds:
            with one_thread(), torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                net = LendingModel(num_heads, **model)
                known, unknown = _split_pairs(net.num_names, held_out)
                _fit(net, known, steps, tick)
                results.append(_test(net, unknown if held_out else known, num_heads, seed))
    return results


def _split_pairs(num_names, held_out):
    """Ordered pairs of different names, (n, 2): those met in training, and those held out."""
    low, high = torch.triu_indices(num_names, num_names, offset=1)
    couples = torch.stack([low, high], dim=1)[torch.randperm(len(low))]
    cut = round(held_out * len(couples))
    if cut == len(couples) or (held_out and not cut):
        raise ValueError(
            f"held_out={held_out} of {len(couples)} pairs of people leaves none to "
            f"{'train' if cut else 'test'} on"
        )
    both_ways = torch.cat([couples, couples.flip(1)], dim=0).view(2, -1, 2)
    return both_ways[:, cut:].reshape(-1, 2), both_ways[:, :cut].reshape(-1, 2)


def _sentences(pairs, num_things):
    """(n, 2) pairs of people, each with a random thing -> (n, 3) roles."""
    things = torch.randint(num_things, (len(pairs),))
    return torch.stack([pairs[:, 0], things, pairs[:, 1]], dim=1)


@torch.enable_grad()
def _fit(net, pairs, steps, tick):
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, fused=True)
    for _ in range(steps):
        roles = _sentences(pairs[torch.randint(len(pairs), (BATCH_SIZE,))], net.num_things)
        scores = net(roles)
        loss = sum(F.cross_entropy(s, role) for s, role in zip(scores, roles.T, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick()


def _test(net, pairs, num_heads, seed):
    pairs = pairs.repeat(-(-TEST_SENTENCES // len(pairs)), 1)
    roles = _sentences(pairs, net.num_things)
    with torch.inference_mode():
        scores, weights = net.eval()(roles, need_weights=True)
        predicted = torch.stack([s.argmax(dim=1) for s in scores], dim=1)
    return Result(num_heads, seed, net, roles.numpy(), predicted.numpy(), weights.numpy())
