"""A strict reader of the part of Mermaid that we write. Anything else is an error.

It is stricter than Mermaid: a node is declared once, before it is used; text is quoted, and contains no
character that Mermaid could interpret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TEXT = r'"(?P<text>(?:[^\W]|[ ,()/.-]|#\d+;|<br/>)*)"'
SHAPES = (rf"\[{TEXT}\]", rf"\[\[{TEXT}\]\]", rf"\{{{TEXT}\}}", rf"\(\[{TEXT}\]\)", rf">{TEXT}\]")
NODES = [re.compile(rf"    (?P<name>[a-z]\d+){shape}") for shape in SHAPES]
EDGE = re.compile(rf"    (?P<source>[a-z]\d+) (?P<arrow>-->|-\.->)(?:\|{TEXT}\|)? (?P<target>[a-z]\d+)")
CLASS_DEFINITION = re.compile(
    r"    classDef (?P<name>[a-z_]+) (?:(?:fill|stroke|color):#[0-9a-f]{6},?)+(?<!,)"
)
CLASS = re.compile(r"    class (?P<members>[a-z]\d+(?:,[a-z]\d+)*) (?P<name>[a-z_]+)")
NUMBER = re.compile(r"#(\d+);")


class NotMermaid(AssertionError):
    """A line that Mermaid might interpret differently."""


@dataclass
class Flowchart:
    """Text by node, edges with their arrow and text, classes by node."""

    nodes: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, str, str]] = field(default_factory=list)
    classes: dict[str, str] = field(default_factory=dict)

    def named(self, text: str) -> str:
        """The node with this first line."""
        (found,) = [name for name, shown in self.nodes.items() if shown.split("\n")[0] == text]
        return found


def read_mermaid(text: str) -> Flowchart:
    first, *lines = text.split("\n")
    if first != "flowchart TD":
        raise NotMermaid(f"it does not begin as a flowchart: {first!r}")
    read, defined = Flowchart(), set[str]()
    for line in lines:
        node = next((found for pattern in NODES if (found := pattern.fullmatch(line))), None)
        if node is not None:
            if node["name"] in read.nodes:
                raise NotMermaid(f"declared twice: {line!r}")
            read.nodes[node["name"]] = _decode(node["text"])
        elif edge := EDGE.fullmatch(line):
            if not {edge["source"], edge["target"]} <= set(read.nodes):
                raise NotMermaid(f"used before it is declared: {line!r}")
            read.edges.append((edge["source"], edge["arrow"], _decode(edge["text"] or ""), edge["target"]))
        elif definition := CLASS_DEFINITION.fullmatch(line):
            if definition["name"] in defined | {"default"}:
                raise NotMermaid(f"a class that has a meaning already: {line!r}")
            defined.add(definition["name"])
        elif membership := CLASS.fullmatch(line):
            if membership["name"] not in defined:
                raise NotMermaid(f"no such class: {line!r}")
            read.classes |= dict.fromkeys(membership["members"].split(","), membership["name"])
        else:
            raise NotMermaid(f"an unknown line: {line!r}")
    if not set(read.classes) <= set(read.nodes):
        raise NotMermaid("a class of nodes that are not there")
    return read


def _decode(text: str) -> str:
    """Decode a text as a browser does."""
    return NUMBER.sub(lambda found: chr(int(found[1])), text.replace("<br/>", "\n"))
