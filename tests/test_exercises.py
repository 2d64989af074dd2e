"""The exercises: what check says of known solutions, and what it survives."""

import importlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from mhalib import exercises
from mhalib.exercises import CheckFailed, CheckResult, catalogue, check, checking, hints, running
from mhalib.exercises.catalogue import Case, Exercise, Slip
from mhalib.exercises.observing import observe
from tests import known_solutions

KNOWN = {
    path.stem: importlib.import_module(f"tests.known_solutions.{path.stem}")
    for path in sorted(Path(known_solutions.__file__).parent.glob("[!_]*.py"))
}
NAMES = [name for name in exercises.names() if name in KNOWN]
STEPS = {name: module.WRONG for name, module in KNOWN.items()}
FAULTS = [
    (name, fault, words)
    for name in NAMES
    for faults in STEPS[name].values()
    for fault, words in faults.items()
]
PAIRS = [
    (name, one, other)
    for name in NAMES
    for first, second in itertools.combinations(STEPS[name].values(), 2)
    for one, other in itertools.product(first, second)
]


def named(name, function):
    """The function under the name by which check finds the exercise."""
    function.__name__ = name
    return function


def returning(value, name="softmax"):
    return named(name, lambda *arguments: value)


def nothing_is_left_running(seconds=5):
    """A thread that is being stopped needs a moment to end."""
    end = time.monotonic() + seconds
    while [thread for thread in threading.enumerate() if thread.name == "mhalib-check"]:
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(autouse=True)
def _not_strict(monkeypatch):
    monkeypatch.delenv("MHALIB_STRICT", raising=False)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(checking, "SECONDS_PER_CASE", 0.2)
    monkeypatch.setattr(running, "GRACE", 0.4)


# the catalogue


@pytest.mark.parametrize("name", NAMES)
def test_exercises_are_declared_completely(name):
    exercise = catalogue.find(name)
    assert exercise.name in exercise.contract
    assert exercise.framework in ("numpy", "torch")
    assert exercise.minutes > 0
    assert exercise.difficulty in (1, 2, 3)
    assert len(exercise.hints) >= 3
    assert len(exercise.cases) >= 4
    assert exercise.sums_to_one in ("", *exercise.returns)
    assert len({case.shows for case in exercise.cases}) == len(exercise.cases)


def test_the_exercises_of_the_first_lessons_are_there():
    lessons = {name: catalogue.find(name).lesson for name in NAMES}
    assert {name for name, lesson in lessons.items() if lesson == "01"} == {
        "dot_product",
        "cosine_similarity",
        "nearest_neighbours",
    }
    assert {name for name, lesson in lessons.items() if lesson == "02"} == {
        "softmax",
        "attention_weights",
        "scaled_dot_product_attention",
        "causal_mask",
    }


@pytest.mark.parametrize("name", NAMES)
def test_cases_are_the_same_at_every_call(name):
    for case in catalogue.find(name).cases:
        for one, other in zip(case.make(), case.make(), strict=True):
            assert type(one) is type(other)
            if isinstance(one, torch.Tensor):  # NumPy has no bfloat16
                assert one.dtype == other.dtype
                assert torch.equal(one, other)
            else:
                assert np.all(np.asarray(one) == np.asarray(other))


@pytest.mark.parametrize("name", NAMES)
def test_every_slip_is_wrong_and_gets_its_own_words(name):
    for slip in catalogue.find(name).slips:
        result = check(named(name, lambda *arguments, slip=slip: slip.wrong(*arguments)))
        assert not result.passed
        assert slip.reason[1:] in result.diagnosis


# known solutions


def test_solutions_of_every_exercise_are_known():
    assert set(exercises.names()) == set(KNOWN)


@pytest.mark.parametrize("name", NAMES)
def test_enough_solutions_are_known(name):
    assert sum(map(len, STEPS[name].values())) >= 5
    assert len(KNOWN[name].RIGHT) >= 3


@pytest.mark.parametrize(("name", "fault", "words"), FAULTS)
def test_known_wrong_solution_gets_its_diagnosis(name, fault, words):
    result = check(KNOWN[name].build(fault))
    assert result.attempted
    assert not result.passed
    assert result.score < 1
    assert words.lower() in result.diagnosis.lower()
    for label in ("What differs: With", "Likely reason: ", "Try next: "):
        assert label in result.diagnosis


