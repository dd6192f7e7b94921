"""Tests of the image pipeline: `pytest` in this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import image_pipeline
import pytest

from orchestrator.testing import WorkflowTest

WORKFLOW = Path(__file__).with_name("workflow.yaml")
Start = Callable[[], WorkflowTest]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for n in range(1, 6):
        image_pipeline.write_picture(tmp_path / "pictures" / f"{n}.ppm", 40 * n, 20, bytes([n, 0, 0]))
    return tmp_path / "pictures"


@pytest.fixture
def thumbnails(tmp_path: Path) -> Path:
    return tmp_path / "thumbnails"


@pytest.fixture
def start(workflow_test: type[WorkflowTest], pictures: Path, thumbnails: Path) -> Callable[[], WorkflowTest]:
    inputs = {"source": str(pictures), "target": str(thumbnails), "width": 40}
    return lambda: workflow_test(WORKFLOW, inputs, executors="image_pipeline")


def index_of(thumbnails: Path) -> dict[str, str]:
    index: dict[str, str] = json.loads((thumbnails / "index.json").read_text())
    return index


def test_every_picture_gets_a_thumbnail(start: Start, thumbnails: Path) -> None:
    test = start().run()

    assert test.outcome == {"index": str(thumbnails / "index.json"), "made": 5, "broken": {}}
    index = index_of(thumbnails)
    assert list(index) == ["1.ppm", "2.ppm", "3.ppm", "4.ppm", "5.ppm"]
    assert (thumbnails / index["5.ppm"]).read_bytes() == b"P6 40 4 255\n" + 160 * b"\x05\x00\x00"


def test_a_broken_picture_is_listed_and_not_tried_again(
    start: Start, pictures: Path, thumbnails: Path
) -> None:
    (pictures / "2.ppm").write_bytes(b"GIF89a")

    test = start().run()

    assert test.status == "complete"
    assert test.outcome["made"] == 4
    assert test.outcome["broken"] == {"2.ppm": "not a picture in the format P6"}
    assert test.executed("thumbnails#1") == 1
    assert "2.ppm" not in index_of(thumbnails)


def test_a_full_disk_is_tried_again(start: Start) -> None:
    test = start()
    test.mock("make_thumbnail", [OSError("no space left"), *[{"name": "n", "bytes": 1}] * 5])

    test.run(skip_waits=True)

    assert test.status == "complete"
    assert test.executed("thumbnails") == 6


def test_mostly_broken_pictures_fail_the_pipeline(start: Start, pictures: Path, thumbnails: Path) -> None:
    for name in ("1.ppm", "2.ppm", "3.ppm"):
        (pictures / name).write_bytes(b"")

    test = start().run()

    assert test.status == "failed"
    assert test.error["message"] == "3 of 5 pictures are broken"
    assert not (thumbnails / "index.json").exists()


def test_four_pictures_are_worked_on_at_once(start: Start) -> None:
    test = start()
    test.mock("make_thumbnail", {"name": "n", "bytes": 1}, takes="30s")

    test.run()

    assert test.executed("thumbnails") == 4
    assert test.skip("30s").executed("thumbnails") == 5


def test_a_picture_that_hangs_times_out_alone(start: Start) -> None:
    test = start()
    test.mock("thumbnails", {"name": "n", "bytes": 1}, takes="1h")

    test.run(skip_waits=True)

    assert test.error["message"] == "5 of 5 pictures are broken"


def test_a_worker_that_dies_leaves_whole_files(start: Start, thumbnails: Path) -> None:
    test = start()
    test.kill("worker.result", step="thumbnails", times=2)

    test.run()

    assert test.outcome["made"] == 5
    assert len(list(thumbnails.glob("*.ppm"))) == 5
    assert not list(thumbnails.glob(".*"))


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_results_does_not_matter(
    workflow_test: type[WorkflowTest], pictures: Path, thumbnails: Path, seed: int
) -> None:
    (pictures / "2.ppm").write_bytes(b"")
    inputs = {"source": str(pictures), "target": str(thumbnails)}
    test = workflow_test(WORKFLOW, inputs, executors="image_pipeline", order="shuffled", seed=seed)

    assert list(test.run().outcome["broken"]) == ["2.ppm"]
