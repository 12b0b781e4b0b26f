"""`holdfast subscribers ...`: who reads a topic, how far each one is, and what it holds back."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from holdfast import operate
from holdfast.cli import _subscriber_tables as tables
from holdfast.cli._output import Output, quiet, show

app = App(name="subscribers", help="List, show, pause, resume or remove the subscribers of a topic.")


@app.command(name="list")
def list_(path: Path, topic: str, /, *, output: Output = "text") -> None:
    """List the subscribers of a topic: progress, lag, and who pins how many bytes since when.

    Parameters
    ----------
    path
        The store's folder.
    topic
        As namespace/name.
    """
    show(operate.subscribers(path, topic), output, tables.listed)


@app.command(name="show")
def show_(path: Path, topic: str, name: str, /, *, output: Output = "text") -> None:
    """Show one subscriber, shard by shard.

    Parameters
    ----------
    path
        The store's folder.
    topic
        As namespace/name.
    name
        The subscriber.
    """
    show(operate.subscriber(path, topic, name), output, tables.shown)


@app.command
def pause(path: Path, topic: str, name: str, /, *, output: Output = "text") -> None:
    """Deliver nothing more to a subscriber until it is resumed; what it has not finished is kept.

    Parameters
    ----------
    path
        The store's folder.
    topic
        As namespace/name.
    name
        The subscriber.
    """
    quiet()
    show(operate.pause_subscriber(path, topic, name), output, tables.paused)


@app.command
def resume(path: Path, topic: str, name: str, /, *, output: Output = "text") -> None:
    """Deliver to a subscriber again.

    Parameters
    ----------
    path
        The store's folder.
    topic
        As namespace/name.
    name
        The subscriber.
    """
    quiet()
    show(operate.resume_subscriber(path, topic, name), output, tables.resumed)


@app.command
def remove(path: Path, topic: str, name: str, /, *, output: Output = "text") -> None:
    """Forget a subscriber: whoever holds it is fenced, and nothing is kept for it any more.

    Parameters
    ----------
    path
        The store's folder.
    topic
        As namespace/name.
    name
        The subscriber.
    """
    quiet()
    show(operate.remove_subscriber(path, topic, name), output, tables.removed)
