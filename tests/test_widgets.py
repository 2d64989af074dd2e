"""The widgets' logic: what they compute, and that moving a control redraws the picture."""

import re

import numpy as np
import pytest
import torch
from traitlets import TraitError

from mhalib import data, heads, lending, pretrained, reference, widgets


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("head_dim", [4, 64, 1024])
def test_saturation_gradient_is_autograds(head_dim, scaled):
    weights, gradient = widgets.saturation(head_dim, scaled, num_keys=8, seed=3)
    scores = torch.tensor(np.log(weights), requires_grad=True)
    scores.softmax(dim=-1).max().backward()
    assert weights.sum() == pytest.approx(1)
    assert gradient == pytest.approx(scores.grad.norm().item(), abs=1e-12)


def test_saturation_grows_with_the_width_unless_scaled():
    def typical(head_dim, scaled):
        return np.median([widgets.saturation(head_dim, scaled, seed=s)[0].max() for s in range(40)])

    assert typical(1024, False) > 0.99
    assert typical(1024, True) == pytest.approx(typical(16, True), abs=0.12)


def test_softmax_saturation_redraws_when_a_control_moves():
    box = widgets.softmax_saturation()
    width, scaled, seed, picture = box.children
    assert all(control.description for control in (width, scaled, seed))
    assert "d = 64, scores not divided: the largest weight is 1.00" in picture.value
    width.value, scaled.value = 256, True
    assert "d = 256, scores divided by √d: the largest weight is 0.63" in picture.value
    before = picture.value
    seed.value = 4
    assert picture.value != before
    assert 'alt="' in picture.value


@pytest.fixture(scope="module")
def word_vectors():
    return data.word_vectors()


def test_word_explorer_follows_its_controls(word_vectors):
    box = widgets.word_explorer(*word_vectors)
    word, measure, count, table = box.children
    assert all(control.description for control in (word, measure, count))
    assert "Nearest to <b>cat</b> by cosine" in table.value
    assert table.value.count('scope="row"') == 8
    assert table.value.index(">dog<") < table.value.index(">cats<")
    word.value = " Happy "
    assert "Nearest to <b>happy</b>" in table.value
    measure.value, count.value = "dot product", 3
    assert table.value.count('scope="row"') == 3
    assert "by dot product" in table.value
    assert "&#x27;m" in table.value


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("tuesdy", "not among these 10,000 words. Close in spelling: tuesday"),
        ("xqzjvw", "not among these 10,000 words. Try another one."),
        ("<b>", "&lt;b&gt;"),
        ("  ", "Type a word"),
    ],
)
def test_word_explorer_stays_calm_about_unknown_words(word_vectors, typed, expected):
    word, _, _, table = widgets.word_explorer(*word_vectors).children
    word.value = typed
    assert expected in table.value
    assert "<table>" not in table.value


def test_neighbours_by_cosine_are_those_of_the_reference(word_vectors):
    words, vectors = word_vectors
    found = [word for word, _ in widgets.neighbours(words, vectors, "river", "cosine", 5)]
    rows = reference.nearest_neighbours(vectors, vectors[words.index("river")], 6)
    assert ["river", *found] == [words[row] for row in rows]


def test_word_explorer_refuses_vectors_that_do_not_fit():
    with pytest.raises(ValueError, match=r"vectors has shape \(3, 2\), but \(2, d\) was expected"):
        widgets.word_explorer(["a", "b"], np.ones((3, 2)))


def test_lending_demo_follows_its_controls():
    models = {heads: lending.train(heads, 0, steps=2, progress=False) for heads in (1, 3)}
    heads, sentence, picture = widgets.lending_demo(models).children
    assert heads.options == (1, 3)
    assert sentence.options[0] == "Xiaoming lent the book to Xiaohong (小明把书借给了小红)"
    assert 'alt="1 head: what “lent” attends to. head 1: Xiaoming 0.' in picture.value
    heads.value = 3
    assert 'alt="3 heads: what “lent” attends to. head 1: Xiaoming 0.' in picture.value
    sentence.index = 1
    assert "head 3: Xiaohong 0." in picture.value
    assert "Read from what “lent” received: giver <b>" in picture.value


