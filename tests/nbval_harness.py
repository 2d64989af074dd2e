"""What `pytest --nbval` forgives in a saved output; loaded with `-p tests.nbval_harness`.

nbval compares text character by character, but the last digit of a result can differ between
generations of CPU. There are three kinds of cell:

- exact (every cell that is not one of the others): text character by character; a float may be off
  by 1.5 units of its last printed digit, or by 1e-5 of its value where all its digits were printed
  (7 decimals or 8 digits); integers, nan, inf and numbers without decimals (`3.`, `1e-05`) not at
  all. Only where a float was forgiven may the spaces beside floats differ, since columns move.
- volatile (the cell's tag; times, memory): the words are compared, the numbers are not.
- view (the saved output holds a widget): run, but not compared.

Of an image by `mhalib.figures` the alt text is compared, without its numbers. Memory addresses and
`<Figure size ...>` are dropped. The wrapped method is nbval's own affair, so nbval is pinned.
"""

import math
import os
import re

from nbval.plugin import IPyNbCell

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_EXPONENT = r"[eE][-+]?\d+"
_FLOAT = re.compile(
    rf" *((?:(?<![\w.])[-+−])?(?<![\w.])(?:(?>\d+\.\d*|\.\d+)(?>{_EXPONENT})?|(?>\d+){_EXPONENT}))"
    r"(?!\.?\d) *"  # not the beginning of a version such as 2.13.0
)
_NUMBER = re.compile(rf" *(?:(?<![\w.])[-+−])?(?<![\w.])\.?\d+(?:[.,_]\d+)*\.?(?:{_EXPONENT})? *")
_FIGURE = re.compile(r'<img class="mhalib-figure"[^>]*>')
_SRC = re.compile(r' src="[^"]*"')
_DROPPED = re.compile(r"0x[0-9a-f]{6,}|<Figure size [^>]*>")


def kind(cell):
    """How the harness compares a code cell: "exact", "volatile" or "view"."""
    if any(WIDGET_VIEW in output.get("data", {}) for output in cell.outputs):
        return "view"
    return "volatile" if "volatile" in cell.metadata.get("tags", []) else "exact"


class Printed(str):
    """A printed text, equal to another if they differ in the last digits of floats only."""

    def __eq__(self, other):
        return isinstance(other, str) and (str.__eq__(self, other) or alike(self, other))

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def alike(a, b):
    """Whether two texts that are not the same differ in forgivable digits only."""
    floats_a, floats_b = _FLOAT.findall(a), _FLOAT.findall(b)
    return (
        floats_a != floats_b  # else it is the text that differs
        and _FLOAT.sub("\0", a) == _FLOAT.sub("\0", b)
        and all(map(close, floats_a, floats_b))
    )


def close(a, b):
    """Whether two printed floats agree to 1.5 units of the finer one's last digit."""
    (x, unit_x, full_x), (y, unit_y, full_y) = _read(a), _read(b)
    if full_x or full_y:
        return math.isclose(x, y, rel_tol=1e-5)
    unit = min(unit_x, unit_y)
    return x == y or abs(x - y) <= 1.5 * unit < math.inf


def _read(text):
    """A float's value, the unit of its last decimal (inf if it has none), whether it is in full."""
    mantissa, _, exponent = text.replace("−", "-").lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    digits = len(re.sub(r"\D", "", mantissa).lstrip("0"))
    unit = 10.0 ** (int(exponent or 0) - decimals) if decimals else math.inf
    in_full = decimals >= 7 or (decimals > 0 and digits >= 8)
    return float(f"{mantissa}e{exponent or 0}"), unit, in_full


def _sanitize(cell, text, original=IPyNbCell.sanitize):
    text = original(cell, text)
    if not isinstance(text, str):
        return text
    text = _FIGURE.sub(lambda image: _NUMBER.sub("#", _SRC.sub("", image[0])), text)
    text = _DROPPED.sub("", text)
    return Printed(_NUMBER.sub(" # ", text) if kind(cell.cell) == "volatile" else text)


def pytest_configure():
    IPyNbCell.sanitize = _sanitize
    if "PYTEST_XDIST_WORKER" in os.environ:  # the kernels of two workers would share two cores
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, IPyNbCell) and kind(item.cell) == "view":
            item.options["check"] = False
