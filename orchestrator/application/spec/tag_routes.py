"""Where steps with tags run: a table of tags and the queues that serve them.

    gpu=gpu-box, eu+gpu=eu-gpu    what needs a gpu goes to gpu-box; what needs eu, or both, to eu-gpu
    *                             what no entry covers goes to its own queue

An entry covers a step that has no tag besides those of the entry. Of several the one with the fewest tags is
taken, so that the rarer workers are left to those who need them; of equals the first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from orchestrator.application.errors import NoRoute
from orchestrator.application.spec.model import ID_RULE, WEBHOOK_STEP, WorkflowSpec, is_id

TAGS_VARIABLE = "ORCHESTRATOR_TAGS"
REST = "*"


@dataclass(frozen=True, slots=True)
class TagRoutes:
    """`is_open`: tags that no entry covers mean nothing; otherwise they are refused."""

    entries: tuple[tuple[frozenset[str], str], ...] = ()
    allows_unknown_tags: bool = False

    @classmethod
    def parse(cls, text: str) -> TagRoutes:
        """The table in a text; ValueError with what is wrong with it."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return cls(tuple(_entry(part) for part in parts if part != REST), REST in parts)

    def __str__(self) -> str:
        written = [f"{'+'.join(sorted(tags))}={queue}" for tags, queue in self.entries]
        return ", ".join([*written, REST] if self.allows_unknown_tags else written)

    def allow_unknown_tags(self) -> TagRoutes:
        return replace(self, allows_unknown_tags=True)

    def queue_of(self, tags: Collection[str], queue: str, step: str = "") -> str:
        """Where a step with these tags goes, whose own queue is this one; NoRoute when nobody serves it."""
        if not tags:
            return queue
        covering = [entry for entry in self.entries if entry[0].issuperset(tags)]
        if covering:
            return min(covering, key=lambda entry: len(entry[0]))[1]
        if not self.allows_unknown_tags:
            raise NoRoute(step, sorted(tags), TAGS_VARIABLE, str(self))
        return queue

    def queues(self, spec: WorkflowSpec) -> set[str]:
        """Every queue that jobs of a workflow go to, and of the children written inside of it; NoRoute when
        one of them would wait for ever."""
        found = {WEBHOOK_STEP.queue} if spec.webhook is not None else set()
        for step in spec.steps:
            if step.kind == "task":
                found.add(self.queue_of(step.tags, step.queue, step.id))
            if step.compensate is not None:
                undo = step.compensation_step
                found.add(self.queue_of(undo.tags, undo.queue, undo.id))
            if step.child is not None and step.child.loaded is not None:
                found |= self.queues(step.child.loaded.spec)
        return found


def _entry(part: str) -> tuple[frozenset[str], str]:
    written, _, queue = (side.strip() for side in part.rpartition("="))
    tags = [tag.strip() for tag in written.split("+")]
    if not all(tags):
        raise ValueError(f"{part!r} is not an entry such as gpu=QUEUE or eu+gpu=QUEUE")
    if not is_id(queue):
        raise ValueError(f"the queue {queue!r} {ID_RULE}")
    return frozenset(tags), queue