@pytest.mark.parametrize("name", NAMES)
def test_no_two_faults_get_the_same_diagnosis(name):
    said = {}
    for faults in STEPS[name].values():
        for fault in faults:
            finding = check(KNOWN[name].build(fault)).findings[0]
            said.setdefault((finding.reason, finding.next), []).append(fault)
    shared = [set(faults) for faults in said.values() if len(faults) > 1]
    assert all(any(faults <= set(same) for same in KNOWN[name].SAME) for faults in shared), shared


@pytest.mark.parametrize("name", NAMES)
def test_a_known_solution_without_faults_is_right(name):
    result = check(KNOWN[name].build())
    assert result.passed, result
    assert result.score == 1


@pytest.mark.parametrize(
    ("name", "function"), [(name, right) for name in NAMES for right in KNOWN[name].RIGHT]
)
def test_other_right_solutions_are_accepted(name, function):
    original = function.__name__
    try:
        result = check(named(name, function))
    finally:
        function.__name__ = original
    assert result.passed, result


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_faults_is_rejected(name, monkeypatch):
    monkeypatch.setattr(checking, "_slip", lambda *arguments: None)  # the reason does not matter
    accepted = [
        (one, other)
        for pair_of, one, other in PAIRS
        if pair_of == name and check(KNOWN[name].build(one, other)).passed
    ]
    assert not accepted


# the reference as the solution


@pytest.mark.parametrize("name", NAMES)
def test_solution_shows_the_reference_without_checks_and_docstring(name):
    card = exercises.solution(name)
    reference = catalogue.find(name).reference
    assert "checks." not in card.source
    kind = "class" if isinstance(reference, type) else "def"
    assert f"{kind} {reference.__name__}(" in card.source
    assert reference.__doc__.splitlines()[0] not in card.source
    compile(card.source, name, "exec")
    assert card.source in str(card)
    assert "```python\n" + card.source in card._repr_markdown_()


@pytest.mark.parametrize("name", NAMES)
def test_solved_source_runs_by_itself_and_scores_full_marks(name):
    source = exercises.solved_source(name)
    assert "checks." not in source
    namespace = {}
    exec(compile(source, "solved", "exec"), namespace)
    result = check(namespace[name])
    assert result.passed, result


def test_solution_keeps_what_is_no_check():
    def sample():
        """Docstring."""
        checks.first(  # noqa: F821
            "over two lines",
        )
        if True:
            checks.second()  # noqa: F821
        else:
            checks.third()  # noqa: F821
        # a comment stays
        for number in range(3):
            checks.number(number)  # noqa: F821
        while False:
            checks.fourth()  # noqa: F821

        return "checks.alive"

    source = exercises.sources._clean(sample)
    assert source == (
        "def sample():\n    # a comment stays\n    while False:\n        pass\n\n"
        '    return "checks.alive"'
    )


# the stub, and hints


def stub(x):
    raise NotImplementedError


def test_an_unsolved_stub_is_one_calm_line():
    result = check(named("softmax", stub))
    assert (result.attempted, result.passed, result.score) == (False, False, 0)
    assert "\n" not in str(result)
    assert str(result).startswith("softmax: not attempted yet.")
    assert 'hint("softmax")' in str(result)


def test_a_part_that_is_not_written_yet_counts_as_attempted():
    def softmax(x):
        if x.ndim > 1:
            raise NotImplementedError
        return np.exp(x - x.max()) / np.exp(x - x.max()).sum()

    result = check(softmax)
    assert result.attempted
    assert "write this part too" in result.diagnosis.lower()
    assert 0 < result.score < 1


def test_hints_open_one_at_a_time(monkeypatch):
    monkeypatch.setattr(hints, "_opened", {})
    exercise = catalogue.find("softmax")
    total = len(exercise.hints)
    for number in range(1, total + 1):
        card = exercises.hint("softmax")
        assert len(card.hints) == number
        assert ("no more hints" in str(card)) == (number == total)
        about = f"{exercise.minutes} minutes, difficulty {exercise.difficulty} of 3"
        for words in (about, "softmax(x)", f"Hint {number} of {total}"):
            assert words in str(card)
            assert words in card._repr_html_()
    assert 'solution("softmax")' in str(card)
    assert str(exercises.hint("softmax")) == str(card)


