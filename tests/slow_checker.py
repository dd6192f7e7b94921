"""A checker of documents that hangs, dies or waits, as the description of a document asks for.

    python -m slow_checker FOLDER LIFELINE DEADLINE_S MAX_MEMORY_BYTES

It writes its pid to FOLDER/pids before each check. "#hang" never ends, "#die" kills the checker, "#wait"
waits until FOLDER/go exists, and "#greedy" asks for more memory than there is.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import load_spec
from orchestrator.coordinator import checker_child, large_document

HANG, DIE, WAIT, GREEDY = "#hang", "#die", "#wait", "#greedy"


def load_slowly(text: str, **options: Any) -> LoadedSpec:
    folder = Path(sys.argv[1])
    with (folder / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    while HANG in text:
        time.sleep(0.01)
    if GREEDY in text:
        bytearray(int(sys.argv[4]) * 2)
    if DIE in text:
        os.kill(os.getpid(), signal.SIGKILL)
    while WAIT in text and not (folder / "go").exists():
        time.sleep(0.01)
    return load_spec(text, **options)


if __name__ == "__main__":
    vars(large_document)["load_spec"] = load_slowly
    checker_child.serve(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
