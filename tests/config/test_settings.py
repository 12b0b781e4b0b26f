"""Settings: defaults, bounds, who overrides whom, and errors that list every bad key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast import Durability, StoreSettings
from holdfast.config import BufferSettings, Cap, WalSettings
from holdfast.config.settings import level_of
from holdfast.errors import InvalidSettings


def buffer(**values: Any) -> BufferSettings:
    return StoreSettings.of({"buffer": values}).buffer


def test_defaults() -> None:
    """Without settings: fsync, 32 MB segments sealed after a minute, 64 MB WAL files up to 4 GB, no waiting."""
    settings = StoreSettings.of(None).resolve("any/topic")
    assert settings.durability is Durability.FSYNC
    assert (settings.segment.target_size, settings.segment.max_open_duration) == (32_000_000, 60.0)
    assert (settings.segment.compression, settings.segment.max_streams) == ("none", 256)
    assert (settings.wal.max_size, settings.wal.file_size) == (4_000_000_000, 64_000_000)
    assert (settings.wal.flush_interval, settings.append_timeout) == (0.0, 30.0)
    retention = settings.retention
    assert (retention.min_free_disk, retention.size_cap, retention.size_cap_policy) == (0.05, None, "backpressure")
    assert (retention.max_age, retention.age_by, retention.expire_unfinished) == (None, "ingestion", False)
    assert (retention.max_segments, retention.steady_state_headroom) == (100_000, 0)
    assert (retention.check_interval, retention.trash_age) == (300.0, None)


def test_units() -> None:
    """Sizes, durations and shares are written as people write them."""
    settings = buffer(
        segment={"target_size": "1MiB", "max_open_duration": "2m"},
        wal={"max_size": "2GB", "flush_interval": "25ms", "file_size": 10_000},
        retention={"min_free_disk": "7.5%"},
        append_timeout=1.5,
    )
    assert (settings.segment.target_size, settings.segment.max_open_duration) == (2**20, 120.0)
    assert (settings.wal.max_size, settings.wal.flush_interval, settings.wal.file_size) == (2 * 10**9, 0.025, 10_000)
    assert settings.retention.min_free_disk == 0.075
    assert settings.append_timeout == 1.5


def test_topic_over_namespace_over_store() -> None:
    """A topic's own keys come first, then its namespace's, then the store's, key by key."""
    settings = StoreSettings.of(
        {
            "buffer": {"durability": "os", "append_timeout": "1s", "wal": {"file_size": "1MB", "max_size": "9MB"}},
            "namespaces": {"prod": {"append_timeout": "2s", "wal": {"file_size": "2MB"}}},
            "topics": {"prod/logs": {"wal": {"flush_interval": "5ms"}, "durability": "memory"}},
        }
    )
    logs, other, elsewhere = (settings.resolve(topic) for topic in ("prod/logs", "prod/other", "dev/logs"))
    assert (logs.durability, logs.append_timeout) == (Durability.MEMORY, 2.0)
    assert (logs.wal.file_size, logs.wal.max_size, logs.wal.flush_interval) == (2_000_000, 9_000_000, 0.005)
    assert (other.durability, other.append_timeout, other.wal.file_size) == (Durability.OS, 2.0, 2_000_000)
    assert (elsewhere.append_timeout, elsewhere.wal.file_size) == (1.0, 1_000_000)


def test_settings_are_taken_as_they_are() -> None:
    """Settings that are made already are not checked again."""
    settings = StoreSettings.of({"buffer": {"durability": "os"}})
    assert StoreSettings.of(settings) is settings


def test_frozen() -> None:
    """Settings do not change once they are made."""
    settings = StoreSettings.of({})
    with pytest.raises(ValidationError):
        settings.buffer.wal.max_size = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"durability": "sure"}, "buffer.durability: 'sure' is not a durability; use memory, os or fsync"),
        ({"durability": "object"}, "buffer.durability: durability object needs a bucket"),
        ({"slots": "mine"}, "buffer.slots: "),
        ({"append_timeout": "soon"}, "buffer.append_timeout: 'soon' is not a duration; write it like 25ms, 60s or 72h"),
        ({"append_timeout": -1}, "buffer.append_timeout: "),
        ({"append_timeout": None}, "buffer.append_timeout: "),
        ({"append_timeout": float("inf")}, "buffer.append_timeout: "),
        ({"append_timeout": float("nan")}, "buffer.append_timeout: "),
        ({"append_timeout": True}, "buffer.append_timeout: "),
        ({"segment": {"target_size": 0}}, "buffer.segment.target_size: "),
        ({"segment": {"target_size": "32 apples"}}, "buffer.segment.target_size: '32 apples': unknown unit 'apples'"),
        ({"segment": {"target_size": 1.5}}, "buffer.segment.target_size: "),
        ({"segment": {"target_size": None}}, "buffer.segment.target_size: "),
        ({"segment": {"target_size": [1]}}, "buffer.segment.target_size: "),
        ({"segment": {"max_open_duration": 0}}, "buffer.segment.max_open_duration: "),
        ({"segment": {"max_streams": 0}}, "buffer.segment.max_streams: "),
        ({"segment": {"compression": "gzip"}}, "buffer.segment.compression: "),
        ({"segment": 5}, "buffer.segment: "),
        ({"wal": {"file_size": 100}}, "buffer.wal.file_size: "),
        ({"wal": {"file_size": "2MB", "max_size": "1MB"}}, "(2000000) must not exceed wal.max_size (1000000)"),
        ({"wal": {"flush_interval": "2h"}}, "buffer.wal.flush_interval: "),
        ({"wal": {"flushinterval": 1}}, "buffer.wal.flushinterval: "),
        ({"retention": {"min_free_disk": "100%"}}, "buffer.retention.min_free_disk: "),
        ({"retention": {"min_free_disk": "x%"}}, "buffer.retention.min_free_disk: "),
        ({"retention": {"min_free_disk": -0.1}}, "buffer.retention.min_free_disk: "),
        ({"retention": {"size_cap": 0}}, "buffer.retention.size_cap: "),
        ({"retention": {"size_cap": "much"}}, "buffer.retention.size_cap: 'much' is not a size"),
        ({"retention": {"size_cap_policy": "drop"}}, "buffer.retention.size_cap_policy: "),
        ({"retention": {"max_age": 0}}, "buffer.retention.max_age: "),
        ({"retention": {"age_by": "arrival"}}, "buffer.retention.age_by: "),
        ({"retention": {"max_segments": 0}}, "buffer.retention.max_segments: "),
        ({"retention": {"steady_state_headroom": -1}}, "buffer.retention.steady_state_headroom: "),
        ({"retention": {"check_interval": 0}}, "buffer.retention.check_interval: "),
        ({"retention": {"trash_age": 0}}, "buffer.retention.trash_age: "),
    ],
)  # fmt: skip
def test_bad_values_are_refused_with_their_key(values: dict[str, Any], told: str) -> None:
    """Whatever is wrong, the error is ours and begins with the key."""
    with pytest.raises(InvalidSettings) as caught:
        buffer(**values)
    assert told in str(caught.value)


