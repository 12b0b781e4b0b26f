"""What the documents show is what the code does: python blocks run, bytes and messages are the real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import structlog
from structlog.testing import capture_logs

from docs.documents import DOCUMENTS, ROOT, block, blocks, text_of
from docs.example_store import (
    ACKS,
    KEYS,
    SHARD,
    STORE,
    TOPIC,
    WAL,
    acks_store,
    damaged_store,
    formats_store,
    keys_store,
    opened,
    overwrite,
    records,
    rows,
)
from holdfast.cli._app import run
from holdfast.errors import Corruption
from holdfast.files.checkpoint import read_checkpoint
from holdfast.retention._claim import Claim, encode_claim
from holdfast.retention._request import Request, write_request
from holdfast.segment import SegmentReader
from holdfast.testing import FakeClock, SimulatedFiles, dump

FORMATS = "docs/formats.md"
OPERATING = "docs/operating.md"
HEX_FILES = {
    "wal": WAL,
    "tail": SHARD / "tail",
    "store.checkpoint": STORE / "store.checkpoint",
    "segment": STORE / "sealed.seg",
}
HEX_LABELS = [*HEX_FILES, "acks", "keys", "claim"]
CLAIM = Claim(limit=96_000_000, wanted=64_000_000, wanted_at_ns=FakeClock().now_ns(), wanted_level=2)
_HEX_LINE = re.compile(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} ){0,15}[0-9a-f]{2})(?:  .*)?")
_GAP_LINE = re.compile(r"\.{4}  (\d+) bytes\b.*")
CUT_AT = 0x300
FLIPPED = 0x238


@pytest.fixture(autouse=True)
def _logging_as_it_comes() -> Iterator[None]:
    """The commands silence the store's log; here it is looked at."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def example() -> tuple[SimulatedFiles, bytes]:
    return formats_store()


@pytest.fixture(scope="module")
def outcomes() -> tuple[SimulatedFiles, SimulatedFiles]:
    return acks_store()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_blocks_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The python blocks of a document run one after the other, in an empty folder; `batch` is theirs to use.

    Those with a label need what is not here, Spark or a running pipeline: of them it is seen that they compile.
    """
    monkeypatch.chdir(tmp_path)
    names = {"batch": pa.record_batch({"ts": [1, 2], "text": ["a", "b"]})}
    for number, found in enumerate(blocks(document, "python")):
        code = compile(found.text, f"{document}, python block {number}", "exec")
        if not found.label:
            exec(code, names)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    """A relative link names a file that is there, and a heading that it has."""
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text_of(document)):
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name
        assert path.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}, target


@pytest.mark.parametrize("label", HEX_LABELS)
def test_hex_examples_are_the_real_bytes(
    label: str, example: tuple[SimulatedFiles, bytes], outcomes: tuple[SimulatedFiles, SimulatedFiles]
) -> None:
    """The hex blocks of a file show it from its first byte to its last, gaps included."""
    match label:
        case "wal":
            data = records(example[0], WAL)
        case "acks":
            data = outcomes[0].read(ACKS)
        case "keys":
            data = keys_store().read(KEYS)
        case "claim":
            data = encode_claim(CLAIM)
        case _:
            data = example[0].read(HEX_FILES[label])
    position = 0
    for found in blocks(FORMATS, "hex", label):
        for line in found.text.splitlines():
            if gap := _GAP_LINE.fullmatch(line):
                position += int(gap[1])
                continue
            shown = _HEX_LINE.fullmatch(line)
            assert shown is not None, line
            content = bytes.fromhex(shown[2])
            assert int(shown[1], 16) == position, line
            assert data[position : position + len(content)] == content, line
            position += len(content)
    assert position == len(data)


def test_every_hex_block_is_checked() -> None:
    """No hex block has a label that the test above does not know."""
    assert {found.label for document in DOCUMENTS for found in blocks(document, "hex")} == set(HEX_LABELS)


@pytest.mark.parametrize("name", ["topic.checkpoint", "shard.checkpoint"])
def test_checkpoint_examples_are_the_real_documents(name: str, example: tuple[SimulatedFiles, bytes]) -> None:
    """The JSON shown for a checkpoint is what the file holds."""
    folder = SHARD if name == "shard.checkpoint" else SHARD.parent
    assert json.loads(block(FORMATS, "json", name)) == read_checkpoint(example[0], folder / name)


def test_documents_about_subscribers_are_the_real_ones(outcomes: tuple[SimulatedFiles, SimulatedFiles]) -> None:
    """The JSON shown for subscribers, lease and ack checkpoint is what the files hold, but for the holder's name."""
    before, after = outcomes
    shown = {label: json.loads(block(FORMATS, "json", label)) for label in ("subscribers", "lease", "acks.checkpoint")}
    assert shown["subscribers"] == read_checkpoint(before, SHARD.parent / "topic.checkpoint")["subscribers"]
    lease = read_checkpoint(before, SHARD.parent / "subscribers" / "lake.lease")
    assert shown["lease"] == {**lease, "holder": shown["lease"]["holder"]}
    assert re.fullmatch(r"process \d+ on \S+", lease["holder"])
    assert shown["acks.checkpoint"] == read_checkpoint(after, SHARD / "acks.checkpoint")


