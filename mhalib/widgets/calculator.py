"""A calculator of what attention costs: pick a published model, or type sizes of your own."""

from html import escape

from mhalib import cost

_FIELDS = {
    "d_model": "d_model",
    "num_heads": "Heads",
    "num_kv_heads": "KV heads",
    "head_dim": "head_dim",
    "num_layers": "Layers",
}
_HEAD = 'style="text-align:left;padding-right:1.5em"'
_CELL = 'style="text-align:right;padding-right:1.5em"'


def cost_calculator(model="Llama-2-7B"):
    """Choose a model or type sizes; see parameters, FLOPs a token and bytes of the cache.

    Args:
        model: the name of the model shown first.

    Returns:
        An ipywidgets box of sliders, buttons, number fields and the table they change.
    """
    import ipywidgets

    models = {each.name: each for each in cost.real_models()}
    wide = {"description_width": "70px"}
    chosen = ipywidgets.SelectionSlider(
        options=list(models),
        value=model,
        description="Model",
        style=wide,
        layout={"width": "480px"},
    )
    fields = {
        name: ipywidgets.IntText(description=label, style=wide, layout={"width": "165px"})
        for name, label in _FIELDS.items()
    }
    length = ipywidgets.SelectionSlider(
        options=[(f"{2**power:,}", 2**power) for power in range(7, 18)],
        value=4096,
        description="Tokens",
        style=wide,
        layout={"width": "480px"},
    )
    itemsize = ipywidgets.ToggleButtons(
        options={"2 bytes a number": 2, "4 bytes a number": 4},
        description="Numbers",
        style=wide,
        layout={"width": "auto"},
    )
    table = ipywidgets.HTML()
    filling = []  # while a model fills the fields one by one

    def draw(_=None):
        if not filling:
            sizes = {name: field.value for name, field in fields.items()}
            known = models[chosen.value]
            changed = sizes != known.sizes | {"num_layers": known.num_layers}
            name = chosen.value + (", changed" if changed else "")
            table.value = _table(name, sizes, length.value, itemsize.value)

    def fill(_=None):
        filling.append(True)
        known = models[chosen.value]
        for name, value in (known.sizes | {"num_layers": known.num_layers}).items():
            fields[name].value = value
        filling.clear()
        draw()

    chosen.observe(fill, "value")
    for control in (*fields.values(), length, itemsize):
        control.observe(draw, "value")
    fill()
    rows = [list(fields.values())[:3], list(fields.values())[3:]]
    typed = [ipywidgets.HBox(row) for row in rows]
    return ipywidgets.VBox([chosen, *typed, length, itemsize, table])


def costs(sizes, num_layers, tokens, itemsize):
    """What the attention layers of a model cost, as it is and with fewer key and value heads.

    Args:
        sizes: dict of d_model, num_heads, num_kv_heads and head_dim.
        num_layers: attention layers, counted without biases.
        tokens: length of the text: the last of these tokens is computed, the others are cached.
        itemsize: bytes of one number.

    Returns:
        {num_kv_heads: dict of parameters, flops and cache_bytes}, most heads first: as many as
        there are heads, the given number, 8 and 1, as far as they divide the heads.

    Raises:
        TypeError, ValueError: sizes that do not fit, named.
    """
    cost.attention_parameters(**sizes)  # refuses what does not fit
    heads, given = sizes["num_heads"], sizes["num_kv_heads"]
    counts = {heads, given} | {n for n in (8, 1) if heads % n == 0}
    found = {}
    for count in sorted(counts, reverse=True):
        layer = sizes | {"num_kv_heads": count}
        flops = cost.attention_flops(**layer, bias=False, query_len=1, cached_len=tokens - 1)
        found[count] = {
            "parameters": num_layers * cost.attention_parameters(**layer, bias=False)["total"],
            "flops": num_layers * flops["total"],
            "cache_bytes": cost.kv_cache_bytes(
                **layer, num_layers=num_layers, key_len=tokens, itemsize=itemsize
            ),
        }
    return found


def in_words(count, unit, step=1000):
    """A large number in three digits: 2.15 B (billion); by 1024 and with unit "B": 2.00 GiB."""
    prefixes = ["", "Ki", "Mi", "Gi", "Ti"] if step == 1024 else ["", " k", " M", " B", " T"]
    power = 0
    while count >= 999.5 and power < 4:
        count, power = count / step, power + 1
    digits = 0 if power == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    prefix = prefixes[power] if step == 1000 else f" {prefixes[power]}"
    return f"{count:.{digits}f}{prefix}{unit}"


def _table(name, sizes, tokens, itemsize):
    """The costs as an HTML table, or a calm sentence about what does not fit."""
    sizes = dict(sizes)
    num_layers = sizes.pop("num_layers")
    try:
        found = costs(sizes, num_layers, tokens, itemsize)
    except ValueError as error:
        return f"These sizes do not fit together: {escape(str(error))}."
    given = sizes["num_kv_heads"]
    heads = "".join(
        f'<th scope="col" {_CELL}>{count} KV head{"s" if count > 1 else ""}'
        f"{' (as it is)' if count == given else ''}</th>"
        for count in found
    )
    rows = {
        "parameters of attention": [in_words(each["parameters"], "") for each in found.values()],
        "FLOPs for the next token": [in_words(each["flops"], "") for each in found.values()],
        "bytes of the cache": [in_words(e["cache_bytes"], "B", 1024) for e in found.values()],
        "cache, as it is = 100 %": [
            f"{100 * each['cache_bytes'] / found[given]['cache_bytes']:.0f} %"
            for each in found.values()
        ],
    }
    body = "".join(
        f'<tr><th scope="row" {_HEAD}>{label}</th>'
        + "".join(f"<td {_CELL}>{value}</td>" for value in values)
        + "</tr>"
        for label, values in rows.items()
    )
    wide, d_model = sizes["num_heads"] * sizes["head_dim"], sizes["d_model"]
    relation = "=" if wide == d_model else "≠"
    caption = (
        f"<b>{escape(name)}</b>: {num_layers} layers, {sizes['num_heads']} heads × "
        f"{sizes['head_dim']} = {wide:,} {relation} d_model {d_model:,}; {tokens:,} tokens"
    )
    return (
        f'<table><caption style="text-align:left">{caption}</caption>'
        f"<tr><td></td>{heads}</tr>{body}</table>"
    )
