"""Types of arguments at the public entry points, checked against their annotations.

A module or package ends with ``check_arguments(globals(), __all__)``. From then on its public
functions, the constructors of its public classes and their class methods refuse an argument of
another type than the one written there, in one line that names argument, type and what is allowed;
other methods do so once the wrong type has made them fail, so that they cost nothing. Ranges are
each function's own affair.

The check is generous: a number is any real number, a sequence anything that can be gone through
but a text, a member of an enumeration also its text. Annotations that say nothing
at run time (a type variable, a name imported for type checkers only) are not checked.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ramsis.errors import InvalidTypeError

_FORMER = {"scheme": "scheduler", "schemes": "schedulers"}
"""Keywords that were renamed: the former name is still taken."""
_UNIONS = (typing.Union, types.UnionType)
_MOST_ITEMS = 100  # of a sequence that are looked at
_FROM_INSIDE = (TypeError, AttributeError, ValueError, KeyError, IndexError)


def _never(value: Any) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class _Kind:
    """Allowed kind of a value: its test and its name.

    ``by_type`` says that a value is of it whose type alone decides. Such types are remembered,
    since most calls come with the types of the calls before.
    """

    holds: Callable[[Any], bool]
    words: str
    by_type: Callable[[Any], bool] = _never
    _known: set[type] = field(default_factory=set)

    def takes(self, value: Any) -> bool:
        """Whether a value is of it."""
        if type(value) in self._known:
            return True
        if self.by_type(value):
            self._known.add(type(value))
            return True
        return self.holds(value)


def _of_types(holds: Callable[[Any], bool], words: str) -> _Kind:
    """A kind that the type of a value decides about."""
    return _Kind(holds, words, holds)


def check_arguments(
    namespace: dict[str, Any], names: Iterable[str], *, constructors: bool = True,
    methods: bool = True,
) -> None:
    """Have the functions and classes of these names check the types of their arguments.

    Parameters
    ----------
    namespace : dict
        A module's ``globals()``. A function is replaced here and in the module that defines it.
    names : iterable of str
        Others than functions and classes of this project are passed over.
    constructors, methods : bool
        False for what checks itself, or is called too often.
    """
    ours = namespace["__name__"].partition(".")[0]
    for name in names:
        value = namespace.get(name)
        if getattr(value, "__module__", "").partition(".")[0] != ours:
            continue
        if isinstance(value, types.FunctionType):
            checked = _checked(value)
            setattr(sys.modules[value.__module__], value.__name__, checked)
            namespace[name] = checked
        elif isinstance(value, type):
            _check_class(value, constructors, methods)


def _check_class(cls: type, constructors: bool, methods: bool) -> None:
    """Check the constructor and the public methods that a class itself defines."""
    if issubclass(cls, enum.Enum | BaseException) or getattr(cls, "_is_protocol", False):
        return
    for name, value in list(vars(cls).items()):
        if isinstance(value, classmethod | staticmethod) and not name.startswith("_"):
            setattr(cls, name, type(value)(_checked(value.__func__, cls)))
        elif not isinstance(value, types.FunctionType):
            continue
        elif name == "__init__" or (name == "__new__" and issubclass(cls, tuple)):
            if constructors:
                checked = _checked(value, cls)
                setattr(cls, name, staticmethod(checked) if name == "__new__" else checked)
        elif methods and not name.startswith("_"):
            setattr(cls, name, _checked(value, cls, first=False))


def _checked(
    function: Callable[..., Any], owner: type | None = None, *, first: bool = True
) -> Callable[..., Any]:
    """A function that refuses wrong types, before it runs or where they made it fail."""
    if hasattr(function, "_checks_types"):
        return function
    refuse = _Signature(function, owner).refuse
    code = function.__code__
    takes = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    former = [(old, new) for old, new in _FORMER.items() if new in takes and old not in takes]

    def at_once(*args: Any, **given: Any) -> Any:
        for old, new in former:
            if old in given and new not in given:
                given[new] = given.pop(old)
        refuse(args, given)
        return function(*args, **given)

    def on_failure(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except inside:
            refuse(args, given)
            raise

    inside = _FROM_INSIDE
    made = at_once if first else on_failure
    # With the function's own globals: what looks for a module's functions (doctest) finds it.
    checked = types.FunctionType(made.__code__, function.__globals__, function.__name__, None,
                                 made.__closure__)
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

    def refuse(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
        """Refuse the first argument of a wrong type."""
        kinds = self._kinds
        if kinds is None:
            kinds = self._kinds = self._read()
        for name, value in zip(self._positional, args, strict=False):
            if name in kinds and not kinds[name].takes(value):
                raise self._refusal(name, value, kinds[name])
        for name, value in given.items():
            if name in kinds and not kinds[name].takes(value):
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
        """The parameters that are None by default."""
        defaults = self._function.__defaults__ or ()
        last = self._positional[len(self._positional) - len(defaults):]
        found = dict(zip(last, defaults, strict=True)) | (self._function.__kwdefaults__ or {})
        return {name for name, value in found.items() if value is None}

    def _evaluated(self, annotation: Any) -> Any:
        if isinstance(annotation, typing.ForwardRef):
            annotation = annotation.__forward_arg__
        if not isinstance(annotation, str):
            return annotation
        spaces = [self._function.__globals__]
        if self._owner is not None:  # of generated constructors, such as those of data classes
            spaces += [vars(sys.modules[one.__module__]) for one in self._owner.__mro__]
        for space in spaces:
            try:
                return eval(annotation, dict(space))
            except Exception:
                continue
        return Any

    def _refusal(self, name: str, value: Any, kind: _Kind) -> InvalidTypeError:
        what = getattr(self._owner, "__name__", "")
        function = self._function.__name__
        if function in ("__init__", "__new__"):
            called = what
        else:
            called = f"{what}.{function}" if what else function
        return InvalidTypeError(f"wrong type ({type(value).__name__})", where=f"{called}: {name}",
                                value=value, allowed=kind.words)


def _kind_of(hint: Any) -> _Kind | None:
    """What an annotation allows; None: anything."""
    hint = _meant(hint)
    if hint is None or hint is type(None):
        return _of_types(lambda value: value is None, "None")
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin = typing.get_origin(hint)
    if origin in _UNIONS:
        return _union(typing.get_args(hint))
    if origin is typing.Literal:
        held = tuple({type(value) for value in typing.get_args(hint)})
        return _of_types(lambda value: isinstance(value, held),
                         "one of " + ", ".join(map(repr, typing.get_args(hint))))
    cls = hint if origin is None else origin
    if not isinstance(cls, type):
        return None
    return _of_class(cls, typing.get_args(hint))


def _meant(hint: Any) -> Any:
    """What an alias (``type X = ...``) or an annotated type stands for.

    NumPy's ArrayLike and NDArray may be aliases.
    """
    while True:
        if hasattr(hint, "__value__"):
            hint = hint.__value__
        elif typing.get_origin(hint) is typing.Annotated:
            hint = typing.get_args(hint)[0]
        else:
            return hint


def _members(parts: Iterable[Any]) -> Iterator[Any]:
    """The members of a union, those of unions behind its aliases in their place."""
    for part in map(_meant, parts):
        if typing.get_origin(part) in _UNIONS:
            yield from _members(typing.get_args(part))
        else:
            yield part


def _union(parts: tuple[Any, ...]) -> _Kind | None:
    parts = tuple(_members(parts))
    arrays = any(getattr(typing.get_origin(part) or part, "__name__", "") == "_SupportsArray"
                 for part in parts)
    if arrays:  # NumPy's ArrayLike, in which a text would be an array, too
        return _union((_ARRAY, *(part for part in parts if part is type(None))))
    kinds = [part if isinstance(part, _Kind) else _kind_of(part) for part in parts]
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    words = list(dict.fromkeys(word for kind in known for word in kind.words.split(" or ")))
    return _Kind(lambda value: any(kind.holds(value) for kind in known), " or ".join(words),
                 lambda value: any(kind.by_type(value) for kind in known))


def _of_class(cls: type, inner: tuple[Any, ...]) -> _Kind | None:
    name = cls.__name__
    if name in _ARRAYS:
        return _VECTOR
    if issubclass(cls, collections.abc.Mapping):
        return _of_types(lambda value: isinstance(value, Mapping), "a mapping")
    if cls is collections.abc.Callable:  # type: ignore[comparison-overlap]
        return _of_types(callable, "something to call")
    if issubclass(cls, os.PathLike):
        return _of_types(lambda value: isinstance(value, os.PathLike), "a path")
    if _is_sequence(cls):
        return _sequence(_items_of(inner), arrays=cls not in (tuple, list, set, frozenset))
    if issubclass(cls, enum.Enum):
        return _of_types(lambda value: isinstance(value, cls | str),
                         "one of " + ", ".join(str(one.value) for one in cls))
    if getattr(cls, "_is_protocol", False):
        wanted = [one for base in cls.__mro__ if getattr(base, "_is_protocol", False)
                  for one in (*vars(base), *vars(base).get("__annotations__", {}))
                  if not one.startswith("_")]
        return _Kind(lambda value: all(hasattr(value, one) for one in wanted),
                     f"an object with {', '.join(dict.fromkeys(wanted))}",
                     lambda value: _all_have(type(value), wanted))
    return _of_types(lambda value: isinstance(value, cls), f"a {name}")


def _all_have(cls: type, wanted: Iterable[str]) -> bool:
    """Whether all objects of a class have these attributes; none of them is worked out."""
    return {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}.issuperset(wanted)


def _is_sequence(cls: type) -> bool:
    plain = cls in (list, tuple, set, frozenset) or cls.__module__ == "collections.abc"
    return plain and issubclass(cls, collections.abc.Iterable)


def _items_of(inner: tuple[Any, ...]) -> _Kind | None:
    """The kind of all items, where it is one."""
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
            return True  # what can be gone through once only is left as it is
        if item is None:
            return True
        some = value[:_MOST_ITEMS]
        if len(some) > 1 and len(found := set(map(type, some))) == 1 and found <= _SCALARS:
            some = some[:1]  # of these only the type counts
        return all(item.holds(one) for one in some)

    return _Kind(holds, "a sequence" if item is None else f"a sequence, each {item.words}")


def _iterable(value: Any) -> bool:
    """Whether a value can be gone through; an array without dimensions cannot."""
    return hasattr(type(value), "__iter__") and getattr(value, "shape", None) != ()


def _is_number(value: Any) -> bool:
    return type(value) is float or isinstance(value, numbers.Real)  # the first is much faster


def _is_array(value: Any) -> bool:
    """Real numbers in any number of dimensions; an array of objects is taken on trust."""
    if hasattr(value, "shape"):  # first: to ask an array whether it is a number takes longer
        return getattr(getattr(value, "dtype", None), "kind", "O") in "biufO"
    if _is_number(value):
        return True
    return isinstance(value, Iterable) and not isinstance(value, _NO_ARRAYS) and (
        not isinstance(value, list | tuple) or all(map(_is_array, value[:_MOST_ITEMS])))


def _is_vector(value: Any) -> bool:
    return _is_array(value) and _iterable(value)


_SCALARS = {bool, bytes, float, int, str}
_NO_ARRAYS = (str, bytes, Mapping, set, frozenset)
_ARRAYS = ("ndarray", "csr_array", "csr_matrix")
_ARRAY = _Kind(_is_array, "a number or an array of numbers")
_VECTOR = _Kind(_is_vector, "an array of numbers")
_PLAIN: dict[Any, _Kind | None] = {
    Any: None,
    object: None,
    bool: _of_types(
        lambda value: isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"),
        "True or False"),
    int: _of_types(lambda value: isinstance(value, numbers.Integral), "a whole number"),
    float: _of_types(_is_number, "a number"),
    str: _of_types(lambda value: isinstance(value, str), "a text"),
    bytes: _of_types(lambda value: isinstance(value, bytes), "bytes"),
}
