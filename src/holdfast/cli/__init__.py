"""The command line: parse, call, print.

_app.py                the program: its commands, errors and exit codes
_commands.py           topics, inspect, fsck, demo
_subscribers.py        subscribers list, show, pause, resume, remove
_dead_letters.py       dead-letters list, show, export, replay
_output.py             what every command has: text or JSON
_print.py              where output goes: JSON, tables, a pipe that closes early
_tables.py             tables and lists of facts, for people
_report_tables.py      topics, fsck and demo; others: _inspect_tables.py, _subscriber_tables.py, _letter_tables.py
_progress.py           a bar on a terminal, plain lines elsewhere
_live.py               figures that change while one looks
_demo_writer.py        the process that `holdfast demo` kills
"""

from holdfast.cli._app import main

__all__ = ["main"]
