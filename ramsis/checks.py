"""Types of arguments at the public entry points, checked against their annotations.

The public names of ``ramsis`` check their arguments: functions, and the constructors and class
methods of classes. They refuse an argument whose type does not fit its annotation, in one line
that names the argument, its type and what is allowed. The functions check ranges themselves.

The check is generous: any real number passes as a number, any iterable except a text as a
sequence, and the text of a member as a member of an enumeration. Annotations that cannot be
evaluated at run time (a name imported for type checkers only) and type variables are not checked.

Standard library only, as the runtime uses it; an annotation is read when its function is first
called.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ramsis.errors import InvalidTypeError

_UNIONS = (typing.Union, types.UnionType)
_MOST_ITEMS = 100  # of a sequence that are looked at


class _Kind(NamedTuple):
    """Allowed kind of a value: its test and its name."""

    holds: Callable[[Any], bool]
    words: str


def check_arguments(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Make functions and classes, by their names in a module, check the types of arguments.

    ``namespace`` is the module's ``globals()``. A function is replaced there and in the module
    that defines it.
    """
    for name in names:
        value = namespace[name]
        if isinstance(value, type):
            _check_class(value)
        else:
            namespace[name] = _checked(value)
            setattr(sys.modules[value.__module__], value.__name__, namespace[name])


def _check_class(cls: type) -> None:
    """Check the constructor and the public class methods that a class itself defines."""
    for name, value in list(vars(cls).items()):
        if isinstance(value, classmethod | staticmethod) and not name.startswith("_"):
            setattr(cls, name, type(value)(_checked(value.__func__, cls)))
        elif name == "__init__":
            setattr(cls, name, _checked(value, cls))


def _checked(function: Callable[..., Any], owner: type | None = None) -> Callable[..., Any]:
    """Return a function that refuses arguments of wrong types before it runs."""
    if hasattr(function, "_checks_types"):
        return function
    refuse = _Signature(function, owner).refuse

    def at_once(*args: Any, **kwargs: Any) -> Any:
        refuse(args, kwargs)
        return function(*args, **kwargs)

    # With the function's own globals: doctest takes only functions with the module's globals.
    checked = types.FunctionType(at_once.__code__, function.__globals__, function.__name__, None,
                                 at_once.__closure__)
    functools.update_wrapper(checked, function)
    checked._checks_types = True  # type: ignore[attr-defined]
    return checked


