"""Names that may become paths and labels."""

from __future__ import annotations

import string
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidName
from holdfast.names import validate_namespace, validate_slot, validate_subscriber, validate_topic

GOOD = [
    "a",
    "A9",
    "prod",
    "prod-eu.west_1",
    "0",
    "a" * 128,
    "a.b.c",
    "console",
    "com10",
    "nullable",
    "x-",
    "lock",
    "a.locks",
]
BAD = [
    "", ".", "..", ".hidden", "a..b", "a.", "-a", "_a", "a b", "a\\b", "a:b", "a\0b", "a\n", "é", "木", "a" * 129,
    "x.lock", "x.LOCK", "x.checkpoint", "x.tmp", "con", "NUL", "com1", "lpt0", "aux.txt", "Prn.a.b", "a*", "~", "a%2e",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_ordinary_names_are_taken_as_they_are(name: str) -> None:
    """A valid name is returned unchanged, as namespace, topic name and subscriber."""
    assert validate_topic(f"{name}/{name}") == (name, name)
    assert validate_subscriber(name) == name
    assert validate_namespace(name) == name


@pytest.mark.parametrize("name", BAD)
def test_names_that_mean_something_to_a_filesystem_are_refused(name: str) -> None:
    """No such name gets through, in either half of a topic or as a subscriber."""
    for topic in (f"{name}/ok", f"ok/{name}"):
        with pytest.raises(InvalidName):
            validate_topic(topic)
    with pytest.raises(InvalidName):
        validate_subscriber(name)
    with pytest.raises(InvalidName):
        validate_namespace(name)


@pytest.mark.parametrize("topic", ["logs", "a/b/c", "/a", "a/", "//", "/", "", "a//b"])
def test_a_topic_has_exactly_one_slash(topic: str) -> None:
    """Anything but two names with one slash between them is refused."""
    with pytest.raises(InvalidName):
        validate_topic(topic)


@pytest.mark.parametrize("value", [None, 3, b"a/b", ["a/b"]])
def test_a_name_is_a_text(value: object) -> None:
    """Other types are refused with their name, not with an AttributeError."""
    for check in (validate_topic, validate_subscriber, validate_slot, validate_namespace):
        with pytest.raises(InvalidName, match=f"not a {type(value).__name__}"):
            check(value)  # type: ignore[arg-type]


@given(st.text(max_size=20) | st.text("./\\ab:~ ", max_size=8))
def test_whatever_is_accepted_stays_inside_its_folder(topic: str) -> None:
    """An accepted topic is two plain path parts on POSIX and on Windows."""
    try:
        namespace, name = validate_topic(topic)
    except InvalidName:
        return
    assert PurePosixPath("/store", namespace, name).parts == ("/", "store", namespace, name)
    assert PureWindowsPath("c:/store", namespace, name).parts == ("c:\\", "store", namespace, name)
    assert not PureWindowsPath(namespace).is_reserved()
    assert not PureWindowsPath(name).is_reserved()
    assert f"{namespace}/{name}" == topic


@pytest.mark.parametrize("name", ["logs", "_x", ".a", "-", "a..b", "con", "x.lock", "L" * 128])
def test_a_slot_may_have_any_name_of_the_allowed_characters(name: str) -> None:
    """A slot is never part of a path, so only its characters and its length count."""
    assert validate_slot(name) == name


@given(st.text(max_size=10))
def test_a_slot_with_any_other_character_is_refused(name: str) -> None:
    """Exactly the names of 1 to 128 allowed characters pass."""
    allowed = bool(name) and set(name) <= set(string.ascii_letters + string.digits + "_.-")
    if allowed:
        assert validate_slot(name) == name
    else:
        with pytest.raises(InvalidName):
            validate_slot(name)


@pytest.mark.parametrize(
    ("check", "name", "text"),
    [
        (validate_topic, "logs", "topic 'logs' has 0 slashes; write 'namespace/name', with exactly one"),
        (validate_topic, "a/..", "name in topic 'a/..': '..' begins with '.'; allowed: 1 to 128 of the characters"),
        (validate_topic, "nul/a", "namespace in topic 'nul/a': 'nul' is the name of a device on Windows; allowed: "),
        (
            validate_subscriber,
            "a.Lock",
            "subscriber: 'a.Lock' ends in '.Lock', which the store keeps for its own files;",
        ),
        (validate_subscriber, "a b", "subscriber: 'a b' has ' ' in it; allowed: "),
        (validate_slot, "", "slot '' is empty; allowed: 1 to 128 of the characters A-Z a-z 0-9 . _ -"),
        (validate_slot, "x" * 200, "slot 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'... has 200 characters; allowed: "),
    ],
)
def test_the_error_says_what_was_found_and_what_is_allowed(check, name: str, text: str) -> None:  # type: ignore[no-untyped-def]
    """The text names the culprit and the rule."""
    with pytest.raises(InvalidName) as caught:
        check(name)
    assert str(caught.value).startswith(text)
