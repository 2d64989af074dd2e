"""check(): run every case, and say what differs, why, and what to try next."""

import functools
import os
import time

from mhalib.exercises.catalogue import find, names
from mhalib.exercises.comparing import alike, difference
from mhalib.exercises.observing import observe, state_put_back
from mhalib.exercises.results import CheckFailed, CheckResult, Finding
from mhalib.exercises.running import TookTooLong, run_limited

SECONDS_PER_CASE = 5.0
SECONDS_IN_ALL = 20.0  # for all cases of one check together
MOST_SHOWN = 4  # numbers of a short vector that a message shows


def check(fn):
    """Check a solution against the reference, by behaviour only.

    Args:
        fn: your function (or class), named as the exercise.

    Returns:
        CheckResult with `attempted`, `passed`, `score` and `diagnosis`, which shows itself.

    Raises:
        CheckFailed: with the environment variable MHALIB_STRICT=1, when it is not all right.
        TypeError, ValueError: `fn` is not a function, or no exercise has its name.
    """
    exercise = find(_name_of(fn))
    result = _result(exercise, fn)
    if os.environ.get("MHALIB_STRICT") == "1" and not result.passed:
        raise CheckFailed(result)
    return result


def _name_of(fn):
    name = getattr(fn, "__name__", None)
    if not callable(fn) or not isinstance(name, str):
        raise TypeError(
            "check takes the function itself, by its name and without parentheses after it: "
            f"check({names()[0]}). A value of type {type(fn).__name__} was given"
        )
    if name == "<lambda>":
        raise ValueError(
            "a lambda has no name, and check finds the exercise by the function's name: "
            f"define it with def, named as one of {', '.join(names())}"
        )
    return name


def _result(exercise, fn):
    runs, too_long = _run_all(exercise, fn)
    if runs and runs[0].raised and runs[0].raised.not_written:
        text = f'Write it in place of "raise NotImplementedError"; hint("{exercise.name}") helps.'
        return CheckResult(exercise.name, False, False, 0.0, text)

    expected = [_known(exercise.reference, case) for case in exercise.cases]
    differences = [
        difference(wanted, run, exercise) for wanted, run in zip(expected, runs, strict=False)
    ]
    wrong = [number for number, found in enumerate(differences) if found]
    verified = [
        case.shows for case, found in zip(exercise.cases, differences, strict=False) if not found
    ]
    findings = _findings(exercise, runs, expected, differences, wrong)
    if too_long:
        findings = (*findings, _too_long_finding(exercise, len(runs), too_long))
    changed = _changed(exercise, runs)
    if changed and all(exercise.cases[number].gradients for number in wrong):
        findings = (changed,)  # a changed input spoils its gradient too
    elif changed and exercise.report_all:
        findings = (*findings, changed)
    # "inputs left unchanged" is the last check, and counts only where something was computed
    if not findings:
        verified.append("its inputs left unchanged")
    score = round(len(verified) / (len(exercise.cases) + 1), 3)
    if findings:
        text = "\n".join(map(str, findings))
        return CheckResult(exercise.name, True, False, score, text, findings, tuple(verified))
    text = f"Verified with {'; '.join(verified)}."
    return CheckResult(exercise.name, True, True, 1.0, text, (), tuple(verified))


def _run_all(exercise, fn):
    """Observations of the learner's code, up to the case that took too long."""
    runs, too_long = [], None
    end = time.monotonic() + SECONDS_IN_ALL
    for case in exercise.cases:
        seconds = max(0.1, min(SECONDS_PER_CASE, end - time.monotonic()))
        try:
            with state_put_back():
                runs.append(run_limited(lambda case=case: observe(fn, case), seconds))
        except TookTooLong as error:
            too_long = error
            break
        if runs[0].raised and runs[0].raised.not_written:
            break
    return runs, too_long


@functools.cache
def _known(function, case):
    """What our own code does, the reference or a slip: the same every time."""
    with state_put_back():
        return observe(function, case)


def _findings(exercise, runs, expected, differences, wrong):
    if not wrong:
        return ()
    reported = wrong if exercise.report_all else wrong[:1]
    found, said = [], set()
    for number in reported:
        case, differs = exercise.cases[number], differences[number]
        if differs in said:
            continue
        said.add(differs)
        what = f"With {case.shows}{_sizes(exercise, case)}, {differs.what}."
        source = differs if differs.form == "raised" or not case.reason else case
        source = (not exercise.report_all and _slip(exercise, runs, expected, number)) or source
        found.append(Finding(what, _sentence(source.reason), _sentence(source.next)))
    return tuple(found)


def _slip(exercise, runs, expected, first):
    """The slip that does what the learner's code did, in all cases or up to the first wrong."""
    partly = None
    for slip in exercise.slips:
        slipped = [_known(slip.wrong, case) for case in exercise.cases[: len(runs)]]
        if not difference(expected[first], slipped[first], exercise):
            continue
        agrees = [alike(run, other) for run, other in zip(runs, slipped, strict=True)]
        if all(agrees):
            return slip
        score = sum(agrees)
        telling = not runs[first].raised and all(agrees[: first + 1])
        if telling and (partly is None or score > partly[0]):
            partly = (score, slip)
    return partly and partly[1]


def _changed(exercise, runs):
    """A finding about inputs that the learner's code changed, or None."""
    for case, run in zip(exercise.cases, runs, strict=False):
        if run.changed:
            name = exercise.arguments[run.changed[0]]
            return Finding(
                f"With {case.shows}{_sizes(exercise, case)}, the input {name} was changed.",
                "An operation in place, such as x -= … or x[…] = … or a method that ends in _, "
                "writes into the caller's own array.",
                f"Make a new array instead: {name} = {name} - …, or start from a copy.",
            )
    return None


def _too_long_finding(exercise, number, error):
    case = exercise.cases[number]
    left = (
        "Its run was stopped."
        if error.stopped
        else "It could not be stopped and goes on in the background; restarting the kernel ends it."
    )
    return Finding(
        f"With {case.shows}{_sizes(exercise, case)}, there was no result after "
        f"{error.seconds:.2g} seconds. {left}",
        "Most often a while loop whose condition stays true.",
        "Look at each loop: which line brings its end nearer?",
    )


def _sizes(exercise, case):
    """The inputs in brackets, such as: (a = [3, 4], x (2, 5), k = 2)."""
    described = []
    for name, argument in zip(exercise.arguments, case.make(), strict=False):
        shape = getattr(argument, "shape", None)
        if shape is None and isinstance(argument, (int, float)):
            described.append(f"{name} = {argument}")
        elif shape is not None and len(shape) == 1 and shape[0] <= MOST_SHOWN:
            numbers = ", ".join(f"{number:.5g}" for number in argument.tolist())
            described.append(f"{name} = [{numbers}]")
        elif shape is not None and len(shape) == 1:
            described.append(f"{name} of {shape[0]} numbers")
        elif shape is not None:
            described.append(f"{name} {tuple(shape)}")
    return f" ({', '.join(described)})" if described else ""


def _sentence(text):
    if not text:
        return ""
    begins_with_code = any(sign in text.split()[0].rstrip(".,:") for sign in "_.([")
    first = text[0] if begins_with_code else text[0].upper()
    return first + text[1:] + ("" if text[-1] in ".?" else ".")
