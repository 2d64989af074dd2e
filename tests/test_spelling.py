"""The spelling model: its words, its causality, its loss, what ships, and its conversions."""

import importlib.util
import math

import pytest
import torch
import torch.nn.functional as F

from mhalib import data, spelling
from mhalib.functional import merge_heads, scaled_dot_product_attention, split_heads

SHIPPED = [(num_kv_heads, seed) for num_kv_heads in (8, 4, 2, 1) for seed in (0, 1)]


@pytest.fixture(scope="module")
def held_out():
    return spelling.words()[1]


@pytest.fixture(scope="module")
def models():
    return {pair: spelling.load(*pair) for pair in SHIPPED}


def scores(model, tokens):
    with torch.no_grad():
        return model(tokens)


def test_words_are_english_letters_only_and_none_is_both_trained_and_held_out():
    train, held_out = spelling.words()
    assert (len(train), len(held_out)) == (8292, 1000)
    assert len(set(train) | set(held_out)) == 9292
    assert set(train) | set(held_out) <= set(data.word_vectors()[0])
    assert all(set(word) <= set("abcdefghijklmnopqrstuvwxyz") for word in train)
    assert {len(word) for word in train} == set(range(3, 15))
    assert spelling.words() == (train, held_out)


def test_a_word_becomes_tokens_and_targets():
    tokens, targets = spelling.encode(["cat", "azure"])
    assert tokens.tolist() == [[0, 3, 1, 20, 0, 0], [0, 1, 26, 21, 18, 5]]
    assert targets.tolist() == [[3, 1, 20, 0, -100, -100], [1, 26, 21, 18, 5, 0]]


@pytest.mark.parametrize("num_kv_heads", [8, 2, 1])
def test_a_later_letter_changes_no_earlier_prediction(models, num_kv_heads):
    model = models[num_kv_heads, 0]
    tokens, _ = spelling.encode(["strange"])
    before = scores(model, tokens)
    for place in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[0, place] = tokens[0, place] % 26 + 1
        after = scores(model, changed)
        assert torch.equal(before[:, :place], after[:, :place])
        assert (before[:, place:] - after[:, place:]).abs().amax(dim=-1).min() > 0.01


def test_loss_counts_letters_and_ends_but_no_filling(models):
    model = models[2, 1]
    words = ["cat", "wonderfully"]
    by_hand = []
    for word in words:
        tokens, targets = spelling.encode([word])
        shares = scores(model, tokens)[0].log_softmax(dim=-1)
        by_hand += [-shares[i, target].item() for i, target in enumerate(targets[0])]
    assert len(by_hand) == 4 + 12
    assert spelling.loss(model, words) == pytest.approx(sum(by_hand) / 16, abs=1e-5)


@pytest.mark.parametrize("pair", SHIPPED)
def test_a_shipped_model_has_learned_words_it_never_saw(models, held_out, pair):
    assert models[pair].num_kv_heads == pair[0]
    assert 2.03 < spelling.loss(models[pair], held_out) < 2.09


def test_eight_kv_heads_spell_a_little_better_than_one(models, held_out):
    losses = {pair: spelling.loss(model, held_out) for pair, model in models.items()}
    for seed in (0, 1):
        assert 0.01 < losses[1, seed] - losses[8, seed] < 0.05


def test_an_untrained_model_gives_every_token_about_the_same_share(held_out):
    torch.manual_seed(0)
    assert spelling.loss(spelling.SpellingModel(4), held_out) == pytest.approx(
        math.log(27), abs=0.2
    )


def test_models_differ_in_keys_and_values_only(models):
    shapes = {
        pair: {name: weight.shape for name, weight in model.state_dict().items()}
        for pair, model in models.items()
    }
    narrower = {name for name in shapes[8, 0] if shapes[8, 0][name] != shapes[1, 0][name]}
    assert len(narrower) == 2 * spelling.NUM_LAYERS
    assert all("k_proj" in name or "v_proj" in name for name in narrower)
    assert all(shapes[2, 0][name] == (16, 64) for name in narrower)


