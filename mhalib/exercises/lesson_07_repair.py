"""The exercise "find the two faults" of lesson 07: a class with grouped queries to repair.

A key projection of the wrong width hides what comes after it. So the examination puts one of the
right width in its place, notes that, and looks on: each fault is named whatever stands beside it.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import nn

from mhalib.exercises import probing
from mhalib.exercises.catalogue import Case, Exercise, Fault
from mhalib.exercises.probing import PROJECTIONS, STEPS
from mhalib.functional import (
    merge_heads,
    repeat_kv,
    scaled_dot_product_attention,
    split_heads,
)


class RepairedGroupedAttention(nn.Module):
    """Self-attention in which query heads share key/value heads, from the lesson's functions."""

    def __init__(self, d_model, num_heads, num_kv_heads):
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        head_dim = d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, num_kv_heads * head_dim, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        """(batch, seq_len, d_model) tensor -> tensor of the same shape."""
        group_size = self.num_heads // self.num_kv_heads
        query = split_heads(self.q_proj(x), self.num_heads)
        key = repeat_kv(split_heads(self.k_proj(x), self.num_kv_heads), group_size)
        value = repeat_kv(split_heads(self.v_proj(x), self.num_kv_heads), group_size)
        output, _ = scaled_dot_product_attention(query, key, value)
        return self.out_proj(merge_heads(output))


# the family: grouped attention in which each step can be done another way