# what check is given


@pytest.mark.parametrize("use", [exercises.hint, exercises.solution, exercises.solved_source])
def test_unknown_names_list_the_exercises(use):
    with pytest.raises(ValueError, match=r"no exercise named 'sofmax'.*softmax.*causal_mask"):
        use("sofmax")
    with pytest.raises(TypeError, match="as text"):
        use(3)


def test_an_unknown_function_lists_the_exercises():
    with pytest.raises(ValueError, match=r"no exercise named 'stub'.*softmax"):
        check(named("stub", stub))


@pytest.mark.parametrize("given", [3, "softmax", None, np.ones(3)])
def test_check_asks_for_the_function_itself(given):
    with pytest.raises(TypeError, match="the function itself"):
        check(given)


def test_a_lambda_is_refused_with_a_reason():
    with pytest.raises(ValueError, match=r"a lambda has no name.*softmax"):
        check(lambda x: x)


# what a learner's function may do


class Hostile:
    def __eq__(self, other):
        raise RuntimeError("no comparing")

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("no text")

    def __len__(self):
        raise RuntimeError("no length")

    def __array__(self, *arguments, **options):
        raise RuntimeError("no array")

    @property
    def __class__(self):
        raise RuntimeError("no class")


class HostileList(list):
    def __iter__(self):
        raise RuntimeError("no items")

    def __len__(self):
        return -1


class HostileTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *arguments, **options):
        raise RuntimeError("no torch")


class HostileError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def nested(depth=3_000):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def circular():
    value = []
    value.append(value)
    return value


GARBAGE = {
    "None": lambda: None,
    "text": lambda: "<b>softmax</b>",
    "dict": dict,
    "empty list": list,
    "empty tuple": tuple,
    "empty array": lambda: np.array([]),
    "zero": lambda: 0,
    "bool": lambda: True,
    "complex": lambda: 1j,
    "huge int": lambda: 10**400,
    "NaN": lambda: float("nan"),
    "class": lambda: Hostile,
    "hostile object": Hostile,
    "hostile list": lambda: HostileList([1]),
    "hostile tensor": lambda: torch.ones(3).as_subclass(HostileTensor),
    "nested": nested,
    "circular": circular,
    "generator": lambda: (number for number in range(3)),
    "endless generator": itertools.count,
    "objects": lambda: np.array([Hostile(), None], dtype=object),
    "text array": lambda: np.array(["a", "b"]),
    "complex array": lambda: np.ones(3, dtype=complex),
    "dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "record": lambda: np.zeros(3, dtype=[("a", float)]),
    "masked": lambda: np.ma.masked_all(3),
    "huge view": lambda: np.broadcast_to(1.0, (10**6, 10**6)),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.ones(3, device="meta"),
    "complex tensor": lambda: torch.ones(3, dtype=torch.complex64),
    "huge tensor": lambda: torch.ones(1).expand(10**6, 10**6),
    "half": lambda: torch.ones(3).half(),
    "bfloat": lambda: torch.ones(3).bfloat16(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "three": lambda: (1, 2, 3),
    "pair of None": lambda: (None, None),
    "pair of lists": lambda: ([1.0], [[2.0]]),
    "pair of NaN": lambda: (torch.full((1, 1, 1, 3), torch.nan), torch.full((1, 1, 1, 1), 1.0)),
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", NAMES)
def test_check_survives_any_result(name, garbage):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's quantized tensors are deprecated
        result = check(named(name, lambda *arguments: GARBAGE[garbage]()))
    assert result.attempted
    assert not result.passed
    assert "What differs: " in str(result)
    assert result._repr_html_()


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        (None, "softmax", "returned None"),
        (0.5, "softmax", "came back as a single float, but a NumPy array was expected"),
        ([0.5], "softmax", "a list, but a NumPy array"),
        ((np.ones(1),), "softmax", "returned 1 value"),
        (torch.ones(1), "softmax", "a torch.Tensor of shape (1,), but a NumPy array"),
        (np.ones((1, 1)), "softmax", "the shape of the result is (1, 1), but (1,) was expected"),
        (np.array([np.nan]), "softmax", "there is NaN"),
        (np.array([True]), "softmax", "there are booleans"),
        (np.ones((1, 1, 1, 3)), "scaled_dot_product_attention", "one value, but 2 were expected"),
        (
            (np.ones((1, 1, 1, 3)), np.ones((1, 1, 1, 1))),
            "scaled_dot_product_attention",
            "a NumPy array of shape (1, 1, 1, 1), but a torch.Tensor",
        ),
        (
            (torch.ones(1, 1, 1, 3), torch.ones(1, 1, 1, 1).double()),
            "scaled_dot_product_attention",
            "dtype of weights is float64, but float32",
        ),
    ],
)
def test_a_wrong_form_is_named(value, name, words):
    assert words in check(returning(value, name)).diagnosis


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad <value>"),
        SystemExit(3),
        KeyboardInterrupt(),
        MemoryError(),
        StopIteration(),
        GeneratorExit(),
        BaseException("base"),
        HostileError(),
    ],
)
def test_check_survives_any_exception(error):
    def softmax(x):
        raise error

    result = check(softmax)
    assert type(error).__name__ in result.diagnosis
    assert "line 2 of your function: raise error" in result.diagnosis
    assert "Traceback" not in str(result)