def test_the_script_writes_the_shipped_bytes(models, tmp_path):
    spec = importlib.util.spec_from_file_location(
        "script", data.data_dir() / "make_spelling_models.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    spelling.save(tmp_path / script.OUT.name, models)
    shipped = data.path(script.OUT.name).read_bytes()
    assert (tmp_path / script.OUT.name).read_bytes() == shipped


def test_training_learns_repeats_itself_and_leaves_the_random_state(held_out):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, again, other = (spelling.train(1, seed, steps=30) for seed in (5, 5, 6))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert spelling.loss(first, held_out) < 2.9
    assert spelling.loss(first, held_out) == spelling.loss(again, held_out)
    assert spelling.loss(first, held_out) != spelling.loss(other, held_out)


def test_conversion_and_further_training_leave_the_model_as_it_was(models, held_out):
    model = models[8, 0]
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    losses = {}
    for how in ("mean", "first", "random"):
        fewer = spelling.converted(model, 2, how, seed=0)
        assert fewer.num_kv_heads == 2
        further = spelling.train_further(fewer, steps=20)
        losses[how] = spelling.loss(fewer, held_out), spelling.loss(further, held_out)
    assert all(torch.equal(before[name], model.state_dict()[name]) for name in before)
    for mean, first, random in zip(*losses.values(), strict=True):
        assert mean < first < random
    assert all(after < before - 0.5 for before, after in losses.values())


def test_random_heads_are_drawn_for_each_layer_and_seed(models):
    one, same, other = (spelling.converted(models[8, 0], 2, "random", seed) for seed in (0, 0, 1))
    weights = [
        [layer.attention.k_proj.weight for layer in model.layers] for model in (one, same, other)
    ]
    assert torch.equal(weights[0][0], weights[1][0])
    assert not torch.equal(weights[0][0], weights[2][0])
    assert not torch.equal(weights[0][0], weights[0][1])


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_copied_heads_are_the_same_model_and_tiled_ones_are_not(models, held_out, num_kv_heads):
    model = models[num_kv_heads, 0]
    tokens, _ = spelling.encode(held_out[:50])
    right = spelling.copied_out(model)
    assert right.num_kv_heads == 8
    assert torch.allclose(scores(right, tokens), scores(model, tokens), atol=1e-5)
    tiled = spelling.copied_out(model, tiled=True)
    assert spelling.loss(tiled, held_out) > spelling.loss(model, held_out) + 0.5


def test_tiled_is_what_repeat_does(models):
    layer = models[2, 0].layers[0].attention
    tiled = spelling.copied_out(models[2, 0], tiled=True).layers[0].attention
    x = torch.randn(3, 6, 64, generator=torch.Generator().manual_seed(1))
    query = split_heads(layer.q_proj(x), 8)
    key, value = (
        split_heads(projection(x), 2).repeat(1, 4, 1, 1)
        for projection in (layer.k_proj, layer.v_proj)
    )
    heads, _ = scaled_dot_product_attention(query, key, value, is_causal=True)
    expected = layer.out_proj(merge_heads(heads))
    assert torch.allclose(tiled(x, is_causal=True), expected, atol=1e-6)


@pytest.mark.parametrize("num_kv_heads", [8, 4, 1])
def test_with_caches_it_predicts_and_writes_the_same(models, num_kv_heads):
    model = models[num_kv_heads, 1]
    tokens, _ = spelling.encode(["strange", "letters"])
    whole = scores(model, tokens)
    caches = model.new_caches(batch=2)
    pieces = [scores_with(model, piece, caches) for piece in tokens.split([3, 1, 1, 2, 1], dim=1)]
    assert torch.allclose(torch.cat(pieces, dim=1), whole, atol=1e-5)
    assert [int(cache.lengths[0]) for cache in caches] == [8, 8]
    for seed in (None, 0, 1, 2):
        words = [spelling.write(model, "th", seed=seed, cached=cached) for cached in (True, False)]
        assert words[0] == words[1]
        assert words[0].startswith("th")
        assert len(words[0]) <= 14


def scores_with(model, tokens, caches):
    with torch.no_grad():
        return model(tokens, caches)


def test_the_likeliest_letter_is_taken_each_time(models):
    model = models[8, 0]
    word = spelling.write(model, "qu", cached=False)
    tokens, targets = spelling.encode([word])
    likeliest = scores(model, tokens)[0].argmax(dim=-1)
    assert torch.equal(likeliest[2:], targets[0, 2:])


def test_the_loss_of_a_model_that_knows_the_word_is_small(models):
    tokens, targets = spelling.encode(["the"])
    known = F.cross_entropy(scores(models[8, 0], tokens)[0], targets[0]).item()
    assert spelling.loss(models[8, 0], ["the"]) == pytest.approx(known, abs=1e-6)
    assert known < spelling.loss(models[8, 0], ["eht"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: spelling.SpellingModel(3), "num_kv_heads=3 must divide num_heads=8"),
        (lambda m: spelling.load(3, 0), "num_kv_heads=3 must be one of"),
        (lambda m: spelling.load(8, 2), "seed=2 must be one of"),
        (lambda m: spelling.encode(["Cat"]), "'Cat' is not a word"),
        (lambda m: spelling.encode([]), "the number of words"),
        (lambda m: spelling.train(2, 0, steps=0), "steps=0 must be at least 1"),
        (lambda m: spelling.train(2, 0.5), "seed=0.5"),
        (lambda m: spelling.converted(m, 2, "median"), "how='median' must be one of"),
        (lambda m: spelling.converted(m, 3), "must divide"),
        (lambda m: spelling.write(m, "a" * 15), "is not a word of 1 to 14 letters"),
        (lambda m: m(torch.full((1, 3), 27)), "token_ids holds 27"),
        (lambda m: m(torch.zeros(1, 16, dtype=torch.long)), "only 15 positions"),
    ],
)
def test_arguments_that_do_not_fit_are_named(models, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(models[8, 0])
