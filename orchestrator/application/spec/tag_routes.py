"""Maps the tags of a step to a queue, by a table in the settings.

    gpu=gpu-box, eu+gpu=eu-gpu    steps that need gpu go to gpu-box; steps that need eu, or both, to eu-gpu
    *                             steps that no entry covers go to their own queue

An entry covers a step if it has all tags of the step. Of several such entries, the one with the fewest tags
wins, so that workers with rare tags are kept for the steps that need them; of equals, the first.
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
    """The table. `allows_unknown_tags`: tags that no entry covers are ignored instead of rejected."""

    entries: tuple[tuple[frozenset[str], str], ...] = ()
    allows_unknown_tags: bool = False

    @classmethod
    def parse(cls, text: str) -> TagRoutes:
        """Parse the table; a ValueError says what is wrong."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return cls(tuple(_parse_entry(part) for part in parts if part != REST), REST in parts)

    def __str__(self) -> str:
        entries = [f"{'+'.join(sorted(tags))}={queue}" for tags, queue in self.entries]
        return ", ".join([*entries, REST] if self.allows_unknown_tags else entries)

    def allow_unknown_tags(self) -> TagRoutes:
        return replace(self, allows_unknown_tags=True)

    def queue_of(self, tags: Collection[str], queue: str, step: str = "") -> str:
        """Return the queue for these tags, or `queue` if there are none. NoRoute if no entry fits."""
        if not tags:
            return queue
        covering = [entry for entry in self.entries if entry[0].issuperset(tags)]
        if covering:
            return min(covering, key=lambda entry: len(entry[0]))[1]
        if not self.allows_unknown_tags:
            raise NoRoute(step, sorted(tags), TAGS_VARIABLE, str(self))
        return queue

    def queues(self, spec: WorkflowSpec) -> set[str]:
        """Return every queue that jobs of a workflow and of its inline children go to; NoRoute if no queue
        serves the tags of a step."""
        queues = {WEBHOOK_STEP.queue} if spec.webhook is not None else set()
        for step in spec.steps:
            if step.kind == "task":
                queues.add(self.queue_of(step.tags, step.queue, step.id))
            if step.compensate is not None:
                compensation = step.compensation_step
                queues.add(self.queue_of(compensation.tags, compensation.queue, compensation.id))
            if step.child is not None and step.child.loaded is not None:
                queues |= self.queues(step.child.loaded.spec)
        return queues


def _parse_entry(part: str) -> tuple[frozenset[str], str]:
    left, _, queue = (side.strip() for side in part.rpartition("="))
    tags = [tag.strip() for tag in left.split("+")]
    if not all(tags):
        raise ValueError(f"{part!r} is not an entry such as gpu=QUEUE or eu+gpu=QUEUE")
    if not is_id(queue):
        raise ValueError(f"the queue {queue!r} {ID_RULE}")
    return frozenset(tags), queue
