"""The exercise of lesson 05 on evidence: the baseline that a head must beat."""

import numpy as np
import torch

from mhalib import heads
from mhalib.exercises.catalogue import Case, Exercise, Slip, call_in_order


def _pairs(*rows):
    return torch.tensor(rows)


def _guessable(count, seed):
    """Pairs as a treebank has them: most heads a few words on, some before, some far away."""
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < count:
        length = int(rng.integers(4, 30))
        dependent = int(rng.integers(length))
        head = dependent + int(rng.choice([-7, -3, -2, -1, 1, 2, 2, 3, 4, 12]))
        if 0 <= head < length:
            rows.append((dependent, head, length))
    return torch.tensor(rows)


def _offset(function, dev, test):
    """The offset alone, so that the choice is looked at before the score."""
    returned = call_in_order(function, dev, test)
    two = issubclass(type(returned), (tuple, list)) and len(returned) == 2
    return returned[0] if two else returned


def _how_far(function, dev, test):
    """The offset without its sign, where either direction is as good."""
    offset = _offset(function, dev, test)
    return abs(offset) if issubclass(type(offset), (int, np.integer)) else offset


def _moved_inside(guess, length):
    return guess.clamp(min=0).minimum(length - 1)


def _share(move=_moved_inside, sign=1):
    """share(pairs, offset): how often the guess is right, with one of its steps done so."""

    def share(pairs, offset):
        dependent, head, length = pairs.T
        return float((move(dependent + sign * offset, length) == head).float().mean())

    return share


def _from_the_head(pairs, offset):
    dependent, head, length = pairs.T
    return float((_moved_inside(head + offset, length) == dependent).float().mean())


def _either_way(pairs, offset):
    dependent, head, _ = pairs.T
    return float(((head - dependent).abs() == offset).float().mean())


def _nearest_first(first, last):
    return [offset for k in range(first, last + 1) for offset in ((k, -k) if k else (0,))]


_OFFSETS = _nearest_first(1, 10)
_right_share = _share()


def _baseline(*, offsets=_OFFSETS, share=_right_share, last=lambda offset, share: (offset, share)):
    """A slip: the baseline in which one of the steps is done another way."""

    def wrong(dev, test):
        offset = max(offsets, key=lambda offset: share(dev, offset))
        return last(offset, share(test, offset))

    return wrong


def _mean_distance(dev, test):
    offset = round(float((dev[:, 1] - dev[:, 0]).float().mean()))
    return offset, _right_share(test, offset)


def _each_on_its_own(dev, test):
    offset = _baseline()(dev, test)[0]
    return offset, max(_right_share(test, offset) for offset in _OFFSETS)