_MAPS = {  # the key/value head of query head h
    "": lambda h, num_heads, num_kv_heads: h // (num_heads // num_kv_heads),
    "tiled": lambda h, num_heads, num_kv_heads: h % num_kv_heads,
    "divided": lambda h, num_heads, num_kv_heads: min(h // num_kv_heads, num_kv_heads - 1),
    "first": lambda h, num_heads, num_kv_heads: 0,
}
_SCALES = {
    "": lambda d_model, num_heads, num_kv_heads: 1 / math.sqrt(d_model // num_heads),
    "none": lambda d_model, num_heads, num_kv_heads: 1.0,
    "d_model": lambda d_model, num_heads, num_kv_heads: 1 / math.sqrt(d_model),
    "wide": lambda d_model, num_heads, num_kv_heads: 1 / math.sqrt(d_model // num_kv_heads),
}
_FAMILY = {
    "key": _MAPS,
    "value": _MAPS,
    "scale": _SCALES,
    "split": {way: STEPS["split"][way] for way in ("", "reshaped")},
    "merge": {way: STEPS["merge"][way] for way in ("", "reshaped")},
    "out": {"": lambda x, weight: x @ weight.T, "absent": lambda x, weight: x},
}


def family_output(weights, x, num_heads, num_kv_heads, **variants):
    """The output of the layer in which each step named in `variants` is done in that way."""
    step = {name: ways[variants.get(name, "")] for name, ways in _FAMILY.items()}
    heads = {"q_proj": num_heads, "k_proj": num_kv_heads, "v_proj": num_kv_heads}
    query, key, value = (step["split"](x @ weights[name].T, heads[name]) for name in heads)
    key, value = (
        shared[:, [step[name](h, num_heads, num_kv_heads) for h in range(num_heads)]]
        for name, shared in (("key", key), ("value", value))
    )
    scores = query @ key.transpose(-2, -1) * step["scale"](x.shape[2], num_heads, num_kv_heads)
    merged = step["merge"](scores.softmax(dim=-1) @ value).reshape(x.shape)
    return step["out"](merged, weights["out_proj"])


# one run of the learner's class


@dataclass(frozen=True)
class Run:
    """What one call gave, and which projections had to be replaced: name -> (in, out)."""

    layer: nn.Module
    weights: dict
    x: torch.Tensor
    replaced: dict
    returned: object = None
    error: Exception | None = None


def run(cls, d_model, num_heads, num_kv_heads, x):
    """Call a layer of the learner's class that has known weights of the right shapes.

    Args:
        cls: the learner's class, or whatever stands in its place.
        d_model, num_heads, num_kv_heads: for its constructor.
        x: (batch, seq_len, d_model) tensor.

    Returns:
        Run. Its `error` is what forward raised after a projection was replaced.

    Raises:
        Fault: it makes no layer, or one without the four nn.Linear.
        Exception: whatever the learner's code raises.
    """
    layer = cls(d_model, num_heads, num_kv_heads)
    if not issubclass(type(layer), nn.Module):
        raise Fault(
            f"a value of type {type(layer).__name__} was made, but no nn.Module",
            "the class has to be a subclass of nn.Module",
            "begin it with class RepairedGroupedAttention(nn.Module):",
        )
    layer.to(x.dtype)
    narrow = num_kv_heads * (d_model // num_heads)
    shapes = dict(zip(PROJECTIONS, (d_model, narrow, narrow, d_model), strict=True))
    weights, replaced = {}, {}
    for seed, (name, width) in enumerate(shapes.items()):
        linear = getattr(layer, name, None)
        if not isinstance(linear, nn.Linear):
            raise Fault(
                f"the layer has no nn.Linear called {name}",
                f"the projections have fixed names: {', '.join(PROJECTIONS)}",
                f"make self.{name} in __init__",
            )
        if (linear.in_features, linear.out_features) != (d_model, width):
            replaced[name] = (linear.in_features, linear.out_features)
            linear = nn.Linear(d_model, width, bias=linear.bias is not None, dtype=x.dtype)
            setattr(layer, name, linear)
        weights[name] = probing.probe(1, width, d_model, seed, x.dtype)[0] * 1.5 / d_model**0.5
        with torch.no_grad():
            linear.weight.copy_(weights[name])
            if linear.bias is not None:
                linear.bias.zero_()
    kept = x.detach().clone()
    try:
        return Run(layer, weights, kept, replaced, layer.eval()(x))
    except Exception as error:
        if not replaced:
            raise
        return Run(layer, weights, kept, replaced, error=error)


# the examination


def _agreeing(seen, num_heads, num_kv_heads):
    """The variants, as few wrong ones as possible, that give the output of a run; or None."""
    output = seen.returned.detach().to(seen.x.dtype)
    for choice in sorted(
        itertools.product(*_FAMILY.values()), key=lambda choice: sum(map(bool, choice))
    ):
        variants = dict(zip(_FAMILY, choice, strict=True))
        member = family_output(seen.weights, seen.x, num_heads, num_kv_heads, **variants)
        if torch.allclose(member, output, rtol=1e-4, atol=1e-5):
            return variants
    return None


_WORDS = {  # variant of key and value -> what differs, why, what to try next
    "tiled": (
        "query head h meets {} head h % num_kv_heads: 0, 1, 0, 1 instead of 0, 0, 1, 1",
        "the method repeat tiles: it puts the whole row of heads down again, so a query head meets "
        "the head of another group",
        "repeat every head where it stands: .repeat_interleave(group_size, dim=1), or repeat_kv",
    ),
    "divided": (
        "query head h meets {} head h // num_kv_heads",
        "the number of groups was used where the size of one belongs",
        "divide by group_size = num_heads // num_kv_heads",
    ),
    "first": (
        "every query head meets {} head 0",
        "the first head was copied for all",
        "repeat every head where it stands: .repeat_interleave(group_size, dim=1), or repeat_kv",
    ),
}
_OTHER_WORDS = {
    ("scale", "none"): (
        "the scores are not scaled",
        "no line divides them",
        "divide by the root of head_dim = d_model // num_heads before the softmax",
    ),
    ("scale", "d_model"): (
        "the scores are divided by the root of d_model",
        "that is the width of all heads together",
        "divide by the root of head_dim = d_model // num_heads",
    ),
    ("scale", "wide"): (
        "the scores are divided by the root of d_model // num_kv_heads",
        "that is the width of the wide heads; query and key have head_dim features",
        "divide by the root of head_dim = d_model // num_heads",
    ),
    ("split", "reshaped"): (
        "a head works on a stretch of words, not on its own features of every word",
        "the split is a reshape without a transpose",
        "cut the last axis first, then swap words and heads, as split_heads does",
    ),
    ("merge", "reshaped"): (
        "a row of the merged heads is filled from several words of one head",
        "the merge is a reshape without a transpose back",
        "bring the heads back behind the words first: .transpose(1, 2), then .reshape",
    ),
    ("out", "absent"): (
        "the output is the heads' results side by side: out_proj plays no part",
        "nothing in forward calls it",
        "end forward with return self.out_proj(output)",
    ),
}


def _judge_widths(cls, d_model, num_heads, num_kv_heads, x):
    """Every projection has the width that its heads need."""
    replaced = run(cls, d_model, num_heads, num_kv_heads, x).replaced
    head_dim = d_model // num_heads
    for names, width in ((PROJECTIONS[1:3], num_kv_heads * head_dim), (PROJECTIONS, d_model)):
        wrong = [name for name in names if name in replaced]
        if not wrong:
            continue
        listed, plural = " and ".join(wrong), "s" * (len(wrong) == 1)
        what = f"{listed} make{plural} {replaced[wrong[0]][1]} features, but {width} was expected"
        if width == d_model:
            raise Fault(
                what,
                "queries and output keep the full width",
                f"make {listed} nn.Linear(d_model, d_model, bias=False)",
            )
        if replaced[wrong[0]] == (d_model, d_model):
            raise Fault(
                what,
                f"the full width cut into {num_kv_heads} heads gives wide heads, {d_model} // "
                f"{num_kv_heads} = {d_model // num_kv_heads} features each, which do not fit the "
                f"queries' {head_dim}, and nothing is saved",
                f"let fewer heads make the projection narrower, not the heads wider: make {listed} "
                "nn.Linear(d_model, num_kv_heads * head_dim, bias=False)",
            )
        raise Fault(
            what,
            "a key/value head is as wide as a query head, and there are num_kv_heads of them",
            f"make {listed} nn.Linear(d_model, num_kv_heads * head_dim, bias=False)",
        )


def _judge_bias(cls, d_model, num_heads, num_kv_heads, x):
    """No projection has a bias."""
    layer = run(cls, d_model, num_heads, num_kv_heads, x).layer
    biased = [name for name in PROJECTIONS if getattr(layer, name).bias is not None]
    if biased:
        raise Fault(
            f"{', '.join(biased)} {'have' if biased[1:] else 'has'} a bias",
            "nn.Linear adds a bias unless it is told not to, and weights saved without one would "
            "not fit",
            "give every projection bias=False",
        )


def _judge_heads(cls, d_model, num_heads, num_kv_heads, x):
    """Every query head meets the right key and value head, and the rest is right, too."""
    seen = run(cls, d_model, num_heads, num_kv_heads, x)
    if seen.error is not None:
        raise Fault(
            f"once the projections have the right widths, forward stops with "
            f"{type(seen.error).__name__}: {seen.error}",
            "forward cuts the keys or values into heads of another width",
            "cut them into num_kv_heads heads of head_dim = d_model // num_heads features",
        )
    form, _ = probing.output_of(seen.returned, x)
    if form:
        raise form
    found = _agreeing(seen, num_heads, num_kv_heads)
    if found is None:
        raise _unexplained(cls)
    maps = {name: found[name] for name in ("key", "value") if found[name]}
    if maps:
        what, *advice = _WORDS[next(iter(maps.values()))]
        raise Fault(what.format(" and ".join(maps)), *advice)
    for (step, variant), words in _OTHER_WORDS.items():
        if found[step] == variant:
            raise Fault(*words)


# (num_heads, num_kv_heads, words, what differs, where to look), the smallest first
_LADDER = (
    (
        1,
        1,
        1,
        "with one word and one head the output is another than out_proj(v_proj(x))",
        "one word can attend only to itself, so only v_proj and out_proj have a say here",
    ),
    (
        1,
        1,
        4,
        "with one word the output is right, with one head and four words it is not",
        "with one head nothing is shared: look at the scores, the softmax over the keys, dim=-1, "
        "and the mix of the values",
    ),
    (
        3,
        3,
        4,
        "with one head the output is right, with three query and three key/value heads it is not",
        "nothing is shared yet: look at how heads are split and merged",
    ),
    (
        6,
        1,
        4,
        "with a key/value head for each query head the output is right, with one for all it is not",
        "look at how one head is repeated for the others",
    ),
)


def _unexplained(cls):
    """Where a layer that no known fault explains first goes wrong."""
    words = (
        "with one key/value head for all, or one for each, the output is right, else it is not",
        "look at which key/value head a query head meets",
    )
    for num_heads, num_kv_heads, seq_len, *differs in _LADDER:
        seen = run(cls, 6, num_heads, num_kv_heads, probing.probe(2, seq_len, 6))
        right = family_output(seen.weights, seen.x, num_heads, num_kv_heads)
        _, output = probing.output_of(seen.returned, seen.x)
        if output is None or not torch.allclose(output, right, rtol=1e-4, atol=1e-5):
            words = differs
            break
    return Fault(
        *words, "use split_heads, repeat_kv and merge_heads, and print the .shape after every line"
    )


_JUDGES = (_judge_widths, _judge_bias, _judge_heads)


def _eight_on_four():
    return 16, 8, 4, probing.probe(2, 4, 16)


def _judged(judge):
    """A call that is right where the judge finds no fault."""

    def call(cls, *arguments):
        judge(cls, *arguments)
        return 1

    return call


def _output(cls, *arguments):
    """The output itself, once nothing known is wrong any more."""
    for judge in _JUDGES:
        judge(cls, *_eight_on_four())
    return run(cls, *arguments).returned


_exercise = Exercise(
    name="RepairedGroupedAttention",
    lesson="07",
    minutes=10,
    difficulty=2,
    framework="torch",
    contract=(
        "RepairedGroupedAttention(d_model, num_heads, num_kv_heads): an nn.Module with nn.Linear "
        "layers q_proj, k_proj, v_proj and out_proj, without biases; num_kv_heads divides "
        "num_heads, and num_heads divides d_model\n"
        "forward(x): (batch, seq_len, d_model) tensor -> (batch, seq_len, d_model) tensor; the "
        "first group_size = num_heads // num_kv_heads query heads use key/value head 0, the next "
        "head 1, and so on; no mask"
    ),
    arguments=("d_model", "num_heads", "num_kv_heads", "x"),
    reference=RepairedGroupedAttention,
    returns=("the output",),
    report_all=True,
    cases=(
        Case("eight heads on four to project", _eight_on_four, call=_judged(_judge_widths)),
        Case("the parameters of a layer", _eight_on_four, call=_judged(_judge_bias)),
        Case("eight heads on four to match", _eight_on_four, call=_judged(_judge_heads)),
        Case(
            "as many key/value heads as query heads",
            lambda: (6, 3, 3, probing.probe(2, 3, 6, seed=1)),
            call=_output,
        ),
        Case(
            "one key/value head for all",
            lambda: (8, 4, 1, probing.probe(2, 3, 8, seed=2)),
            call=_output,
        ),
        Case("six heads on two", lambda: (12, 6, 2, probing.probe(1, 5, 12, seed=3)), call=_output),
        Case("odd sizes", lambda: (45, 15, 5, probing.probe(3, 7, 45, seed=4)), call=_output),
        Case(
            "x that does not lie side by side in memory",
            lambda: (8, 4, 2, probing.probe(5, 3, 8, seed=5).transpose(0, 1)),
            call=_output,
        ),
        Case(
            "float64",
            lambda: (8, 4, 2, probing.probe(2, 3, 8, seed=6, dtype=torch.float64)),
            call=_output,
        ),
        Case(
            "gradients in float64",
            lambda: (12, 6, 3, probing.probe(2, 4, 12, seed=7, dtype=torch.float64)),
            call=_output,
            gradients=True,
        ),
    ),
    slips=(),
    hints=(
        "There are two faults. Run check after each repair: it names what is left.",
        "How many features has a head of the queries, and how many a head of the keys? Follow the "
        "shapes with d_model = 16, num_heads = 8 and num_kv_heads = 4.",
        "Fewer key/value heads make the projections narrower: num_kv_heads * head_dim features.",
        "Write down which key head each of the eight query heads meets after .repeat(1, "
        "group_size, 1, 1), and which it should meet.",
    ),
    solution_note=(
        "mhalib.MultiHeadAttention(d_model, num_heads, num_kv_heads, bias=False) is the same layer."
    ),
)

EXERCISES = (_exercise,)
