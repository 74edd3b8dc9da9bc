"""Clients that ask one path of an HTTP server again and again: connections that stay open, no more
work a request than must be, in one process of their own.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import msgspec

from bench.errors import BenchError

HEADER_END = b"\r\n\r\n"
LENGTH = b"content-length: "
OK = b"HTTP/1.1 200 "


class Asked(msgspec.Struct, frozen=True):
    """What to ask: `clients` for `seconds`, each once at least, `pause_s` after its last answer.

    They begin one after the other within the first `pause_s`: so they do not come all at once.
    """

    host: str
    port: int
    path: str
    clients: int
    seconds: float
    pause_s: float = 0.0


class Answers(msgspec.Struct, frozen=True):
    """How long each answer took, in seconds, and how long the last one was, in bytes."""

    took_s: list[float]
    bytes: int


def ask(asked: Asked) -> Answers:
    """Ask from another process. Raises BenchError for any answer but 200."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(_ask, asked).result()
    if isinstance(found, str):
        raise BenchError(f"GET {asked.path} answered {found}")
    return found


def _ask(asked: Asked) -> Answers | str:
    try:
        return asyncio.run(_all(asked))
    except _NotOk as problem:
        return str(problem)


class _NotOk(Exception):
    """An answer that is none."""


async def _all(asked: Asked) -> Answers:
    until_s = time.perf_counter() + asked.seconds
    apart_s = asked.pause_s / asked.clients
    clients = (_client(asked, at * apart_s, until_s) for at in range(asked.clients))
    found = await asyncio.gather(*clients)
    return Answers([took for one in found for took in one.took_s], found[0].bytes)


async def _client(asked: Asked, wait_s: float, until_s: float) -> Answers:
    await asyncio.sleep(wait_s)
    reader, writer = await asyncio.open_connection(asked.host, asked.port)
    request = f"GET {asked.path} HTTP/1.1\r\nHost: {asked.host}\r\n\r\n".encode()
    took_s: list[float] = []
    length = 0
    try:
        while not took_s or time.perf_counter() < until_s:
            began_s = time.perf_counter()
            writer.write(request)
            length = await _answer(reader)
            took_s.append(time.perf_counter() - began_s)
            if asked.pause_s:
                await asyncio.sleep(asked.pause_s)
    finally:
        writer.close()
    return Answers(took_s, length)


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(HEADER_END)
    if not head.startswith(OK):
        raise _NotOk(head.split(b"\r\n")[0].decode(errors="replace"))
    lines = head.lower().split(b"\r\n")
    length = int(next(line[len(LENGTH) :] for line in lines if line.startswith(LENGTH)))
    await reader.readexactly(length)
    return length
