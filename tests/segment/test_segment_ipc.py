"""Streams are put together from messages, or encoded anew where that cannot be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from sealing import encode, sealed

from arrow_strategies import assert_same
from holdfast.segment import _group, _ipc
from holdfast.segment._ipc import UnexpectedLayout, assemble

BATCHES = [pa.record_batch({"n": [i], "s": [str(i)]}) for i in range(3)]


def assert_sealed_as_given(**options: str) -> None:
    reader = sealed([{0: batch} for batch in BATCHES], **options)
    for batch, found in zip(BATCHES, reader.batches(0), strict=True):
        assert_same(batch, found)
    assert reader.verify() == []


def test_another_layout_of_arrow_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """If pyarrow writes files otherwise than known here, it writes the streams itself, to the same effect."""
    tried = []

    def unknown(schema: pa.Schema) -> tuple[bytes, bytes]:
        tried.append(schema)
        raise UnexpectedLayout("as if pyarrow had changed")

    monkeypatch.setattr(_ipc, "_template", unknown)
    assert_sealed_as_given()
    assert len(tried) == 1


def test_messages_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dictionaries and compression nothing is decoded at sealing."""

    def refuse(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(_group, "decode_slot", refuse)
    assert_sealed_as_given()
    with pytest.raises(AssertionError, match="decoded"):
        assert_sealed_as_given(compression="zstd")


@pytest.mark.parametrize(
    "message",
    [
        b"\x10\0\0\0" + bytes(28),  # the old form, without a marker
        b"\xff\xff\xff\xff\x0c\0\0\0" + bytes(24),  # a flatbuffer that is not padded
        b"\xff\xff\xff\xff\x10\0\0\0" + bytes(25),  # a body that is not padded
    ],
)
def test_payload_that_is_not_one_message(message: bytes) -> None:
    """Only encapsulated messages in today's form, padded to 8, are put together."""
    with pytest.raises(UnexpectedLayout, match="a payload is not one encapsulated message"):
        assemble(BATCHES[0].schema, [message], [1], [0])


def test_assembled_file_is_what_arrow_writes() -> None:
    """Up to its footer, an assembled stream has the same bytes as a file that pyarrow writes."""
    payloads = [bundle.slots[0] for bundle in encode([{0: batch} for batch in BATCHES])]
    image = assemble(
        BATCHES[0].schema,
        [payload.data for payload in payloads],
        [payload.rows for payload in payloads],
        [payload.checksum for payload in payloads],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, BATCHES[0].schema) as writer:
        for batch in BATCHES:
            writer.write_batch(batch)
    written, assembled = sink.getvalue().to_pybytes(), b"".join(bytes(buffer) for buffer in image.buffers)
    end = image.positions[-1] + image.lengths[-1] + 8
    assert assembled[:end] == written[:end]
    assert len(assembled) == image.length
    assert _ipc._blocks(memoryview(assembled)) == _ipc._blocks(memoryview(written))


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_empty_unions_with_compression(mode: str) -> None:
    """Unions without rows, which pyarrow fails to compress, are sealed all the same."""
    codes, values = pa.array([], pa.int8()), [pa.array([], pa.int64())]
    if mode == "sparse":
        union = pa.UnionArray.from_sparse(codes, values)
    else:
        union = pa.UnionArray.from_dense(codes, pa.array([], pa.int32()), values)
    batch = pa.record_batch({"u": union})
    reader = sealed([{0: batch}, {0: batch}], compression="zstd")
    assert [found.num_rows for found in reader.batches(0)] == [0, 0]
    assert reader.verify() == []
