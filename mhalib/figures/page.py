"""How a figure looks, and how it gets onto the page with its alt text."""

import base64
import io
from html import escape

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.text import Text

# Okabe and Ito's colour-blind-safe colours; head h is always PALETTE[h].
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
SEQUENTIAL, DIVERGING = "cividis", "PuOr"

STYLE = {
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.prop_cycle": plt.cycler(color=PALETTE),
    "font.size": 10,
}


def html(fig, alt):
    """The figure as one HTML `<img>` that carries its alt text.

    Args:
        fig: a matplotlib Figure; it is closed.
        alt: the figure's message and the numbers that carry it, for those who cannot see it.

    Raises:
        TypeError, ValueError: not a Figure, or no alt text.
    """
    if not isinstance(fig, Figure):
        raise TypeError(f"fig must be a matplotlib Figure, but a {type(fig).__name__} was given")
    if not isinstance(alt, str) or not alt.strip():
        raise ValueError(f"alt={alt!r} must say in words what the figure shows")
    wrap_titles(fig)
    png = io.BytesIO()
    fig.savefig(png, format="png", facecolor="white")
    plt.close(fig)
    data = base64.b64encode(png.getvalue()).decode()
    return f'<img class="mhalib-figure" alt="{escape(alt)}" src="data:image/png;base64,{data}">'


def wrap_titles(fig):
    """Let a title that is wider than the figure go on in a second line."""
    places = ("left", "center", "right")
    titles = {panel.get_title(loc=place) for panel in fig.axes for place in places}
    for text in fig.findobj(Text):
        if text.get_text() and text.get_text() in titles | {fig.get_suptitle()}:
            text.set_wrap(True)


def show(fig, *, alt):
    """Display the figure as an HTML image, the one form whose alt text JupyterLab keeps."""
    from IPython.display import HTML, display

    display(HTML(html(fig, alt)))
