"""File contents as immutable values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing._content import CHUNK_BYTES, EMPTY, Content

sizes = st.integers(0, 40) | st.integers(CHUNK_BYTES - 3, CHUNK_BYTES + 3) | st.integers(0, 3 * CHUNK_BYTES)
steps = st.lists(st.tuples(st.booleans(), sizes, sizes), max_size=8)


@given(steps, sizes, sizes)
def test_behaves_like_a_bytearray(changes: list[tuple[bool, int, int]], start: int, length: int) -> None:
    """Writes and resizes give the bytes that a flat buffer would hold, and leave earlier values alone."""
    content, model = EMPTY, bytearray()
    history = []
    for number, (is_write, position, size) in enumerate(changes):
        history.append((content, bytes(model)))
        if is_write:
            data = bytes([number + 1]) * size
            content = content.write(position, data)
            if data:
                model.extend(bytes(max(0, position - len(model))))
                model[position : position + size] = data
        else:
            content = content.resize(size)
            model = model[:size].ljust(size, b"\0")
    history.append((content, bytes(model)))
    for value, expected in history:
        assert value.size == len(expected)
        assert value.read() == expected
        assert value.read(start, length) == expected[start : start + length]
        assert value.digest == Content.of(expected).digest


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_digests_tell_contents_apart(one: bytes, other: bytes) -> None:
    """Digests are equal exactly when the bytes are."""
    assert (Content.of(one).digest == Content.of(other).digest) == (one == other)
