"""The sentences of lesson 05: sound trees, no easier than real text; words in context; who did it.

The treebank's downloader is tried on local files alone. What needs the treebank itself reads the
folder named by `MHALIB_UD_DIR`, and skips where there is none.
"""

import importlib.util
import os
import re
from collections import Counter
from pathlib import Path

import conllu
import pytest

from mhalib import data

SPLITS = ("dev", "test")
NOMINAL = {"NOUN", "PROPN", "PRON", "NUM"}
CLASSES = {  # what the probed relations may join: the word's own classes
    "obj": NOMINAL | {"ADJ"},  # "most of his land"
    "nsubj": NOMINAL,
    "det": {"DET"},
    "amod": {"ADJ", "VERB"},
    "case": {"ADP", "PART"},
    "nmod:poss": NOMINAL - {"NUM"},
}
THIRD_PERSON = {"he", "him", "his", "himself", "she", "her", "herself", "it", "its", "itself"}
THIRD_PERSON |= {"they", "them", "their", "themselves"}
LEAST = {"obj": 60, "det": 120, "nsubj": 120, "amod": 60, "case": 60, "nmod:poss": 30}


@pytest.fixture(scope="module")
def sentences():
    return {split: data.sentences(split) for split in SPLITS}


@pytest.fixture(scope="module")
def everything(sentences):
    return sentences["dev"] + sentences["test"]


def relations(sentences, relation):
    """(sentence, position, word) of every word that has the relation."""
    return [
        (sentence, position, word)
        for sentence in sentences
        for position, word in enumerate(sentence.words)
        if word.relation == relation
    ]


def fixed_distance(dev, test, relation):
    """How often the most frequent distance of dev finds the head in test."""
    distances = [
        Counter(word.head - position for _, position, word in relations(split, relation))
        for split in (dev, test)
    ]
    (best, _), *_ = distances[0].most_common(1)
    return 100 * distances[1][best] / distances[1].total()


# --- the trees ---


def test_each_split_has_75_sentences_and_they_share_none(sentences):
    assert [len(sentences[split]) for split in SPLITS] == [75, 75]
    texts = [sentence.text for split in SPLITS for sentence in sentences[split]]
    assert len(set(texts)) == len(texts)


def test_lengths_are_varied(everything):
    lengths = [sum(word.upos != "PUNCT" for word in s.words) for s in everything]
    assert min(lengths) >= 6
    assert max(lengths) <= 28
    assert len(set(lengths)) >= 12


def test_each_sentence_is_one_tree(everything):
    for sentence in everything:
        heads = [word.head for word in sentence.words]
        assert heads.count(None) == 1, sentence.text
        assert (sentence.words[heads.index(None)].relation, sentence.text) == (
            "root",
            sentence.text,
        )
        for position in range(len(heads)):
            seen = set()
            while position is not None:
                assert position not in seen, f"a cycle in: {sentence.text}"
                seen.add(position)
                position = heads[position]


def test_words_depend_on_words_and_not_on_punctuation(everything):
    for sentence in everything:
        for word in sentence.words:
            assert (word.relation == "punct") == (word.upos == "PUNCT"), sentence.text
            if word.head is not None:
                assert sentence.words[word.head].upos not in {"PUNCT", "DET", "PART"}, sentence.text


@pytest.mark.parametrize("relation", CLASSES)
def test_relations_join_fitting_word_classes(everything, relation):
    for sentence, _, word in relations(everything, relation):
        assert word.upos in CLASSES[relation], f"{word.form}: {sentence.text}"


def test_determiners_stand_before_their_noun_and_objects_depend_on_verbs(everything):
    for sentence, position, word in relations(everything, "det"):
        assert word.head > position, sentence.text
    for sentence, _, word in relations(everything, "obj"):
        assert sentence.words[word.head].upos == "VERB", sentence.text


@pytest.mark.parametrize("relation", LEAST)
def test_there_are_enough_of_each_relation_in_both_splits(sentences, relation):
    dev, test = (len(relations(sentences[split], relation)) for split in SPLITS)
    assert dev + test >= LEAST[relation]
    assert abs(dev - test) <= 0.2 * (dev + test)


