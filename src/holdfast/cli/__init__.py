"""The command line: parse, call, print.

_app.py                the program: its commands, errors and exit codes
_commands.py           topics, inspect, fsck
_pipeline.py           validate, graph, config
_subscribers.py        subscribers list, show, pause, resume, remove
_dead_letters.py       dead-letters list, show, export, replay
_run.py                run, ingest, pipeline
_demo.py               demo; _demo_run.py: the pipeline that it starts
_output.py             what every command has: text or JSON
_print.py              where output goes: JSON, tables, a pipe that closes early
_tables.py             tables and lists of facts, for people
_report_tables.py      topics and fsck; others: _inspect_tables.py, _subscriber_tables.py, _letter_tables.py
_progress.py           a bar on a terminal, plain lines elsewhere
_live.py               the demo's figures while they change
"""

from holdfast.cli._app import main

__all__ = ["main"]
