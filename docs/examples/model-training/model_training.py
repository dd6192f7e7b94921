"""A model is trained on a GPU queue, compared with the one in production, and promoted if it is better.

The model is a line through points, trained by gradient descent: it needs no library and no GPU. Folders:

    MODELS   checkpoints, models and the pointer to the one in production; `models` unless given
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator import op, step, workflow

CHECKPOINT_EVERY = 50
NO_CONTEXT: Mapping[str, Any] = MappingProxyType({"idempotency_key": "by-hand"})


@dataclass
class Dataset:
    training: str
    validation: str
    rows: int


@dataclass
class Model:
    file: str
    epochs: int


@dataclass
class Scores:
    candidate: float
    production: float | None
    is_better: bool


class TooFewRows(Exception):
    non_retryable = True


def no_heartbeat(progress: float | None = None, note: str | None = None) -> None:
    """Stands in for the heartbeat of a worker when a step is called as a function."""


@step(timeout="10m", retry=3)
def split_dataset(dataset: str, least_rows: int) -> Dataset:
    """Put every fifth row aside for the validation."""
    rows = read_rows(Path(dataset))
    if len(rows) < least_rows:
        raise TooFewRows(f"{dataset} has {len(rows)} rows; {least_rows} are needed")
    parts: dict[str, list[tuple[float, float]]] = {"training": [], "validation": []}
    for n, row in enumerate(rows):
        parts["validation" if n % 5 == 4 else "training"].append(row)
    folder = Path(f"{dataset}.parts")
    for name, part in parts.items():
        replace(folder / f"{name}.json", json.dumps(part))
    return Dataset(str(folder / "training.json"), str(folder / "validation.json"), len(rows))


# Workers of the queue `gpu` run it. A training that stands still is noticed after a minute, although it may
# take twelve hours. A lost machine costs the epochs since the last checkpoint.
@step(
    queue="gpu",
    timeout="12h",
    heartbeat="60s",
    retry={"max_retries": 5, "initial_delay_ms": 60_000, "max_delay_ms": 1_800_000},
)
def train(
    rows: str,
    epochs: int,
    learning_rate: float,
    context: Mapping[str, Any] = NO_CONTEXT,
    heartbeat: Callable[..., None] = no_heartbeat,
    log: Callable[[str], None] = print,
) -> Model:
    """Train from the last checkpoint. Its name is the same for every attempt of this step."""
    name = context["idempotency_key"].replace("#", "-").replace(":", "-")
    checkpoint = models() / f"{name}.checkpoint"
    state = {"epoch": 0, "a": 0.0, "b": 0.0}
    if checkpoint.exists():
        state = json.loads(checkpoint.read_text())
    log(f"training from epoch {state['epoch']} of {epochs}")
    points = json.loads(Path(rows).read_text())
    while state["epoch"] < epochs:
        error_a = sum((state["a"] * x + state["b"] - y) * x for x, y in points) / len(points)
        error_b = sum(state["a"] * x + state["b"] - y for x, y in points) / len(points)
        state["a"] -= learning_rate * error_a
        state["b"] -= learning_rate * error_b
        state["epoch"] += 1
        if state["epoch"] % CHECKPOINT_EVERY == 0:
            replace(checkpoint, json.dumps(state))
            heartbeat(state["epoch"] / epochs, note=f"epoch {state['epoch']}")
    model = models() / f"{name}.model"
    replace(model, json.dumps({"a": state["a"], "b": state["b"]}))
    return Model(str(model), epochs)


@step(timeout="30m", retry=3)
def evaluate(model: str, validation: str) -> Scores:
    """Compare the mean squared errors on the rows that were put aside."""
    points = json.loads(Path(validation).read_text())
    pointer = production_pointer()
    candidate = mean_squared_error(Path(model), points)
    production = mean_squared_error(Path(pointer.read_text()), points) if pointer.exists() else None
    return Scores(candidate, production, production is None or candidate < production)


@step(timeout="1m", retry=8)
def promote(model: str) -> str:
    """Point production to a model. The pointer is replaced as a whole; a second call writes the same."""
    replace(production_pointer(), model)
    return model


@workflow(timeout="2d", name="model-training")
def model_training(
    dataset: str, epochs: int = 500, learning_rate: float = 0.02, least_rows: int = 20
) -> dict[str, Any]:
    """Train a model on a GPU, and promote it if it beats the one in production."""
    data = split_dataset(dataset=dataset, least_rows=least_rows)
    model = train(rows=data.training, epochs=epochs, learning_rate=learning_rate)
    scores = evaluate(model=model.file, validation=data.validation)
    promoted = promote.options(when=scores.is_better)(model=model.file)
    return {"model": model.file, "scores": scores, "production": op.default(promoted, "unchanged")}


def read_rows(path: Path) -> list[tuple[float, float]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [(float(row["x"]), float(row["y"])) for row in csv.DictReader(file)]


def mean_squared_error(model: Path, points: list[tuple[float, float]]) -> float:
    line: dict[str, float] = json.loads(model.read_text())
    return round(sum((line["a"] * x + line["b"] - y) ** 2 for x, y in points) / len(points), 6)


def models() -> Path:
    return Path(os.environ.get("MODELS", "models"))


def production_pointer() -> Path:
    return models() / "production"


def replace(target: Path, content: str) -> None:
    """Write a file as a whole: a reader sees the old content or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.write_text(content, encoding="utf-8")
    part.replace(target)


def write_dataset(path: Path, rows: int = 50) -> None:
    points = "".join(f"{n / 10},{3 * n / 10 + 2}\n" for n in range(rows))
    path.write_text(f"x,y\n{points}", encoding="utf-8")


if __name__ == "__main__":
    write_dataset(Path("points.csv"))
