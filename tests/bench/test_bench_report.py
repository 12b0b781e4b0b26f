"""How a benchmark's findings are printed."""

import json

from _harness import Spread, Target
from _report import Row, Section, as_json, as_text

SECTION = Section(
    "append",
    [
        Row("ours", {"bundles/s": 12_345.6, "MB/s": 921.4}),
        Row("a peer", {"bundles/s": 4_000.0, "MB/s": 29.86}, Spread(3.09, 2.5, 10.04), Target(4)),
        Row("another", {"bundles/s": 8.0}, Spread(1.5, 1.0, 2.0)),
        Row("slow", {}, Spread(1.25, 1.1, 1.4), Target(1.5, at_most=True)),
    ],
    "ours / it",
    ["a note"],
)


def test_the_table_is_aligned():
    """Names to the left, figures to the right, a target and its verdict where there is one."""
    assert as_text([SECTION]).splitlines()[2:] == [
        "append",
        "           bundles/s  MB/s  ours / it       range       target",
        "  ours        12,346   921",
        "  a peer       4,000  29.9       3.09  2.50..10.0   at least 4  missed",
        "  another       8.00             1.50  1.00..2.00",
        "  slow                           1.25  1.10..1.40  at most 1.5  met",
        "  - a note",
    ]


def test_json_says_the_same():
    """Programs get unrounded figures, ratios with their range, targets and verdicts."""
    (section,) = json.loads(as_json([SECTION]))["sections"]
    assert section["title"] == "append"
    assert section["ratio"] == "ours / it"
    assert section["notes"] == ["a note"]
    assert section["rows"][1] == {
        "name": "a peer",
        "figures": {"bundles/s": 4000.0, "MB/s": 29.86},
        "ratio": {"median": 3.09, "low": 2.5, "high": 10.04},
        "target": {"value": 4, "at_most": False},
        "verdict": "missed",
    }
    assert [row["verdict"] for row in section["rows"]] == [None, "missed", None, "met"]
