"""The head explorer: a real model's heads in a grid; choose one, and see where it looks.

Everything is computed here, in Python; `explorer.js` draws what it is sent, and asks nobody else.
In code layers, heads and texts are counted from 0; the page counts layers and heads from 1.
"""

from pathlib import Path
from textwrap import shorten

import anywidget
import numpy as np
import traitlets

MAX_TOKENS = 30  # what fits on the page; 6 × 12 maps of 30 × 30 weights take 127 KiB
ABOUT = {  # what the known measures say of a head
    "previous": "weight on the token before",
    "next": "weight on the token after",
    "same": "weight on the token itself",
    "[CLS]": "weight on [CLS], the token put in front",
    "[SEP]": "weight on [SEP], the token put at the end",
    "punctuation": "weight on punctuation marks",
    "entropy": "how widely the head spreads, in bits: 0 = one token",
    "distance": "mean number of places between a token and what it attends to",
    "local": "weight on tokens at most 3 places away",
}
_HERE = Path(__file__).parent


class HeadExplorer(anywidget.AnyWidget):
    """The view of `head_explorer`. What is chosen can be read and set from Python.

    Traits: `text` (its number), `measure` (its name), `layer`, `head` (from 0), and `typed`, a
    sentence of the learner's own: setting it adds it to the texts and chooses it; `message` then
    says what was wrong with it, or nothing.
    """

    _esm = _HERE / "explorer.js"
    _css = _HERE / "explorer.css"

    texts = traitlets.List().tag(sync=True)  # {"text", "tokens", "weights"} of each
    measures = traitlets.List().tag(sync=True)  # {"name", "about", "values"} of each
    text = traitlets.Int().tag(sync=True)
    measure = traitlets.Unicode().tag(sync=True)
    layer = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    typed = traitlets.Unicode().tag(sync=True)
    message = traitlets.Unicode().tag(sync=True)

    def __init__(self, loaded, texts, measures, **chosen):
        self._loaded = loaded
        values = measures[0]["values"]
        self._counts = {"layer": len(values), "head": len(values[0])}
        super().__init__(texts=texts, measures=measures, **chosen)

    def __repr__(self):
        layers, heads = self._counts.values()
        return f"HeadExplorer of {layers} x {heads} heads: run this cell to open it"

    @traitlets.validate("layer", "head", "text")
    def _in_range(self, proposal):
        name, value = proposal["trait"].name, proposal["value"]
        count = self._counts[name] if name in self._counts else len(self.texts)
        if not 0 <= value < count:
            raise traitlets.TraitError(f"{name}={value} must be between 0 and {count - 1}")
        return value

    @traitlets.validate("measure")
    def _known(self, proposal):
        names = [measure["name"] for measure in self.measures]
        if proposal["value"] not in names:
            raise traitlets.TraitError(f"measure={proposal['value']!r} is not one of {names}")
        return proposal["value"]

    @traitlets.observe("typed")
    def _add(self, change):
        text = " ".join(change["new"].split())
        if not text:
            return
        known = [entry["text"] for entry in self.texts]
        if text not in known:
            try:
                self.texts = [*self.texts, _entry(self._loaded, text)]
            except ValueError as error:
                self.message = f"{error}."
                return
            known.append(text)
        self.text = known.index(text)
        self.typed = self.message = ""

    @traitlets.observe("text")
    def _forget_complaint(self, _):
        self.message = ""


def head_explorer(loaded, texts, measures=None, *, text=0, measure=None, layer=0, head=0):
    """Choose a head in a grid coloured by a measure; see its map and its lines between words.

    Args:
        loaded: a `LoadedEncoder`, as `pretrained.load_encoder` gives.
        texts: a list of texts to choose from, each of at most `MAX_TOKENS` tokens.
        measures: dict from a name to a (num_layers, num_heads) tensor or array of numbers; the
            mean of each of `heads.head_measures` over these texts if None.
        text, measure, layer, head: what is chosen at first; `measure` by its name, the first if
            None, the others by numbers from 0.

    Returns:
        A `HeadExplorer`, to be the last line of a cell.

    Raises:
        TypeError, ValueError: no texts, a text too long, measures of the wrong shape; or a
            `TraitError` for a choice that does not exist.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a list of texts, not one string")
    entries = [_entry(loaded, each) for each in texts]
    if not entries:
        raise ValueError("texts is empty, but at least one text is needed")
    if measures is None:
        from mhalib import heads  # here, because it loads torch

        measures = heads.head_measures(loaded, texts)
        del measures["local, uniform"]  # the same for all heads
    layers = loaded.encoder.layers
    shape = (len(layers), layers[0].num_heads)
    described = [_measure(name, values, shape) for name, values in measures.items()]
    if not described:
        raise ValueError("measures is empty, but at least one measure is needed")
    name = described[0]["name"] if measure is None else measure
    return HeadExplorer(loaded, entries, described, text=text, measure=name, layer=layer, head=head)


def _entry(loaded, text):
    """A text as the view needs it: its tokens, and all heads' weights in 16 bits each."""
    tokens = loaded.tokens(text)
    shown = text if isinstance(text, str) else " ".join(text)
    if len(tokens) > MAX_TOKENS:
        raise ValueError(
            f"“{shorten(shown, 40, placeholder='…')}” has {len(tokens)} tokens with [CLS] and "
            f"[SEP], but {MAX_TOKENS} is the most"
        )
    weights = loaded.attention(text).cpu().numpy()
    return {"text": shown, "tokens": tokens, "weights": _to_bytes(weights)}


def _to_bytes(weights):
    """Weights between 0 and 1 as whole numbers from 0 to 65535, little end first."""
    return np.rint(np.clip(weights, 0, 1) * 65535).astype("<u2").tobytes()


def _measure(name, values, shape):
    values = np.asarray(values, dtype=float)
    if values.shape != shape:
        raise ValueError(
            f"measures[{name!r}] has shape {values.shape}, but {shape} was expected: "
            "(num_layers, num_heads)"
        )
    plain = [[value if np.isfinite(value) else None for value in row] for row in values.tolist()]
    return {"name": name, "about": ABOUT.get(name, ""), "values": plain}
