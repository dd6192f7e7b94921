"""The page Start: the registered workflows, and a form for the inputs of one.

A form starts a registered workflow, a pasted document, or the document of an execution, with its inputs in
the fields. Secrets of that execution are not shown, and so not sent either: they are entered again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orchestrator.application.errors import InvalidSpec, OrchestratorError
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.redaction.by_key import redact_by_key
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import load_spec
from orchestrator.application.spec.yaml_writer import render_yaml
from orchestrator.client import StartResult
from orchestrator.drawing.diagram import diagram_from_spec
from orchestrator.drawing.layout import lay_out
from orchestrator.drawing.outline import make_outline
from orchestrator.drawing.svg import render_svg
from orchestrator.redis_rq.queries.definitions import registrations
from orchestrator.web.actions import log_action
from orchestrator.web.forms import Form, with_form
from orchestrator.web.input_fields import OTHERS, PREFIX, FormInputs, make_fields, prefill, read_inputs
from orchestrator.web.instance import Instance, instance_of
from orchestrator.web.problems import Problem, find_problem
from orchestrator.web.rendering import path_of, render

MAX_WORKFLOWS_SHOWN = 500
MAX_DRAWN_NODES = 300
REPEAT_WINDOW_S = 3_600
"""A form that is sent twice within this time starts one execution."""
OPTIONS = ("execution_id", "labels", "group", "priority")
PRIORITIES = range(1, 6)


@dataclass(frozen=True, slots=True)
class Source:
    """What a form starts: `workflow` is a registered name; without it `loaded` is sent as a document, which
    was pasted or is that of the execution `origin`."""

    loaded: LoadedSpec
    workflow: str | None = None
    document: str | None = None
    origin: str | None = None

    @property
    def title(self) -> str:
        return self.workflow or self.loaded.spec.name or "a workflow without a name"


@dataclass(slots=True)
class Texts:
    """What the form shows in its fields, with what is wrong."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    others: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None


def show(request: Request) -> Response:
    """The list of registered workflows, or the form of one."""
    instance, query = instance_of(request), request.query_params
    origin = query.get("from")
    if origin:
        record = instance.client.record(origin)
        source = _find_source_of(instance, record, query.get("workflow"))
        return _render_form(request, source, _texts_of(record, source.loaded))
    if query.get("workflow"):
        return _render_form(request, _find_registered(instance, query["workflow"]), Texts())
    return _render_list(request)


@with_form
def read_document(request: Request, form: Form) -> Response:
    """The form of a pasted document."""
    try:
        source = _find_source(instance_of(request), form)
    except InvalidSpec as error:
        return _render_list(request, form.get("document", ""), error)
    return _render_form(request, source, Texts())


@with_form
def start(request: Request, form: Form) -> Response:
    source = _find_source(instance_of(request), form)
    found, errors = read_inputs(source.loaded.spec, form), _check_options(form)
    if found.errors or errors:
        return _render_again(request, source, form, found, errors)
    try:
        started = _start(instance_of(request), source, found, form)
    except OrchestratorError as error:
        problem = find_problem(error)
        log_action(request, "start", source.title, problem.code if problem is not None else "internal")
        if problem is None:
            raise
        return _render_again(request, source, form, found, {}, problem)
    log_action(request, "start", source.title, f"started {started.execution_id}")
    notice = "existing" if started.existing else "started"
    to = path_of(request, "execution", execution=started.execution_id, notice=notice)
    return RedirectResponse(to, 303)


ROUTES = [
    Route("/start", show, name="start"),
    Route("/start", start, methods=["POST"], name="send_start"),
    Route("/start/document", read_document, methods=["POST"], name="read_document"),
]


def _start(instance: Instance, source: Source, found: FormInputs, form: Form) -> StartResult:
    priority = form.get("priority", "").strip()
    return instance.client.start(
        source.workflow if source.workflow is not None else source.loaded,
        found.inputs,
        form.get("execution_id", "").strip() or None,
        labels=_read_labels(form.get("labels", "")),
        group=form.get("group", "").strip() or None,
        priority=int(priority) if priority else None,
        idempotency_root=form.get("form") or None,
        idempotency_window_s=REPEAT_WINDOW_S if form.get("form") else None,
    )


# ---- what is started


def _find_source(instance: Instance, form: Form) -> Source:
    """What a form starts. Raises InvalidSpec for a pasted document with problems."""
    document, origin = form.get("document", ""), form.get("from")
    if document.strip():
        return Source(load_spec(document.replace("\r\n", "\n")), document=document)
    if form.get("workflow"):
        return _find_registered(instance, form["workflow"])
    if origin:
        return Source(instance.client.record(origin).loaded, origin=origin)
    raise Problem(400, "bad_form", "the form names no workflow")


