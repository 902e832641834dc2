"""Processes that take tasks from this one, can be interrupted, and end with it."""

import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from .errors import UserError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Work = Callable[[Any], Any]


def spread(work: Callable[[Task], Answer], tasks: Sequence[Task], count: int) -> Iterator[tuple[Task, Answer]]:
    """`work` (a function of a module) done on each task by `count` processes: the answers as they come.

    Where the user interrupts, `work` gets the KeyboardInterrupt in each process, and what it still returns comes last.
    Raises what `work` raises, `UserError` where a process dies.
    """
    workers = [_Worker(work) for _ in range(min(count, len(tasks)))]
    try:
        yield from _answers(workers, iter(tasks))
    finally:
        for worker in workers:
            worker.end()


def _answers(workers: Sequence["_Worker"], tasks: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    busy = {worker: worker.start(task) for worker, task in zip(workers, tasks, strict=False)}
    try:
        while busy:
            ready = wait([worker.connection for worker in busy])
            for worker in [worker for worker in busy if worker.connection in ready]:
                task, answer = busy.pop(worker), worker.answer()
                busy.update((worker, worker.start(following)) for following in islice(tasks, 1))
                yield task, answer
    except KeyboardInterrupt:
        for worker in busy:
            worker.interrupt()
        for worker, task in busy.items():
            with suppress(Exception):
                yield task, worker.answer()


class _Worker:
    """One process and the connection to it."""

    def __init__(self, work: Work) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self._process.start()
        theirs.close()

    def start(self, task: Any) -> Any:
        self.connection.send(task)
        return task

    def answer(self) -> Any:
        """Waits for it. Raises what the work raised, `UserError` where the process is gone."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError) as error:
            raise UserError("a worker process died (out of memory?); try --jobs 1") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def interrupt(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(connection: Connection, work: Work) -> None:
    """In the process: the terminal's Ctrl-C is the parent's business, which passes it on as SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
        while True:
            connection.send(_answer(work, connection.recv()))


def _answer(work: Work, task: Any) -> Any:
    try:
        return work(task)
    except Exception as error:
        return _portable(error)


def _portable(error: Exception) -> Exception:
    """With the traceback as a note; another one that says the same where it cannot travel."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return (UserError if isinstance(error, ValueError) else RuntimeError)(str(error))
    return error
