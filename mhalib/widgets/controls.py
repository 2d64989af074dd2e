"""Controls with a picture: each function returns an ipywidgets box that redraws it in place.

A lesson shows a static figure beside every widget, so that the page also speaks without a kernel.
Only sliders, buttons, checkboxes and text fields are used: in lists, menus and radio buttons the
arrow keys do not work, because JupyterLab takes them to move to another cell.
"""

import difflib
from html import escape

import numpy as np

from mhalib import diagrams, figures, mixing, reference


def softmax_saturation(num_keys=8):
    """Choose a head's width and whether its scores are divided by √d; see the softmax saturate.

    Args:
        num_keys: words that the asking word may look at.

    Returns:
        An ipywidgets box of two sliders, a checkbox and the picture they change.
    """
    import ipywidgets

    width = ipywidgets.SelectionSlider(
        options=[4, 16, 64, 256, 1024],
        value=64,
        description="Head width d",
        style={"description_width": "initial"},
    )
    scaled = ipywidgets.Checkbox(value=False, description="Divide the scores by √d", indent=False)
    seed = ipywidgets.IntSlider(
        value=0,
        max=9,
        description="Random draw",
        style={"description_width": "initial"},
    )
    picture = ipywidgets.HTML()

    def draw(_=None):
        picture.value = _saturation_picture(width.value, scaled.value, num_keys, seed.value)

    for control in (width, scaled, seed):
        control.observe(draw, "value")
    draw()
    return ipywidgets.VBox([width, scaled, seed, picture])


