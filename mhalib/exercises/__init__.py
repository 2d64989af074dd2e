"""The exercises: `check(fn)`, `hint(name)`, `solution(name)`.

To add an exercise, write one `Exercise` into the catalogue module of its lesson
(`lesson_01.py` …); nothing else names it. How the parts fit together:

    catalogue   what an exercise is, and where it is found by name
    lesson_NN   the exercises of lesson NN
    running     run the learner's function in a thread, with a time limit
    observing   what one run did, as plain data: result, exception, gradients, changes, new tensors
    comparing   the first difference between two observations, in words
    checking    check(): run every case, find the slip that explains the failures
    probing     examine an attention class whose faults hide each other (lesson 04's repair)
    sources     solution(), solved_source(): the reference's own source, without its checks
    results     what the learner sees, as HTML and as text
"""

from mhalib.exercises.catalogue import names
from mhalib.exercises.checking import check
from mhalib.exercises.hints import hint
from mhalib.exercises.results import CheckFailed, CheckResult
from mhalib.exercises.sources import solution, solved_source

__all__ = ["CheckFailed", "CheckResult", "check", "hint", "names", "solution", "solved_source"]
