"""The quiz of each lesson: read from `data/quizzes/NN.toml`, checked, and shown.

A file holds one `[[question]]` after another. Texts are tables by language (`prompt.en`), and
all of a file's texts have the same languages, English among them.

    [[question]]
    id = "how-wide"
    kind = "choice"
    prompt.en = "d_model is 512 and there are 8 heads. How wide is one head?"
    explanation.en = "The heads share the 512 numbers of a token."
    [[question.option]]
    text.en = "64"
    correct = true
    [[question.option]]
    text.en = "512"
    misconception.en = "Each head would then be a full-width attention of its own."

With `kind = "number"` there are no options, but `answer = 64`, a `tolerance = 0` if other than 0,
and `[[question.wrong]]` entries with a `value` and the `misconception.en` that leads to it.

`load` knows nothing of how a quiz looks, and `Quiz` nothing of files.
"""

import math
import tomllib
from dataclasses import dataclass
from html import escape
from string import ascii_uppercase

from mhalib import data

_WORDS = {
    "en": {
        "question": "Question {n} of {total}.",
        "instructions": "Settle on an answer, then open it to see whether it is right, and why.",
        "show": "Show the answer to question {n}",
        "right": "Right.",
        "wrong": "Not this one.",
        "answer": "The answer is {answer}.",
        "tolerance": "Anything within {tolerance} of it counts.",
        "got": "If you got {value}:",
        "answers": "Answers",
    }
}
_FIELDS = {
    "choice": {"id", "kind", "prompt", "explanation", "option"},
    "number": {"id", "kind", "prompt", "explanation", "answer", "tolerance", "wrong"},
}


@dataclass(frozen=True)
class Option:
    """One answer to choose from; a wrong one (`misconception` is not None) says what it shows."""

    text: dict
    misconception: dict | None

    @property
    def correct(self):
        return self.misconception is None


@dataclass(frozen=True)
class Wrong:
    """A wrong number and the misconception that leads to it."""

    value: float
    misconception: dict


@dataclass(frozen=True)
class Question:
    """One question; texts are dicts by language. `options` are a choice's, the rest a number's."""

    id: str
    kind: str
    prompt: dict
    explanation: dict
    options: tuple = ()
    answer: float | None = None
    tolerance: float = 0
    wrong: tuple = ()


def quiz(lesson, language="en"):
    """The quiz of a lesson, to be shown by a notebook as the last value of a cell.

    Args:
        lesson: the lesson's number as its file has it, such as "01".
        language: the language of the texts.
    """
    questions = load(lesson)
    languages = sorted(questions[0].prompt)
    if language not in languages or language not in _WORDS:
        raise ValueError(
            f"language={language!r}: quiz {lesson!r} is written in {', '.join(languages)}"
        )
    return Quiz(questions, language)


def load(lesson):
    """The questions of a lesson as a list of `Question`, in the order of its file.

    Raises:
        TypeError, ValueError, FileNotFoundError: there is no such quiz, or its file is not in
        order; the message names the file, the question and the field.
    """
    if not isinstance(lesson, str):
        raise TypeError(f"lesson={lesson!r} must be a string such as '01'")
    folder = data.data_dir() / "quizzes"
    file = folder / f"{lesson}.toml"
    there = sorted(f.stem for f in folder.glob("*.toml"))
    if lesson not in there:
        raise FileNotFoundError(
            f"There is no quiz {lesson!r} in {folder}; there are {', '.join(there) or 'none'}"
        )
    return read(file)


