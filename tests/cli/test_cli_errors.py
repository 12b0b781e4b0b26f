"""What the program says, and ends with, when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Run

HINT = "try `holdfast --help`\n"


def test_version(run: Run) -> None:
    """One line with name and number."""
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("holdfast ")


def test_help_lists_the_commands(call: Run) -> None:
    """Without arguments too."""
    for arguments in (("--help",), ()):
        done = call(*arguments)
        assert done.returncode == 0
        for command in ("topics", "inspect", "fsck", "subscribers", "dead-letters", "run", "demo"):
            assert command in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["frob"],
            'holdfast: unknown command "frob". Available commands: topics, inspect, fsck, subscribers, dead-letters, '
            "validate, graph, config, ...; " + HINT,
        ),
        (["topics", "--frob"], "holdfast: unknown option: --frob; " + HINT),
        (["topics"], 'holdfast: command "topics" parameter PATH requires an argument; ' + HINT),
        (
            ["fsck", ".", "--output", "xml"],
            'holdfast: invalid value "xml" for --output. Choose from: "text", "json"; ' + HINT,
        ),
        (["demo", "--seconds", "0"], "holdfast: --seconds 0 --rows-per-second 2000: both must be above zero\n"),
    ],
)  # fmt: skip
def test_usage_errors_end_with_64(call: Run, arguments: list[str], text: str) -> None:
    """One line that says what was wrong, and where to look."""
    done = call(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (64, "", text)


@pytest.mark.parametrize("command", ["topics", "inspect", "fsck"])
def test_a_missing_path(call: Run, tmp_path: Path, command: str) -> None:
    """No traceback, and the name of what is missing."""
    done = call(command, tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == f"holdfast: {tmp_path}/nowhere: no such file or directory\n"


def test_something_that_is_not_a_store(call: Run, tmp_path: Path) -> None:
    """It says what was expected."""
    done = call("inspect", tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == (
        f"holdfast: {tmp_path} is not Holdfast's: expected a store, topic or shard folder, "
        "or a segment, WAL, tail, checkpoint, ack, lease, key or claim file\n"
    )


def test_topics_of_something_smaller_than_a_store(call: Run, store: Path) -> None:
    """The message names the command that helps."""
    done = call("topics", store / "prod/logs")
    assert done.returncode == 69
    assert (
        done.stderr == f"holdfast: {store}/prod/logs is a topic, not a store; `holdfast inspect` shows what is in it\n"
    )


def test_a_damaged_file_ends_inspect_with_65(call: Run, segment: Path) -> None:
    """File, position, what was found, what to do: in one line."""
    content = bytearray(segment.read_bytes())
    content[20] ^= 1
    segment.write_bytes(content)
    done = call("inspect", segment)
    assert (done.returncode, done.stdout) == (65, "")
    assert done.stderr.startswith(f"holdfast: {segment}, byte 0: segment header fails its checksum: found 0x")
    assert done.stderr.count("\n") == 1
    assert "Run `holdfast fsck`" in done.stderr


def test_a_path_through_a_file(call: Run, segment: Path) -> None:
    """A file where a folder should be is told as the system tells it."""
    done = call("inspect", segment / "deeper")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith(f"holdfast: {segment}/deeper: no")
