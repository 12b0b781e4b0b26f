"""`holdfast dead-letters ...`: what subscribers rejected, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from holdfast import operate
from holdfast.cli import _letter_tables as tables
from holdfast.cli._output import Output, quiet, show

app = App(name="dead-letters", help="List, show, export or replay what the subscribers of a topic rejected.")


@app.command(name="list")
def list_(
    path: Path, topic: str, /, *, subscriber: str | None = None, limit: int | None = None, output: Output = "text"
) -> None:
    """List dead letters, oldest first: who rejected what, why, and whether it was replayed.

    Parameters
    ----------
    path
        The store's folder.
    topic
        The topic that they were rejected from, as namespace/name.
    subscriber
        Only those that this subscriber rejected.
    limit
        Only so many.
    """
    show(operate.dead_letters(path, topic, subscriber=subscriber, limit=limit), output, tables.listed)


@app.command(name="show")
def show_(path: Path, topic: str, letter: str, /, *, output: Output = "text") -> None:
    """Show one dead letter: its attributes and first rows.

    Parameters
    ----------
    path
        The store's folder.
    topic
        The topic that it was rejected from, as namespace/name.
    letter
        Its id, as `dead-letters list` shows it.
    """
    show(operate.dead_letter(path, topic, letter), output, tables.shown)


@app.command
def export(
    path: Path, topic: str, /, *letters: str, to: Path, subscriber: str | None = None, output: Output = "text"
) -> None:
    """Write dead letters to a .jsonl file, or to a .parquet or .arrow file for each slot; overwrites nothing.

    Parameters
    ----------
    path
        The store's folder.
    topic
        The topic that they were rejected from, as namespace/name.
    letters
        Their ids, as `dead-letters list` shows them, or all.
    to
        The file; its ending says the format. For tables the name of the slot goes before the ending.
    subscriber
        Only those that this subscriber rejected.
    """
    show(operate.export_letters(path, topic, letters, to, subscriber=subscriber), output, tables.exported)


@app.command
def replay(
    path: Path,
    topic: str,
    /,
    *letters: str,
    subscriber: str | None = None,
    to_subscriber: str | None = None,
    output: Output = "text",
) -> None:
    """Deliver dead letters again, each once, to the subscriber that rejected it.

    Parameters
    ----------
    path
        The store's folder.
    topic
        The topic that they were rejected from, as namespace/name.
    letters
        Their ids, as `dead-letters list` shows them, or all.
    subscriber
        Only those that this subscriber rejected.
    to_subscriber
        Deliver them to this subscriber instead.
    """
    quiet()
    document = operate.replay_letters(path, topic, letters, subscriber=subscriber, to_subscriber=to_subscriber)
    show(document, output, tables.replayed)
