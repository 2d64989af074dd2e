"""How an attention class is examined: every fault on its own, whatever else is wrong beside it.

The learner's layer gets known weights. Its output is compared with those of a family of layers in
which any of the known faults are present at once: the member that agrees with it names its
faults. A name that has no value would hide everything behind it, so it is given one and noted.
"""

import itertools
import math
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mhalib import functional
from mhalib.exercises.catalogue import Fault

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
MOST_NAMES = 20  # names without a value that are given one

# What a name that a method uses without a value most likely stands for.
_SPELLINGS = {
    "num_heads": "num_heads n_heads n_head nhead num_head heads h H",
    "batch_size": "batch_size batch bs b B",
    "seq_len": "seq_len seq_length length n T L",
    "d_model": "d_model embed_dim dim d D C hidden_size",
    "head_dim": "head_dim d_head d_k d_v head_size depth",
}
_STANDS_FOR = {name: size for size, names in _SPELLINGS.items() for name in names.split()}
_LIBRARIES = {"math": math, "torch": torch, "nn": nn, "F": F, "np": np}


# the family: multi-head attention in which each step can be done another way


def _reshaped(x, num_heads):
    return x.reshape(x.shape[0], num_heads, x.shape[1], -1)


def _unmoved(x, num_heads):
    return x.reshape(x.shape[0], x.shape[1], num_heads, -1)


def _dealt(x, num_heads):
    return x.reshape(x.shape[0], x.shape[1], -1, num_heads).permute(0, 3, 1, 2)


def _fill(number):
    return lambda scores, mask: scores.masked_fill(~mask, number).softmax(dim=-1)


# step -> {variant: how it is done}; "" is right
STEPS = {
    "out": {"": F.linear, "absent": lambda x, weight, bias: x},
    "split": {
        "": functional.split_heads,
        "reshaped": _reshaped,
        "unmoved": _unmoved,
        "dealt": _dealt,
        "whole": lambda x, num_heads: x[:, None],
    },
    "scale": {
        "": lambda d_model, head_dim: 1 / math.sqrt(head_dim),
        "d_model": lambda d_model, head_dim: 1 / math.sqrt(d_model),
        "none": lambda d_model, head_dim: 1.0,
        "twice": lambda d_model, head_dim: 1 / head_dim,
    },
    "merge": {
        "": functional.merge_heads,
        "reshaped": lambda x: x,
        "collected": lambda x: x.permute(0, 2, 3, 1),
    },
    "mask": {
        "": _fill(-math.inf),
        "reversed": lambda scores, mask: scores.masked_fill(mask, -math.inf).softmax(dim=-1),
        "ignored": lambda scores, mask: scores.softmax(dim=-1),
        "added": lambda scores, mask: (scores + mask.to(scores.dtype)).softmax(dim=-1),
        "zero": _fill(0.0),
        "late": lambda scores, mask: scores.softmax(dim=-1) * mask,
    },
}


