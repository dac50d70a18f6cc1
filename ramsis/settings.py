"""Settings that are declared once, as fields of a dataclass.

:func:`setting` declares a field: default, allowed values and description; the type is the field's
annotation. Everything else is derived from the declaration: the option of the command line
(``--max-queue``), the parameter in the text of a scheduler (``max_queue=16``), the checks of the
constructor, its documentation, and the tables of the manual.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, TypeVar

from ramsis.errors import InvalidValueError, Rule

_Class = TypeVar("_Class", bound=type)
_METADATA = "setting"
_NO_DEFAULTS: Mapping[str, Any] = {}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_KINDS: Mapping[Any, Callable[[str], Any]] = {
    float: float, int: int, bool: lambda text: _FLAGS[text.lower()],
}


@dataclass(frozen=True)
class Setting:
    """A setting that a dataclass field declares: type, default, range and help."""

    name: str
    kind: Any  # float, int, bool or str; any other type has no text
    default: Any
    # other defaults that apply if another setting has the value (a word) that is the key
    defaults: Mapping[str, Any]
    rule: Rule | None  # allowed values; None if the parser of the setting checks them
    choices: tuple[str, ...]  # allowed words, if values are words
    help: str  # sentences for the command line and the documentation
    default_text: str  # description of a default that is not a single value
    metavar: str | None

    def default_with(self, *words: str) -> Any:
        """Return the default where other settings have the values ``words``.

        It is that of the first word with a default of its own.
        """
        return next((self.defaults[word] for word in words if word in self.defaults),
                    self.default)

    @property
    def default_words(self) -> str:
        """Description of all defaults of the setting; empty if it has none."""
        if self.default_text or not (self.defaults or self.default is not None):
            return self.default_text
        others = (f"{_shown(value)} with {word}" for word, value in self.defaults.items())
        return "; ".join((_shown(self.default), *others))

    def check(self, value: Any, where: str = "") -> None:
        """Refuse a value that breaks the rule of this setting."""
        if self.rule is None:
            return
        of_numbers = self.kind in (int, float)
        if self.rule.number(value) is None if of_numbers else not self.rule.holds(value):
            raise InvalidValueError(self.rule.wrong, where=where or self.name, value=value,
                                    allowed=self.rule.allowed)

    def read(self, text: str, where: str) -> Any:
        """Parse a value from a text; refuse a text that is no value of the setting."""
        try:
            value = parse(self.kind, text)
        except ValueError:
            raise InvalidValueError(
                "not a value of the parameter", where=where, value=text,
                allowed=self.rule.allowed if self.rule else "true or false") from None
        self.check(value, where)
        return value


def setting(
    default: Any = MISSING, help: str = "", *, rule: Rule | None = None,
    choices: Sequence[str] = (), defaults: Mapping[str, Any] = _NO_DEFAULTS,
    default_text: str = "", metavar: str | None = None,
) -> Any:
    """Declare a field of a dataclass as a setting; without a default it is required.

    A setting whose default depends on ``defaults`` is None in the dataclass until its constructor
    fills it in by :meth:`Setting.default_with`.
    """
    declared = {
        "default": None if default is MISSING else default, "help": help, "rule": rule,
        "choices": tuple(map(str, choices)), "defaults": defaults, "default_text": default_text,
        "metavar": metavar}
    return field(default=None if defaults else default, metadata={_METADATA: declared})


class Checked:
    """Base of dataclasses whose constructor refuses values that break the rules of settings.

    None passes.
    """

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, declared in settings_of(cls).items():
            if getattr(self, name) is not None:
                declared.check(getattr(self, name))


@cache
def settings_of(cls: type) -> Mapping[str, Setting]:
    """Return the settings that a dataclass declares, by name and in the order of its fields."""
    hints = typing.get_type_hints(cls)
    settings = {}
    for item in fields(cls):
        if _METADATA in item.metadata:
            declared = dict(item.metadata[_METADATA])
            if declared["choices"]:
                choices = declared["choices"]
                declared["rule"] = Rule(", ".join(choices), choices.__contains__,
                                        f"unknown {item.name}")
            settings[item.name] = Setting(item.name, _kind(hints[item.name]), **declared)
    return settings


def parse(kind: Any, text: str) -> Any:
    """Parse a text as a value of a type; ValueError if it states none."""
    try:
        return _KINDS.get(kind, str)(text)
    except KeyError:
        raise ValueError(text) from None


def documented(cls: _Class) -> _Class:
    """Append the section ``Attributes`` of its settings to a class's docstring."""
    lines = ["    Attributes", "    ----------"]
    for item in fields(cls):
        if _METADATA in item.metadata:
            declared = settings_of(cls)[item.name]
            words = declared.default_words
            about = declared.help.replace("\n", " ")
            values = f" Allowed: {declared.rule.allowed}." if declared.rule else ""
            lines += [f"    {item.name} : {item.type}", f"        {about}{values}"
                      + (f" Default: {words}." if words else "")]
    if cls.__doc__ is not None:  # as with `python -OO`
        cls.__doc__ = f"{cls.__doc__.rstrip()}\n\n" + "\n".join(lines) + "\n"
    return cls


def _kind(hint: Any) -> Any:
    """Return the type of an annotation without None; ``str`` for literals."""
    if typing.get_origin(hint) is typing.Literal:
        return str
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 and type(None) in typing.get_args(hint) else hint


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
