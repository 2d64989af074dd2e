"""What the learner sees: the same words as HTML in a notebook and as plain text elsewhere."""

from dataclasses import dataclass, field
from html import escape

# Colour is never the only sign (the words say it too), and text keeps the page's own colour,
# so that light and dark themes both stay readable.
_COLOUR = {"right": "#009E73", "wrong": "#D55E00", "open": "#808080"}
_BOX = (
    "border-left: 4px solid {colour}; padding: 0.2em 0.8em; margin: 0.3em 0; "
    "line-height: 1.5; color: inherit;"
)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what differs, the likely reason, the next thing to try."""

    what: str
    reason: str = ""
    next: str = ""

    def parts(self):
        """(label, text) pairs of what there is to say."""
        texts = {"What differs": self.what, "Likely reason": self.reason, "Try next": self.next}
        return [(label, text) for label, text in texts.items() if text]

    def __str__(self):
        return "\n".join(f"{label}: {text}" for label, text in self.parts())


class CheckFailed(AssertionError):  # noqa: N818 - part of the public contract
    """Raised by `check` in strict mode; `result` is the CheckResult."""

    def __init__(self, result):
        super().__init__(str(result))
        self.result = result


@dataclass(frozen=True, repr=False)
class CheckResult:
    """The outcome of one check.

    Attributes:
        name: of the exercise.
        attempted: False while the stub still raises NotImplementedError.
        passed: everything was right.
        score: share of the cases that were right, 0 to 1.
        diagnosis: in plain text, what the learner should know.
        findings: what is wrong, one by one; empty when nothing is.
        verified: what was right, one by one.
    """

    name: str
    attempted: bool
    passed: bool
    score: float
    diagnosis: str
    findings: tuple[Finding, ...] = field(default=())
    verified: tuple[str, ...] = field(default=())

    @property
    def headline(self):
        """One line: the name and how it stands."""
        if not self.attempted:
            return f"{self.name}: not attempted yet."
        if self.passed:
            return f"{self.name}: right."
        return f"{self.name}: not right yet ({self.score:.0%} of the checks pass)."

    def __repr__(self):
        between = "\n" if self.findings else " "
        return self.headline + between + self.diagnosis

    __str__ = __repr__

    def _repr_html_(self):
        name = escape(self.name)
        state = "open" if not self.attempted else "right" if self.passed else "wrong"
        rest = escape(self.headline.removeprefix(self.name))
        head = f"<strong><code>{name}</code>{rest}</strong>"
        if self.findings:
            body = "".join(f"<ul>{_items(finding)}</ul>" for finding in self.findings)
        else:
            body = f" {escape(self.diagnosis)}"
        return _box(state, f"Check of {name}", head + body)


def _items(finding):
    return "".join(
        f"<li><strong>{label}:</strong> {escape(text)}</li>" for label, text in finding.parts()
    )


def _box(state, label, inside):
    style = _BOX.format(colour=_COLOUR[state])
    tag = f'<div class="mhalib-check" role="note" aria-label="{label}" style="{style}">'
    return f"{tag}{inside}</div>"


@dataclass(frozen=True, repr=False)
class HintCard:
    """The contract of an exercise and the hints opened so far."""

    name: str
    about: str
    contract: str
    hints: tuple[str, ...]
    total: int

    @property
    def footer(self):
        """What comes next: more hints, or the solution."""
        if len(self.hints) < self.total:
            return f'For the next hint, run hint("{self.name}") again.'
        return f'There are no more hints. solution("{self.name}") shows one right way.'

    def __repr__(self):
        lines = [f"{self.name} ({self.about})", self.contract, ""]
        lines += [f"Hint {number} of {self.total}: {text}" for number, text in self._numbered()]
        return "\n".join([*lines, self.footer])

    __str__ = __repr__

    def _repr_html_(self):
        contract = escape(self.contract).replace("\n", "<br>")
        hints = "".join(
            f"<li>Hint {number} of {self.total}: {escape(text)}</li>"
            for number, text in self._numbered()
        )
        inside = (
            f"<strong><code>{escape(self.name)}</code></strong> ({escape(self.about)})"
            f"<br>{contract}<ul>{hints}</ul>{escape(self.footer)}"
        )
        return _box("open", f"Hints for {escape(self.name)}", inside)

    def _numbered(self):
        return enumerate(self.hints, start=1)


@dataclass(frozen=True, repr=False)
class SolutionCard:
    """The source of a reference. In a notebook it is Markdown, coloured by the notebook's theme."""

    name: str
    home: str
    source: str
    note: str = ""

    @property
    def heading(self):
        """One line that says where the source comes from."""
        return f"One right way to write {self.name}, from {self.home}. {self.note}".strip()

    def __repr__(self):
        return f"{self.heading}\n\n{self.source}"

    __str__ = __repr__

    def _repr_markdown_(self):
        return f"{self.heading}\n\n```python\n{self.source}\n```"
