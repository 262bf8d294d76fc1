"""Arguments and results as bytes: JSON by msgspec, checked against the task's annotations on both sides.

All types of msgspec are encoded and decoded as annotated: dataclasses, its own structs, TypedDicts, enums,
datetime, UUID, Decimal, bytes, sets, tuples. values.py has the types that msgspec does not know, pydantic
models among them. Nothing is ever pickled.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, NoReturn

import msgspec
import msgspec.inspect
from msgspec.structs import astuple

from qbull.core.type_schema import type_schema
from qbull.core.values import DEFAULT_HOOKS, ValueHooks, explain_unencodable, knows_type
from qbull.core.wrapped_payload import displayable, is_wrapped
from qbull.errors import ArgumentsError, DeclarationError, PayloadError, TooLarge

PAYLOAD_LIMIT_BYTES = 1 << 20
_UNCHANGEABLE = (type(None), bool, int, float, str, bytes, enum.Enum)


class Signature:
    """The arguments of one task: how a call is bound, encoded, checked and decoded again."""

    def __init__(self, name: str, function: Callable[..., Any], hooks: ValueHooks = DEFAULT_HOOKS) -> None:
        self.name = name
        self.hooks = hooks
        self.encode_result = encode_result if hooks is DEFAULT_HOOKS else partial(encode_result, hooks=hooks)
        parameters, hints = _read(name, function)
        self.parameters = tuple(parameters)
        self.result_type: Any = hints.get("return", Any)
        self._keyword_only = tuple(p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY)
        self._positional = tuple(p.name for p in parameters.values() if p.kind is not p.KEYWORD_ONLY)
        self._bind = inspect.signature(function).bind
        self._kinds = [hints.get(name, Any) for name in parameters]
        self.defaults = {p.name: p.default for p in parameters.values() if p.default is not p.empty}
        fields: list[Any] = []
        for p in parameters.values():
            kind = hints.get(p.name, Any)
            fields.append(
                (p.name, kind)
                if p.default is p.empty
                else (p.name, kind, msgspec.field(default_factory=_default_of(p.default, kind, hooks)))
            )
        try:
            self._struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self._decode = msgspec.json.Decoder(self._struct, dec_hook=hooks.decode).decode
            self._encode = msgspec.json.Encoder(enc_hook=hooks.encode).encode
            if not hooks.takes_any_type:
                _refuse_unknown(self._struct)
        except (TypeError, msgspec.MsgspecError) as error:
            raise DeclarationError(
                f'task "{name}": its annotations cannot be carried as a payload: {error}'
            ) from None

    def encode(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int = PAYLOAD_LIMIT_BYTES
    ) -> tuple[bytes, Any]:
        """The call's payload, and its arguments by name as this code sees them.

        The payload has the arguments that were given. A worker adds the defaults of its own code, so a worker
        whose code does not have a parameter yet can run the call if nobody has used the parameter.
        """
        try:
            if args:
                bound = self._bind(*args, **kwargs)
                kwargs = bound.arguments
            self._struct(**kwargs)
        except TypeError:
            raise ArgumentsError(f'task "{self.name}": {self._explain(args, kwargs)}') from None
        try:
            payload = self._encode(kwargs)
        except Exception as error:  # a hook may raise anything
            raise _unencodable(self.name, kwargs, error, self.hooks) from None
        if len(payload) > limit:
            _refuse_large(self.name, payload, limit)
        return payload, self._checked(payload)

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a payload, as they are passed to the function."""
        call = self._checked(payload)
        if not self._keyword_only:
            return list(astuple(call)), {}
        return [getattr(call, n) for n in self._positional], {n: getattr(call, n) for n in self._keyword_only}

    def complete(self, call: Any) -> bytes:
        """The payload of a call with the defaults in it: the same bytes for calls that mean the same."""
        return self._encode(call)

    def arguments(self, payload: bytes) -> dict[str, Any]:
        """All arguments of a payload by name."""
        return msgspec.structs.asdict(self._checked(payload))

    def schema(self) -> dict[str, Any] | None:
        """A JSON Schema of the arguments, for forms; None if there is none."""
        return type_schema(self._struct, self.hooks)

    @property
    def kinds(self) -> dict[str, Any]:
        """The annotation of each parameter; Any without one."""
        return dict(zip(self.parameters, self._kinds, strict=True))

    @cached_property
    def digest(self) -> str:
        """The same in two workers that accept the same arguments, as far as the annotations say."""
        described = self.schema() or [self.parameters, [str(kind) for kind in self._kinds]]
        text = msgspec.json.encode(described, order="deterministic")
        return hashlib.sha256(text).hexdigest()[:10]

    def _checked(self, payload: bytes) -> Any:
        try:
            return self._decode(payload)
        except msgspec.ValidationError as error:
            raise ArgumentsError(f'task "{self.name}": {_readable(error)}') from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArgumentsError(f'task "{self.name}": its payload is not JSON: {error}') from None
        except Exception as error:  # a model's own validator may raise anything
            raise ArgumentsError(f'task "{self.name}": {_first_lines(error)}') from None

    def _explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why a call does not fit. An unknown name is the likeliest reason, so it comes first."""
        for name in kwargs:
            if name not in self.parameters:
                return f"got an unexpected keyword argument {name!r}{_meant(name, self.parameters)}"
        try:
            self._bind(*args, **kwargs)
        except TypeError as error:
            return str(error)
        return "its arguments do not fit"

    def decode_result(self, encoded: bytes) -> Any:
        return decode_result(encoded, self.result_type, self.hooks)


def _meant(name: str, parameters: tuple[str, ...]) -> str:
    """A hint for the caller of a task who gave an unknown argument."""
    import difflib  # Here, because only this mistake needs it.

    if close := difflib.get_close_matches(name, parameters, n=1):
        return f"; did you mean {close[0]!r}?"
    return f"; it takes: {', '.join(parameters) or 'none'}"


def decode_result(encoded: bytes, kind: Any, hooks: ValueHooks = DEFAULT_HOOKS) -> Any:
    """Decode as annotated; without types if the value does not fit them."""
    try:
        return msgspec.json.decode(encoded, type=kind, dec_hook=hooks.decode)
    except Exception:  # a hook may raise anything
        return decode_untyped(encoded)


def decode_exactly(encoded: bytes, kind: Any, hooks: ValueHooks = DEFAULT_HOOKS) -> Any:
    """Decode as annotated. Raises PayloadError if the value does not fit."""
    try:
        return msgspec.json.decode(encoded, type=kind, dec_hook=hooks.decode)
    except Exception as error:  # a hook may raise anything
        raise PayloadError(str(error)) from None


def encode_payload(
    task: str,
    arguments: Mapping[str, Any],
    limit: int = PAYLOAD_LIMIT_BYTES,
    hooks: ValueHooks = DEFAULT_HOOKS,
) -> bytes:
    """Arguments by name for a task whose code is elsewhere: its worker checks them."""
    try:
        payload = msgspec.json.encode(dict(arguments), enc_hook=hooks.encode)
    except Exception as error:  # a hook may raise anything
        raise _unencodable(task, arguments, error, hooks) from None
    if len(payload) > limit:
        _refuse_large(task, payload, limit)
    return payload


def _unencodable(
    task: str, arguments: Mapping[str, Any], error: Exception, hooks: ValueHooks
) -> PayloadError:
    reason = explain_unencodable(arguments, error, hooks)
    return PayloadError(f'task "{task}": its arguments cannot be encoded: {reason}')


def _refuse_large(task: str, payload: bytes, limit: int) -> NoReturn:
    raise TooLarge(
        f'task "{task}": its arguments take {len(payload):,} bytes, the limit is {limit:,}; '
        "pass a reference, or give the app a place for large ones: arguments=qbull.FileArguments(…)"
    )


def encode_result(value: Any, limit: int = PAYLOAD_LIMIT_BYTES, hooks: ValueHooks = DEFAULT_HOOKS) -> bytes:
    if value is None:
        return b"null"
    try:
        encoded = msgspec.json.encode(value, enc_hook=hooks.encode)
    except Exception as error:  # a hook may raise anything
        reason = explain_unencodable(value, error, hooks)
        raise PayloadError(f"its result cannot be encoded: {reason}") from None
    if len(encoded) > limit:
        raise TooLarge(
            f"its result takes {len(encoded):,} bytes, the limit is {limit:,}; return a reference to it, "
            "or give the app a place for large ones: results=qbull.FileResults(…)"
        )
    return encoded


def decode_untyped(encoded: bytes) -> Any:
    """The value without its types, for display. Bytes that are not JSON become text."""
    if is_wrapped(encoded):
        visible = displayable(encoded)
        if isinstance(visible, dict):
            return visible
        encoded = visible
    try:
        return msgspec.json.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return encoded.decode("utf-8", "replace")


class ArgumentTemplate:
    """`"email:verify:{user_id}"` over the arguments, or a function of them: a job's id or key."""

    def __init__(self, what: str, rule: str | Callable[..., object], signature: Signature) -> None:
        self._what = f'task "{signature.name}": its {what}'
        self.rule = rule
        if isinstance(rule, str):
            try:
                "".join(rule.format(**dict.fromkeys(signature.parameters, _Anything())))
            except (KeyError, IndexError, ValueError) as error:
                fact = f"names {error}" if isinstance(error, KeyError) else f"cannot be read: {error}"
                raise DeclarationError(
                    f'{self._what} "{rule}" {fact}; '
                    f"it may use {', '.join(signature.parameters) or 'no argument'}"
                ) from None

    def apply(self, arguments: dict[str, Any]) -> str:
        try:
            text = self.rule.format(**arguments) if isinstance(self.rule, str) else self.rule(**arguments)
        except Exception as error:
            raise ArgumentsError(f"{self._what} cannot be made of these arguments: {error!r}") from error
        if not isinstance(text, str) or not text:
            raise ArgumentsError(f"{self._what} must be a text that is not empty, not {text!r}")
        return text