_best_offset_baseline = Exercise(
    name="best_offset_baseline",
    lesson="05",
    minutes=10,
    difficulty=2,
    framework="torch",
    contract=(
        "best_offset_baseline(dev, test): two (count, 3) integer tensors, a row for each pair: the "
        "place of the dependent, the place of its head, the number of words in the sentence\n"
        "-> (offset, accuracy): the whole number from -10 to 10, not 0, for which the guess "
        "dependent + offset is right most often on dev, an int; and the share of test on which "
        "that offset is right, a float\n"
        "A guess outside the sentence is moved to its first word, 0, or to its last, length - 1. "
        "Of equally good offsets the one nearest to 0 wins (whether k or -k is not tested)"
    ),
    arguments=("dev", "test"),
    reference=heads.best_offset_baseline,
    returns=("offset", "accuracy"),
    cases=(
        Case(
            "dev = [[3, 4, 9]], the offset alone",
            lambda: (_pairs((3, 4, 9)), _pairs((3, 4, 9))),
            call=_offset,
        ),
        Case(
            "dev = [[4, 2, 9], [5, 3, 9], [4, 5, 9]], the offset alone",
            lambda: (_pairs((4, 2, 9), (5, 3, 9), (4, 5, 9)), _pairs((4, 2, 9))),
            call=_offset,
        ),
        Case(
            "two pairs of test, one guessed right",
            lambda: (_pairs((3, 4, 9), (4, 5, 9)), _pairs((2, 3, 9), (4, 2, 9))),
        ),
        Case(
            "heads two words on in dev, and mostly before in test",
            lambda: (
                _pairs((1, 3, 9), (3, 5, 9), (4, 7, 9)),
                _pairs((4, 3, 9), (5, 4, 9), (6, 5, 9), (2, 4, 9)),
            ),
        ),
        Case(
            "heads three words before in dev, and mostly on in test",
            lambda: (
                _pairs((5, 2, 9), (6, 3, 9), (4, 1, 9), (1, 2, 9)),
                _pairs((2, 3, 9), (1, 2, 9), (3, 4, 9), (7, 4, 9), (0, 5, 9)),
            ),
        ),
        Case(
            "guesses before the first word of test",
            lambda: (
                _pairs((5, 2, 9), (6, 3, 9), (7, 8, 9)),
                _pairs((1, 0, 9), (2, 0, 9), (4, 5, 9), (6, 4, 9)),
            ),
        ),
        Case(
            "guesses after the last word of test",
            lambda: (
                _pairs((2, 5, 9), (3, 6, 9), (2, 1, 9)),
                _pairs((7, 8, 9), (4, 5, 6), (3, 6, 8), (4, 3, 9)),
            ),
        ),
        Case(
            "dev whose best offset leaves the sentence twice",
            lambda: (
                _pairs((1, 0, 5), (1, 0, 6), (5, 2, 8), (4, 6, 7), (2, 4, 6)),
                _pairs((6, 3, 7), (3, 5, 8), (2, 4, 7)),
            ),
        ),
        Case(
            "dev whose best offset leaves the sentence at its end",
            lambda: (
                _pairs((4, 5, 6), (5, 6, 7), (1, 4, 9), (4, 2, 8), (5, 3, 8)),
                _pairs((1, 4, 9), (3, 1, 8), (4, 2, 7)),
            ),
        ),
        Case(
            "offsets 2 and -5 equally good",
            lambda: (_pairs((6, 1, 9), (3, 5, 9)), _pairs((1, 3, 9), (7, 2, 9), (0, 2, 9))),
        ),
        Case(
            "offsets -2 and 5 equally good",
            lambda: (_pairs((1, 6, 9), (5, 3, 9)), _pairs((4, 2, 9), (1, 6, 9), (2, 7, 9))),
        ),
        Case(
            "a head at the first word, which every offset from -2 on finds",
            lambda: (_pairs((2, 0, 5)), _pairs((4, 2, 8), (3, 0, 8), (6, 4, 8))),
        ),
        Case(
            "heads ten words on",
            lambda: (
                _pairs((1, 11, 20), (2, 12, 20), (3, 4, 20)),
                _pairs((3, 13, 20), (6, 7, 20)),
            ),
        ),
        Case(
            "heads eleven words before, too far to be reached",
            lambda: (
                _pairs((15, 4, 20), (16, 5, 20), (14, 3, 20), (8, 10, 20)),
                _pairs((15, 4, 20), (3, 5, 20)),
            ),
        ),
        Case(
            "dev = [[14, 2, 20]], which no offset reaches, the offset alone and without its sign",
            lambda: (_pairs((14, 2, 20)), _pairs((4, 5, 20))),
            call=_how_far,
        ),
        Case("forty pairs and thirty", lambda: (_guessable(40, seed=0), _guessable(30, seed=1))),
        Case(
            "pairs that do not lie side by side in memory",
            lambda: tuple(_guessable(50, seed=seed).T.contiguous().T for seed in (2, 3)),
        ),
    ),
    slips=(
        Slip(
            lambda dev, test: _baseline()(test, test),
            "the offset was chosen on test, so the baseline has seen the answers",
            "choose with dev alone, and use test only for the accuracy",
        ),
        Slip(
            lambda dev, test: _baseline()(dev, dev),
            "the accuracy is that on dev, where the offset was chosen",
            "score the chosen offset on test",
        ),
        Slip(
            lambda dev, test: _baseline()(test, dev),
            "the two sets changed places, dev and test",
            "choose the offset on dev, the first argument, and score it on test",
        ),
        Slip(
            _each_on_its_own,
            "the accuracy is that of the offset that is best on test, not of the one chosen on dev",
            "score only the chosen offset on test",
        ),
        Slip(
            _baseline(offsets=_nearest_first(0, 10)),
            "0 was among the offsets; a word is never its own head",
            "leave 0 out",
        ),
        Slip(
            _baseline(offsets=[offset for offset in _OFFSETS if abs(offset) < 10]),
            "the offset 10 was not tried: range(-10, 10) ends with 9",
            "let the offsets run from -10 to 10, both included: range(-10, 11)",
        ),
        Slip(
            _baseline(offsets=_nearest_first(1, 40)),
            "offsets beyond 10 were tried as well",
            "stop at -10 and 10",
        ),
        Slip(
            _baseline(offsets=range(1, 11)),
            "only offsets to the right were tried",
            "try negative offsets too: the head may stand before the dependent",
        ),
        Slip(
            _baseline(offsets=range(-1, -11, -1)),
            "only offsets to the left were tried",
            "try positive offsets too: the head may stand after the dependent",
        ),
        Slip(
            _baseline(offsets=[*range(-10, 0), *range(1, 11)]),
            "of equally good offsets the one farthest to the left won, the first in the list",
            "try the nearest first, sorted(offsets, key=abs): max keeps the first of equals",
        ),
        Slip(
            _baseline(offsets=[*range(10, 0, -1), *range(-1, -11, -1)]),
            "of equally good offsets the one farthest to the right won",
            "try the nearest first, sorted(offsets, key=abs): max keeps the first of equals",
        ),
        Slip(
            _baseline(offsets=_OFFSETS[::-1]),
            "of equally good offsets the last one tried won, the farthest",
            "let a later offset win only if it is better, > and not >=",
        ),
        Slip(
            _baseline(share=_share(sign=-1)),
            "the sign is turned round: this is dependent minus head",
            "an offset leads from the dependent to its head: guess dependent + offset",
        ),
        Slip(
            _baseline(share=_from_the_head),
            "the guess starts from the head and looks for the dependent: the first two columns "
            "changed places",
            "start from the dependent, the first column: guess dependent + offset",
        ),
        Slip(
            _baseline(share=_either_way, offsets=range(1, 11)),
            "only the distance was compared, so a head on either side counted as right",
            "keep the sign: guess dependent + offset",
        ),
        Slip(
            _baseline(share=_share(lambda guess, length: guess)),
            "guesses outside the sentence were left there, and are always wrong",
            "move them in: below 0 becomes 0, and length or more becomes length - 1",
        ),
        Slip(
            _baseline(share=_share(lambda guess, length: guess.clamp(min=0))),
            "guesses after the last word were left there, or moved to length, which is one too far",
            "move them to the last word: length or more becomes length - 1",
        ),
        Slip(
            _baseline(share=_share(lambda guess, length: guess.minimum(length - 1))),
            "guesses before the first word were left there",
            "move them to the first word: below 0 becomes 0",
        ),
        Slip(
            _baseline(share=_share(lambda guess, length: guess % length)),
            "guesses outside the sentence came in again at its other end (% length)",
            "move them to the nearer end: below 0 becomes 0, length or more becomes length - 1",
        ),
        Slip(
            _mean_distance,
            "the offset is the mean distance; the mean may be a place where no head stands",
            "try each offset from -10 to 10 and count how often it is right",
        ),
        Slip(
            _baseline(last=lambda offset, share: (share, offset)),
            "the accuracy came first",
            "end with return offset, accuracy",
        ),
        Slip(
            _baseline(last=lambda offset, share: offset),
            "only the offset came back",
            "end with return offset, accuracy",
        ),
        Slip(
            _baseline(last=lambda offset, share: (offset, 100 * share)),
            "the accuracy is in percent",
            "return the share itself, between 0 and 1",
        ),
        Slip(
            lambda dev, test: _baseline(
                last=lambda offset, share: (offset, round(share * len(test)))
            )(dev, test),
            "this is how many guesses are right, and not their share",
            "divide by the number of pairs, or use mean in the place of sum",
        ),
        Slip(
            _baseline(last=lambda offset, share: (offset, torch.tensor(share))),
            "the accuracy is still a tensor of one number",
            "make it a Python number: float(…)",
        ),
        Slip(
            _baseline(last=lambda offset, share: (torch.tensor(offset), share)),
            "the offset is still a tensor of one number",
            "make it a Python number: int(…)",
        ),
        Slip(
            _baseline(last=lambda offset, share: (torch.tensor(offset), torch.tensor(share))),
            "both results are still tensors of one number",
            "make them Python numbers: int(…) and float(…)",
        ),
    ),
    hints=(
        "First a function for one offset: on what share of some pairs is the guess right? "
        "dependent, head, length = pairs.T gives the three columns, and guess is dependent + "
        "offset.",
        "A guess outside the sentence is moved to its first word, 0, or its last, length - 1: "
        "guess.clamp(min=0).minimum(length - 1). Then (guess == head).float().mean() is the share.",
        "Try the offsets from -10 to 10 without 0 on dev. Of equally good ones the nearest to 0 "
        "wins: sort them with key=abs, because max(offsets, key=…) keeps the first of equals.",
        "Score the chosen offset on test, and return int and float: (offset, float(share)).",
    ),
)


EXERCISES = (_best_offset_baseline,)