TEXTS = ["The teacher read the book.", "It rained, so nobody went out."]


@pytest.fixture(scope="module")
def encoder():
    return pretrained.load_encoder()


@pytest.fixture
def explorer(encoder):
    return widgets.head_explorer(encoder, TEXTS, layer=2)


def unpacked(entry, layers=6, num_heads=12):
    n = len(entry["tokens"])
    return np.frombuffer(entry["weights"], "<u2").reshape(layers, num_heads, n, n) / 65535


@pytest.mark.parametrize("text", range(len(TEXTS)))
def test_head_explorer_sends_the_weights_of_every_head(explorer, encoder, text):
    entry = explorer.texts[text]
    assert entry["text"] == TEXTS[text]
    assert entry["tokens"] == encoder.tokens(TEXTS[text])
    assert np.abs(unpacked(entry) - encoder.attention(TEXTS[text]).numpy()).max() < 1e-5


def test_head_explorer_sends_the_measures_but_not_the_flat_one(explorer, encoder):
    found = heads.head_measures(encoder, TEXTS)
    assert [measure["name"] for measure in explorer.measures] == list(found)[:-1]
    for measure in explorer.measures:
        assert measure["about"]
        np.testing.assert_allclose(measure["values"], found[measure["name"]], rtol=1e-5)


def test_head_explorer_takes_texts_in_words_and_measures_of_ones_own(encoder):
    importance = torch.arange(72.0).reshape(6, 12)
    importance[0, 0] = torch.nan
    found = widgets.head_explorer(encoder, [["don't", "go"]], {"importance": importance})
    (measure,) = found.measures
    assert (found.measure, measure["about"]) == ("importance", "")
    assert measure["values"][0][:2] == [None, 1.0]
    assert found.texts[0]["text"] == "don't go"


def test_head_explorer_is_read_and_set_from_python(explorer):
    assert (explorer.text, explorer.measure, explorer.layer, explorer.head) == (0, "previous", 2, 0)
    explorer.text, explorer.measure, explorer.layer, explorer.head = 1, "entropy", 5, 11
    assert explorer.get_state()["layer"] == 5
    assert repr(explorer) == "HeadExplorer of 6 x 12 heads: run this cell to open it"


@pytest.mark.parametrize(
    ("trait", "value", "message"),
    [
        ("layer", 6, "layer=6 must be between 0 and 5"),
        ("head", -1, "head=-1 must be between 0 and 11"),
        ("text", 2, "text=2 must be between 0 and 1"),
        ("measure", "size", "measure='size' is not one of .'previous', 'next'"),
        ("layer", "3", "layer"),
    ],
)
def test_head_explorer_refuses_a_choice_that_is_not_there(explorer, encoder, trait, value, message):
    before = getattr(explorer, trait)
    with pytest.raises(TraitError, match=message):
        setattr(explorer, trait, value)
    assert getattr(explorer, trait) == before
    with pytest.raises(TraitError):
        widgets.head_explorer(encoder, TEXTS, **{trait: value})


def test_head_explorer_adds_a_typed_sentence_once(explorer, encoder):
    explorer.typed = "  My cat   sleeps. "
    assert (explorer.text, explorer.typed, explorer.message) == (2, "", "")
    assert explorer.texts[2]["text"] == "My cat sleeps."
    mine = encoder.attention("My cat sleeps.").numpy()
    assert np.abs(unpacked(explorer.texts[2]) - mine).max() < 1e-5
    explorer.text = 0
    explorer.typed = "My cat sleeps."
    assert (explorer.text, len(explorer.texts)) == (2, 3)
    explorer.typed = "   "
    assert (explorer.text, len(explorer.texts)) == (2, 3)