def _find_registered(instance: Instance, name: str) -> Source:
    try:
        return Source(instance.client.store.load_definition(name), workflow=name)
    except KeyError:
        raise Problem(404, "unknown_workflow", f"no workflow is registered as {name[:80]!r}") from None


def _find_source_of(instance: Instance, record: WorkflowRecord, workflow: str | None) -> Source:
    """A registered workflow, if it is wanted or if it is the same document as that of the execution; or else
    the document of the execution."""
    if workflow:
        return _find_registered(instance, workflow)
    registered = instance.client.store.definitions()
    same = [name for name, workflow_id in sorted(registered.items()) if workflow_id == record.workflow_id]
    return Source(record.loaded, workflow=same[0] if same else None, origin=record.execution_id)


# ---- fields


def _texts_of(record: WorkflowRecord, loaded: LoadedSpec) -> Texts:
    """The inputs and options of an execution, without secrets."""
    redacted: dict[str, Any] = make_record_view(record, loaded.spec.redact)(record.inputs)
    found = prefill(loaded.spec, record.inputs, redacted)
    labels = redact_by_key(dict(record.labels))
    options = {
        "labels": "\n".join(
            f"{name}={value}" for name, value in labels.items() if value == record.labels[name]
        ),
        "group": record.group or "",
        "priority": "" if record.priority is None else str(record.priority),
    }
    return Texts(found.texts, found.others, options, notes=found.notes)


def _check_options(form: Form) -> dict[str, str]:
    """What is wrong with the options, by their fields. A coordinator checks the rest."""
    errors = {}
    try:
        _read_labels(form.get("labels", ""))
    except ValueError as error:
        errors["labels"] = str(error)
    if form.get("priority", "").strip() not in ("", *map(str, PRIORITIES)):
        errors["priority"] = f"choose a number from {PRIORITIES[0]} to {PRIORITIES[-1]}"
    return errors


def _read_labels(text: str) -> dict[str, str]:
    """One label per line."""
    labels = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        if not (separator and name and value):
            raise ValueError(f"write KEY=VALUE on each line, not {line[:80]!r}")
        labels[name] = value
    return labels


# ---- rendering


def _render_again(
    request: Request,
    source: Source,
    form: Form,
    found: FormInputs,
    errors: Mapping[str, str],
    problem: Problem | None = None,
) -> Response:
    """The form with the typed texts, and with what is wrong beside its field."""
    texts = Texts(
        {name.removeprefix(PREFIX): text for name, text in form.items() if name.startswith(PREFIX)},
        form.get(OTHERS, ""),
        {name: form.get(name, "") for name in OPTIONS},
        {**found.errors, **{f"option:{name}": text for name, text in errors.items()}},
        problem=None if problem is None else problem.detail,
    )
    return _render_form(request, source, texts, 422 if problem is None else problem.status)


def _render_form(request: Request, source: Source, texts: Texts, status: int = 200) -> Response:
    spec = source.loaded.spec
    return render(
        request,
        "start_form.html",
        status,
        page_name="start",
        source=source,
        spec=spec,
        fields=make_fields(spec, texts.inputs, texts.errors, texts.notes),
        texts=texts,
        prefix=PREFIX,
        others=OTHERS,
        others_notes={name: note for name, note in texts.notes.items() if name not in spec.inputs},
        priorities=PRIORITIES,
        form_id=f"web-{secrets.token_hex(12)}",
        document=render_yaml(redact_by_key(source.loaded.document, spec.redact)),
        graph=_draw(source.loaded),
    )


def _draw(loaded: LoadedSpec) -> Markup:
    outline = make_outline(diagram_from_spec(loaded), max_nodes=MAX_DRAWN_NODES)
    return Markup(render_svg(lay_out(outline), is_standalone=False))


def _render_list(request: Request, document: str = "", error: InvalidSpec | None = None) -> Response:
    instance, text = instance_of(request), request.query_params.get("text", "")
    found = [one for one in registrations(instance.redis, instance.keys) if text.lower() in one.name.lower()]
    return render(
        request,
        "start.html",
        200 if error is None else 422,
        workflows=found[:MAX_WORKFLOWS_SHOWN],
        count=len(found),
        text=text,
        document=document,
        problems=[] if error is None else error.problems,
    )
