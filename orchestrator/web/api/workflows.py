"""Registered workflows. Their names may have any characters, so they are parameters, not parts of a path."""

from __future__ import annotations

from pydantic import Field

from orchestrator.application.spec.model import LoadedSpec
from orchestrator.redis_rq.queries.definitions import Definition, definitions
from orchestrator.web.api.documents import read_document
from orchestrator.web.api.models import Body, Json, JsonObject, Name, Query, Reply, Time
from orchestrator.web.api.route import ACTION_PROBLEMS, READ_PROBLEMS, ApiRoute, Call
from orchestrator.web.problems import Problem


class Workflow(Reply):
    """A registered name."""

    name: str
    workflow_id: str
    registered_at: Time | None
    is_scheduled: bool
    open: dict[str, int] = Field(
        description="Open executions by workflow_id: of this version, and of earlier ones with the same name."
    )

    @classmethod
    def of(cls, one: Definition) -> Workflow:
        return cls(
            name=one.name,
            workflow_id=one.workflow_id,
            registered_at=one.registered_at,
            is_scheduled=one.is_scheduled,
            open=dict(one.open),
        )


class Workflows(Reply):
    workflows: list[Workflow]


class WorkflowQuery(Query):
    workflow: Name = Field(description="The registered name.")


class DeclaredInput(Reply):
    type: str | None = Field(description="Null if it takes any value.")
    required: bool
    has_default: bool
    default: Json


class WorkflowDetails(Reply):
    """A registered workflow: its document, and the inputs that it declares."""

    name: str
    workflow_id: str
    description: str | None
    inputs: dict[str, DeclaredInput]
    document: JsonObject


class RegisterBody(Body):
    name: Name | None = Field(None, description="By default the name in the document.")
    document: JsonObject | str = Field(description="A workflow document: JSON, or text of YAML.")


class Registered(Reply):
    name: str
    workflow_id: str | None = Field(description="Null if it is no longer registered.")


def list_workflows(call: Call) -> Workflows:
    """List the registered workflows, with the versions that still have open executions."""
    found = definitions(call.instance.redis, call.instance.keys)
    return Workflows(workflows=[Workflow.of(one) for one in found])


def get_workflow(call: Call, query: WorkflowQuery) -> WorkflowDetails:
    """Get the document of a registered workflow, and the inputs that it declares."""
    loaded = load_definition(call, query.workflow)
    spec = loaded.spec
    return WorkflowDetails(
        name=query.workflow,
        workflow_id=loaded.workflow_id,
        description=spec.description,
        inputs={
            name: DeclaredInput(
                type=one.type, required=one.required, has_default=one.has_default, default=one.default
            )
            for name, one in spec.inputs.items()
        },
        document=loaded.document,
    )


def register(call: Call, body: RegisterBody) -> Registered:
    """Register a workflow, so that it can be started by its name.

    Registering a name again replaces its workflow; executions that have started keep theirs.
    """
    loaded = read_document(body.document)
    name = body.name or loaded.spec.name
    if not name:
        raise Problem(422, "invalid_request", "the document has no name: add one, or give a `name`")
    call.instance.client.store.register(name, loaded)
    call.target, call.result = name, f"registered as {loaded.workflow_id}"
    return Registered(name=name, workflow_id=loaded.workflow_id)


def unregister(call: Call, query: WorkflowQuery) -> Registered:
    """Remove a registered workflow and its schedule. Executions that have started continue."""
    call.target = query.workflow
    try:
        call.instance.client.store.unregister(query.workflow)
    except KeyError:
        raise unknown_workflow(query.workflow) from None
    return Registered(name=query.workflow, workflow_id=None)


def load_definition(call: Call, name: str) -> LoadedSpec:
    try:
        return call.instance.client.store.load_definition(name)
    except KeyError:
        raise unknown_workflow(name) from None


def unknown_workflow(name: str) -> Problem:
    return Problem(404, "unknown_workflow", f"no workflow is registered as {name[:200]!r}")


ROUTES = [
    ApiRoute("GET", "/workflows", list_workflows, problems={}),
    ApiRoute(
        "POST",
        "/workflows",
        register,
        problems={code: text for code, text in ACTION_PROBLEMS.items() if code not in (409, 504)},
    ),
    ApiRoute("GET", "/workflow", get_workflow, problems=READ_PROBLEMS),
    ApiRoute("DELETE", "/workflow", unregister, problems=READ_PROBLEMS),
]
