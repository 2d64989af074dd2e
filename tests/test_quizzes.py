"""Quiz files are in order, bad ones are named, and a quiz reads well as HTML and as text."""

from html.parser import HTMLParser

import pytest

from mhalib import data, quizzes

FILES = sorted((data.data_dir() / "quizzes").glob("*.toml"))

CHOICE = """
[[question]]
id = "width"
kind = "choice"
prompt.en = "How wide is one of 8 heads, if 7 < d_model = 512?"
explanation.en = "The heads share the 512 numbers."
[[question.option]]
text.en = "64"
correct = true
[[question.option]]
text.en = "512"
misconception.en = "A head is no full-width attention."
"""
NUMBER = """
[[question]]
id = "scale"
kind = "number"
prompt.en = "head_dim is 64. What are the scores divided by?"
explanation.en = "The square root of 64."
answer = 8
tolerance = 0.5
[[question.wrong]]
value = 64
misconception.en = "That is head_dim itself."
[[question.wrong]]
value = 4096.0
misconception.en = "That is its square."
"""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_quiz_file_is_in_order(file):
    questions = quizzes.load(file.stem)
    assert file.stem == "00" or 4 <= len(questions) <= 6  # lesson 00 shows what a quiz is
    assert repr(quizzes.quiz(file.stem))


def read(tmp_path, text):
    file = tmp_path / "01.toml"
    file.write_text(text, encoding="utf-8")
    return quizzes.read(file)


def test_questions_are_read_in_the_order_of_the_file(tmp_path):
    choice, number = read(tmp_path, CHOICE + NUMBER)
    assert (choice.id, choice.kind) == ("width", "choice")
    assert [option.text["en"] for option in choice.options] == ["64", "512"]
    assert [option.correct for option in choice.options] == [True, False]
    assert (number.answer, number.tolerance) == (8, 0.5)
    assert [wrong.value for wrong in number.wrong] == [64, 4096]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "width"\n', "", "01.toml, question 1: id must be a name, not None"),
        ('kind = "choice"', 'kind = "open"', "question 'width': kind must be 'choice' or 'number'"),
        (
            'explanation.en = "The heads share the 512 numbers."',
            "",
            "'width': explanation is missing",
        ),
        ('kind = "choice"', 'kind = "choice"\nhint.en = "?"', "'width': unknown field 'hint'"),
        ("text.en", "text.zh", "'width', option 1: text.en is missing"),
        ("prompt.en", "prompt.zh", "question 'width': prompt.en is missing"),
        ("prompt.en", 'prompt.zh = "?"\nprompt.en', "'width': explanation.zh is missing"),
        ("text.en", 'text.zh = "?"\ntext.en', "option 1: text.zh is there, but prompt.zh is not"),
        ("prompt.en", "prompt", "question 'width': prompt must give its language, as in prompt.en"),
        ('text.en = "64"', 'text.en = " "', "option 1: text.en must be a text, not ' '"),
        ("correct = true", 'correct = "yes"', "option 1: correct must be true or false, not 'yes'"),
        ("correct = true", 'misconception.en = "?"', "exactly one with correct = true, not 0"),
        ('misconception.en = "A head is no full-width attention."', "", "misconception is missing"),
        ('misconception.en = "A head is no full-width attention."', "correct = true", ", not 2"),
        (
            "correct = true",
            'correct = true\nmisconception.en = "?"',
            "unknown field 'misconception'",
        ),
        ('text.en = "512"', 'text.en = "64"', "option holds the same text.en twice"),
        ('id = "scale"', 'id = "width"', "question 'width': id is used more than once"),
        ("answer = 8\n", "", "01.toml, question 'scale': answer is missing"),
        ("answer = 8", "answer = true", "'scale': answer must be a finite number, not True"),
        ("answer = 8", "answer = nan", "'scale': answer must be a finite number, not nan"),
        ("tolerance = 0.5", "tolerance = -1", "'scale': tolerance must not be negative"),
        ("value = 64", "value = 8", "'scale', wrong 1: value=8 counts as the right answer, 8"),
        ("value = 4096.0", "value = 64", "'scale', wrong 2: value=64 is there twice"),
        ('misconception.en = "That is its square."', "", "wrong 2: misconception is missing"),
        ("tolerance = 0.5", "tolerance =", "01.toml: Invalid value"),
        (None, "[[questions]]", "01.toml: unknown field 'questions'; known are question"),
        (None, "", "01.toml: question is missing"),
    ],
)
def test_a_bad_file_is_named_with_question_and_field(tmp_path, old, new, message):
    text = (CHOICE + NUMBER).replace(old, new, 1) if old else new
    assert text != CHOICE + NUMBER
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the message is compared below)
        read(tmp_path, text)
    assert message in str(raised.value)


def test_what_is_not_there_is_named(tmp_path, monkeypatch):
    (tmp_path / "quizzes").mkdir()
    (tmp_path / "quizzes" / "01.toml").write_text(CHOICE)
    monkeypatch.setattr(data, "data_dir", lambda: tmp_path)
    assert quizzes.load("01")[0].id == "width"
    with pytest.raises(FileNotFoundError, match=r"no quiz '99' in .*; there are 01"):
        quizzes.quiz("99")
    with pytest.raises(FileNotFoundError, match=r"no quiz '\.\./quizzes/01'"):
        quizzes.quiz("../quizzes/01")
    with pytest.raises(TypeError, match="lesson=1 must be a string such as '01'"):
        quizzes.quiz(1)
    with pytest.raises(ValueError, match="language='zh': quiz '01' is written in en"):
        quizzes.quiz("01", language="zh")


class Outline(HTMLParser):
    """The tags of a page, each closed, and the text outside and inside of `<details>`."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.seen, self.folded = [], set(), "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"class", "lang", "style"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if "details" in self.open and "summary" not in self.open:
            self.folded += text
        else:
            self.seen += text


def test_the_page_folds_the_answers_and_needs_no_script(tmp_path):
    page = Outline(quizzes.Quiz(read(tmp_path, CHOICE + NUMBER), "en")._repr_html_())
    assert page.open == []
    # all of these pass JupyterLab's sanitizer
    assert page.tags <= {"div", "p", "strong", "em", "details", "summary"}
    for seen in ["Question 1 of 2.", "if 7 < d_model = 512?", "A. 64", "B. 512", "are the scores"]:
        assert seen in page.seen
        assert seen not in page.folded
    for folded in ["Right. The heads share", "Not this one. A head is", "The answer is 8."]:
        assert folded in page.folded
        assert folded not in page.seen
    assert "Anything within 0.5 of it counts." in page.folded
    assert "If you got 4,096: That is its square." in page.folded


def test_the_text_has_the_answers_after_all_questions(tmp_path):
    text = repr(quizzes.Quiz(read(tmp_path, CHOICE + NUMBER), "en"))
    questions, answers = text.split("\n\nAnswers\n\n")
    assert "  A. 64\n  B. 512" in questions
    assert "1.\n  A. Right. The heads share the 512 numbers.\n  B. Not this one." in answers
    assert "2.\n  The answer is 8." in answers