def test_every_bad_key_is_listed() -> None:
    """One error tells of all that is wrong in the store's own settings."""
    with pytest.raises(InvalidSettings) as caught:
        buffer(durability="x", wal={"file_size": 1, "nope": 2}, segment={"max_streams": 0})
    for key in ("buffer.durability: ", "buffer.wal.file_size: ", "buffer.wal.nope: ", "buffer.segment.max_streams: "):
        assert key in str(caught.value)


def test_every_bad_override_is_listed() -> None:
    """One error tells of all namespaces and topics that are wrong, and of bad names."""
    with pytest.raises(InvalidSettings) as caught:
        StoreSettings.of(
            {
                "namespaces": {"prod": {"durability": "x"}, "../x": {}},
                "topics": {"dev/logs": {"slots": "nope", "wal": {"file_size": 1}}, "no-slash": {}},
            }
        )
    for part in (
        "namespaces.prod.durability: ",
        "topics.dev/logs.slots: ",
        "topics.dev/logs.wal.file_size: ",
        "'../x'",
        "'no-slash'",
    ):
        assert part in str(caught.value)


def test_overrides_that_only_together_are_wrong() -> None:
    """A combination of namespace and topic that cannot be is refused at start."""
    with pytest.raises(InvalidSettings, match="must not exceed"):
        StoreSettings.of(
            {
                "namespaces": {"prod": {"wal": {"max_size": "10MB", "file_size": "1MB"}}},
                "topics": {"prod/logs": {"wal": {"file_size": "20MB"}}},
            }
        )


@pytest.mark.parametrize("value", [{"bufer": {}}, {"topics": {"a/b": None}}, {"namespaces": []}, 5, "x"])
def test_wrong_shapes(value: Any) -> None:
    """Unknown keys and wrong types are refused as settings, not as programming errors."""
    with pytest.raises(InvalidSettings):
        StoreSettings.of(value)


def test_levels_by_name_and_value() -> None:
    """Levels are given by name, in any case, or as themselves."""
    assert level_of("FSYNC") is level_of("fsync") is level_of(Durability.FSYNC) is Durability.FSYNC
    assert [str(level) for level in Durability] == ["memory", "os", "fsync", "object"]
    assert list(Durability) == sorted(Durability)


def test_a_file_may_be_as_large_as_the_wal() -> None:
    """The bound itself is allowed."""
    assert WalSettings(file_size=4096, max_size=4096).file_size == 4096


def test_a_cap_holds_where_it_is_written() -> None:
    """Each level's own cap counts what is under that level, the widest first; none is handed down."""
    settings = StoreSettings.of(
        {
            "buffer": {"retention": {"size_cap": "50GB"}},
            "namespaces": {"prod": {"retention": {"size_cap": "5GB", "max_age": "3h"}}},
            "topics": {"prod/logs": {"retention": {"size_cap": "1GB"}}, "dev/x": {"retention": {"max_age": "1h"}}},
        }
    )
    store, prod = Cap("store", Path(), 50 * 10**9), Cap("namespace", Path("prod"), 5 * 10**9)
    logs = Cap("topic", Path("prod/logs"), 10**9)
    assert settings.caps("prod/logs") == (store, prod, logs)
    assert settings.caps("prod/logs.dead") == settings.caps("prod/other") == (store, prod)
    assert settings.caps("dev/x") == (store,)
    assert StoreSettings.of(None).caps("prod/logs") == ()


def test_a_topic_cannot_lift_the_cap_of_the_store() -> None:
    """A cap of `None` below only means that this level has none of its own."""
    settings = StoreSettings.of(
        {"buffer": {"retention": {"size_cap": 7}}, "topics": {"a/x": {"retention": {"size_cap": None}}}}
    )
    assert settings.caps("a/x") == (Cap("store", Path(), 7),)


def test_what_a_cap_counts() -> None:
    """A topic's cap counts the folder of its dead letters as well; the others have one folder."""
    assert Cap("topic", Path("a/x"), 1).folders == (Path("a/x"), Path("a/x.dead"))
    assert Cap("namespace", Path("a"), 1).folders == (Path("a"),)
    assert Cap("store", Path(), 1).folders == (Path(),)
