"""Arguments of drop-in APIs: functions with `*args` and `**kwargs`, exact values, and partial calls.

A payload has the arguments by name, as that of any other task. `*` has further positional arguments and `**`
further named ones. A partial call has `from` as well: its first arguments come from the jobs before it in a
canvas, or the task is called once for each item.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import msgspec.inspect

from qbull.compat.exact_values import TYPE_FIELD_BYTES, as_it_was, with_types, with_types_inside
from qbull.core.codec import PAYLOAD_LIMIT_BYTES, Signature, decode_untyped, encode_payload
from qbull.core.values import DEFAULT_HOOKS, ValueHooks
from qbull.errors import ArgumentsError, PayloadError

ArgumentSource = Literal[
    "result", "results", "gather", "error", "own error", "items", "argument lists", "caller"
]
"""Where the missing arguments of a partial call come from.

They are the result of the job before, the results of several jobs as a list, or the error of the job before.
"own error" is for the job that failed itself, not for those that could not run because of it. "items" and
"argument lists" call the task once for each item. "gather" does not call the task: the list of results is the
result of the job, which stands at the end of a group that replaces the task. "caller" is for a caller without
the signature of the task: nothing is missing, but the arguments have no names.
"""

REST_FIELD, MORE_FIELD, SOURCE_FIELD, IMMUTABLE_FIELD, SHAPE_FIELD = "*", "**", "from", "is", "shape"
REST_FIELD_BYTES = b'"*"'
"""A payload without these bytes has all arguments by name."""


@dataclass(frozen=True)
class PartialCall:
    """A call whose first arguments are known only when it runs."""

    source: ArgumentSource
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    immutable: bool = False
    """Whether it gets no arguments from the jobs before."""
    shape: list[Any] | None = None
    """How the results of the jobs before are nested; None for a plain list."""

    @property
    def is_for_each(self) -> bool:
        """Whether the task is called once for each item."""
        return self.source in ("items", "argument lists")

    def result_of(self, values: list[Any]) -> Any:
        """Return the result of the job, of the results of its calls."""
        if self.is_for_each:
            return values
        return values[0] if values else None


class ExactSignature(Signature):
    """The arguments of one task of a drop-in API."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        hooks: ValueHooks = DEFAULT_HOOKS,
        *,
        returns_plain: bool = False,
    ) -> None:
        self._returns_plain = returns_plain
        self.whole = inspect.signature(function)
        kinds = {p.kind: p.name for p in self.whole.parameters.values()}
        self._rest = kinds.get(inspect.Parameter.VAR_POSITIONAL)
        self._more = kinds.get(inspect.Parameter.VAR_KEYWORD)
        self.declared = _stand_in(function, self.whole)
        """The function, or a stand-in without `*args` and `**kwargs`."""
        super().__init__(name, self.declared, hooks)
        fields = msgspec.inspect.type_info(self._struct).fields  # type: ignore[attr-defined]
        kinds_of = {field.name: field.type for field in fields}
        self._untyped = {n for n, kind in kinds_of.items() if isinstance(kind, msgspec.inspect.AnyType)}
        self._loose = {n for n, kind in kinds_of.items() if _is_loose(kind)}
        self._has_loose_result = _is_loose(_type_info(self.result_type), also=msgspec.inspect.FloatType)

    def encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = PAYLOAD_LIMIT_BYTES
    ) -> tuple[bytes, Any]:
        try:
            given = self.whole.bind(*args, **kwargs).arguments
        except TypeError:
            raise ArgumentsError(f'task "{self.name}": {self._explain(args, kwargs)}') from None
        rest, more = given.pop(self._rest or "", ()), given.pop(self._more or "", {})
        exact = {n: self._exact(n, value) for n, value in given.items()}
        payload, call = super().encode((), exact, limit)
        if not rest and not more:
            return payload, call
        fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        return self._encoded({**fields, REST_FIELD: list(rest), MORE_FIELD: more}, limit), call

    def encode_partial(self, call: PartialCall, missing: int, limit: int) -> bytes:
        """Encode a call without its first arguments.

        Args:
            call: The arguments that are known.
            missing: How many positional arguments will be put before them.
            limit: The maximum size in bytes.
        """
        try:
            if call.source != "gather":
                self.whole.bind(*(None,) * missing, *call.args, **call.kwargs)
        except TypeError as error:
            what = "one argument" if missing == 1 else f"{missing} arguments"
            raise ArgumentsError(
                f'task "{self.name}": {error}; {what} from the task before come first, '
                "use an immutable signature, task.si(…), to leave them out"
            ) from None
        fields: dict[str, Any] = {
            REST_FIELD: list(call.args),
            MORE_FIELD: call.kwargs,
            SOURCE_FIELD: call.source,
        }
        if call.immutable:
            fields[IMMUTABLE_FIELD] = True
        if call.shape is not None:
            fields[SHAPE_FIELD] = call.shape
        return self._encoded(fields, limit)

    def errback_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_bound: bool) -> int:
        """How many arguments a task gets as an errback: the id, or request, exception and traceback."""
        left = [name for name in self._positional if name not in kwargs][len(args) :]
        return 3 if not is_bound and (len(left) > 1 or self._rest is not None) else 1

    def encode_each(self, items: Sequence[Any], source: ArgumentSource, limit: int) -> bytes:
        """Encode calls of the task for each item, one after the other in one job."""
        for item in items:
            args = (item,) if source == "items" else tuple(item)
            self.encode(args, {}, limit)
        return self._encoded({REST_FIELD: list(items), MORE_FIELD: {}, SOURCE_FIELD: source}, limit)

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        if REST_FIELD_BYTES not in payload:
            return super().decode(payload)
        fields = msgspec.json.decode(payload)
        if not isinstance(fields, dict) or REST_FIELD not in fields:
            return super().decode(payload)
        rest, more = as_it_was(fields[REST_FIELD]), as_it_was(fields.get(MORE_FIELD, {}))
        if SOURCE_FIELD in fields:
            is_immutable, shape = IMMUTABLE_FIELD in fields, fields.get(SHAPE_FIELD)
            return [PartialCall(fields[SOURCE_FIELD], tuple(rest), more, is_immutable, shape)], {}
        args, kwargs = super().decode(payload)
        return [*args, *rest], {**kwargs, **more}

    def decode_result(self, encoded: bytes) -> Any:
        if self._returns_plain:  # Celery gives models as dictionaries.
            return as_it_was(decode_untyped(encoded))
        value = super().decode_result(encoded)
        return as_it_was(value) if self._has_loose_result and TYPE_FIELD_BYTES in encoded else value

    def result_to_send(self, value: Any) -> Any:
        """Return a result in the form in which it is encoded."""
        return self._with_types(value) if self._has_loose_result else value

    def _checked(self, payload: bytes) -> Any:
        call = super()._checked(_named_part(payload) if REST_FIELD_BYTES in payload else payload)
        for name in self._loose:
            value = getattr(call, name)
            if isinstance(value, _ExactDefault):
                setattr(call, name, deepcopy(value.value))
            elif TYPE_FIELD_BYTES in payload:
                setattr(call, name, as_it_was(value))
        return call

    def _with_types(self, value: Any) -> Any:
        """A value in a form that JSON keeps."""
        return with_types(value)

    def _exact(self, name: str, value: Any) -> Any:
        try:
            if name in self._untyped:
                return self._with_types(value)
            return with_types_inside(value, self._with_types) if name in self._loose else value
        except PayloadError as error:
            raise PayloadError(f'task "{self.name}": {name}: {error}') from None

    def _encoded(self, fields: Mapping[str, Any], limit: int) -> bytes:
        for name in (REST_FIELD, MORE_FIELD):
            fields = {**fields, name: self._with_types(fields[name])}
        return encode_payload(self.name, fields, limit, self.hooks)


