"""What an exercise is, and where it is found by name."""

import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module


def call_in_order(function, *arguments):
    """Call by position; what the function takes only by keyword is given by keyword, in order."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS or not code.co_kwonlyargcount:
        return function(*arguments)
    first = code.co_argcount
    keywords = code.co_varnames[first : first + code.co_kwonlyargcount]
    return function(*arguments[:first], **dict(zip(keywords, arguments[first:], strict=False)))


@dataclass(frozen=True)
class Case:
    """One thing the learner's function is tried on.

    Attributes:
        shows: what is special about the inputs, to follow "with": "two rows of three numbers".
        make: gives fresh arguments, the same at every call.
        call: called with the learner's object and the arguments. For a class, an adapter that
            builds the object and uses it, and may raise a `Fault` with its own words.
        gradients: compare the gradients of all floating-point inputs instead of the result.
        reason, next: said when this case fails and no slip explains it.
    """

    shows: str
    make: Callable[[], tuple]
    call: Callable = call_in_order
    gradients: bool = False
    reason: str = ""
    next: str = ""


class Fault(Exception):  # noqa: N818 - it is a result, not an error of ours
    """Raised by a case's `call` that finds out by itself what is wrong, and says so."""

    def __init__(self, what, reason, next):
        super().__init__(what)
        self.told = (what, reason, next)


@dataclass(frozen=True)
class Slip:
    """A mistake people make: code that makes it, why it happens, and what to try next."""

    wrong: Callable
    reason: str
    next: str


@dataclass(frozen=True)
class Exercise:
    """One exercise, declared in the catalogue module of its lesson.

    Attributes:
        name: of the learner's function, and of the exercise.
        lesson: "01" … "09".
        minutes: how long it takes.
        difficulty: 1 to 3.
        framework: "numpy" or "torch".
        contract: signature, shapes and result, as shown by `hint`.
        arguments: names of the arguments, for messages.
        reference: the function of `mhalib` that is the solution.
        cases: in an order that isolates the cause: the first failing one is reported.
        slips: the known mistakes.
        hints: opened one at a time.
        returns: names of the returned values when there are several.
        sums_to_one: name in `returns` of the value whose rows sum to 1, if there is one.
        solution_note: one sentence shown with the solution.
        report_all: report every failing case with its own reason and next step, not the first
            only ("find the faults"). What several cases say alike is said once.
    """

    name: str
    lesson: str
    minutes: int
    difficulty: int
    framework: str
    contract: str
    arguments: tuple[str, ...]
    reference: Callable
    cases: tuple[Case, ...]
    slips: tuple[Slip, ...]
    hints: tuple[str, ...]
    returns: tuple[str, ...] = ("the result",)
    sums_to_one: str = ""
    solution_note: str = ""
    report_all: bool = False


def _lessons():
    """The catalogue modules in order, each imported only when the search reaches it."""
    package = import_module("mhalib.exercises")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        if module.name.startswith("lesson_"):
            yield import_module(f"mhalib.exercises.{module.name}")


def names():
    """The names of all exercises, in the order of the course."""
    return [exercise.name for lesson in _lessons() for exercise in lesson.EXERCISES]


def find(name):
    """The exercise of this name; an error lists all of them."""
    if not isinstance(name, str):
        raise TypeError(f'give the name of an exercise as text, such as "{names()[0]}"')
    for lesson in _lessons():
        for exercise in lesson.EXERCISES:
            if exercise.name == name:
                return exercise
    raise ValueError(f"there is no exercise named {name!r}; the exercises are {', '.join(names())}")
