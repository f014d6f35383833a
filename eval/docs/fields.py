"""The reference of configuration and of file formats: from records' types and docstrings."""

from __future__ import annotations

import types
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from veltair.eval.docs.docstrings import attributes, lead
from veltair.eval.docs.markup import entry, prose

if TYPE_CHECKING:
    from collections.abc import Collection

_NAMES = {
    int: ("integer", "integers"),
    float: ("number", "numbers"),
    str: ("text", "texts"),
    bool: ("true or false", "booleans"),
}


def toml_section(
    kind: type[msgspec.Struct], heading: str, *, of: str = "", without: Collection[str] = ()
) -> str:
    """Writes the keys of a section of a TOML file: default, meaning, type and bounds.

    Args:
        kind: the section's record; each field is `Annotated` with a `Meta` that describes it.
        heading: as the file has it, `[server]`.
        of: what the file is about, where the page has the same section of another kind too.
        without: fields that the file doesn't take.
    """
    hints = get_type_hints(kind, include_extras=True)
    entries = [
        _key(field, hints[field.name])
        for field in msgspec.structs.fields(kind)
        if field.name not in without
    ]
    name = heading.strip("[]").replace(".", "-").lower()
    title = f"`{heading}` of {of} {{ #{of}-{name} }}" if of else f"`{heading}` {{ #{name} }}"
    says = lead(kind).removeprefix(f"`{heading}`: ")
    parts = [f"## {title}", prose(says[:1].upper() + says[1:])]
    check = vars(kind).get("__post_init__")
    if check is not None:
        parts.append(prose(lead(check)))
    return "\n\n".join((*parts, "\n".join(entries)))


def record(kind: type[msgspec.Struct], like: type[msgspec.Struct] | None = None) -> str:
    """Writes the fields of a record of a JSON file: type, whether it may be left out, meaning.

    Args:
        kind: the record, its fields described in its docstring's `Attributes`.
        like: the record that says what the docstring leaves out.
    """
    described = (attributes(like) if like else {}) | attributes(kind)
    hints = get_type_hints(kind)
    entries = [
        entry(
            f"`{field.name}`: {_type(hints[field.name])}"
            + ("" if field.required else ", may be left out"),
            prose(described[field.name]),
        )
        for field in msgspec.structs.fields(kind)
    ]
    return "\n\n".join(
        (f"## {kind.__name__} {{ #{anchor(kind)} }}", prose(lead(kind)), "\n".join(entries))
    )


def anchor(kind: type) -> str:
    """Where a page has a record."""
    return kind.__name__.lower()


def _key(field: msgspec.structs.FieldInfo, hint: Any) -> str:  # noqa: ANN401 # any type there is
    base, meta = _unwrapped(hint)
    assert meta is not None, f"{field.name} has no Meta that describes it"
    assert meta.description, f"{field.name} has no description"
    term = f"`{field.name}`" if field.required else f"`{field.name} = {toml(field.default)}`"
    if field.required:
        term += ", required"
    elif field.default is None:
        term = f"`{field.name}`, may be left out"
    return entry(term, f"{prose(meta.description)}\n\n*{prose(_rule(base, meta))}*{{ .rule }}")


def _unwrapped(hint: Any) -> tuple[Any, Meta | None]:  # noqa: ANN401 # any type there is
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        return base, next((extra for extra in extras if isinstance(extra, Meta)), None)
    return hint, None


def _rule(base: Any, meta: Meta) -> str:  # noqa: ANN401 # any type there is
    text = _plain(base)
    bounds = []
    if meta.gt is not None:
        bounds.append(f"above {number(meta.gt)}")
    if meta.ge is not None:
        bounds.append(f"from {number(meta.ge)}")
    if meta.le is not None:
        bounds.append(f"to {number(meta.le)}")
    return " ".join((text, *bounds))


def number(value: float) -> str:
    """A number as TOML may have it: digits of large integers in groups, as 65_536."""
    if value == int(value) and abs(value) >= 10_000:
        return f"{int(value):_}"
    return f"{value:g}"


def toml(value: object) -> str:
    """A default as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, str):
        return f'"{value}"'
    assert value == () or value is None, f"{value!r} has no form here"
    return "[]"


def _plain(hint: Any, plural: bool = False) -> str:  # noqa: ANN401 # any type there is
    """A type in words, for a key of a TOML file."""
    hint, _ = _unwrapped(hint)
    if hint in _NAMES:
        return _NAMES[hint][plural]
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(f"`{toml(choice)}`" for choice in arguments)
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(arguments[0], plural)
    if get_origin(hint) is dict:
        return f"table of {_plain(arguments[1], plural=True)} by name"
    assert get_origin(hint) is tuple, f"{hint} has no words here"
    return f"list of {_plain(arguments[0], plural=True)}"


def _type(hint: Any) -> str:  # noqa: ANN401 # as above
    """A type in words, for a field of a JSON file; records are links to their own part."""
    arguments = [argument for argument in get_args(hint) if argument is not type(None)]
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is tuple:
        lengths = "" if arguments[-1] is Ellipsis else f" of {len(arguments)}"
        return f"list{lengths} of {_type(arguments[0])}"
    if origin is dict:
        return f"object of {_type(arguments[1])} by name"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"[{hint.__name__}](#{anchor(hint)})"
    return _plain(hint)
