"""Arrays of numbers, with the part of NumPy's notation that tests/clients/kernel/NAMES.md writes. They need no package."""

import itertools
import math
import operator


class Array:
    """Numbers, row by row, and their shape."""

    def __init__(self, shape, numbers):
        self.shape, self.numbers = tuple(shape), list(numbers)
        assert len(self.numbers) == math.prod(self.shape), f"{len(self.numbers)} numbers have no shape {self.shape}"

    def at(self, place):
        """Returns the number at a place. An axis of length 1 holds for all places."""
        offset = 0
        for index, size in zip(place[len(place) - len(self.shape):], self.shape):
            offset = offset * size + (index if size > 1 else 0)
        return self.numbers[offset]

    def tolist(self):
        """Returns nested lists. JSON has no infinities, so −∞ is None."""
        if not self.shape:
            return None if self.numbers[0] == -math.inf else self.numbers[0]
        return [self[index].tolist() for index in range(self.shape[0])]

    def reshape(self, *shape):
        known = math.prod(size for size in shape if size != -1)
        return Array([len(self.numbers) // known if size == -1 else size for size in shape], self.numbers)

    def transpose(self, *axes):
        shape = [self.shape[axis] for axis in axes]
        order = [axes.index(axis) for axis in range(len(axes))]
        return Array(shape, [self.at([place[axis] for axis in order]) for place in itertools.product(*map(range, shape))])

    def any(self, axis):
        """Returns whether a number along the last axis is true."""
        assert axis == -1
        size = self.shape[-1]
        return Array(self.shape[:-1], [any(self.numbers[i:i + size]) for i in range(0, len(self.numbers), size)])

    def __getitem__(self, key):
        if isinstance(key, Array):  # rows, in this order
            rows = [self[index] for index in key.numbers]
            return Array(key.shape + self.shape[1:], [number for row in rows for number in row.numbers])
        key = key if isinstance(key, tuple) else (key,)
        here = key.index(...) if ... in key else len(key)
        missing = len(self.shape) - sum(item is not None and item is not ... for item in key)
        key = [*key[:here], *[slice(None)] * missing, *key[here + 1:]]
        chosen, shape = [], []
        for item in key:
            if item is None:
                shape.append(1)
                continue
            indices = range(self.shape[len(chosen)])[item]
            chosen.append([indices] if isinstance(item, int) else indices)
            shape += [] if isinstance(item, int) else [len(indices)]
        return Array(shape, map(self.at, itertools.product(*chosen)))

    def __index__(self):
        return self.numbers[0]

    def __iter__(self):
        return (self[index] for index in range(self.shape[0]))

    def __neg__(self):
        return self * -1


def pairwise(function):
    """Returns a function of two arrays or numbers that are broadcast to each other."""
    def both(left, right):
        left, right = (x if isinstance(x, Array) else Array((), [x]) for x in (left, right))
        sizes = itertools.zip_longest(reversed(left.shape), reversed(right.shape), fillvalue=1)
        shape = [a if b == 1 else b for a, b in sizes][::-1]
        return Array(shape, [function(left.at(place), right.at(place)) for place in itertools.product(*map(range, shape))])
    return both


for name in ("add", "sub", "mul", "truediv", "floordiv", "eq", "le", "and"):
    of = pairwise(getattr(operator, name + "_" * (name == "and")))
    setattr(Array, f"__{name}__", of)
    setattr(Array, f"__r{name}__", lambda self, other, of=of: of(other, self))


def each(function):
    """Returns a function of numbers that also takes an array."""
    return lambda x: Array(x.shape, map(function, x.numbers)) if isinstance(x, Array) else function(x)


exp, log, sqrt = each(math.exp), each(math.log), each(math.sqrt)


def arange(count):
    return Array([count], range(count))


def cumsum(x):
    return Array(x.shape, itertools.accumulate(x.numbers))


def concatenate(parts, axis):
    """Joins arrays along the first or the last axis."""
    if axis == 0:
        return Array([sum(part.shape[0] for part in parts), *parts[0].shape[1:]], sum((part.numbers for part in parts), []))
    assert axis == -1
    rows = [part.reshape(-1, part.shape[-1]) for part in parts]
    joined = [sum((part[index].numbers for part in rows), []) for index in range(rows[0].shape[0])]
    return Array([*parts[0].shape[:-1], len(joined[0])], sum(joined, []))


def broadcast_to(x, shape):
    return Array(shape, map(x.at, itertools.product(*map(range, shape))))
