"""Drawings that hold no data: where attention and its heads sit in a Transformer."""

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

from mhalib.figures.page import PALETTE, STYLE

# The parts of one Transformer block from bottom to top: (name, height on the page, what it does).
BLOCK = (
    ("words", 0.0, "The sentence, cut into words or pieces of words."),
    ("embedding", 1.0, "Looks up each word's vector, the same one wherever the word stands."),
    ("position", 2.0, "Adds a vector that says where in the sentence the word stands."),
    ("attention", 3.4, "Lets every word look at the others and mix in what it finds, in heads."),
    ("add & norm", 4.6, "Adds the input back (the residual) and brings the numbers to one scale."),
    ("feed-forward", 5.8, "Works on each word's vector by itself, with no look at the others."),
    (
        "add & norm again",
        7.0,
        "Adds the input back once more, and brings the numbers to one scale.",
    ),
    ("new vectors", 8.2, "One vector a word, now coloured by the sentence around it."),
)


def transformer_block(highlight=None, num_heads=4):
    """One Transformer block, and beside it what happens inside its attention.

    Args:
        highlight: name of the part to set off, one of those in `BLOCK`, or None.
        num_heads: heads to draw on the right, at most 8.
    """
    names = [name for name, _, _ in BLOCK]
    if highlight is not None and highlight not in names:
        raise ValueError(f"highlight={highlight!r} must be one of {', '.join(names)}")
    if not 1 <= num_heads <= len(PALETTE):
        raise ValueError(f"num_heads={num_heads} must lie between 1 and {len(PALETTE)}")
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(9, 6))
        _draw_block(ax, highlight)
        _draw_heads(ax, num_heads, highlight == "attention")
        ax.set(xlim=(-2.3, 10.6), ylim=(-0.6, 9), aspect="equal")
        ax.set_title("The heads sit inside attention, the one place where words meet")
        ax.axis("off")
    return fig


def _draw_block(ax, highlight):
    ax.add_patch(_box(-0.2, 5.05, 4.0, 5.2, face="#F4F4F4", edge="#BBBBBB"))
    ax.text(-2.1, 7.78, "repeated N times", color="#555555", size=8)
    for (name, y, _), above in zip(BLOCK, (*BLOCK[1:], None), strict=True):
        chosen = name == highlight
        plain = name in ("words", "new vectors")
        ax.add_patch(
            _box(
                0.1,
                y,
                2.7,
                0.62,
                face=PALETTE[1] if chosen else "none" if plain else "white",
                edge="none" if plain else "black",
            )
        )
        ax.text(
            0.1,
            y,
            name.removesuffix(" again"),
            ha="center",
            va="center",
            weight="bold" if chosen else None,
        )
        if above:
            _arrow(ax, (0.1, y + 0.33), (0.1, above[1] - 0.33))
    for start, end in ((2.75, 4.6), (5.2, 7.0)):
        ax.plot([0.1, -1.45, -1.45], [start, start, end], color="#555555", lw=1)
        _arrow(ax, (-1.45, end), (-1.25, end))
    ax.text(-1.55, 3.9, "residual", rotation=90, ha="right", va="center", color="#555555", size=8)


def _draw_heads(ax, num_heads, chosen):
    left, right = 3.6, 10.4
    ax.add_patch(
        _box(7.0, 4.1, right - left, 7.6, face="#FFF6E5" if chosen else "white", edge=PALETTE[1])
    )
    for corner in (0.31, 7.9):
        start = 3.4 + (0.31 if corner > 1 else -0.31)
        ax.plot([1.45, left], [start, corner], color=PALETTE[1], lw=1, ls="--")
    ax.text(7.0, 0.65, "the vectors of all words", ha="center", va="center")
    centres = [left + (right - left) * (h + 0.5) / num_heads for h in range(num_heads)]
    width = 0.8 * (right - left) / num_heads
    for head, x in enumerate(centres):
        colour = PALETTE[head]
        _arrow(ax, (7.0, 0.9), (x, 1.6))
        ax.add_patch(_box(x, 1.95, width, 0.6, face="white", edge=colour))
        ax.text(x, 1.95, "Q  K  V", ha="center", va="center", size=8)
        _arrow(ax, (x, 2.27), (x, 2.85))
        ax.add_patch(_box(x, 3.5, width, 1.2, face=colour, edge=colour, alpha=0.25))
        ax.text(x, 3.5, f"head {head + 1}\nlooks and\nmixes", ha="center", va="center", size=8)
        _arrow(ax, (x, 4.12), (x, 4.75))
        stretch = 4.6 / num_heads
        ax.add_patch(
            plt.Rectangle(
                (7.0 - 2.3 + head * stretch, 4.8), stretch, 0.6, facecolor=colour, edgecolor="white"
            )
        )
    ax.text(7.0, 5.62, "concatenate: each head keeps its own stretch", ha="center", size=8)
    _arrow(ax, (7.0, 5.9), (7.0, 6.35))
    ax.add_patch(_box(7.0, 6.7, 4.6, 0.64, face="white", edge="black"))
    ax.text(7.0, 6.7, "output projection: the heads combine", ha="center", va="center", size=9)
    _arrow(ax, (7.0, 7.03), (7.0, 7.4))
    ax.text(7.0, 7.6, "what each word found", ha="center", va="center")


