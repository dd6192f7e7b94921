"""The environment is read once, into Settings, and handed down."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "orchestrator"

READERS = {
    "settings.py": "reads every setting",
    "coordinator/checker_process.py": "hands a few variables to the process that it starts",
    "runtime.py": "hands its environment to the processes that it starts",
    "payload_stores/s3.py": "AWS_REGION, which boto3 reads too",
    "testing/mocks.py": "lets a test read every variable",
    "worker/harness.py": "RQ_JOB_ID, which RQ sets in a work-horse",
    "worker/processes/recycling.py": "compares the environment before and after a step",
    "cli/commands/executors.py": "shows which variables of an executor are set",
    "cli/output/console.py": "NO_COLOR and TERM",
}


def test_only_these_modules_read_the_environment() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in ("os.environ", "getenv"))
    }

    assert found == READERS.keys()
