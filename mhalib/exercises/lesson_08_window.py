"""The exercises of lesson 08, Long inputs, few bits: the sliding window."""

import math

import torch

from mhalib import masks
from mhalib.exercises.catalogue import Case, Exercise, Slip


def _sizes(shows, *numbers):
    return Case(shows, lambda: numbers)


def _window(rule):
    """A slip: position of query and key, window and offset -> may it be seen?"""

    def wrong(query_len, key_len, window, query_offset):
        query, key = torch.arange(query_len)[:, None], torch.arange(key_len)
        return rule(query, key, window, query_offset) & torch.ones(query_len, key_len).bool()

    return wrong


def _right(query, key, window, offset):
    return (key <= query + offset) & (key > query + offset - window)


def _changed(change):
    """A slip: the right mask, changed."""
    return lambda *sizes: change(_window(_right)(*sizes))


def _last_aligned(query, key, window, offset):
    return _right(query, key, window, key.shape[0] - query.shape[0])


_sliding_window_mask = Exercise(
    name="sliding_window_mask",
    lesson="08",
    minutes=5,
    difficulty=1,
    framework="torch",
    contract=(
        "sliding_window_mask(query_len, key_len, window, query_offset): four whole numbers; query "
        "i stands at position i + query_offset among the keys\n"
        "-> boolean (query_len, key_len) tensor, True = may attend: a query sees `window` keys, "
        "that at its own position and those right before it, and none that comes after"
    ),
    arguments=("query_len", "key_len", "window", "query_offset"),
    reference=masks.sliding_window,
    cases=(
        _sizes("a window of one", 3, 3, 1, 0),
        _sizes("a window of two", 4, 4, 2, 0),
        _sizes("a window of three", 7, 7, 3, 0),
        _sizes("a window as long as the text", 5, 5, 5, 0),
        _sizes("a window longer than the text", 4, 4, 9, 0),
        _sizes("one query at the end, as in decoding", 1, 6, 3, 5),
        _sizes("the last three queries", 3, 8, 4, 5),
        _sizes("three queries in the middle", 3, 9, 2, 4),
        _sizes("more keys than queries and no offset", 3, 6, 2, 0),
        _sizes("queries that have left the keys behind", 5, 4, 2, 2),
    ),
    slips=(
        Slip(
            _window(lambda q, k, w, o: (k <= q + o) & (k >= q + o - w)),
            "the window is one key too long: it was counted without the query's own position "
            "(some libraries do)",
            "a window of 1 is the query's own position alone: position - window < key",
        ),
        Slip(
            _window(lambda q, k, w, o: (k <= q + o) & (k > q + o - w + 1)),
            "the window is one key too short",
            "a window of 1 is the query's own position alone: position - window < key",
        ),
        Slip(
            _window(lambda q, k, w, o: (k < q + o) & (k >= q + o - w)),
            "the window ends before the query's own position",
            "let it end at the query itself: key <= position",
        ),
        Slip(
            _window(lambda q, k, w, o: (k - q - o).abs() < w),
            "the window reaches as far forward as back: a query sees what comes after it",
            "hide what comes later: key <= position",
        ),
        Slip(
            _window(lambda q, k, w, o: (k - q - o).abs() <= w // 2),
            "the window lies around the query, half of it in the future",
            "let the window end at the query itself: key <= position",
        ),
        Slip(
            _window(lambda q, k, w, o: k > q + o - w),
            "the future was not hidden",
            "two conditions must hold: key <= position, and position - window < key",
        ),
        Slip(
            _window(lambda q, k, w, o: (k >= q + o) & (k < q + o + w)),
            "the window looks forward: it begins at the query and holds what comes after",
            "look back: key <= position and position - window < key",
        ),
        Slip(
            _window(lambda q, k, w, o: k <= q + o),
            "this is a causal mask: the window plays no part",
            "hide also what lies too far back: position - window < key",
        ),
        Slip(
            _window(lambda q, k, w, o: (k <= q + o) & ((q + o) // w == k // w)),
            "the text was cut into blocks of the window's length; the window moves with the query",
            "compare the distance between query and key with the window",
        ),
        Slip(
            _window(lambda q, k, w, o: _right(q, k, w, 0)),
            "query_offset was ignored: the first query was taken to stand at the first key",
            "add query_offset to the number of the query to get its position among the keys",
        ),
        Slip(
            _window(lambda q, k, w, o: _right(q, k, w, -o)),
            "query_offset was subtracted (or added to the keys)",
            "add it to the number of the query",
        ),
        Slip(
            _window(_last_aligned),
            "the last query was taken to stand at the last key, whatever query_offset says",
            "use query_offset: i + query_offset is the position of query i",
        ),
        Slip(
            _window(lambda q, k, w, o: (k <= q + o) & (k > q - w)),
            "query_offset plays a part at one end of the window only",
            "use the same position, i + query_offset, at both ends",
        ),
        Slip(
            _window(lambda q, k, w, o: (k <= q) & (k > q + o - w)),
            "query_offset plays a part at the far end of the window only",
            "use the same position, i + query_offset, at both ends",
        ),
        Slip(
            _changed(lambda mask: ~mask),
            "True marks what is hidden here (other libraries read masks so)",
            "turn the mask round: True = may attend",
        ),
        Slip(
            _changed(lambda mask: mask.T),
            "rows and columns are swapped",
            "let rows stand for queries and columns for keys",
        ),
        Slip(
            _changed(lambda mask: mask.float()),
            "the mask holds the numbers 0 and 1; added to scores they would hide nothing",
            "make it boolean: compare positions with <= and <, and join with &",
        ),
        Slip(
            _changed(lambda mask: mask.long()),
            "the mask holds the whole numbers 0 and 1",
            "make it boolean: compare positions with <= and <, and join with &",
        ),
        Slip(
            _changed(lambda mask: torch.zeros(mask.shape).masked_fill(~mask, -math.inf)),
            "this is an additive mask: 0 where a query may look, -inf where not",
            "return True and False in their place: mask == 0",
        ),
        Slip(
            _changed(lambda mask: mask[None, None]),
            "there are two axes more than asked for, for batch and heads",
            "return (query_len, key_len); it broadcasts by itself",
        ),
    ),
    hints=(
        "Write down the table for four queries, four keys and a window of 2: which entries are "
        "True?",
        "Two conditions: key j is not after the query, and not too far before it. Query i stands "
        "at position i + query_offset.",
        "position = torch.arange(query_len)[:, None] + query_offset is a column, "
        "torch.arange(key_len) a row; comparing them gives the table. & joins two conditions, each "
        "in brackets.",
        "(key <= position) & (key > position - window)",
    ),
    solution_note=(
        "The first condition is the causal mask. With one offset it comes down to two comparisons "
        "of torch.arange(key_len) with torch.arange(query_len)[:, None] + query_offset."
    ),
)

EXERCISES = (_sliding_window_mask,)
