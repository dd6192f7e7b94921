"""The client: an application uses it to start, control and follow executions."""

from orchestrator.application.explain.run_status import RunStatus, StepRunStatus
from orchestrator.client.async_client import AsyncClient
from orchestrator.client.client import Client
from orchestrator.client.controls import BulkResult, ControlRejected, ControlResult
from orchestrator.client.ends import ExecutionFailed, StillRunning
from orchestrator.client.replies import NoReply, RequestLost
from orchestrator.client.starts import StartOptions, StartRequest, StartResult
from orchestrator.deprecation import renamed_names
from orchestrator.redis_rq.queries.execution_details import ExecutionDetails
from orchestrator.redis_rq.queries.failures import FailureGroup, FailureReport
from orchestrator.redis_rq.queries.listing import ExecutionFilter, Page, Summary

__all__ = [
    "AsyncClient",
    "BulkResult",
    "Client",
    "ControlRejected",
    "ControlResult",
    "ExecutionDetails",
    "ExecutionFailed",
    "ExecutionFilter",
    "FailureGroup",
    "FailureReport",
    "NoReply",
    "Page",
    "RequestLost",
    "RunStatus",
    "StartOptions",
    "StartRequest",
    "StartResult",
    "StepRunStatus",
    "StillRunning",
    "Summary",
]

__getattr__ = renamed_names(
    __name__,
    {
        "Answered": "ControlResult",
        "Bulk": "BulkResult",
        "ControlRefused": "ControlRejected",
        "Filter": "ExecutionFilter",
        "Forgotten": "RequestLost",
        "NoAnswer": "NoReply",
        "Started": "StartResult",
    },
)
