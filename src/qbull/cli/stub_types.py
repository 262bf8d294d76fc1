"""Python types from JSON Schemas, as `qbull stub` writes them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any

Schema = Mapping[str, Any]

UNSET_TYPE = "msgspec.UnsetType"
UNSET_VALUE = "msgspec.UNSET"

_TEXT_TYPES = {
    "date-time": "datetime.datetime",
    "date": "datetime.date",
    "time": "datetime.time",
    "duration": "datetime.timedelta",
    "uuid": "uuid.UUID",
    "decimal": "decimal.Decimal",
    "path": "pathlib.Path",
}
_PLAIN_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_RESERVED_NAMES = {"Any", "Literal", "datetime", "decimal", "uuid", "pathlib", "qbull", "msgspec"}


def identifier(text: str, taken: Iterable[str] = ()) -> str:
    """A name for Python that is close to a text and not among those that are taken."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "_"
    if name[0].isdigit() or keyword.iskeyword(name):
        name = f"{name}_" if keyword.iskeyword(name) else f"_{name}"
    used = set(taken)
    made, number = name, 2
    while made in used:
        made, number = f"{name}_{number}", number + 1
    return made


class StubTypes:
    """Turns schemas into annotations, and collects the classes that they name."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*_RESERVED_NAMES, *taken}
        self._names: dict[str, str] = {}
        self.classes: dict[str, str] = {}
        """The source of each class, by its name."""

    def annotation(self, schema: Any, definitions: Schema) -> str:
        """The type of a value with this schema."""
        if not isinstance(schema, Mapping):
            return "Any"
        definitions = {**definitions, **schema.get("$defs", {})}
        if "$ref" in schema:
            return self._referenced(str(schema["$ref"]).rpartition("/")[2], definitions)
        if len(schema.get("allOf", ())) == 1:
            return self.annotation(schema["allOf"][0], definitions)
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            return self._union(choices, schema, definitions)
        if "const" in schema:
            return _literal([schema["const"]])
        if "enum" in schema:
            return _literal(schema["enum"])
        return self._typed(schema, definitions)

    def _typed(self, schema: Schema, definitions: Schema) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([{**schema, "type": each} for each in kind], {}, definitions)
        match kind:
            case "string":
                plain = "bytes" if schema.get("contentEncoding") == "base64" else "str"
                return _TEXT_TYPES.get(str(schema.get("format")), plain)
            case "array":
                return self._array(schema, definitions)
            case "object":
                if "properties" in schema:
                    return self._class(str(schema.get("title") or "Value"), schema, definitions, "")
                others = schema.get("additionalProperties")
                inner = self.annotation(others, definitions) if isinstance(others, Mapping) else "Any"
                return f"dict[str, {inner}]"
            case _:
                return _PLAIN_TYPES.get(str(kind), "Any")

    def _array(self, schema: Schema, definitions: Schema) -> str:
        first = schema.get("prefixItems")
        if first and schema.get("minItems") == len(first):
            return f"tuple[{', '.join(self.annotation(each, definitions) for each in first)}]"
        if first:
            return "list[Any]"
        return f"list[{self.annotation(schema.get('items'), definitions)}]"

    def _union(self, choices: Iterable[Any], schema: Schema, definitions: Schema) -> str:
        choices = list(choices)
        objects = [one for one in choices if _is_object(one, definitions)]
        tag = schema.get("discriminator", {}).get("propertyName", "")
        if len(objects) > 1 and not tag:
            plain = [self.annotation(one, definitions) for one in choices if one not in objects]
            return " | ".join(dict.fromkeys(["dict[str, Any]", *plain]))
        made = [
            self._referenced(str(one["$ref"]).rpartition("/")[2], definitions, tag)
            if tag and "$ref" in one
            else self.annotation(one, definitions)
            for one in choices
        ]
        return "Any" if "Any" in made else " | ".join(dict.fromkeys(made))

    def _referenced(self, name: str, definitions: Schema, tag: str = "") -> str:
        schema = definitions.get(name)
        if not isinstance(schema, Mapping):
            return "Any"
        if schema.get("type") != "object" or "properties" not in schema:
            return self.annotation(schema, definitions)
        return self._class(name, schema, definitions, tag)

    def _class(self, title: str, schema: Schema, definitions: Schema, tag: str) -> str:
        """The name of the class for an object, which is made once for each schema."""
        # Two tasks may have different classes of the same name.
        same = f"{title}\n{tag}\n{_canonical(schema)}"
        if same in self._names:
            return self._names[same]
        name = self._names[same] = identifier(title, self._taken)
        self._taken.add(name)
        required = schema.get("required", ())
        settings, lines, used = "kw_only=True", [], set[str]()
        for field, part in schema["properties"].items():
            if field == tag and len(part.get("enum", ())) == 1:
                settings += f", tag_field={field!r}, tag={part['enum'][0]!r}"
                continue
            attribute = identifier(field, used)
            used.add(attribute)
            lines.append(self._field(attribute, field, self.annotation(part, definitions), field in required))
        body = "\n".join(lines) or "    pass"
        self.classes[name] = f"class {name}(msgspec.Struct, {settings}):\n{body}\n"
        return name

    @staticmethod
    def _field(attribute: str, field: str, annotation: str, is_required: bool) -> str:
        options = [] if attribute == field else [f"name={field!r}"]
        if not is_required:
            annotation = f"{annotation} | {UNSET_TYPE}" if annotation != "Any" else annotation
            if not options:
                return f"    {attribute}: {annotation} = {UNSET_VALUE}"
            options.append(f"default={UNSET_VALUE}")
        default = f" = msgspec.field({', '.join(options)})" if options else ""
        return f"    {attribute}: {annotation}{default}"


def _is_object(schema: Any, definitions: Schema) -> bool:
    if isinstance(schema, Mapping) and "$ref" in schema:
        schema = definitions.get(str(schema["$ref"]).rpartition("/")[2])
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def _literal(values: Iterable[Any]) -> str:
    values = list(values)
    if not all(value is None or isinstance(value, str | int) for value in values):
        return "Any"
    return f"Literal[{', '.join(map(repr, values))}]"


def _canonical(schema: Any) -> str:
    """The same text for equal schemas."""
    if isinstance(schema, Mapping):
        return "{" + ",".join(f"{key!r}:{_canonical(schema[key])}" for key in sorted(schema)) + "}"
    return repr(schema)
