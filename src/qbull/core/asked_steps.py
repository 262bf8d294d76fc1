"""Asked steps: which recorded steps the code of a durable task can still ask for.

Only names are compared. Code that asks for the same steps in another order, or with other arguments, is found
when the job runs (worker/replay.py). A name that the code computes fits every record.
"""

from __future__ import annotations

import dis
from collections.abc import Collection, Iterable, Sequence
from types import CodeType
from typing import NamedTuple

from qbull.core.calls import CALL_PREFIX
from qbull.core.durable import CHECKPOINT_PREFIX, PATCH_PREFIX, SLEEP_NAME, STARTS, StepRecord
from qbull.core.published import PUBLISH_PREFIX
from qbull.core.reachable_code import OwnModules, ReachableCode, names_in
from qbull.core.signals import WAIT_PREFIX

STEP_METHODS = frozenset(("step", "step_sync", "transaction", "transaction_sync"))
_TEXT_METHODS = {
    WAIT_PREFIX: ("wait_for", "wait_for_sync"),
    PUBLISH_PREFIX: ("publish", "publish_sync"),
    PATCH_PREFIX: ("patched", "patched_sync"),
}
"""Calls that are recorded under the text that they get first."""
_METHODS = {
    CALL_PREFIX: ("call", "call_sync"),
    CHECKPOINT_PREFIX: ("checkpoint", "checkpoint_sync"),
}
_FILLERS = ("CACHE", "PUSH_NULL", "NOP", "EXTENDED_ARG")
_ATTRIBUTE_LOADS = ("LOAD_ATTR", "LOAD_METHOD")
_BINARY = ("BINARY", "COMPARE", "CONTAINS", "IS_OP", "FORMAT")
_CALLS = {"PRECALL": 0, "CALL": 0, "CALL_KW": 1}
"""Instructions that call, and what they take from the stack besides the arguments and the function."""


class UnaskedStep(NamedTuple):
    """A recorded step that the code does not ask for. `is_open`: the job still waits for this signal."""

    record: StepRecord
    is_open: bool


class AskedSteps:
    """The steps that a task can ask for, as far as its code tells.

    Args:
        code: the code behind the function of the task.
        helpers: code that asks for steps, and that no durable task is known to call.
        tasks: the names of all tasks of the app.
    """

    def __init__(self, code: ReachableCode, helpers: ReachableCode, tasks: Collection[str]) -> None:
        self._tasks = tasks
        self._names = code.names | helpers.names
        self._codes = (*code.codes.values(), *helpers.codes.values())
        names = _option_names(self._codes)
        self.is_known = not code.is_opaque and names is not None
        """Whether the code tells its steps. If not, every record fits."""
        self._names |= names or set()
        self._texts = {prefix: _first_texts(self._codes, names) for prefix, names in _TEXT_METHODS.items()}

    def first_unasked(self, records: Sequence[StepRecord]) -> UnaskedStep | None:
        """The first record that no code asks for; None if there is none, or the code does not tell."""
        if not self.is_known:
            return None
        ended = {record.key for record in records if record.end not in STARTS}
        for record in records:
            is_open = record.end == "w" and record.key not in ended
            # A step that runs again in the next attempt need not, and other starts have ended or do no harm.
            if (is_open or record.end not in ("a", *STARTS)) and not self._asks_for(record.name):
                return UnaskedStep(record, is_open)
        return None

    def _asks_for(self, name: str) -> bool:
        if name in self._names:
            return True
        for prefix, texts in self._texts.items():
            if name.startswith(prefix):
                return texts is None or name.removeprefix(prefix) in texts
        for prefix, methods in _METHODS.items():
            if name.startswith(prefix):
                is_there = prefix != CALL_PREFIX or name.removeprefix(prefix) in self._tasks
                return is_there and not self._names.isdisjoint(methods)
        return name == SLEEP_NAME and "sleep_sync" in self._names


def helpers_besides(codes: Iterable[ReachableCode], modules: OwnModules) -> ReachableCode:
    """The code of functions that ask for steps, and that none of these tasks is known to call."""
    known = {id(code) for one in codes for code in one.codes.values()}
    return ReachableCode(
        modules,
        [
            function
            for function in modules.functions()
            if id(function.__code__) not in known and not STEP_METHODS.isdisjoint(names_in(function.__code__))
        ],
    )


def _option_names(codes: Iterable[CodeType]) -> set[str] | None:
    """The names that the code gives to steps with `options(name=…)`; None if it computes one."""
    naming = [code for code in codes if "options" in code.co_names and _gives_name(code)]
    return _first_texts(naming, ("options",))


def _gives_name(code: CodeType) -> bool:
    """Whether a call in the code has a `name=`, or arguments in a dict, which may have one."""
    if any(isinstance(one, tuple) and "name" in one for one in code.co_consts):
        return True
    return any(instruction.opname == "CALL_FUNCTION_EX" for instruction in dis.get_instructions(code))


def _first_texts(codes: Iterable[CodeType], methods: Sequence[str]) -> set[str] | None:
    """The texts that the code gives to these methods first; None if it computes one."""
    found = set()
    for code in codes:
        if set(methods).isdisjoint(code.co_names):
            continue
        instructions = [one for one in dis.get_instructions(code) if one.opname not in _FILLERS]
        for at, load in enumerate(instructions):
            if load.opname not in _ATTRIBUTE_LOADS or load.argval not in methods:
                continue
            if at and instructions[at - 1].argval == "asyncio":  # asyncio.wait_for
                continue
            text = _first_text(instructions[at + 1 :])
            if text is None:
                return None
            found.add(text)
    return found


def _first_text(instructions: Sequence[dis.Instruction]) -> str | None:
    """The text that is the first argument of the call which these instructions make.

    None if it is something else, or only a part of the argument, such as the start of an f-string.
    """
    if not instructions or not instructions[0].opname.startswith("LOAD_CONST"):
        return None
    text, depth = instructions[0].argval, 1
    for one in instructions[1:]:
        name, argument = one.opname, one.arg or 0
        if name in _CALLS and argument >= depth - _CALLS[name]:
            return text if type(text) is str else None
        if "JUMP" in name or (depth == 1 and not _only_pushes(name)):
            return None
        if (depth == 2 and name.startswith(_BINARY)) or (name.startswith("BUILD") and argument >= depth):
            return None
        depth += dis.stack_effect(one.opcode, one.arg, jump=False)
    return None


def _only_pushes(instruction: str) -> bool:
    return instruction == "KW_NAMES" or (
        instruction.startswith("LOAD_") and instruction not in _ATTRIBUTE_LOADS
    )
