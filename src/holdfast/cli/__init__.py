"""The command line: parse, call, print.

_app.py          the program: its commands, errors and exit codes
_commands.py     topics, inspect, fsck, demo
_print.py        where output goes: JSON, tables, a pipe that closes early
_tables.py       what the documents of `holdfast.operate` look like to people
_progress.py     a bar on a terminal, plain lines elsewhere
_demo_writer.py  the process that `holdfast demo` kills
"""

from holdfast.cli._app import main

__all__ = ["main"]
