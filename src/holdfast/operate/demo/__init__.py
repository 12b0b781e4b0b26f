"""The demonstration: a real pipeline over a source whose every row is known beforehand, and the proof at its end.

_plan.py        what runs: the pipeline's file, and which rows each table must have in the end
_run.py         `holdfast run` as a process of its own, with all that it starts
_figures.py     how it stands while it runs
_chaos.py       when to kill what
_oracle.py      each table against the rows that the source was to generate
_demo.py        run_demo: start, watch, kill, drain, stop, compare
"""

from holdfast.operate.demo._chaos import Kill
from holdfast.operate.demo._demo import DemoResult, Display, run_demo
from holdfast.operate.demo._figures import DemoFigures, SinkFigures
from holdfast.operate.demo._oracle import TableCheck
from holdfast.operate.demo._plan import DemoPlan

__all__ = ["DemoFigures", "DemoPlan", "DemoResult", "Display", "Kill", "SinkFigures", "TableCheck", "run_demo"]
