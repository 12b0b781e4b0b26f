"""A supervisor over fake children: python fake_run.py JOURNAL STAGES PATIENCE; its log is on standard output, as JSON.

STAGES is a JSON list of lists of [name, behaviour].
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import structlog

from holdfast.clock import SystemClock, SystemIds
from holdfast.pipeline.supervisor import Patience, Program, Supervisor

CHILD = str(Path(__file__).with_name("fake_child.py"))

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored, as nohup does
    structlog.configure(processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()])
    journal, stages, patience = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    programs = [
        [Program(name, [sys.executable, CHILD, name, journal, behaviour]) for name, behaviour in stage]
        for stage in stages
    ]
    sys.exit(Supervisor(programs, clock=SystemClock(), ids=SystemIds(), patience=Patience(**patience)).run())
