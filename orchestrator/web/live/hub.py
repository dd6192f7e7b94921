"""The hub follows the executions with open pages: one thread and one subscription for each Redis.

The thread runs while a page is open. It reads an execution when a change is published, at most four times per
second and for at most a tenth of the time, and every few seconds in case that a message was lost or is not
published. What it reads goes to all pages of the execution.

    Redis is away      pages are told, and the thread tries again with back-off. Nothing is lost: the history
                       is read from the position that was reached
    a page is slow     its queue is full: it is told to load again
    an execution is    its pages are told, and end
    deleted
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any

import redis

from orchestrator.application.errors import AccessDenied, Unavailable
from orchestrator.redis_rq.connection import Client, backoff_delays, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.web.live.follower import READ_EVERY_S, Follower
from orchestrator.web.live.frames import OFFLINE, ONLINE, RELOAD, LivePage

logger = logging.getLogger(__name__)


class Hub:
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._lock = threading.Lock()
        self._joining: list[LivePage] = []
        self._leaving: list[LivePage] = []
        self._followers: dict[str, Follower] = {}
        self._is_running = False
        self._has_news = threading.Event()
        self._channel: Any = None
        self._may_subscribe = True
        self._is_offline = False

    def join(self, page: LivePage) -> None:
        """Send a page what has changed after its position, and then every change."""
        with self._lock:
            self._joining.append(page)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="orchestrator-live", daemon=True).start()
        self._has_news.set()

    def leave(self, page: LivePage) -> None:
        with self._lock:
            self._leaving.append(page)

    @property
    def is_running(self) -> bool:
        return self._is_running

    # ---- the thread

    def _run(self) -> None:
        delays = backoff_delays()
        while self._update_pages():
            try:
                with translate_errors():
                    self._follow()
                delays = backoff_delays()
            except (Unavailable, AccessDenied) as error:
                self._lose(f"live updates wait for Redis: {error}")
                self._has_news.clear()
                self._has_news.wait(next(delays))
            except Exception:
                logger.exception("live updates failed, and begin again")
                self._lose("")
                time.sleep(next(delays))

    def _update_pages(self) -> bool:
        """Add the pages that join, and remove those that leave; false if none is left."""
        with self._lock:
            joining, leaving = self._joining, self._leaving
            self._joining, self._leaving = [], []
            for page in joining:
                if page.execution not in self._followers:
                    self._followers[page.execution] = Follower(self._client, self._keys, page.execution)
                self._followers[page.execution].newcomers.append(page)
                if self._is_offline:
                    page.send(OFFLINE)
            for page in leaving:
                if page.execution in self._followers:
                    self._followers[page.execution].leave(page)
            self._followers = {name: one for name, one in self._followers.items() if one.is_followed}
            self._is_running = bool(self._followers)
        if not self._is_running:
            self._close_channel()
        return self._is_running

    def _follow(self) -> None:
        """Wait for changes for a moment, and read what has changed."""
        self._subscribe()
        self._wait_for_changes()
        for execution, follower in list(self._followers.items()):
            if follower.is_due(time.monotonic()) and not self._read(follower):
                del self._followers[execution]
        if self._is_offline:
            self._is_offline = False
            for follower in self._followers.values():
                follower.send(ONLINE)

    def _read(self, follower: Follower) -> bool:
        try:
            return follower.read()
        except (Unavailable, AccessDenied, redis.exceptions.RedisError):
            raise
        except Exception:
            logger.exception("live updates cannot read an execution; its pages load again")
            follower.send(RELOAD)
            return False

    def _subscribe(self) -> None:
        """Subscribe to the channels of the executions with open pages, and to no others."""
        if self._channel is None:
            self._channel = self._client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        wanted, known = set(map(self._keys.changed, self._followers)), set(self._channel.channels)
        if wanted - known and self._may_subscribe:
            self._channel.subscribe(*wanted - known)
        if known - wanted:
            self._channel.unsubscribe(*known - wanted)

    def _wait_for_changes(self) -> None:
        """Mark the executions that are published, until one of them may be read or a page joins; not long,
        because pages also join and leave while nothing is published."""
        until, prefix = time.monotonic() + READ_EVERY_S, len(self._keys.changed(""))
        while True:
            now = time.monotonic()
            if now >= until or self._joining or any(one.is_due(now) for one in self._followers.values()):
                return
            changed = [one.read_at for one in self._followers.values() if one.is_changed]
            message = self._receive(max(min([until, *changed]) - now, 0.001))
            if message is not None and message["type"] == "message":
                follower = self._followers.get(message["channel"][prefix:])
                if follower is not None:
                    follower.is_changed = True

    def _receive(self, timeout_s: float) -> Any:
        if not self._channel.subscribed:
            self._has_news.clear()
            self._has_news.wait(timeout_s)
            return None
        try:
            return self._channel.get_message(timeout=timeout_s)
        except redis.exceptions.NoPermissionError:  # the user has the rules of an earlier release
            logger.warning("live updates poll Redis: its user may not subscribe (docs/security.md)")
            self._may_subscribe = False
            self._channel.reset()
            return None

    def _lose(self, reason: str) -> None:
        """Redis is away: tell the pages, and read every execution when it is back."""
        self._close_channel()
        if not self._is_offline and reason:
            logger.warning("%s", reason)
        for follower in self._followers.values():
            follower.is_changed, follower.read_at = True, 0.0
            if not self._is_offline:
                follower.send(OFFLINE)
        self._is_offline = True

    def _close_channel(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(redis.exceptions.RedisError, OSError):
                channel.close()