def test_an_error_inside_a_library_is_placed_on_the_learners_line():
    def helper(x):
        y = x + 1
        return np.concatenate(y, 3)

    def softmax(x):
        return helper(x)

    assert "line 3 of `helper`: return np.concatenate(y, 3)" in check(softmax).diagnosis


def test_a_name_that_does_not_exist_is_explained():
    def softmax(x):
        return nonsense(x)  # noqa: F821

    assert "never given a value" in check(softmax).diagnosis


def test_endless_recursion_is_explained():
    def softmax(x):
        return softmax(x)

    assert "calls itself without an end" in check(softmax).diagnosis


def test_wrong_number_of_parameters():
    def softmax():
        return 1

    assert "TypeError" in check(softmax).diagnosis


def test_leaving_torch_for_numpy_is_found_by_the_gradient():
    def scaled_dot_product_attention(query, key, value, attn_mask=None):
        build = KNOWN["scaled_dot_product_attention"].build()
        return build(*(torch.from_numpy(x.numpy()) for x in (query, key, value)), attn_mask)

    result = check(scaled_dot_product_attention)
    assert "leaves PyTorch for NumPy" in result.diagnosis
    assert result.score > 0.8


def test_one_gradient_cut_off_is_found():
    def scaled_dot_product_attention(query, key, value, attn_mask=None):
        return KNOWN["scaled_dot_product_attention"].build()(query, key.detach(), value, attn_mask)

    result = check(scaled_dot_product_attention)
    assert "no gradient reaches some of the inputs" in result.diagnosis


def test_half_a_gradient_is_found():
    def scaled_dot_product_attention(query, key, value, attn_mask=None):
        right = KNOWN["scaled_dot_product_attention"].build()
        return right((query + query.detach()) / 2, key, value, attn_mask)

    assert "gradient with respect to query differs" in check(scaled_dot_product_attention).diagnosis


# changes to the inputs and to the world


def test_changing_the_inputs_is_found():
    def cosine_similarity(a, b):
        if a.dtype == float:
            a /= np.linalg.norm(a)
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    result = check(cosine_similarity)
    assert result.attempted
    assert not result.passed
    assert "the input a was changed" in result.diagnosis
    assert result.score == pytest.approx(9 / 10)


def test_changing_a_tensor_in_place_is_found():
    def scaled_dot_product_attention(query, key, value, attn_mask=None):
        right = KNOWN["scaled_dot_product_attention"].build()
        result = right(query, key, value, attn_mask)
        value.mul_(2)
        return result

    result = check(scaled_dot_product_attention)
    assert "the input value was changed" in result.diagnosis


def test_every_case_gets_fresh_inputs():
    kept = []

    def softmax(x):
        kept.append(x)
        for old in kept[:-1]:
            old.fill(0)
        return np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(
            -1, keepdims=True
        )

    assert check(softmax).passed


def test_the_state_of_the_libraries_is_put_back():
    def causal_mask(n):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.manual_seed(5)
        np.random.seed(5)
        random.seed(5)
        np.seterr(all="raise")
        torch.rand(3)
        return torch.ones(n, n).tril().bool()

    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    errors = np.geterr()
    assert check(causal_mask).passed
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert np.geterr() == errors
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_check_works_where_gradients_are_off(mode):
    with mode():
        assert check(KNOWN["scaled_dot_product_attention"].build()).passed