def test_the_request_for_room_is_the_real_document() -> None:
    """The JSON shown for a request is what another worker leaves in a shard's folder."""
    files, clock = SimulatedFiles(), FakeClock()
    files.make_folder(SHARD)
    write_request(files, SHARD, Request("prod/logs/1", 32_000_000, 0, clock.now_ns()), clock)
    assert json.loads(block(FORMATS, "json", "request")) == read_checkpoint(files, SHARD / "evict.request")


def test_segment_tables_are_the_real_ones(example: tuple[SimulatedFiles, bytes]) -> None:
    """Directory, manifest, chunk table and bounds are those of the example's segment."""
    meta = SegmentReader(example[0], STORE / "sealed.seg")._meta
    assert json.loads(block(FORMATS, "json", "directory")) == json.loads(msgspec.json.encode(meta.directory))
    manifest = [{**row, "attributes": row["attributes"].hex()} for row in meta.manifest.to_pylist()]
    bounds = meta.bounds(meta.directory.streams[0])
    assert bounds is not None
    assert json.loads(block(FORMATS, "json", "tables")) == {
        "manifest": manifest,
        "chunks": meta.chunks.to_pylist(),
        "bounds": bounds.to_pylist(),
    }


def test_the_torn_tail_of_the_example_is_cut(example: tuple[SimulatedFiles, bytes]) -> None:
    """Cut at byte 0x300 with the older tail, the file loses offset 1, which is recorded as lost; 2 comes next."""
    files, tail = example[0].kill(), example[1]
    overwrite(files, WAL, files.read(WAL)[:CUT_AT])
    overwrite(files, SHARD / "tail", tail)
    with capture_logs() as lines, opened(files, 1) as store:
        topic = store.topic(TOPIC)
        assert [each.offset for each in topic.bundles()] == [0]
        assert lines[0]["position"] == 0x240
        assert read_checkpoint(files, SHARD / "shard.checkpoint")["lost"] == [[1, 2]]
        assert topic.append({"logs": rows(1)}).offset == 2
    (line,) = lines
    shown = f"{line['event']}: position {line['position']}, {line['reason']}\n"
    assert shown == block(FORMATS, "text", "torn")


@pytest.mark.parametrize("label", ["corrupt", "cut"])
def test_the_corruption_of_the_example_is_reported(label: str, example: tuple[SimulatedFiles, bytes]) -> None:
    """A flipped bit below a mark, and a cut below what the tail says, are corruption; the file stays as it is."""
    files = example[0].kill()
    data = bytearray(files.read(WAL))
    if label == "corrupt":
        data[FLIPPED] ^= 1
        overwrite(files, SHARD / "tail", example[1])
    else:
        del data[CUT_AT:]
    overwrite(files, WAL, bytes(data))
    with opened(files, 1) as store, pytest.raises(Corruption) as raised:
        store.topic(TOPIC).positions()
    assert str(raised.value).startswith(block(FORMATS, "text", label).strip())
    assert files.read(WAL) == data


def test_fsck_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The walk-through of check and repair is the real output, with the exit codes that are promised."""
    dump(damaged_store(), tmp_path / "data", STORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    for label, code in (("fsck", 65), ("repair", 0)):
        command, _, shown = block(OPERATING, "console", label).partition("\n")
        assert run(command.removeprefix("$ holdfast ").split()) == code
        assert capsys.readouterr().out == shown