def read(file):
    """The questions in one TOML file, checked, as a list of `Question`."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, or not TOML
        raise ValueError(f"{file.name}: {error}") from None
    _fields(content, file.name, required={"question"})
    entries = _tables(content["question"], f"{file.name}, question")
    questions = [_question(entry, file.name, n) for n, entry in enumerate(entries, 1)]
    ids = [question.id for question in questions]
    for question_id in ids:
        if ids.count(question_id) > 1:
            raise ValueError(f"{file.name}, question {question_id!r}: id is used more than once")
    return questions


def _question(entry, file_name, n):
    question_id = entry.get("id")
    if not isinstance(question_id, str) or not question_id:
        raise ValueError(f"{file_name}, question {n}: id must be a name, not {question_id!r}")
    where = f"{file_name}, question {question_id!r}"
    kind = entry.get("kind")
    if kind not in _FIELDS:
        raise ValueError(f"{where}: kind must be 'choice' or 'number', not {kind!r}")
    optional = {"tolerance"} & _FIELDS[kind]
    _fields(entry, where, required=_FIELDS[kind] - optional, optional=optional)
    prompt = _text(entry, "prompt", where)
    languages = set(prompt)
    shared = {
        "id": question_id,
        "kind": kind,
        "prompt": prompt,
        "explanation": _text(entry, "explanation", where, languages),
    }
    if kind == "choice":
        return Question(**shared, options=_options(entry["option"], where, languages))
    return Question(**shared, **_number_fields(entry, where, languages))


def _options(entries, where, languages):
    options = []
    for n, entry in enumerate(_tables(entries, f"{where}, option"), 1):
        here = f"{where}, option {n}"
        correct = entry.get("correct", False)
        if not isinstance(correct, bool):
            raise ValueError(f"{here}: correct must be true or false, not {correct!r}")
        if correct:
            _fields(entry, here, required={"text", "correct"})
        else:
            _fields(entry, here, required={"text", "misconception"}, optional={"correct"})
        misconception = None if correct else _text(entry, "misconception", here, languages)
        options.append(Option(_text(entry, "text", here, languages), misconception))
    right = sum(option.correct for option in options)
    if right != 1:
        raise ValueError(f"{where}: option must hold exactly one with correct = true, not {right}")
    if len(options) < 2:
        raise ValueError(f"{where}: option must hold at least one wrong answer too")
    for language in languages:
        texts = [option.text[language] for option in options]
        if len(set(texts)) < len(texts):
            raise ValueError(f"{where}: option holds the same text.{language} twice")
    return tuple(options)


def _number_fields(entry, where, languages):
    answer = _number(entry, "answer", where)
    tolerance = _number(entry, "tolerance", where) if "tolerance" in entry else 0
    if tolerance < 0:
        raise ValueError(f"{where}: tolerance must not be negative, but is {tolerance}")
    wrong = []
    for n, item in enumerate(_tables(entry["wrong"], f"{where}, wrong"), 1):
        here = f"{where}, wrong {n}"
        _fields(item, here, required={"value", "misconception"})
        value = _number(item, "value", here)
        if abs(value - answer) <= tolerance:
            raise ValueError(f"{here}: value={value} counts as the right answer, {answer}")
        if value in [other.value for other in wrong]:
            raise ValueError(f"{here}: value={value} is there twice")
        wrong.append(Wrong(value, _text(item, "misconception", here, languages)))
    return {"answer": answer, "tolerance": tolerance, "wrong": tuple(wrong)}


def _fields(table, where, *, required, optional=frozenset()):
    """A table has all required fields and none that is unknown."""
    known = sorted(required | optional)
    for field in sorted(table.keys() - set(known)):
        raise ValueError(f"{where}: unknown field {field!r}; known are {', '.join(known)}")
    for field in sorted(required - table.keys()):
        raise ValueError(f"{where}: {field} is missing")


def _tables(value, where):
    if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
        raise ValueError(f"{where} must be written as [[...]] tables, at least one")
    return value


def _text(table, field, where, languages=None):
    """A text by language; in the same languages as the question's prompt, if they are given."""
    text = table[field]
    if not isinstance(text, dict) or not text:
        raise ValueError(f"{where}: {field} must give its language, as in {field}.en, not {text!r}")
    for language in sorted((languages or {"en"}) - text.keys()):
        raise ValueError(f"{where}: {field}.{language} is missing")
    for language in sorted(text.keys() - (languages or text.keys())):
        raise ValueError(f"{where}: {field}.{language} is there, but prompt.{language} is not")
    for language, words in text.items():
        if not isinstance(words, str) or not words.strip():
            raise ValueError(f"{where}: {field}.{language} must be a text, not {words!r}")
    return text


def _number(table, field, where):
    number = table[field]
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError(f"{where}: {field} must be a finite number, not {number!r}")
    return number


class Quiz:
    """Questions shown in plain form, with folded answers: needs no kernel, script or network."""

    def __init__(self, questions, language):
        self.questions = questions
        self.language = language
        self._words = _WORDS[language]

    def _repr_html_(self):
        parts = [f'<div class="mhalib-quiz" lang="{self.language}">']
        parts.append(f"<p><em>{self._words['instructions']}</em></p>")
        parts += [self._question_html(n, question) for n, question in enumerate(self.questions, 1)]
        return "\n".join([*parts, "</div>"])

    def __repr__(self):
        asked, answered = [], []
        for n, question in enumerate(self.questions, 1):
            lines = [self._heading(n), question.prompt[self.language]]
            for letter, option in self._lettered(question):
                lines.append(f"  {letter}. {option.text[self.language]}")
            asked.append("\n".join(lines))
            answers = [f"  {answer} {response}" for answer, response in self._answers(question)]
            answered.append("\n".join([f"{n}.", *answers]))
        return "\n\n".join([*asked, self._words["answers"], *answered])

    def _heading(self, n):
        return self._words["question"].format(n=n, total=len(self.questions))

    def _lettered(self, question):
        return list(zip(ascii_uppercase, question.options, strict=False))

    def _answers(self, question):
        """What to say to each answer, as pairs of (answer, what follows from it)."""
        words, language = self._words, self.language
        explanation = question.explanation[language]
        if question.kind == "choice":
            return [
                (f"{letter}.", f"{words['right']} {explanation}")
                if option.correct
                else (f"{letter}.", f"{words['wrong']} {option.misconception[language]}")
                for letter, option in self._lettered(question)
            ]
        right = words["answer"].format(answer=_shown(question.answer))
        if question.tolerance:
            right += " " + words["tolerance"].format(tolerance=_shown(question.tolerance))
        return [
            (right, explanation),
            *(
                (words["got"].format(value=_shown(wrong.value)), wrong.misconception[language])
                for wrong in question.wrong
            ),
        ]

    def _question_html(self, n, question):
        answers = self._answers(question)
        prompt = escape(question.prompt[self.language])
        lines = [f"<p><strong>{self._heading(n)}</strong> {prompt}</p>"]
        if question.kind == "choice":
            for (letter, option), (_, response) in zip(
                self._lettered(question), answers, strict=True
            ):
                summary = f"{letter}. {escape(option.text[self.language])}"
                lines.append(_folded(summary, f"<p>{escape(response)}</p>"))
        else:
            paragraphs = [f"<p><strong>{escape(a)}</strong> {escape(b)}</p>" for a, b in answers]
            lines.append(_folded(self._words["show"].format(n=n), "".join(paragraphs)))
        return "\n".join(lines)


def _folded(summary, content):
    return (
        f'<details style="margin: 0.25em 0 0.25em 1.5em"><summary>{summary}</summary>\n'
        f'<div style="margin-left: 1.5em">{content}</div></details>'
    )


def _shown(number):
    """A number as a reader writes it: thousands apart, no needless decimals."""
    return f"{number:,.10g}" if isinstance(number, float) else f"{number:,}"