class _Anything:
    """Stands for an argument while a template is checked: it has every attribute and item."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, name: object) -> _Anything:
        return self

    def __format__(self, spec: str) -> str:
        return "x"


def _read(name: str, function: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    parameters = dict(inspect.signature(function).parameters)
    for p in parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise DeclarationError(
                f'task "{name}": *{p.name} cannot be carried by name; give its parameters one by one'
            )
        if p.kind is p.POSITIONAL_ONLY:
            raise DeclarationError(
                f'task "{name}": {p.name} is positional-only, but arguments travel by name; remove the "/"'
            )
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # whatever evaluating an annotation raises
        raise DeclarationError(
            f'task "{name}": {error}; annotations must name types that exist when the task is declared'
        ) from None
    return parameters, hints


def _refuse_unknown(struct: type) -> None:
    """A type that neither msgspec nor a model can carry is refused here, not at the first call."""
    for field in msgspec.inspect.type_info(struct).fields:  # type: ignore[attr-defined]
        kind = field.type
        if isinstance(kind, msgspec.inspect.CustomType) and not knows_type(kind.cls):
            raise TypeError(
                f"{field.name} is a {kind.cls.__qualname__}; use plain data, a dataclass or a model, "
                "or give the app or the task a dec_hook"
            )


def _default_of(value: Any, kind: Any, hooks: ValueHooks) -> Callable[[], Any]:
    """Makes the default of a parameter: as annotated, and a new one for each job if it can change."""
    try:
        encoded = msgspec.json.encode(value, enc_hook=hooks.encode)
        decode = msgspec.json.Decoder(kind, dec_hook=hooks.decode).decode
        made = decode(encoded)
    except Exception:  # it does not fit its annotation: the function gets it as it stands in the code
        return lambda: value
    return (lambda: made) if isinstance(made, _UNCHANGEABLE) else (lambda: decode(encoded))


def _readable(error: msgspec.ValidationError) -> str:
    """Shorten an error.

    `Expected `str`, got `int` - at `$.user_id`` becomes `user_id: expected str, got int`.
    """
    text = str(error)
    at = re.search(r" - at `\$\.?([^`]*)`$", text)
    where, fact = (at.group(1), text[: at.start()]) if at else ("", text)
    fact = " ".join(line.strip() for line in fact.splitlines() if "For further information" not in line)
    fact = fact.replace("`", "")
    fact = fact[:1].lower() + fact[1:]
    return f"{where}: {fact}" if where else fact


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:3])
