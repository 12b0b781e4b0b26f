"""A whole disk as one value: nested names down to contents, with a digest."""

from __future__ import annotations

import hashlib
from typing import NamedTuple, TypeAlias

from holdfast.testing._content import Content


class Leaf(NamedTuple):
    """A file in a tree."""

    content: Content
    modified_ns: int


Tree: TypeAlias = "dict[str, Leaf | Tree]"


def tree_digest(tree: Tree) -> bytes:
    """Equal for equal names, kinds and bytes; times do not count."""
    hasher = hashlib.blake2b(digest_size=16)
    for name in sorted(tree):
        part = tree[name]
        encoded = name.encode()
        kind, digest = (b"f", part.content.digest) if isinstance(part, Leaf) else (b"d", tree_digest(part))
        hasher.update(len(encoded).to_bytes(4, "little") + encoded + kind + digest)
    return hasher.digest()
