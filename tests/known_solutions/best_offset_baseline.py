"""best_offset_baseline: faults in the sets, the offsets, the guess, the ties and the return."""

import torch

WRONG = {
    "sets": {
        "chosen on test": "chosen on test, so the baseline has seen the answers",
        "scored on dev": "the accuracy is that on dev",
        "swapped": "the two sets changed places",
        "best of test": "best on test, not of the one chosen on dev",
    },
    "offsets": {
        "with 0": "0 was among the offsets",
        "without 10": "the offset 10 was not tried",
        "beyond 10": "offsets beyond 10 were tried",
        "right only": "only offsets to the right",
        "left only": "only offsets to the left",
    },
    "ties": {
        "farthest left": "the one farthest to the left won",
        "farthest right": "the one farthest to the right won",
        "last tried": "the last one tried won",
    },
    "guess": {
        "sign": "this is dependent minus head",
        "columns": "the first two columns changed places",
        "distance": "only the distance was compared",
        "left outside": "guesses outside the sentence were left there",
        "left outside at the end": "guesses after the last word were left there",
        "left outside at the start": "guesses before the first word were left there",
        "one too far": "guesses after the last word were left there, or moved to length",
        "other end": "came in again at its other end",
    },
    "choice": {
        "mean distance": "the offset is the mean distance",
    },
    "return": {
        "accuracy first": "the accuracy came first",
        "offset only": "only the offset came back",
        "percent": "in percent",
        "count": "how many guesses are right",
        "accuracy as tensor": "the accuracy is still a tensor",
        "offset as tensor": "the offset is still a tensor",
        "tensors": "both results are still tensors",
    },
}
SAME = (("left outside at the end", "one too far"),)


def build(*faults):
    def best_offset_baseline(dev, test):
        choose_on = test if {"chosen on test", "swapped"} & set(faults) else dev
        score_on = dev if {"scored on dev", "swapped"} & set(faults) else test
        offsets = _offsets(faults)
        best, most = None, -1
        for offset in offsets:
            right = _right(faults, choose_on, offset)
            if right > most or (right == most and "last tried" in faults):
                best, most = offset, right
        if "mean distance" in faults:
            best = round(float(torch.mean(choose_on[:, 1].double() - choose_on[:, 0])))
        if "best of test" in faults:
            right = max(_right(faults, score_on, offset) for offset in offsets)
        else:
            right = _right(faults, score_on, best)
        return _returned(faults, best, right, len(score_on))

    return best_offset_baseline


def _offsets(faults):
    last = 9 if "without 10" in faults else 30 if "beyond 10" in faults else 10
    offsets = list(range(-last, last + 1))
    if "with 0" not in faults:
        offsets.remove(0)
    if "farthest right" in faults:
        offsets.reverse()
    elif "farthest left" not in faults:
        offsets.sort(key=lambda offset: (abs(offset), -offset))
    if "right only" in faults or "distance" in faults:
        offsets = [offset for offset in offsets if offset >= 0]
    if "left only" in faults:
        offsets = [offset for offset in offsets if offset <= 0] or offsets or [-1]
    return offsets


def _right(faults, pairs, offset):
    """How many guesses are right, one by one."""
    count = 0
    for dependent, head, length in pairs.tolist():
        if "distance" in faults:
            count += abs(head - dependent) == abs(offset)
            continue
        if "columns" in faults:
            dependent, head = head, dependent
        guess = dependent - offset if "sign" in faults else dependent + offset
        if "other end" in faults:
            guess = guess % length
        elif "left outside" not in faults:
            if "left outside at the start" not in faults:
                guess = max(guess, 0)
            if "one too far" in faults:
                guess = min(guess, length)
            elif "left outside at the end" not in faults:
                guess = min(guess, length - 1)
        count += guess == head
    return count


def _returned(faults, best, right, count):
    share = right / count
    if "accuracy first" in faults:
        return share, best
    if "offset only" in faults:
        return best
    if "percent" in faults:
        return best, share * 100
    if "count" in faults:
        return best, right
    if "accuracy as tensor" in faults:
        return best, torch.tensor(share)
    if "offset as tensor" in faults:
        return torch.tensor(best), share
    return (torch.tensor(best), torch.tensor(share)) if "tensors" in faults else (best, share)


def with_max(dev, test):
    def share(pairs, offset):
        dependent, head, length = pairs.unbind(dim=1)
        guess = torch.minimum((dependent + offset).clamp(min=0), length - 1)
        return (guess == head).double().mean().item()

    nearest_first = sorted([*range(-10, 0), *range(1, 11)], key=abs)
    best = max(nearest_first, key=lambda offset: share(dev, offset))
    return best, share(test, best)


def with_a_table(dev, test):
    """All offsets at once."""
    offsets = torch.tensor([side * k for k in range(1, 11) for side in (-1, 1)])

    def hits(pairs):
        guess = pairs[:, :1] + offsets
        guess = torch.maximum(torch.minimum(guess, pairs[:, 2:] - 1), torch.tensor(0))
        return (guess == pairs[:, 1:2]).sum(dim=0)

    best = int(hits(dev).numpy().argmax())
    return int(offsets[best]), float(hits(test)[best] / len(test))


def with_loops(dev, test):
    def share(pairs, offset):
        right = 0
        for dependent, head, length in pairs.tolist():
            right += head == min(max(dependent + offset, 0), length - 1)
        return right / len(pairs)

    best, most = 1, share(dev, 1)
    for k in range(1, 11):
        for offset in (k, -k):
            now = share(dev, offset)
            if now > most:
                best, most = offset, now
    return [best, share(test, best)]


def with_a_tuple_as_key(dev, test):
    """Ties broken in the key; of -k and k the negative one wins."""

    def right(pairs, offset):
        guess = (pairs[:, 0] + offset).numpy().clip(0, pairs[:, 2].numpy() - 1)
        return int((guess == pairs[:, 1].numpy()).sum())

    offsets = [offset for offset in range(-10, 11) if offset]
    best = max(offsets, key=lambda offset: (right(dev, offset), -abs(offset)))
    return best, right(test, best) / test.shape[0]


def with_sort(dev, test):
    def share(pairs, offset):
        dependent, head, length = (column.double() for column in pairs.T)
        guess = (dependent + offset).clamp(torch.zeros_like(length), length - 1)
        return float(torch.eq(guess, head).double().mean())

    ranked = sorted(set(range(-10, 11)) - {0}, key=lambda k: (-share(dev, k), abs(k)))
    return ranked[0], share(test, ranked[0])


RIGHT = (with_max, with_a_table, with_loops, with_a_tuple_as_key, with_sort)
