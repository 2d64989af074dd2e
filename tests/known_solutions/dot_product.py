"""dot_product: faults in how entries meet, in how the products come together, and after that."""

import numpy as np

WRONG = {
    "meet": {
        "add entries": "the entries were added",
        "every with every": "outer product",
        "subtract and square": "squared distance",
        "lose each sign": "each product lost its sign",
    },
    "combine": {
        "no sum": "they are not added up",
        "mean": "averaged",
        "largest": "only the largest",
        "forget the last": "the last entry plays no part",
        "return in the loop": "only the first product",
    },
    "after": {
        "no sign": "the sign was taken away",
        "divide by lengths": "that is the cosine",
    },
}
SAME = ()


def build(*faults):
    def dot_product(a, b):
        if "every with every" in faults:
            products = np.multiply.outer(a, b)
        elif "add entries" in faults:
            products = a + b
        elif "subtract and square" in faults:
            products = np.square(a - b)
        elif "lose each sign" in faults:
            products = np.absolute(a) * np.absolute(b)
        else:
            products = np.multiply(a, b)

        if "mean" in faults:
            total = np.mean(products)
        elif "largest" in faults:
            total = np.max(products)
        elif "forget the last" in faults:
            total = np.sum(products[: len(a) - 1])
        elif "return in the loop" in faults:
            total = np.ravel(products)[0]
        elif "no sum" in faults or "every with every" in faults:
            total = products
        else:
            total = np.sum(products)

        if "no sign" in faults:
            total = np.absolute(total)
        if "divide by lengths" in faults:
            total = total / np.sqrt(np.sum(a**2) * np.sum(b**2))
        return total

    return dot_product


def loop(a, b):
    total = 0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def plain_python(a, b):
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def einsum(a, b):
    return np.einsum("i,i->", a, b)


def numpy_dot(a, b):
    return np.dot(a, b)


def column(a, b):
    return float((a[None, :] @ b[:, None])[0, 0])


RIGHT = (loop, plain_python, einsum, numpy_dot, column)
