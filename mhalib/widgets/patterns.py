"""A control for sparse patterns: what a token sees, what must be computed, how far news travels."""

from mhalib import figures

SEQ_LEN = 64
PATTERNS = ("window", "first tokens", "fixed blocks", "fixed blocks + 1 global")


def pattern(name, size, seq_len=SEQ_LEN):
    """The mask of a named pattern.

    Args:
        name: one of `PATTERNS`.
        size: the window, how many first tokens, or the tokens in a block.
        seq_len: number of tokens.

    Returns:
        (seq_len, seq_len) boolean tensor, True = may attend.

    Raises:
        KeyError: another name.
    """
    from mhalib import masks, sparse  # here, because they load torch

    return {
        "window": lambda: masks.sliding_window(seq_len, window=size),
        "first tokens": lambda: sparse.first_tokens(seq_len, size),
        "fixed blocks": lambda: sparse.fixed_blocks(seq_len, block_size=size),
        "fixed blocks + 1 global": lambda: sparse.fixed_blocks(
            seq_len, block_size=size, num_global=1
        ),
    }[name]()


def sparse_patterns():
    """Choose a pattern, its size and the number of layers; see the mask and its reach.

    Returns:
        An ipywidgets box of buttons, two sliders and the picture they change.
    """
    import ipywidgets

    wide = {"description_width": "70px", "button_width": "auto"}
    chosen = ipywidgets.ToggleButtons(
        options=PATTERNS, description="Pattern", style=wide, layout={"width": "auto"}
    )
    size = ipywidgets.SelectionSlider(
        options=[1, 2, 4, 8, 16, 32],
        value=8,
        description="Size",
        style={"description_width": "70px"},
    )
    layers = ipywidgets.IntSlider(
        value=2, min=1, max=8, description="Layers", style={"description_width": "70px"}
    )
    picture = ipywidgets.HTML()

    def draw(_=None):
        picture.value = _picture(chosen.value, size.value, layers.value)

    for control in (chosen, size, layers):
        control.observe(draw, "value")
    draw()
    return ipywidgets.VBox([chosen, size, layers, picture])


def _picture(name, size, num_layers):
    from mhalib import sparse

    mask = pattern(name, size)
    needed = sparse.blocks_needed(mask, 8)
    arrived = sparse.layers_to_reach(mask, num_layers)
    of_last = int((arrived[-1] >= 0).sum())
    layers = f"{num_layers} layer" + ("s" if num_layers > 1 else "")
    message = f"{name}, size {size}: after {layers} the last token knows of {of_last} of {SEQ_LEN}"
    counts = (
        f"{int(mask.sum()):,} of {SEQ_LEN * (SEQ_LEN + 1) // 2:,} causal scores are seen, "
        f"and {int(needed.sum())} of 36 causal blocks of 8 × 8 must be computed."
    )
    fig = figures.reach_maps(
        [mask.int() * 2 - 1, arrived], ["seen in one layer", layers], title=message, num_layers=8
    )
    return f"<p>{counts}</p>" + figures.html(fig, f"{message}. {counts}")