class _Signature:
    """The kinds of a function's parameters, read from its annotations at the first call."""

    def __init__(self, function: Callable[..., Any], owner: type | None) -> None:
        code = function.__code__
        self._function = function
        self._owner = owner
        self._positional = code.co_varnames[:code.co_argcount]
        self._named = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
        self._kinds: dict[str, _Kind] | None = None

    def refuse(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Refuse the first argument whose type differs from the annotation."""
        kinds = self._kinds
        if kinds is None:
            kinds = self._kinds = self._read()
        for name, value in zip(self._positional, args, strict=False):
            if name in kinds and not kinds[name].holds(value):
                raise self._refusal(name, value, kinds[name])
        for name, value in kwargs.items():
            if name in kinds and not kinds[name].holds(value):
                raise self._refusal(name, value, kinds[name])

    def _read(self) -> dict[str, _Kind]:
        kinds = {}
        optional = self._without_value()
        for name, annotation in self._function.__annotations__.items():
            if name in self._named:
                kind = _kind_of(self._evaluated(annotation))
                if kind is not None and name in optional:
                    kind = _union((kind, None))
                if kind is not None:
                    kinds[name] = kind
        return kinds

    def _without_value(self) -> set[str]:
        """Return the names of the parameters whose default is None."""
        defaults = self._function.__defaults__ or ()
        last = self._positional[len(self._positional) - len(defaults):]
        defaults_by_name = dict(zip(last, defaults, strict=True)) | (self._function.__kwdefaults__
                                                                     or {})
        return {name for name, value in defaults_by_name.items() if value is None}

    def _evaluated(self, annotation: Any) -> Any:
        if isinstance(annotation, typing.ForwardRef):
            annotation = annotation.__forward_arg__
        if not isinstance(annotation, str):
            return annotation
        spaces = [self._function.__globals__]
        if self._owner is not None:  # of generated constructors, such as those of data classes
            spaces += [vars(sys.modules[base.__module__]) for base in self._owner.__mro__]
        for space in spaces:
            try:
                return eval(annotation, dict(space))
            except Exception:
                continue
        return Any

    def _refusal(self, name: str, value: Any, kind: _Kind) -> InvalidTypeError:
        what = getattr(self._owner, "__name__", "")
        function = self._function.__name__
        parts = [what, *([] if function == "__init__" else [function])]
        called = ".".join(filter(None, parts))
        instead = f"; {value._passed_as}" if hasattr(value, "_passed_as") else ""
        return InvalidTypeError(f"wrong type ({type(value).__name__})", where=f"{called}: {name}",
                                value=value, allowed=kind.words + instead)


def _kind_of(hint: Any) -> _Kind | None:
    """Return the kind that an annotation allows, or None where it allows anything."""
    hint = _meant(hint)
    if hint is None or hint is type(None):
        return _Kind(lambda value: value is None, "None")
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin = typing.get_origin(hint)
    if origin in _UNIONS:
        return _union(typing.get_args(hint))
    if origin is typing.Literal:
        held = tuple({type(value) for value in typing.get_args(hint)})
        return _Kind(lambda value: isinstance(value, held),
                     "one of " + ", ".join(map(repr, typing.get_args(hint))))
    cls = hint if origin is None else origin
    if not isinstance(cls, type):
        return None
    return _of_class(cls, typing.get_args(hint))


def _meant(hint: Any) -> Any:
    """Resolve an alias (``type X = ...``, as NDArray may be) or an annotated type."""
    while True:
        if hasattr(hint, "__value__"):
            hint = hint.__value__
        elif typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        else:
            return hint


def _union(parts: tuple[Any, ...]) -> _Kind | None:
    kinds = [part if isinstance(part, _Kind) else _kind_of(part) for part in parts]
    not_none = [kind for kind in kinds if kind is not None]
    if len(not_none) < len(kinds):
        return None
    words = list(dict.fromkeys(word for kind in not_none for word in kind.words.split(" or ")))
    return _Kind(lambda value: any(kind.holds(value) for kind in not_none), " or ".join(words))


def _of_class(cls: type, inner: tuple[Any, ...]) -> _Kind | None:
    name = cls.__name__
    if name == "ndarray":
        return _Kind(_is_vector, "an array of numbers")
    if issubclass(cls, collections.abc.Mapping):
        return _Kind(lambda value: isinstance(value, Mapping), "a mapping")
    if cls is collections.abc.Callable:  # type: ignore[comparison-overlap]
        return _Kind(callable, "something to call")
    if issubclass(cls, os.PathLike):
        return _Kind(lambda value: isinstance(value, os.PathLike), "a path")
    if ((cls in (list, tuple, set, frozenset) or cls.__module__ == "collections.abc")
            and issubclass(cls, collections.abc.Iterable)):
        return _sequence(_items_of(inner), arrays=cls not in (tuple, list, set, frozenset))
    if issubclass(cls, enum.Enum):
        return _Kind(lambda value: isinstance(value, cls | str),
                     "one of " + ", ".join(str(member.value) for member in cls))
    if getattr(cls, "_is_protocol", False):
        wanted = [member for base in cls.__mro__ if getattr(base, "_is_protocol", False)
                  for member in (*vars(base), *vars(base).get("__annotations__", {}))
                  if not member.startswith("_")]
        return _Kind(lambda value: all(hasattr(value, member) for member in wanted),
                     f"a {name}, with {', '.join(dict.fromkeys(wanted))}")
    return _Kind(lambda value: isinstance(value, cls), f"a {name}")


def _items_of(inner: tuple[Any, ...]) -> _Kind | None:
    """Return the kind that an annotation gives to every item; None for several kinds."""
    hints = {hint for hint in inner if hint is not ...}
    return _kind_of(hints.pop()) if len(hints) == 1 else None


def _sequence(item: _Kind | None, arrays: bool) -> _Kind:
    def holds(value: Any) -> bool:
        if isinstance(value, str | bytes | Mapping) or not _iterable(value):
            return False
        if hasattr(value, "shape"):
            if not arrays or len(value.shape) != 1:
                return False
        elif not isinstance(value, list | tuple):
            return True  # an iterator could be consumed only once, so its items are not checked
        return item is None or all(map(item.holds, value[:_MOST_ITEMS]))

    return _Kind(holds, "a sequence" if item is None else f"a sequence, each {item.words}")


def _iterable(value: Any) -> bool:
    """Return whether a value can be iterated over; an array without dimensions cannot."""
    return hasattr(type(value), "__iter__") and getattr(value, "shape", None) != ()


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real)


def _is_vector(value: Any) -> bool:
    """Return whether a value is an array of real numbers; one of objects is taken on trust."""
    if hasattr(value, "shape"):
        return getattr(getattr(value, "dtype", None), "kind", "O") in "biufO" and _iterable(value)
    return isinstance(value, list | tuple) and all(
        _is_number(item) or _is_vector(item) for item in value[:_MOST_ITEMS])


_PLAIN: dict[Any, _Kind | None] = {
    Any: None,
    object: None,
    bool: _Kind(
        lambda value: isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"),
        "True or False"),
    int: _Kind(lambda value: isinstance(value, numbers.Integral), "a whole number"),
    float: _Kind(_is_number, "a number"),
    str: _Kind(lambda value: isinstance(value, str), "a text"),
}
