"""The program: its commands, what its errors look like, and what it ends with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from cyclopts import App, CycloptsError

from holdfast.cli import _commands, _dead_letters, _demo, _pipeline, _run, _subscribers
from holdfast.cli._print import say
from holdfast.errors import HoldfastError, InvalidPipeline

OK: Final = 0
USAGE: Final = 64  # sysexits.h
BAD_DATA: Final = 65
UNAVAILABLE: Final = 69
INTERRUPTED: Final = 130

app = App(
    name="holdfast",
    help="A durable, Arrow-native buffer with end-to-end acknowledgements.",
    version=lambda: f"holdfast {version('holdfast')}",
    help_format="plaintext",
)
app.command(_commands.topics)
app.command(_commands.inspect)
app.command(_commands.fsck)
app.command(_subscribers.app)
app.command(_dead_letters.app)
app.command(_pipeline.validate)
app.command(_pipeline.graph)
app.command(_pipeline.config)
app.command(_run.run)
app.command(_run.ingest)
app.command(_run.pipeline)
app.command(_demo.demo)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. Errors that are expected become one line on stderr."""
    try:
        result = app(
            list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        say(f"{_usage(error)}; try `holdfast --help`")
        return USAGE
    except InvalidPipeline as error:
        for line in str(error).splitlines():  # one for each mistake
            say(line)
        return error.exit_code
    except HoldfastError as error:
        say(str(error))
        return error.exit_code
    except OSError as error:
        say(_system(error))
        return UNAVAILABLE
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    return result if isinstance(result, int) else OK


def _usage(error: CycloptsError) -> str:
    text = " ".join(str(error).split())
    text = text if text.endswith("...") else text.removesuffix(".")  # a list that was cut short ends in dots
    return text[:1].lower() + text[1:]


def _system(error: OSError) -> str:
    """As the system says it, with the file in front."""
    reason = error.strerror or str(error) or type(error).__name__
    return reason if error.filename is None else f"{error.filename}: {reason[:1].lower()}{reason[1:]}"


def main() -> None:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))