def test_head_explorer_says_that_a_typed_sentence_is_too_long(explorer):
    explorer.typed = "word " * 40
    assert explorer.message.endswith("has 42 tokens with [CLS] and [SEP], but 30 is the most.")
    assert (explorer.text, len(explorer.texts)) == (0, 2)
    explorer.text = 1
    assert explorer.message == ""


@pytest.mark.parametrize(
    ("texts", "measures", "error", "message"),
    [
        ("A cat.", None, TypeError, "texts must be a list of texts, not one string"),
        ([], None, ValueError, "texts is empty"),
        (["word " * 29], None, ValueError, "“word .*…” has 31 tokens .* but 30 is the most"),
        ([7], None, TypeError, "text must be a string, or a list of words, not int"),
        (TEXTS, {}, ValueError, "measures is empty"),
        (TEXTS, {"mine": np.ones((12, 6))}, ValueError, r"measures\['mine'\] has shape \(12, 6\)"),
    ],
)
def test_head_explorer_says_what_is_wrong(encoder, texts, measures, error, message):
    with pytest.raises(error, match=message):
        widgets.head_explorer(encoder, texts, measures)


def test_the_explorers_page_fetches_nothing(explorer):
    script, style = str(explorer._esm), str(explorer._css)
    assert "export default { render }" in script
    assert re.findall(r"https?://\S+?\"", script + style) == ['http://www.w3.org/2000/svg"']
    assert not re.search(r"\bimport\b|\bfetch\b|@import|url\(", script + style)


# the calculator of costs


def test_costs_agree_with_the_formulas_and_with_the_known_cache():
    sizes = {"d_model": 4096, "num_heads": 32, "num_kv_heads": 32, "head_dim": 128}
    found = widgets.costs(sizes, 32, 4096, 2)
    assert list(found) == [32, 8, 1]
    assert found[32] == {
        "parameters": 32 * 4 * 4096**2,
        "flops": 32 * (8 * 4096**2 + 4 * 4096 * 4096 + 4 * 32 * 4096),
        "cache_bytes": 2 * 2**30,
    }
    assert found[8]["cache_bytes"] == found[32]["cache_bytes"] / 4


@pytest.mark.parametrize(
    ("heads", "kv_heads", "shown"),
    [(12, 12, [12, 1]), (64, 16, [64, 16, 8, 1]), (8, 1, [8, 1]), (1, 1, [1])],
)
def test_costs_are_given_for_fewer_key_and_value_heads(heads, kv_heads, shown):
    sizes = {"d_model": 64, "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": 4}
    assert list(widgets.costs(sizes, 2, 128, 4)) == shown


@pytest.mark.parametrize(
    ("count", "step", "words"),
    [(0, 1000, "0"), (999, 1000, "999"), (1000, 1000, "1.00 k"), (2147483648, 1024, "2.00 Gi")],
)
def test_large_numbers_in_three_digits(count, step, words):
    from mhalib.widgets.calculator import in_words

    assert in_words(count, "", step).strip() == words


def test_calculator_follows_the_model_and_the_fields():
    box = widgets.cost_calculator()
    model, typed, more, length, itemsize, table = box.children
    assert "Llama-2-7B</b>: 32 layers" in table.value
    assert "2.00 GiB" in table.value
    model.value = "GPT-2 small"
    assert [field.value for field in typed.children + more.children] == [768, 12, 12, 64, 12]
    assert "12 heads × 64 = 768 = d_model 768" in table.value
    typed.children[2].value = 5
    assert "do not fit together: num_kv_heads=5" in table.value
    typed.children[2].value = 3
    assert "GPT-2 small, changed" in table.value
    assert "3 KV heads (as it is)" in table.value
    length.value, before = 8192, table.value
    itemsize.value = 4
    assert table.value != before
    assert "8,192 tokens" in table.value
    more.children[1].value = 0
    assert "do not fit together" in table.value
