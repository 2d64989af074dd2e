"""hint(): the contract of an exercise, and its hints one at a time."""

from mhalib.exercises.catalogue import find
from mhalib.exercises.results import HintCard

_opened = {}  # name -> how many hints are open in this kernel


def hint(name):
    """Open the next hint of an exercise.

    Args:
        name: of the exercise, such as "softmax".

    Returns:
        A card with the contract and all hints opened so far. The last one says that there are no
        more, and names `solution`.
    """
    exercise = find(name)
    total = len(exercise.hints)
    _opened[name] = min(_opened.get(name, 0) + 1, total)
    about = f"{exercise.minutes} minutes, difficulty {exercise.difficulty} of 3"
    return HintCard(name, about, exercise.contract, exercise.hints[: _opened[name]], total)