@pytest.mark.parametrize("split", SPLITS)
def test_the_file_is_valid_and_spells_its_text(split):
    content = data.path(f"sentences-{split}.conllu").read_text(encoding="utf-8")
    assert "\r" not in content
    for number, tokens in enumerate(conllu.parse(content), start=1):
        assert tokens.metadata["sent_id"] == f"mhalib-{split}-{number:03}"
        words = [token["id"] for token in tokens if isinstance(token["id"], int)]
        assert words == list(range(1, len(words) + 1))
        text, covered = "", 0
        for token in tokens:
            last = token["id"][2] if isinstance(token["id"], tuple) else token["id"]
            if last > covered:  # not a part of the multiword token before it
                space = (token["misc"] or {}).get("SpaceAfter") != "No"
                text, covered = text + token["form"] + " " * space, last
        assert text == tokens.metadata["text"]


# --- pronouns ---


def test_an_antecedent_is_a_noun_of_the_same_sentence(everything):
    marked = [
        (sentence, word)
        for sentence in everything
        for word in sentence.words
        if word.antecedent is not None
    ]
    assert len(marked) >= 80
    for sentence, word in marked:
        assert word.upos == "PRON", sentence.text
        assert sentence.words[word.antecedent].upos in {"NOUN", "PROPN"}, sentence.text


def test_every_third_person_pronoun_has_its_antecedent(everything):
    for sentence in everything:
        for word in sentence.words:
            if word.form.lower() in THIRD_PERSON and word.relation != "expl":
                assert word.antecedent is not None, f"{word.form}: {sentence.text}"


@pytest.mark.parametrize("split", SPLITS)
def test_no_simple_rule_finds_the_antecedents(sentences, split):
    nearest = first = count = 0
    for sentence in sentences[split]:
        nouns = [i for i, word in enumerate(sentence.words) if word.upos in {"NOUN", "PROPN"}]
        for position, word in enumerate(sentence.words):
            if word.antecedent is not None:
                count += 1
                first += word.antecedent == nouns[0]
                nearest += word.antecedent == max((i for i in nouns if i < position), default=None)
    assert nearest / count < 0.5
    assert first / count < 0.7


# --- how hard they are ---


@pytest.mark.parametrize(("relation", "on_ewt"), [("obj", 37.9), ("det", 56.8)])
def test_they_are_no_easier_than_real_sentences(sentences, relation, on_ewt):
    assert abs(fixed_distance(sentences["dev"], sentences["test"], relation) - on_ewt) < 10


@pytest.mark.skipif("MHALIB_UD_DIR" not in os.environ, reason="MHALIB_UD_DIR names no treebank")
def test_the_treebank_is_read_and_ours_are_near_it(sentences):
    folder = Path(os.environ["MHALIB_UD_DIR"])
    script = _script()
    for name in script.SHA256:
        script.verify(name, (folder / name).read_bytes(), folder / name)
    dev, test = (data.read_conllu(folder / f"en_ewt-ud-{split}.conllu") for split in SPLITS)
    assert [len(dev), len(test)] == [2001, 2077]
    for relation in ("obj", "det"):
        ours = fixed_distance(sentences["dev"], sentences["test"], relation)
        assert abs(ours - fixed_distance(dev, test, relation)) < 10


# --- the readers ---


def test_positions_count_from_0(sentences):
    sentence = next(s for s in sentences["test"] if s.text.startswith("The soup tasted"))
    forms = [word.form for word in sentence.words]
    assert forms == ["The", "soup", "tasted", "better", "than", "it", "smelled", "."]
    assert [word.head for word in sentence.words] == [1, 2, None, 2, 6, 6, 3, 2]
    assert [word.antecedent for word in sentence.words] == [None] * 5 + [1] + [None] * 2
    assert [word.relation for word in sentence.words[:3]] == ["det", "nsubj", "root"]


def test_conllu_of_others_is_read_too(tmp_path):
    lines = [
        "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_",
        "1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_",
        "2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_",
        "3\tgo\tgo\tVERB\t_\t_\t0\troot\t_\tAntecedent=1",
        "3.1\tthere\t_\t_\t_\t_\t_\t_\t3:dep\t_",
    ]
    file = tmp_path / "other.conllu"
    file.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    (sentence,) = data.read_conllu(str(file))
    assert sentence == data.Sentence(
        text="Do n't go",  # no "# text =" line there
        words=(
            data.Word("Do", "AUX", 2, "aux"),
            data.Word("n't", "PART", 2, "advmod"),
            data.Word("go", "VERB", None, "root", 0),
        ),
    )


@pytest.mark.parametrize("reader", [data.sentences, data.words_in_context])
@pytest.mark.parametrize("split", ["train", None, 3])
def test_an_unknown_split_is_named(reader, split):
    with pytest.raises(ValueError, match=r"split=.* must be one of 'dev', 'test'"):
        reader(split)


