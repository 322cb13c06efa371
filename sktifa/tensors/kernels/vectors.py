"""Vectors of floats for numba's kernels, and draws that are made 16 at a time.

LLVM makes vectors of a loop over a row's columns only if the row is long, checks first
that rows don't overlap, and keeps no sum in registers from one row to the next. Where
a kernel says itself what a vector is, it is several times as fast, and is compiled in
a third of the time.

A vector has 16 lanes, unless a tuple of fewer says how many: a number would be no type,
and numba compiles for types. A mask is a number with a bit for each of 16 lanes. A
place is an index into a contiguous array, as if it were flat.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array

__all__ = [
    "LANES",
    "add",
    "n_lanes",
    "draw",
    "first_lanes",
    "load",
    "load_where",
    "multiply",
    "multiply_add",
    "narrow_load",
    "narrow_zeros",
    "pack",
    "positive",
    "store",
    "store_where",
    "where",
    "zeros",
]

LANES = 16
# Kernels call them without the context.
_intrinsic: Any = intrinsic
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTS = ir.VectorType(ir.IntType(32), LANES)
_BITS = ir.VectorType(ir.IntType(1), LANES)
_NUMBERS = _INTS(list(range(LANES)))
# In the names of LLVM's intrinsics.
_NAMES = {_FLOATS: f"v{LANES}f32", _INTS: f"v{LANES}i32"}
# A draw is a number of 24 bits, which a float32 holds: the upper ones, for no others
# are random.
_DRAWN_BITS = 24


class _Vector(types.Type):
    def __init__(self, lanes: int) -> None:
        super().__init__(name=f"Float32x{lanes}")
        self.floats = ir.VectorType(ir.FloatType(), lanes)


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Vector) -> None:
        super().__init__(manager, kind, kind.floats)


_VECTOR, _MASK = _Vector(LANES), types.uint16


@_intrinsic
def zeros(context: Any) -> Any:
    """Return a vector of zeros."""
    return _VECTOR(), lambda context, builder, signature, given: _FLOATS(None)


@_intrinsic
def narrow_zeros(context: Any, lanes: Any) -> Any:
    """Return a vector of zeros."""
    kind = _Vector(len(lanes))
    return kind(lanes), lambda context, builder, signature, given: kind.floats(None)


@_intrinsic
def load(context: Any, array: Any, place: Any) -> Any:
    """Read a vector."""
    return _VECTOR(array, types.intp), _load


@_intrinsic
def narrow_load(context: Any, array: Any, place: Any, lanes: Any) -> Any:
    """Read a vector."""
    return _Vector(len(lanes))(array, types.intp, lanes), _load


def _load(context: Any, builder: Any, signature: Any, given: Any) -> Any:
    floats, array = signature.return_type.floats, signature.args[0]
    return builder.load(_pointer(context, builder, floats, array, *given[:2]), align=4)


@_intrinsic
def load_where(context: Any, array: Any, place: Any, mask: Any) -> Any:
    """Read some lanes of a vector; others aren't touched, and are 0."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pointer = _pointer(context, builder, _FLOATS, signature.args[0], *given[:2])
        return _load_where(builder, pointer, given[2], _FLOATS)

    return _VECTOR(array, types.intp, _MASK), generate


@_intrinsic
def store(context: Any, array: Any, place: Any, vector: Any) -> Any:
    """Write a vector."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array, _, kind = signature.args
        pointer = _pointer(context, builder, kind.floats, array, *given[:2])
        builder.store(given[2], pointer, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@_intrinsic
def store_where(context: Any, array: Any, place: Any, vector: Any, mask: Any) -> Any:
    """Write some lanes of a vector; where others would go isn't touched."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pointer = _pointer(context, builder, _FLOATS, signature.args[0], *given[:2])
        align, mask = ir.IntType(32)(4), builder.bitcast(given[3], _BITS)
        name = f"masked.store.{_NAMES[_FLOATS]}.p0"
        _call(builder, name, ir.VoidType(), given[2], pointer, align, mask)
        return context.get_dummy_value()

    return types.void(array, types.intp, _VECTOR, _MASK), generate


@_intrinsic
def multiply(context: Any, factor: Any, vector: Any) -> Any:
    """Return `factor * vector`; the factor is a number."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        factor = _everywhere(builder, given[0], vector.floats.count)
        return builder.fmul(factor, given[1])

    return vector(types.float32, vector), generate


@_intrinsic
def multiply_add(context: Any, factor: Any, vector: Any, total: Any) -> Any:
    """Return `factor * vector + total`; the factor is a number."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        factor = _everywhere(builder, given[0], vector.floats.count)
        product = builder.fmul(factor, given[1], flags=["contract"])
        return builder.fadd(product, given[2], flags=["contract"])

    return vector(types.float32, vector, vector), generate


@_intrinsic
def add(context: Any, vector: Any, other: Any) -> Any:
    """Return the sum of two vectors."""
    return _VECTOR(
        _VECTOR, _VECTOR
    ), lambda context, builder, signature, given: builder.fadd(*given)


