"""Threads for the slow work of many buckets: in order within a bucket, else side by side."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from mars.core.types import Bucket

Work = Callable[[], None]


class SerialPool:
    """Runs works of one bucket one after the other, works of different buckets side by side."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bucket")
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._queues: dict[Bucket, deque[Work]] = {}

    def submit(self, bucket: Bucket, work: Work) -> None:
        """Do the work after all earlier works of the bucket. It must not raise."""
        with self._lock:
            queue = self._queues.get(bucket)
            if queue is not None:
                queue.append(work)
                return
            self._queues[bucket] = deque([work])
        self._pool.submit(self._drain, bucket)

    def _drain(self, bucket: Bucket) -> None:
        while True:
            with self._lock:
                queue = self._queues[bucket]
                if not queue:
                    del self._queues[bucket]
                    self._idle.notify_all()
                    return
                work = queue.popleft()
            work()

    def drain(self, timeout_s: float) -> None:
        """Drop the works that wait, and wait for those that run, for so long at most."""
        with self._lock:
            for queue in self._queues.values():
                queue.clear()
            self._idle.wait_for(lambda: not self._queues, timeout_s)

    def close(self) -> None:
        """Wait for the works that run."""
        self._pool.shutdown(wait=True)
