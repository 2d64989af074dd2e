"""Multi-head attention, small enough to read: the companion package of the notebook course.

Every public name below is loaded when it is first used, so that `import mhalib`
pulls in neither torch nor matplotlib.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME_OF = {
    "split_heads": "functional",
    "merge_heads": "functional",
    "repeat_kv": "functional",
    "scaled_dot_product_attention": "functional",
    "fused_attention": "functional",
    "blockwise_attention": "functional",
    "multi_head_attention": "functional",
    "MultiHeadAttention": "modules",
    "KVCache": "cache",
    "check": "exercises",
    "hint": "exercises",
    "solution": "exercises",
    "quiz": "quizzes",
}
_MODULES = (
    "cache",
    "cost",
    "data",
    "diagrams",
    "digits",
    "encoder",
    "exercises",
    "figures",
    "functional",
    "heads",
    "lending",
    "masks",
    "memory",
    "mixing",
    "modules",
    "pieces",
    "pretrained",
    "projections",
    "reference",
    "sharing",
    "sparse",
    "spelling",
    "widgets",
)

__all__ = ["__version__", *_HOME_OF, *_MODULES]


def __getattr__(name):
    if name in _MODULES:
        return import_module(f"mhalib.{name}")
    if name in _HOME_OF:
        return getattr(import_module(f"mhalib.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'mhalib' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
