"""tree-sitter's nodes of a C++ or CUDA file, and walks over them. No other module imports tree-sitter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

__all__ = ["Node", "Unreadable", "deeper_than", "field_of", "parsed", "walk"]

_CUDA_WORDS = re.compile(
    rb"__(?:global|device|host|constant|shared|forceinline|noinline|grid_constant|managed)__\b"
    rb"|__(?:launch_bounds|cluster_dims|block_size|maxnreg|align)__\s*\((?:[^()]|\([^()]*\))*\)"
)
"""Words that the C++ grammar stumbles over; blanked before parsing, at the same offsets."""


def parsed(data: bytes, target: str) -> Node:
    """The root of the file's tree; positions in it are bytes of `data`."""
    blanked = _CUDA_WORDS.sub(lambda m: b" " * len(m[0]), data) if target == "cuda" else data
    return _parser().parse(blanked).root_node


@lru_cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_cpp.language()))


class Unreadable(Exception):
    """A node lacks a part that the grammar promises; happens in and near regions with syntax errors only."""


def field_of(node: Node, name: str) -> Node:
    """The child in a field that the node's type always has. Raises Unreadable."""
    child = node.child_by_field_name(name)
    if child is None:
        raise Unreadable(f"{node.type} without {name} in line {node.start_point.row + 1}")
    return child


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in the order of the text."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def deeper_than(root: Node, limit: int) -> bool:
    """Whether any node lies more than `limit` levels below the root."""
    level = [root]
    for _ in range(limit):
        level = [child for node in level for child in node.named_children]
        if not level:
            return False
    return True