def _box(x, y, width, height, *, face, edge, alpha=1.0):
    return FancyBboxPatch(
        (x - width / 2, y - height / 2),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=face,
        edgecolor=edge,
        alpha=alpha,
    )


def _arrow(ax, start, end):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": "#555555", "lw": 1})


def shape_walk(steps, *, title):
    """Every tensor of a computation as boxes as wide as its last axis, coloured by head.

    Args:
        steps: (label, shape, num_heads) from top to bottom. The shape has three axes or, with the
            heads apart, four; `num_heads` is the number of coloured stretches a tensor of three
            axes consists of, or 0 where it is not divided.
        title: the figure's message.
    """
    widest = max(shape[-1] * (shape[1] if len(shape) == 4 else 1) for _, shape, _ in steps)
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(9.5, 1.0 + 0.62 * len(steps)))
        for row, (label, shape, num_heads) in enumerate(steps):
            y = -row
            ax.text(-0.4, y, label, ha="right", va="center")
            ax.text(12.4, y, str(tuple(shape)), ha="left", va="center")
            apart = len(shape) == 4
            stretches = shape[1] if apart else max(num_heads, 1)
            width = 10 * shape[-1] / widest / (1 if apart else stretches)
            gap = 0.25 if apart else 0.0
            for head in range(stretches):
                coloured = apart or num_heads
                ax.add_patch(
                    plt.Rectangle(
                        (head * (width + gap), y - 0.26),
                        width,
                        0.52,
                        facecolor=PALETTE[head % len(PALETTE)] if coloured else "#DDDDDD",
                        edgecolor="white",
                        alpha=0.75,
                    )
                )
            if row:
                _arrow(ax, (-0.2, y + 0.75), (-0.2, y + 0.25))
        ax.text(12.4, 0.75, "shape", ha="left", weight="bold")
        ax.set(xlim=(-5.0, 16.0), ylim=(0.5 - len(steps), 1.1))
        ax.set_title(title)
        ax.axis("off")
    return fig


def cut_in_columns(x_shape, w_shape, num_heads, *, title):
    """x @ W for one wide matrix W: a head's columns of W make its stretch of the result.

    Args:
        x_shape, w_shape: (seq_len, d_model) and (d_model, num_heads * head_dim).
        num_heads: stretches of equal width that W is cut into.
        title: the figure's message.
    """
    result = (x_shape[0], w_shape[1])
    parts = (("x", x_shape, 0, 0), ("W", w_shape, 0, num_heads), ("x @ W", result, 0, num_heads))
    return _product(parts, title)


def cut_in_rows(heads_shape, w_shape, num_heads, *, title):
    """concat @ W_o: a head's stretch meets its own rows of W_o, and all heads share the result.

    Args:
        heads_shape, w_shape: (seq_len, num_heads * head_dim) and (num_heads * head_dim, d_model).
        num_heads: blocks of equal height that W_o is cut into.
        title: the figure's message.
    """
    result = (heads_shape[0], w_shape[1])
    parts = (
        ("heads side by side", heads_shape, 0, num_heads),
        ("W_o", w_shape, num_heads, 0),
        ("output", result, 0, 0),
    )
    return _product(parts, title)


def _product(parts, title):
    """Left @ matrix = result; each part is (name, shape, row blocks, column blocks)."""
    unit = 3.0 / max(size for _, shape, _, _ in parts for size in shape)
    sizes = [(shape[1] * unit, max(shape[0] * unit, 0.3)) for _, shape, _, _ in parts]
    tall = max(height for _, height in sizes)
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(9.5, 1.25 + 0.72 * tall))
        x = 0.0
        for (name, shape, rows, columns), (width, height), sign in zip(
            parts, sizes, ("@", "=", ""), strict=True
        ):
            _blocks(ax, x, width, height, rows, columns)
            ax.text(x + width / 2, height / 2 + 0.12, name, ha="center", va="bottom", weight="bold")
            text = f"{shape[0]} × {shape[1]}"
            ax.text(x + width / 2, -height / 2 - 0.12, text, ha="center", va="top", size=9)
            x += width + 1.1
            ax.text(x - 0.55, 0, sign, ha="center", va="center", size=14)
        ax.set(
            xlim=(-0.6, x - 0.5), ylim=(-tall / 2 - 0.6, tall / 2 + 0.6), aspect="equal", anchor="W"
        )
        ax.set_title(title)
        ax.axis("off")
    return fig


def _blocks(ax, x, width, height, rows, columns):
    """A matrix centred on the line, cut into coloured blocks of rows or of columns, or grey."""
    count = max(rows, columns, 1)
    for head in range(count):
        corner = (x, height / 2 - (head + 1) * height / count) if rows else None
        corner = corner or (x + head * width / count, -height / 2)
        size = (width, height / count) if rows else (width / count, height)
        colour = PALETTE[head % len(PALETTE)] if rows or columns else "#DDDDDD"
        ax.add_patch(plt.Rectangle(corner, *size, facecolor=colour, edgecolor="white", alpha=0.75))
        if rows or columns:
            middle = (corner[0] + size[0] / 2, corner[1] + size[1] / 2)
            ink = "white" if colour == "#000000" else "black"
            ax.text(*middle, str(head + 1), ha="center", va="center", size=9, color=ink)