def result_of(signature: Signature | None, encoded: bytes) -> Any:
    """Decode the result of a job for the next one in a canvas."""
    if signature is not None:
        return signature.decode_result(encoded)
    return as_it_was(decode_untyped(encoded))


def _named_part(payload: bytes) -> bytes:
    """The payload without the arguments that have no parameter of their own."""
    try:
        fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return payload
    special = (REST_FIELD, MORE_FIELD)
    return msgspec.json.encode({name: value for name, value in fields.items() if name not in special})


class _ExactDefault:
    """The default of a parameter without annotation, if JSON would change it: a tuple or a date."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _stand_in(function: Callable[..., Any], whole: inspect.Signature) -> Callable[..., Any]:
    """A function with the parameters that travel by name. It is the function itself if these are all."""
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    kept = [_with_exact_default(p) for p in whole.parameters.values() if p.kind not in open_ended]
    if kept == list(whole.parameters.values()):
        return function

    def named() -> None: ...

    names = {p.name for p in kept} | {"return"}
    named.__wrapped__ = function  # type: ignore[attr-defined]
    named.__module__ = function.__module__
    named.__annotations__ = {n: a for n, a in function.__annotations__.items() if n in names}
    named.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined]
    return named


def _with_exact_default(parameter: inspect.Parameter) -> inspect.Parameter:
    if parameter.annotation is not parameter.empty or parameter.default is parameter.empty:
        return parameter
    try:
        is_exact = with_types(parameter.default) == parameter.default
    except PayloadError:
        is_exact = False
    return parameter if is_exact else parameter.replace(default=_ExactDefault(parameter.default))


def _type_info(kind: Any) -> msgspec.inspect.Type:
    try:
        return msgspec.inspect.type_info(kind)
    except TypeError:
        return msgspec.inspect.CustomType(kind)


def _is_loose(kind: msgspec.inspect.Type, also: type = msgspec.inspect.AnyType) -> bool:
    """Whether a type leaves open which values it holds, at some depth. `also` names a second such type."""
    match kind:
        case msgspec.inspect.CollectionType():
            return _is_loose(kind.item_type, also)
        case msgspec.inspect.DictType():
            return _is_loose(kind.value_type, also)
        case msgspec.inspect.TupleType():
            return any(_is_loose(each, also) for each in kind.item_types)
        case msgspec.inspect.UnionType():
            return any(_is_loose(each, also) for each in kind.types)
    return isinstance(kind, msgspec.inspect.AnyType | also)