def family_output(weights, x, num_heads, attn_mask=None, **variants):
    """The output of the layer in which each step named in `variants` is done in that way."""
    step = {name: ways[variants.get(name, "")] for name, ways in STEPS.items()}
    query, key, value = (
        step["split"](F.linear(x, *weights[name]), num_heads) for name in PROJECTIONS[:3]
    )
    scores = query @ key.transpose(-2, -1) * step["scale"](x.shape[2], x.shape[2] // num_heads)
    shares = scores.softmax(dim=-1) if attn_mask is None else step["mask"](scores, attn_mask)
    merged = step["merge"](shares @ value).reshape(x.shape)
    return step["out"](merged, *weights["out_proj"])


def _agreeing(seen, steps, **fixed):
    """The variants of `steps`, as few wrong ones as possible, that give the output of a run."""
    if seen.output is None:
        return None
    choices = itertools.product(*(STEPS[step] for step in steps))
    for choice in sorted(choices, key=lambda choice: sum(map(bool, choice))):
        variants = dict(zip(steps, choice, strict=True)) | fixed
        output = family_output(seen.weights, seen.x, seen.num_heads, seen.attn_mask, **variants)
        if torch.allclose(output, seen.output, rtol=1e-4, atol=1e-5):
            return variants
    return None


# one run of the learner's class


@dataclass(frozen=True)
class Run:
    """What one call gave, and with which names without a value; `form` is wrong with the result."""

    layer: nn.Module
    weights: dict
    x: torch.Tensor
    num_heads: int
    attn_mask: torch.Tensor | None
    returned: object
    missing: tuple = ()
    form: Fault | None = None
    output: torch.Tensor | None = None


@dataclass
class _Names:
    """Names that had no value and now have one: of the methods' world, and of `self`."""

    found: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)

    def learn(self, error, layer, sizes):
        """Give a value to the name that `error` is about; raise it again if that cannot be."""
        name = getattr(error, "name", None)
        size = sizes.get(_STANDS_FOR.get(name, ""))
        if isinstance(error, NameError):
            known = name in _LIBRARIES or size is not None or hasattr(layer, name or "")
            if not known or name in self.found:
                raise error
            self.found[name] = _LIBRARIES.get(name, size)
        else:
            value = nn.Linear(*[sizes["d_model"]] * 2) if name == "out_proj" else size
            if value is None or name in self.attributes:
                raise error
            self.attributes[name] = value

    def missing(self):
        """All of them, as the learner writes them."""
        return (*self.found, *(f"self.{name}" for name in self.attributes))


def make_layer(cls, d_model, num_heads):
    """A layer of the learner's class, alone in its world, with the names it lacks."""
    return _with_names(cls, {"d_model": d_model, "num_heads": num_heads}, lambda layer: None)[0]


def run(cls, d_model, num_heads, x, attn_mask=None, *, biases=True):
    """Call a layer of the learner's class that has known weights.

    Args:
        cls: the learner's class, or whatever stands in its place.
        d_model, num_heads: for its constructor.
        x: (batch, seq_len, d_model) tensor.
        attn_mask: None or boolean, given only if it is there.
        biases: fill the layers' biases with numbers, where they have one, or with zeros.

    Returns:
        Run.

    Raises:
        Fault: it makes no layer, or one without the four nn.Linear.
        Exception: whatever the learner's code raises, but for names that can be given a value.
    """
    sizes = {"d_model": d_model, "num_heads": num_heads}
    sizes |= {"batch_size": x.shape[0], "seq_len": x.shape[1]}
    inputs = (x,) if attn_mask is None else (x, attn_mask)
    kept = x.detach().clone()

    def use(layer):
        weights = _load(layer, d_model, x.dtype, biases)
        return weights, layer.eval()(*inputs)

    layer, (weights, returned), missing = _with_names(cls, sizes, use)
    form, output = output_of(returned, x)
    output = None if output is None else output.detach().to(x.dtype)
    return Run(layer, weights, kept, num_heads, attn_mask, returned, missing, form, output)