def test_check_works_where_torchs_default_dtype_is_another():
    torch.set_default_dtype(torch.float64)
    try:
        assert check(KNOWN["scaled_dot_product_attention"].build()).passed
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_prints_reach_the_learner(capsys):
    def softmax(x):
        print("looking at", x.shape)

    check(softmax)
    assert "looking at (1,)" in capsys.readouterr().out


def test_check_works_in_another_thread():
    results = []
    softmax = KNOWN["softmax"].build()
    thread = threading.Thread(target=lambda: results.append(check(softmax)))
    thread.start()
    thread.join(20)
    assert results[0].passed


def test_a_function_may_check_another():
    def softmax(x):
        check(KNOWN["dot_product"].build())
        return KNOWN["softmax"].build()(x)

    assert check(softmax).passed


# the time limit


@pytest.mark.usefixtures("impatient")
def test_an_endless_loop_is_stopped():
    def softmax(x):
        while True:
            x = x + 1

    start = time.monotonic()
    result = check(softmax)
    assert time.monotonic() - start < 3
    assert not result.passed
    assert "no result after 0.2 seconds. Its run was stopped." in result.diagnosis
    assert "With one score (x = [2])" in result.diagnosis
    assert nothing_is_left_running()


@pytest.mark.usefixtures("impatient")
def test_a_later_endless_loop_keeps_what_was_right():
    def softmax(x):
        while x.ndim > 1:
            pass
        return KNOWN["softmax"].build()(x)

    result = check(softmax)
    assert 0 < result.score < 1
    assert "With two rows of three scores" in result.diagnosis
    assert "no result" in result.diagnosis


@pytest.mark.usefixtures("impatient")
def test_a_loop_that_swallows_everything_does_not_hang_the_check():
    over = threading.Event()

    def softmax(x):
        while not over.is_set():
            try:  # noqa: SIM105
                time.sleep(0.02)
            except:  # noqa: E722
                pass

    start = time.monotonic()
    result = check(softmax)
    over.set()
    assert time.monotonic() - start < 3
    assert "no result after" in result.diagnosis


@pytest.mark.usefixtures("impatient")
def test_a_long_call_that_cannot_be_stopped_is_told(monkeypatch):
    monkeypatch.setattr(running, "GRACE", 0.1)

    def softmax(x):
        time.sleep(1)

    result = check(softmax)
    assert "goes on in the background; restarting the kernel ends it" in result.diagnosis


def test_the_time_of_all_cases_together_is_limited(monkeypatch):
    monkeypatch.setattr(checking, "SECONDS_IN_ALL", 0.3)

    def causal_mask(n):
        time.sleep(0.15)
        return torch.ones(n, n).tril().bool()

    result = check(causal_mask)
    assert not result.passed
    assert "no result after" in result.diagnosis


@pytest.mark.skipif(os.name == "nt", reason="needs a signal that a test can send to itself")
def test_an_interrupt_while_waiting_stops_the_check():
    def softmax(x):
        while True:
            pass

    interrupt = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    interrupt.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        check(softmax)
    assert time.monotonic() - start < 3
    assert nothing_is_left_running()


# strict mode


def test_strict_mode_raises(monkeypatch):
    monkeypatch.setenv("MHALIB_STRICT", "1")
    with pytest.raises(CheckFailed, match="not attempted yet") as caught:
        check(named("softmax", stub))
    assert isinstance(caught.value, AssertionError)
    assert not caught.value.result.attempted
    with pytest.raises(CheckFailed, match="returned None"):
        check(returning(None))
    assert check(KNOWN["softmax"].build()).passed


# what the learner sees


def test_results_escape_what_they_show():
    def softmax(x):
        raise ValueError("<script>alert(1)</script>")

    page = check(softmax)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_results_show_the_same_words_in_both_forms():
    for function in (KNOWN["softmax"].build(), KNOWN["softmax"].build("mean"), stub):
        result = check(named("softmax", function))
        page = result._repr_html_()
        assert isinstance(result, CheckResult)
        assert repr(result) == str(result)
        assert 'role="note"' in page
        assert "background" not in page
        assert "color: inherit" in page
        for finding in result.findings:
            assert finding.what.replace("'", "&#x27;") in page