@_intrinsic
def positive(context: Any, vector: Any) -> Any:
    """Return a mask of what is above 0, or NaN."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        is_positive = builder.fcmp_unordered(">", given[0], _FLOATS(None))
        return builder.bitcast(is_positive, ir.IntType(LANES))

    return _MASK(_VECTOR), generate


@_intrinsic
def where(context: Any, mask: Any, vector: Any) -> Any:
    """Return a vector with 0 where the mask has none of it."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        mask = builder.bitcast(given[0], _BITS)
        return builder.select(mask, given[1], _FLOATS(None))

    return _VECTOR(_MASK, _VECTOR), generate


@_intrinsic
def first_lanes(context: Any, count: Any) -> Any:
    """Return a mask of the first `count` lanes: all of them, if there are no more."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        most = given[0].type(LANES)
        is_less = builder.icmp_signed("<", given[0], most)
        count = builder.select(is_less, given[0], most)
        count = _everywhere(builder, builder.trunc(count, ir.IntType(32)))
        is_first = builder.icmp_signed("<", _NUMBERS, count)
        return builder.bitcast(is_first, ir.IntType(LANES))

    return _MASK(types.intp), generate


@_intrinsic
def n_lanes(context: Any, mask: Any) -> Any:
    """Return how many lanes a mask has."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        number = _call(builder, f"ctpop.i{LANES}", given[0].type, given[0])
        return builder.zext(number, context.get_value_type(types.intp))

    return types.intp(_MASK), generate


@_intrinsic
def draw(context: Any, seed: Any, entry: Any, keep: Any) -> Any:
    """Draw, with probability `keep`, for each of the entries from `entry` on."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        seed, entry, keep = given
        low = builder.trunc(seed, ir.IntType(32))
        high = builder.trunc(builder.lshr(seed, seed.type(32)), ir.IntType(32))
        first = _mixed(builder, builder.add(low, low.type(0x9E3779B9)))
        second = _mixed(builder, builder.xor(high, first))
        key = builder.add(_everywhere(builder, entry), _NUMBERS)
        key = builder.mul(key, _INTS([0x7FEB352D] * LANES))
        key = builder.add(key, _everywhere(builder, first))
        key = builder.xor(key, _everywhere(builder, second))
        for factor in (0x846CA68B, 0x7FEB352D):
            key = builder.xor(key, builder.lshr(key, _INTS([15] * LANES)))
            key = builder.mul(key, _INTS([factor] * LANES))
        drawn = builder.lshr(key, _INTS([32 - _DRAWN_BITS] * LANES))
        limit = builder.fmul(keep, keep.type(float(1 << _DRAWN_BITS)))
        is_kept = builder.fcmp_ordered(
            "<", builder.uitofp(drawn, _FLOATS), _everywhere(builder, limit)
        )
        return builder.bitcast(is_kept, ir.IntType(LANES))

    return _MASK(types.int64, types.uint32, types.float32), generate


@_intrinsic
def pack(context: Any, target: Any, at: Any, source: Any, place: Any, mask: Any) -> Any:
    """Write some lanes of a vector of numbers, one after the other.

    All of a vector is written to, whatever their number.
    """
    kind = _FLOATS if source.dtype == types.float32 else _INTS

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        target, at, source, place, mask = given
        pointer = _pointer(context, builder, kind, signature.args[2], source, place)
        vector = _load_where(builder, pointer, mask, kind)
        bits = builder.bitcast(mask, _BITS)
        name, rest = f"experimental.vector.compress.{_NAMES[kind]}", kind(ir.Undefined)
        packed = _call(builder, name, kind, vector, bits, rest)
        pointer = _pointer(context, builder, kind, signature.args[0], target, at)
        builder.store(packed, pointer, align=4)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, _MASK), generate


def _mixed(builder: Any, key: Any) -> Any:
    """Apply the finaliser of MurmurHash3."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        key = builder.xor(key, builder.lshr(key, key.type(shift)))
        key = builder.mul(key, key.type(factor))
    return builder.xor(key, builder.lshr(key, key.type(16)))


def _everywhere(builder: Any, number: Any, lanes: int = LANES) -> Any:
    """Return a vector that has a number in all of its lanes."""
    nothing = ir.VectorType(number.type, lanes)(ir.Undefined)
    vector = builder.insert_element(nothing, number, ir.IntType(32)(0))
    lowest = ir.VectorType(ir.IntType(32), lanes)(None)
    return builder.shuffle_vector(vector, nothing, lowest)


def _pointer(
    context: Any, builder: Any, vector: Any, kind: Any, array: Any, place: Any
) -> Any:
    data = make_array(kind)(context, builder, array).data
    return builder.bitcast(cgutils.gep(builder, data, place), vector.as_pointer())


def _load_where(builder: Any, pointer: Any, mask: Any, kind: Any) -> Any:
    align, mask = ir.IntType(32)(4), builder.bitcast(mask, _BITS)
    name = f"masked.load.{_NAMES[kind]}.p0"
    return _call(builder, name, kind, pointer, align, mask, kind(None))


def _call(builder: Any, name: str, returned: Any, *given: Any) -> Any:
    """Call one of LLVM's intrinsics."""
    kind = ir.FunctionType(returned, [one.type for one in given])
    called = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}")
    return builder.call(called, given)