def saturation(head_dim, scaled, num_keys=8, seed=0):
    """Weights of one random query over random keys, and the gradient the softmax lets through.

    Returns:
        (weights, gradient): (num_keys,) weights, and the length of the gradient of the largest
        weight with respect to the scores that enter the softmax.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((num_keys + 1, 1024))[:, :head_dim]
    scores = vectors[1:] @ vectors[0]
    weights = reference.softmax(scores / np.sqrt(head_dim) if scaled else scores)
    others = np.delete(weights, weights.argmax())  # 1 - largest, without the rounding
    gradient = weights.max() * np.append(others.sum(), -others)
    return weights, float(np.linalg.norm(gradient))


def _saturation_picture(head_dim, scaled, num_keys, seed):
    weights, gradient = saturation(head_dim, scaled, num_keys, seed)
    how = "divided by √d" if scaled else "not divided"
    message = (
        f"d = {head_dim}, scores {how}: the largest weight is {weights.max():.2f}, "
        f"the gradient {gradient:.1g}"
    )
    fig = figures.bars(
        [f"word {i + 1}" for i in range(num_keys)],
        weights,
        title=message,
        xlabel="weight (all sum to 1)",
        ylabel="word that answers",
        limits=(0, 1.1),
    )
    listed = ", ".join(f"{weight:.2f}" for weight in weights)
    return figures.html(fig, f"{message}. All weights: {listed}.")


def block_tour():
    """Choose a part of a Transformer block; see where it sits and read what it does.

    Returns:
        An ipywidgets box of a slider and the drawing it changes.
    """
    import ipywidgets

    part = ipywidgets.SelectionSlider(
        options=[name for name, _, _ in diagrams.BLOCK],
        value="attention",
        description="Part",
        layout={"width": "420px"},
    )
    picture = ipywidgets.HTML()

    def draw(_=None):
        says = {name: text for name, _, text in diagrams.BLOCK}[part.value]
        drawing = figures.html(
            diagrams.transformer_block(part.value),
            f"A Transformer block with the part {part.value} set off. {says}",
        )
        picture.value = f"<p><b>{part.value}.</b> {says}</p>{drawing}"

    part.observe(draw, "value")
    draw()
    return ipywidgets.VBox([part, picture])


def word_explorer(words, vectors, *, word="cat"):
    """Type a word, choose a measure, and see which words are nearest.

    Args:
        words: list of n words.
        vectors: (n, d) array, one word a row.
        word: the word shown first.

    Returns:
        An ipywidgets box of a text field, two buttons, a slider and the table they change.

    Raises:
        ValueError: not one row for each word.
    """
    import ipywidgets

    if np.ndim(vectors) != 2 or len(words) != len(vectors):
        raise ValueError(
            f"vectors has shape {np.shape(vectors)}, but ({len(words)}, d) was expected, "
            f"because there are {len(words)} words"
        )
    wide = {"description_width": "90px"}
    typed = ipywidgets.Text(value=word, description="Word", style=wide)
    measure = ipywidgets.ToggleButtons(
        options=["cosine", "dot product"],
        description="Measure",
        style=wide,
        layout={"width": "auto"},
    )
    count = ipywidgets.IntSlider(value=8, min=3, max=15, description="Neighbours", style=wide)
    table = ipywidgets.HTML()

    def draw(_=None):
        name = typed.value.strip().lower()
        if name in words:
            nearest = neighbours(words, vectors, name, measure.value, count.value)
            table.value = _neighbour_table(name, measure.value, nearest)
        else:
            table.value = _unknown_word(name, words)

    for control in (typed, measure, count):
        control.observe(draw, names="value")
    draw()
    return ipywidgets.VBox([typed, measure, count, table])


def neighbours(words, vectors, word, measure, k):
    """The `k` words nearest to `word` and their scores, best first, itself left out.

    Args:
        words, vectors: n words and their (n, d) array.
        word: one of `words`.
        measure: "cosine" or "dot product".
        k: how many.
    """
    query = vectors[words.index(word)]
    scores = vectors @ query
    if measure == "cosine":
        scores = scores / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query))
    best = [row for row in np.argsort(-scores, kind="stable") if words[row] != word]
    return [(words[row], float(scores[row])) for row in best[:k]]


def _neighbour_table(word, measure, nearest):
    """Words and scores as an HTML table, with a bar in each row."""
    longest = max(score for _, score in nearest)
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left;padding-right:1em">{escape(name)}</th>'
        f'<td style="padding-right:1em">{score:.3f}</td>'
        f'<td style="width:16em"><div aria-hidden="true" style="background:{figures.PALETTE[0]};'
        f'height:0.8em;width:{max(0.0, 100 * score / longest):.0f}%"></div></td></tr>'
        for name, score in nearest
    )
    return (
        f'<table><caption style="text-align:left">Nearest to <b>{escape(word)}</b> by {measure}'
        '</caption><tr><th scope="col" style="text-align:left">word</th>'
        f'<th scope="col" style="text-align:left">{measure}</th><td></td></tr>{rows}</table>'
    )


def _unknown_word(word, words):
    """A calm sentence where there is no vector, with the nearest spellings."""
    if not word:
        return "Type a word to see its neighbours."
    sentence = f"<b>{escape(word)}</b> is not among these {len(words):,} words."
    close = difflib.get_close_matches(word, words, n=4)
    if close:
        return f"{sentence} Close in spelling: {escape(', '.join(close))}."
    return f"{sentence} Try another one."


def attention_budget():
    """Move attention between giver, thing and receiver; see what each read-out can still tell.

    The three shares always make 100: what one slider takes, the other two give in proportion.

    Returns:
        An ipywidgets box of three sliders and the picture they change.
    """
    import ipywidgets

    style = {"description_width": "90px"}
    sliders = [
        ipywidgets.IntSlider(value=value, max=100, description=f"{role} %", style=style)
        for role, value in zip(mixing.ROLES, (34, 33, 33), strict=True)
    ]
    picture = ipywidgets.HTML()
    moving = []  # the slider that the learner moved, while the others follow

    def draw():
        picture.value = _budget_picture([slider.value for slider in sliders])

    def follow(change):
        if moving:
            return
        moving.append(change.owner)
        others = [slider for slider in sliders if slider is not change.owner]
        first, second = share_out(100 - change.new, [slider.value for slider in others])
        others[0].value, others[1].value = first, second
        moving.clear()
        draw()

    for slider in sliders:
        slider.observe(follow, "value")
    draw()
    return ipywidgets.VBox([*sliders, picture])


def share_out(rest, others):
    """Split `rest` between two shares in their old proportion, in whole numbers."""
    total = sum(others)
    first = round(rest * others[0] / total) if total else rest // 2
    return first, rest - first


def _budget_picture(percentages):
    weights = dict(zip(mixing.ROLES, (share / 100 for share in percentages), strict=True))
    readable = mixing.budget(list(weights.values()))
    spent = ", ".join(f"{role} {share} %" for role, share in zip(weights, percentages, strict=True))
    told = ", ".join(f"{role} {share:.2f}" for role, share in readable.items())
    fig = figures.attention_budget(weights, readable, title=f"Attention: {spent}")
    return figures.html(fig, f"Attention: {spent}. Read right from the mix: {told}.")


def lending_demo(results):
    """Choose the number of heads and one of the two sentences; see what "lent" receives.

    Args:
        results: mapping from a number of heads to a trained `lending.Result`.

    Returns:
        An ipywidgets box of two groups of buttons and the picture they change.
    """
    import ipywidgets

    from mhalib.lending import sentence  # here, because it loads torch

    sentences = {}
    for swapped in (False, True):
        each = sentence(swapped=swapped)
        sentences[f"{each.text} ({sentence('zh', swapped).text})"] = each
    wide = {"description_width": "90px", "button_width": "auto"}
    whole_line = {"width": "auto"}
    heads = ipywidgets.ToggleButtons(
        options=list(results), description="Heads", style=wide, layout=whole_line
    )
    chosen = ipywidgets.ToggleButtons(
        options=list(sentences), description="Sentence", style=wide, layout=whole_line
    )
    picture = ipywidgets.HTML()

    def draw(_=None):
        picture.value = _lending_picture(results[heads.value], sentences[chosen.value])

    for control in (heads, chosen):
        control.observe(draw, "value")
    draw()
    return ipywidgets.VBox([heads, chosen, picture])


def _lending_picture(result, sentence):
    weights = result.attend(sentence)
    count = f"{len(weights)} head" + ("s" if len(weights) > 1 else "")
    title = f"{count}: what “lent” attends to"
    listed = "; ".join(
        f"head {head + 1}: "
        + ", ".join(f"{word} {share:.2f}" for word, share in zip(sentence.words, row, strict=True))
        for head, row in enumerate(weights)
    )
    fig = figures.head_bars(weights, sentence.words, title=title)
    truth = dict(zip(mixing.ROLES, sentence.words[::2], strict=True))
    said = ", ".join(
        f"{role} <b>{escape(word)}</b> ({'right' if word == truth[role] else 'wrong'})"
        for role, word in result.read(sentence).items()
    )
    return (
        figures.html(fig, f"{title}. {listed}.") + f"<p>Read from what “lent” received: {said}.</p>"
    )
