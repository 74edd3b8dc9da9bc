"""The Lua scripts: one file per operation, called by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from itertools import chain, islice
from typing import Any

import redis
from redis.exceptions import NoScriptError

Argument = str | bytes | int

CALLS_AT_ONCE_MAX = 50
"""Calls in one round trip: they keep the server busy for about a millisecond."""

_FIRST_LINE = "#!lua"


class Script:
    """One Lua script; what its keys, arguments and answers are is said in its file."""

    def __init__(self, source: str) -> None:
        self.source = source
        # The digest is the script's name in the server, nothing secret.
        self.digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    @classmethod
    def load(cls, name: str) -> Script:
        """The script of `lua/<name>.lua`."""
        return cls(files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8"))

    def without_memory(self) -> Script:
        """The same script, allowed to run where the server is over its memory limit."""
        return Script(self.source.replace(_FIRST_LINE, f"{_FIRST_LINE} flags=allow-oom", 1))

    def run(self, client: redis.Redis, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Run it once. Raises what the client raises.

        A server that does not know the digest did not run anything, so that sending the source
        then is no second try.
        """
        try:
            return _execute(client, "EVALSHA", *_call(self.digest, keys, arguments))
        except NoScriptError:
            return _execute(client, "EVAL", *_call(self.source, keys, arguments))

    @staticmethod
    def run_each(client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        """Run scripts in few round trips, each once. Raises what the client raises.

        Where the server does not know one, others have been run: all must be safe to run again.
        """
        return [
            answer
            for start in range(0, len(calls), CALLS_AT_ONCE_MAX)
            for answer in _many(client, calls[start : start + CALLS_AT_ONCE_MAX], transaction=False)
        ]

    @staticmethod
    def answers_of(client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        """Run scripts in one round trip; what the server refuses is an exception among the answers.

        A script that it does not know has not run either. Raises what the client raises where the
        connection fails.
        """
        return _pipelined(client, calls, transaction=False, raises=False)

    @staticmethod
    def run_together(client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        """As `run_each`, in one transaction: all at one moment, which holds up the server."""
        return _many(client, calls, transaction=True)

    @staticmethod
    def run_apart(client: redis.Redis, groups: Sequence[Sequence[Call]]) -> list[list[Any]]:
        """As `run_together`, in a transaction for each group, and in one round trip."""
        try:
            return _transactions(client, groups)
        except NoScriptError:
            _load(client, [call for calls in groups for call in calls])
            return _transactions(client, groups)


Call = tuple[Script, Sequence[str], Sequence[Argument]]
"""A script, its keys and its arguments."""


def _many(client: redis.Redis, calls: Sequence[Call], *, transaction: bool) -> list[Any]:
    if not calls:
        return []
    try:
        return _pipelined(client, calls, transaction=transaction)
    except NoScriptError:
        _load(client, calls)
        return _pipelined(client, calls, transaction=transaction)


def _load(client: redis.Redis, calls: Sequence[Call]) -> None:
    for source in {script.source for script, _, _ in calls}:
        _execute(client, "SCRIPT LOAD", source)


def _transactions(client: redis.Redis, groups: Sequence[Sequence[Call]]) -> list[list[Any]]:
    with client.pipeline(transaction=False) as pipeline:
        for calls in groups:
            _execute(pipeline, "MULTI")
            for script, keys, arguments in calls:
                _execute(pipeline, "EVALSHA", *_call(script.digest, keys, arguments))
            _execute(pipeline, "EXEC")
        said = iter(pipeline.execute())
    answers: list[list[Any]] = []
    for calls in groups:
        *_, found = islice(said, len(calls) + 2)
        answers.append(found)
    for answer in chain.from_iterable(answers):
        if isinstance(answer, Exception):
            raise answer
    return answers


def _pipelined(
    client: redis.Redis, calls: Sequence[Call], *, transaction: bool, raises: bool = True
) -> list[Any]:
    with client.pipeline(transaction=transaction) as pipeline:
        for script, keys, arguments in calls:
            _execute(pipeline, "EVALSHA", *_call(script.digest, keys, arguments))
        return pipeline.execute(raise_on_error=raises)


def _call(script: str, keys: Sequence[str], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    return (script, len(keys), *keys, *arguments)


def _execute(client: redis.Redis, *parts: Argument) -> Any:
    return client.execute_command(*parts)
