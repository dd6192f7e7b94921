"""Handles RQ's commands to a worker: stop a job, shut down."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from orchestrator.redis_rq.connection import Client, backoff_delays

logger = logging.getLogger(__name__)

WAIT_S = 1.0


def start_command_listener(client: Client, worker: str, stop: Callable[[str], Any]) -> None:
    """Handle commands in a thread of a supervisor's child; `stop` receives the id of a job."""
    threading.Thread(target=_listen, args=[client, worker, stop], name="commands", daemon=True).start()


def _listen(client: Client, worker: str, stop: Callable[[str], Any]) -> None:
    for delay_s in backoff_delays():
        try:
            with client.pubsub(ignore_subscribe_messages=True) as pubsub:  # type: ignore[no-untyped-call]
                pubsub.subscribe(f"rq:pubsub:{worker}")
                while True:
                    message = pubsub.get_message(timeout=WAIT_S)
                    if message is not None:
                        _execute(message["data"], stop)
        except Exception as error:  # without commands, a superseded run notices its missing lease later
            logger.debug("cannot receive commands: %s", error)
            time.sleep(delay_s)


def _execute(data: Any, stop: Callable[[str], Any]) -> None:
    command = json.loads(data)
    if command.get("command") == "stop-job":
        stop(str(command.get("job_id")))
    elif command.get("command") == "shutdown":
        os.kill(os.getppid(), signal.SIGTERM)