def _with_names(cls, sizes, use):
    """(layer, use(layer), missing names): as often as it takes until no name lacks a value."""
    sizes = {**sizes, "head_dim": sizes["d_model"] // sizes["num_heads"]}
    names = _Names()
    for _ in range(MOST_NAMES):
        layer = None
        try:
            world, alone = _alone(cls, names)
            layer = alone(sizes["d_model"], sizes["num_heads"])
            if not issubclass(type(layer), nn.Module):
                raise Fault(
                    f"a value of type {type(layer).__name__} was made, but no nn.Module",
                    "the class has to be a subclass of nn.Module",
                    "begin it with class RepairedAttention(nn.Module):",
                )
            for name in names.found:
                for variables in world:
                    variables[name] = getattr(layer, name, names.found[name])
            return layer, use(layer), names.missing()
        except (NameError, AttributeError) as error:
            names.learn(error, layer, sizes)
    raise NameError("too many names have no value")


def _alone(cls, names):
    """The class, its methods in a world without the notebook's variables named like a size.

    With such a variable (`num_heads = 8` in an earlier cell) a method that forgot `self.` would
    work here and fail elsewhere.
    """
    if not isinstance(cls, type):
        return (), cls
    worlds, members = {}, {}
    for base in reversed(cls.__mro__):
        own = base not in nn.Module.__mro__ and not base.__module__.startswith("torch.")
        for name, thing in vars(base).items() if own else ():
            function = thing.__func__ if isinstance(thing, staticmethod) else thing
            if isinstance(function, FunctionType):
                variables = function.__globals__
                if id(variables) not in worlds:
                    worlds[id(variables)] = _without_sizes(variables) | names.found
                copy = _in_world(function, worlds[id(variables)])
                members[name] = staticmethod(copy) if function is not thing else copy
    return tuple(worlds.values()), type(cls)(cls.__name__, (cls,), members | names.attributes)


def _without_sizes(variables):
    return {
        name: value
        for name, value in variables.items()
        if name not in _STANDS_FOR or callable(value) or isinstance(value, ModuleType)
    }


def _in_world(function, variables):
    copy = FunctionType(
        function.__code__, variables, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _load(layer, d_model, dtype, biases):
    """Give the layer's projections known weights, and return them: name -> (weight, bias)."""
    layer.to(dtype)
    rng = np.random.default_rng(4)
    weights = {}
    others = [name for name, part in layer.named_modules() if isinstance(part, nn.Linear)]
    others = [name for name in others if name not in PROJECTIONS]
    for name in PROJECTIONS:
        weight = torch.from_numpy(1.5 * rng.standard_normal((d_model, d_model))).to(dtype)
        weight = weight / math.sqrt(d_model)
        bias = torch.from_numpy(rng.standard_normal(d_model) * biases).to(dtype)
        linear = getattr(layer, name, None)
        if name == "out_proj" and linear is None:
            linear = layer.get_submodule(others[0]) if len(others) == 1 else None
        elif not isinstance(linear, nn.Linear):
            raise _no_linear(name, others)
        if linear is not None:
            sizes = (linear.in_features, linear.out_features)
            if sizes != (d_model, d_model):
                raise Fault(
                    f"{name} takes {sizes[0]} features to {sizes[1]}, "
                    f"but {d_model} to {d_model} was expected",
                    "one projection makes the features of all heads at once",
                    f"self.{name} = nn.Linear(d_model, d_model)",
                )
            linear.to(dtype)
            with torch.no_grad():
                linear.weight.copy_(weight)
                if linear.bias is not None:
                    linear.bias.copy_(bias)
        has_bias = linear is None or linear.bias is not None
        weights[name] = (weight, bias if has_bias else None)
    return weights


def _no_linear(name, others):
    has = f"; it has {', '.join(others)}" if others else ""
    return Fault(
        f"the layer has no nn.Linear called {name}{has}",
        "the projections have fixed names, so that weights can be copied into them: "
        f"{', '.join(PROJECTIONS)}",
        f"make self.{name} = nn.Linear(d_model, d_model) in __init__",
    )


def output_of(returned, x):
    """(what is wrong with the form of the result, the output in it if there is one)."""
    several = issubclass(type(returned), (tuple, list))
    first = returned[0] if several and len(returned) else returned
    if returned is None:
        return Fault(
            "forward returned None",
            "most often the return is missing",
            "end forward with return and the output",
        ), None
    if not issubclass(type(first), torch.Tensor):
        return Fault(
            f"forward returned a value of type {type(returned).__name__}, "
            "but a torch.Tensor was expected",
            "something else than the output was returned",
            "end forward with return and the output",
        ), None
    if first.shape != x.shape:
        return Fault(
            f"the output has shape {tuple(first.shape)}, but {tuple(x.shape)} was expected",
            "the output has the shape of x: (batch, seq_len, d_model)",
            "print the .shape after every line of forward, and compare it with what you expect",
        ), None
    if several:
        return Fault(
            f"forward returned {len(returned)} values, but one was expected",
            "the contract asks for the output alone",
            "end forward with return and the output, without a comma",
        ), first
    return None, first


# the examination


@dataclass(frozen=True)
class Examined:
    """What is wrong: step -> variant, None where nothing known explains it; and how far it got."""

    missing: tuple
    form: Fault | None
    variants: dict
    has_out_proj: bool
    other_out: str
    unexplained: Fault | None


def probe(batch, seq_len, d_model, seed=0, dtype=torch.float32):
    """(batch, seq_len, d_model) tensor of normally distributed numbers."""
    numbers = np.random.default_rng(seed).standard_normal((batch, seq_len, d_model))
    return torch.from_numpy(numbers).to(dtype)


def probe_mask():
    """(3, 3): in every row something may be attended to, and something not."""
    return torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 0]]).bool()


