"""A control for query heads that share key/value heads: how many, and in which order."""

from mhalib import figures

_NUM_HEADS = 8


def shared_heads(losses):
    """Choose the number of KV heads and the order; see who uses which, the cache and the loss.

    Args:
        losses: {number of KV heads: (loss in groups, loss if tiled)}, for 8 query heads.

    Returns:
        An ipywidgets box of two groups of buttons and the picture they change.
    """
    import ipywidgets

    style = {"description_width": "90px", "button_width": "auto"}
    whole_line = {"width": "auto"}
    count = ipywidgets.ToggleButtons(
        options=list(losses), description="KV heads", style=style, layout=whole_line
    )
    order = ipywidgets.ToggleButtons(
        options=["in groups", "tiled"], description="Order", style=style, layout=whole_line
    )
    picture = ipywidgets.HTML()

    def draw(_=None):
        picture.value = _picture(count.value, order.value == "tiled", losses[count.value])

    for control in (count, order):
        control.observe(draw, "value")
    draw()
    return ipywidgets.VBox([count, order, picture])


def _picture(num_kv_heads, tiled, losses):
    group_size = _NUM_HEADS // num_kv_heads
    used = [h % num_kv_heads if tiled else h // group_size for h in range(_NUM_HEADS)]
    how = "tiled" if tiled else "in groups"
    title = f"8 query heads on {num_kv_heads} KV head{'s' if num_kv_heads > 1 else ''}, {how}"
    told = (
        f"The cache is {100 * num_kv_heads / _NUM_HEADS:g} % of that of 8 KV heads. "
        f"The trained model has loss {losses[tiled]:.2f} in this order"
    )
    fig = figures.shared_heads([used], [""], title=title)
    listed = ", ".join(map(str, used))
    alt = f"{title}. Query heads 0 to 7 use KV heads {listed}. {told}."
    return f"{figures.html(fig, alt)}<p>{told}.</p>"