# --- words in context ---


@pytest.mark.parametrize("split", SPLITS)
def test_each_word_has_two_senses_in_two_sentences(split):
    contexts = data.words_in_context(split)
    counts = Counter((context.word, context.sense) for context in contexts)
    assert set(counts.values()) == {2}
    assert set(Counter(word for word, _ in counts).values()) == {2}
    assert len(counts) == 48
    for context in contexts:
        pattern = rf"(?<![\w'-]){context.word}(?![\w'-])"
        assert len(re.findall(pattern, context.sentence)) == 1, context
        assert len(re.findall(context.word, context.sentence, re.IGNORECASE)) == 1, context
        assert context.sentence[-1] in ".?", context


def test_the_splits_of_words_in_context_share_words_and_no_sentence():
    dev, test = (data.words_in_context(split) for split in SPLITS)
    assert {(c.word, c.sense) for c in dev} == {(c.word, c.sense) for c in test}
    assert len({c.sentence for c in dev + test}) == 192


def test_no_other_word_gives_a_sense_away():
    """No word of at least four letters stands in all four sentences of a sense."""
    for word, sense in {(c.word, c.sense) for c in data.words_in_context("dev")}:
        sets = [
            set(re.findall(r"\w{4,}", context.sentence.lower()))
            for split in SPLITS
            for context in data.words_in_context(split)
            if (context.word, context.sense) == (word, sense)
        ]
        assert set.intersection(*sets) <= {word}, (word, sense)


# --- who did it ---


def test_right_and_wrong_are_the_same_words_in_another_order():
    triples = data.who_did_it()
    assert len(triples) == len({triple.anchor for triple in triples}) == 120
    for triple in triples:
        right, wrong = (re.findall(r"\w+", text.lower()) for text in (triple.right, triple.wrong))
        assert sorted(right) == sorted(wrong), triple
        assert right != wrong, triple
        assert triple.anchor not in (triple.right, triple.wrong)


# --- the treebank's downloader, on local files ---


def _script():
    path = data.data_dir() / "fetch_treebank.py"
    spec = importlib.util.spec_from_file_location("fetch_treebank", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def script(monkeypatch):
    """The downloader, for a treebank that holds one file with the letter a."""
    script = _script()
    of_a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    monkeypatch.setattr(script, "SHA256", {"bank.conllu": of_a})
    return script


@pytest.fixture
def shelf(tmp_path):
    """Two sources of the treebank: one holds another edition, one the right file."""
    for name, content in {"other": "b", "right": "a"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "bank.conllu").write_text(content)
    return tmp_path


def test_a_right_file_is_kept_and_others_are_passed_over(script, shelf, capsys):
    sources = [f"--source={(shelf / name).as_uri()}" for name in ("missing", "other", "right")]
    script.main([str(shelf / "new" / "treebank"), *sources])
    assert [file.name for file in (shelf / "new" / "treebank").iterdir()] == ["bank.conllu"]
    assert (shelf / "new" / "treebank" / "bank.conllu").read_text() == "a"
    printed = capsys.readouterr().out
    assert "CC BY-SA 4.0" in printed
    assert "UniversalDependencies/UD_English-EWT" in printed


def test_a_wrong_file_is_refused_with_both_checksums(script, shelf):
    with pytest.raises(SystemExit) as refusal:
        script.main([str(shelf / "treebank"), f"--source={(shelf / 'other').as_uri()}"])
    assert re.search(r"No source gave bank.conllu.*3e23e816.*ca978112", str(refusal.value), re.S)
    assert list((shelf / "treebank").iterdir()) == []


def test_a_file_that_is_there_is_never_overwritten(script, shelf, capsys):
    right = f"--source={(shelf / 'right').as_uri()}"
    with pytest.raises(SystemExit, match="It is left as it is"):
        script.main([str(shelf / "other"), right])
    assert (shelf / "other" / "bank.conllu").read_text() == "b"
    script.main([str(shelf / "right"), "--source=file:///nowhere"])
    assert "is there already, and right" in capsys.readouterr().out


def test_the_script_knows_both_files():
    script = _script()
    assert set(script.SHA256) == {"en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu"}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in script.SHA256.values())
    with pytest.raises(ValueError, match="was expected"):
        script.verify("en_ewt-ud-dev.conllu", b"", "an empty file")