def examine(cls):
    """Examine the learner's class with three heads of two features.

    Args:
        cls: the learner's class, or whatever stands in its place.

    Returns:
        Examined.

    Raises:
        Fault: where it cannot be examined. Or whatever the learner's code raises.
    """
    free = run(cls, 6, 3, probe(2, 4, 6))
    steps = ("out", "split", "scale", "merge")
    if free.output is None:
        variants, unexplained = dict.fromkeys(steps), free.form
    else:
        variants, unexplained = _agreeing(free, steps), None
    if variants is None:
        unexplained = _ladder(cls)
        # one word: only v_proj and out_proj act
        alone = _agreeing(run(cls, 6, 1, probe(2, 1, 6)), ("out",))
        variants = dict.fromkeys(steps) | (alone or {})
    names = [name for name, part in free.layer.named_modules() if isinstance(part, nn.Linear)]
    others = [name for name in names if name not in PROJECTIONS]
    return Examined(
        free.missing,
        free.form,
        variants,
        "out_proj" in names,
        others[0] if len(others) == 1 and "out_proj" not in names else "",
        unexplained,
    )


def examine_mask(cls, examined):
    """The variant of the mask, None where nothing known explains what it does."""
    if examined.unexplained:  # one head: nothing to split and merge
        masked = run(cls, 6, 1, probe(2, 3, 6, seed=1), probe_mask())
        found = _agreeing(masked, ("out", "scale", "mask"))
    else:
        masked = run(cls, 6, 3, probe(2, 3, 6, seed=1), probe_mask())
        if masked.output is None:
            raise masked.form
        found = _agreeing(masked, ("mask",), **examined.variants)
    return found and found["mask"]


# (num_heads, seq_len, what differs, why, what to try next), the smallest first
_LADDER = (
    (
        1,
        1,
        "with one word alone the output is already another than out_proj(v_proj(x))",
        "one word can attend only to itself, so only v_proj and out_proj have a say here",
        "follow one word through forward by hand",
    ),
    (
        1,
        4,
        "with one word the output is right, with one head and four words it is not",
        "with one head there is nothing to split: look at the scores, their scale, the softmax and "
        "the mix of the values",
        "let the softmax run over the keys, dim=-1, and check which tensor is query, key and value",
    ),
)


def _ladder(cls):
    """Where a layer that no known fault explains first goes wrong: word, head or heads."""
    for num_heads, seq_len, *words in _LADDER:
        if _agreeing(run(cls, 6, num_heads, probe(2, seq_len, 6)), ("out", "scale")) is None:
            return Fault(*words)
    return Fault(
        "with one head the output is explained, with three heads it is not",
        "it lies in how the heads are split, scaled or merged, but is none of the mistakes that "
        "this check knows",
        "use split_heads and merge_heads of this lesson, and print the .shape after every line",
    )