def test_a_right_result_says_what_was_verified():
    result = check(KNOWN["softmax"].build())
    assert result.diagnosis.startswith("Verified with one score; one row of three scores")
    assert result.diagnosis.endswith("its inputs left unchanged.")
    assert str(result).startswith("softmax: right.")


# the engine on other kinds of exercise


class Counter:
    """A class for the repair exercise below."""

    def __init__(self, start):
        self.value = start

    def add(self, number):
        self.value += number
        return float(self.value)

    def reset(self):
        self.value = 0
        return float(self.value)


class BrokenCounter(Counter):
    def add(self, number):
        self.value -= number
        return float(self.value)

    def reset(self):
        return float(self.value)


@pytest.fixture
def repair():
    def case(behaviour, call):
        return Case(
            f"a counter that {behaviour}",
            lambda: (2, 3),
            call=call,
            reason=f"a counter {behaviour}",
            next="look at that method",
        )

    return Exercise(
        name="Counter",
        lesson="04",
        minutes=5,
        difficulty=1,
        framework="numpy",
        contract="Counter(start)",
        arguments=("start", "number"),
        reference=Counter,
        cases=(
            case("starts", lambda cls, start, number: float(cls(start).value)),
            case("adds", lambda cls, start, number: cls(start).add(number)),
            case("resets", lambda cls, start, number: cls(start).reset()),
        ),
        slips=(),
        hints=("one", "two", "three"),
        report_all=True,
    )


def test_a_class_can_be_repaired_and_all_remaining_faults_are_named(repair, monkeypatch):
    monkeypatch.setattr(checking, "find", lambda name: repair)
    result = check(BrokenCounter)
    assert [finding.reason for finding in result.findings] == [
        "A counter adds.",
        "A counter resets.",
    ]
    assert "With a counter that adds (start = 2, number = 3), the result is -1" in str(result)
    assert result.score == pytest.approx(1 / 4)
    assert check(Counter).passed


def test_a_slip_that_agrees_only_so_far_is_used_when_none_agrees_everywhere(monkeypatch):
    exercise = catalogue.find("softmax")
    slip = Slip(lambda x: x * 0 + 7, "everything is seven", "do not return seven")
    monkeypatch.setattr(
        checking, "find", lambda name: Exercise(**{**vars(exercise), "slips": (slip,)})
    )
    assert (
        "Everything is seven."
        in check(named("softmax", lambda x: x * 0 + (7 if x.ndim == 1 else 8))).diagnosis
    )
    assert "seven" not in check(named("softmax", lambda x: x * 0 + 8)).diagnosis


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda right: right * 2, "every number is 2 times"),
        (lambda right: -right, "never negative"),
        (lambda right: right.T if right.ndim == 2 else right, "swapped"),
        (lambda right: right + np.eye(right.shape[-1])[0] * 0.5, "sums to"),
        (lambda right: right[..., ::-1], "reverse order"),
    ],
)
def test_patterns_without_a_slip_are_described(change, words, monkeypatch):
    exercise = catalogue.find("softmax")
    options = {**vars(exercise), "slips": (), "cases": exercise.cases[2:]}
    options["sums_to_one"] = "the result" if words in ("never negative", "sums to") else ""
    if words == "swapped":
        options["cases"] = exercise.cases[4:5]
    monkeypatch.setattr(checking, "find", lambda name: Exercise(**options))
    right = KNOWN["softmax"].build()
    result = check(named("softmax", lambda x: change(right(x))))
    assert words in result.diagnosis.lower()


def test_observing_the_reference_never_fails():
    for name in NAMES:
        exercise = catalogue.find(name)
        for case in exercise.cases:
            seen = observe(exercise.reference, case)
            assert seen.raised is None
            assert not seen.changed
            assert bool(seen.gradients) == case.gradients


def test_numpy_exercises_do_not_load_torch():
    code = (
        "import sys, numpy as np\n"
        "from mhalib import check, hint\n"
        "def dot_product(a, b): return a @ b\n"
        "assert check(dot_product).passed\n"
        "hint('softmax')\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "MHALIB_STRICT"}
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=root)
