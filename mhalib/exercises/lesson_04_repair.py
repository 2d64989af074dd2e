"""The exercise "find the faults" of lesson 04: a class to repair."""

import torch
from torch import nn

from mhalib import masks
from mhalib.exercises import probing
from mhalib.exercises.catalogue import Case, Exercise, Fault
from mhalib.functional import merge_heads, scaled_dot_product_attention, split_heads


class RepairedAttention(nn.Module):
    """Multi-head self-attention from the functions of the lesson."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"num_heads={num_heads} must divide d_model={d_model}")
        self.num_heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, attn_mask=None):
        """(batch, seq_len, d_model) tensor, boolean mask or None -> tensor of the shape of x."""
        query = split_heads(self.q_proj(x), self.num_heads)
        key = split_heads(self.k_proj(x), self.num_heads)
        value = split_heads(self.v_proj(x), self.num_heads)
        output, _ = scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
        return self.out_proj(merge_heads(output))


_CUT = ".reshape(batch_size, seq_len, num_heads, head_dim).transpose(1, 2)"

# (step, variant) -> what differs, why, and what to try next
_WORDS = {
    ("out", "absent"): (
        "the output is the heads' results side by side: no output projection comes after them",
        "without W_o every head writes into its own stretch of features, and nothing mixes what "
        "the heads found",
        "make self.out_proj = nn.Linear(d_model, d_model) in __init__, and end forward with "
        "self.out_proj(output)",
    ),
    ("out", "unused"): (
        "the output is the heads' results side by side: out_proj is made, but plays no part",
        "nothing in forward calls it",
        "end forward with return self.out_proj(output)",
    ),
    ("split", "reshaped"): (
        "a head works on a stretch of words, not on its own features of every word",
        "the split is a reshape without a transpose, which keeps the numbers in their order in "
        "memory: the shape is right, the numbers are not",
        f"cut the last axis first, then swap words and heads: {_CUT}",
    ),
    ("split", "unmoved"): (
        "the heads of one word attend to each other, and no word to another",
        "the features are cut into heads, but the heads still stand behind the words",
        f"swap words and heads after the cut: {_CUT}",
    ),
    ("split", "dealt"): (
        "the features were dealt out in turn, feature f to head f % num_heads",
        "head_dim stands before num_heads where the last axis is cut",
        f"let head 0 have the first head_dim features: {_CUT}",
    ),
    ("split", "whole"): (
        "nothing is split: this is one head as wide as d_model",
        "query, key and value meet before they are cut into heads",
        f"split all three first: {_CUT}",
    ),
    ("scale", "d_model"): (
        "the scores are multiplied by 1/√d_model = 0.41, but 1/√head_dim = 0.71 was expected",
        "that is the width of all heads together; a score adds up head_dim products only",
        "divide by math.sqrt(self.head_dim)",
    ),
    ("scale", "none"): (
        "the scores are not scaled, but 1/√head_dim = 0.71 times their size was expected",
        "no line divides them",
        "divide by math.sqrt(self.head_dim) before the softmax",
    ),
    ("scale", "twice"): (
        "the scores are multiplied by 1/head_dim = 0.5, but 1/√head_dim = 0.71 was expected",
        "they are divided by head_dim and not by its root, or by the root twice",
        "divide once, by math.sqrt(self.head_dim)",
    ),
    ("merge", "reshaped"): (
        "a row of the merged heads is filled from several words of one head",
        "the merge is a reshape without a transpose back",
        "bring the heads back behind the words first: .transpose(1, 2), then .reshape(batch_size, "
        "seq_len, d_model)",
    ),
    ("merge", "collected"): (
        "the merge takes one feature of every head in turn",
        "head_dim and num_heads changed places before the reshape",
        "keep the features of a head side by side: .transpose(1, 2), then .reshape",
    ),
    ("mask", "reversed"): (
        "every word attends to exactly what the mask hides from it",
        "True means may attend here, and the scores were filled with -inf where the mask is True "
        "(the masks of nn.MultiheadAttention are read that way)",
        "fill where it is False: scores.masked_fill(~attn_mask, -math.inf)",
    ),
    ("mask", "ignored"): (
        "the output is the same as without a mask",
        "the mask plays no part",
        "hide before the softmax: scores.masked_fill(~attn_mask, -math.inf)",
    ),
    ("mask", "added"): (
        "hidden words still get a weight",
        "True and False were added to the scores as the numbers 1 and 0, which hides nothing",
        "fill the scores instead: scores.masked_fill(~attn_mask, -math.inf)",
    ),
    ("mask", "zero"): (
        "hidden words still get a weight",
        "their scores were set to 0 or close to it, and exp(0) is 1",
        "set them to -inf: scores.masked_fill(~attn_mask, -math.inf)",
    ),
    ("mask", "late"): (
        "the weights of a word do not add up to 1",
        "the mask came after the softmax, when the hidden words had taken their share",
        "apply it to the scores: scores.masked_fill(~attn_mask, -math.inf)",
    ),
    ("mask", None): (
        "the output is not what it should be with this mask, though it is without one",
        "the mask does something, but it is none of the mistakes that this check knows",
        "give a mask that leaves every word only itself: each row of weights has to be one 1",
    ),
}


def _names(cls, examined):
    """Every name that a method uses has a value there."""
    missing = examined.missing
    if not missing:
        return
    listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
    kept = [name for name in missing if name.startswith("self.")]
    methods = [name for name in missing if hasattr(cls, name)]
    what = f"{'these names have' if missing[1:] else 'a name has'} no value in the class: {listed}"
    if len(kept) == len(missing):
        raise Fault(
            f"{what} (an AttributeError)",
            "self holds only what a method has put there before",
            f"set it in __init__: {kept[0]} = …",
        )
    if len(methods) == len(missing):
        raise Fault(
            f"{what} (a NameError)",
            "a method of the class is not known by its bare name",
            f"call it through self: self.{methods[0]}(…)",
        )
    raise Fault(
        f"{what} (a NameError)",
        "a method sees its arguments, its own variables and what is kept in self; what __init__ "
        "was given is gone afterwards, and a variable of the notebook is no part of the class",
        "keep what __init__ is given (self.num_heads = num_heads), and read the other sizes from "
        "x: batch_size, seq_len, d_model = x.shape",
    )


def _form(cls, examined):
    """One tensor of the shape of x comes back, and the output projection has its name."""
    if examined.form:
        raise examined.form
    if examined.other_out and not examined.variants["out"]:
        raise Fault(
            f"the output projection is called {examined.other_out}",
            "the contract, and whoever copies weights into the layer, knows it as out_proj",
            "call it self.out_proj, in __init__ and in forward",
        )


def _step(step):
    """A judge of one step of the layer, whatever the others do."""

    def judge(cls, examined):
        masked = step == "mask"
        variant = probing.examine_mask(cls, examined) if masked else examined.variants[step]
        if variant is None and examined.unexplained:
            raise examined.unexplained
        if (step, variant) == ("out", "absent") and examined.has_out_proj:
            variant = "unused"
        if variant != "":
            raise Fault(*_WORDS[step, variant])

    return judge


_JUDGES = (_names, _form, *map(_step, ("out", "split", "scale", "mask", "merge")))


def _judged(judge):
    """A call that examines the class, and is right where the judge finds no fault."""

    def call(cls, *arguments):
        judge(cls, probing.examine(cls))
        return 1

    return call


def _output(cls, d_model, num_heads, x, attn_mask=None):
    """The output itself, once nothing known is wrong any more."""
    examined = probing.examine(cls)
    for judge in _JUDGES:
        judge(cls, examined)
    return probing.run(cls, d_model, num_heads, x, attn_mask, biases=False).returned


def _divides(cls, d_model, num_heads):
    """The constructor refuses with a ValueError."""
    step = "raise ValueError(…) first thing in __init__, where d_model % num_heads is not 0"
    try:
        probing.make_layer(cls, d_model, num_heads)
    except ValueError:
        return 1
    except (AssertionError, RuntimeError, TypeError, ArithmeticError, LookupError) as error:
        raise Fault(
            f"{type(error).__name__} was raised, but a ValueError was expected",
            "a ValueError says that an argument has a wrong value (an assert is dropped when "
            "Python runs with -O)",
            step,
        ) from None
    raise Fault(
        "a layer was made all the same, but a ValueError was expected",
        "the division d_model // num_heads rounds down without a word, and the fault shows later, "
        "if at all",
        step,
    )


def _three_heads():
    return 6, 3, probing.probe(2, 4, 6)


_exercise = Exercise(
    name="RepairedAttention",
    lesson="04",
    minutes=15,
    difficulty=3,
    framework="torch",
    contract=(
        "RepairedAttention(d_model, num_heads): an nn.Module with nn.Linear layers q_proj, k_proj, "
        "v_proj and out_proj; a ValueError where num_heads does not divide d_model\n"
        "forward(x, attn_mask=None): (batch, seq_len, d_model) tensor, and None or a boolean mask, "
        "True = may attend, of two axes (seq_len, seq_len) or of four with 1 where it is the same "
        "for all\n-> (batch, seq_len, d_model) tensor"
    ),
    arguments=("d_model", "num_heads", "x", "attn_mask"),
    reference=RepairedAttention,
    returns=("the output",),
    report_all=True,
    cases=(
        Case("a first call", _three_heads, call=_judged(_names)),
        Case("what comes back from a call", _three_heads, call=_judged(_form)),
        Case("num_heads that does not divide d_model", lambda: (10, 3), call=_divides),
        Case("three heads to put together", _three_heads, call=_judged(_step("out"))),
        Case("three heads to split off", _three_heads, call=_judged(_step("split"))),
        Case("heads of two features", _three_heads, call=_judged(_step("scale"))),
        Case(
            "a mask that hides some words",
            lambda: (6, 3, probing.probe(2, 3, 6, seed=1), probing.probe_mask()),
            call=_judged(_step("mask")),
        ),
        Case("three heads to merge again", _three_heads, call=_judged(_step("merge"))),
        Case("odd sizes", lambda: (15, 5, probing.probe(3, 7, 15, seed=2)), call=_output),
        Case(
            "x that does not lie side by side in memory",
            lambda: (8, 2, probing.probe(5, 3, 8, seed=3).transpose(0, 1)),
            call=_output,
        ),
        Case(
            "a padding mask of four axes",
            lambda: (6, 2, probing.probe(2, 5, 6, seed=4), masks.padding([2, 5], 5)),
            call=_output,
        ),
        Case(
            "a mask of its own for every head",
            lambda: (
                6,
                3,
                probing.probe(2, 3, 6, seed=5),
                torch.stack([probing.probe_mask().roll(shift, 1) for shift in range(3)])[None],
            ),
            call=_output,
        ),
        Case(
            "float64",
            lambda: (8, 4, probing.probe(2, 3, 8, seed=6, dtype=torch.float64)),
            call=_output,
        ),
        Case(
            "gradients in float64",
            lambda: (6, 2, probing.probe(2, 4, 6, seed=7, dtype=torch.float64)),
            call=_output,
            gradients=True,
        ),
    ),
    slips=(),
    hints=(
        "There are seven faults. Run check after every repair: it names all that are left.",
        "Read forward line by line and ask of every name where it gets its value, and of every "
        "axis what it counts.",
        "Three lines have the right shape and the wrong numbers: the split, the merge, the scale. "
        "Compare each with the functions you wrote in this lesson.",
        "The mask: True = may attend. Which scores have to become -inf?",
        "What is missing altogether: an output projection, and an error where num_heads does not "
        "divide d_model.",
    ),
)

EXERCISES = (_exercise,)
