"""What C and Go write alike: texts, numbers and lists of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from importlib import resources
from string import ascii_letters, digits

from ramsis import __version__
from ramsis.errors import InvalidValueError
from ramsis.serving.export.codegen.flat import FlatSet

_WIDTH = 96
_PLAIN = frozenset((ascii_letters + digits + " _-.,:;=+/()[]@#").encode())


def quoted(text: str) -> str:
    r"""A text as a literal of C and of Go; bytes of UTF-8 that could end it or join are octal.

    >>> print(quoted('say "é" ??/'))
    "say \042\303\251\042 \077\077/"
    """
    data = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data) + '"'


def real(value: float) -> str:
    """A finite double as a literal that is read as the same double, also by a longer format.

    Of the decimals that stand for a double, the shortest may lie just below half way to the next
    one, and a compiler that rounds twice would then miss it. With 20 digits none does.

    >>> real(100.0), real(0.1)
    ('100.0', '0.10000000000000000555')
    """
    text = format(value, ".20g")
    return text if "." in text or "e" in text else f"{text}.0"


def listed(values: Iterable[object], indent: str = "    ") -> str:
    """Values behind one another, each with a comma, in lines of bounded width where that can be.

    >>> print(listed([1, "{2, 3}"], ""))
    1, {2, 3},
    """
    lines = [indent]
    for value in values:
        item = f"{value},"
        if len(lines[-1]) + len(item) >= _WIDTH and lines[-1] != indent:
            lines.append(indent)
        lines[-1] += item if lines[-1] == indent else f" {item}"
    return "\n".join(lines)


def index_bits(policies: FlatSet) -> int:
    """Bits that hold any slack bin, answer and number of answers of a set: 16, or 32."""
    largest = max(len(policies.answers),
                  *(len(policy.edges_ms) + 1 for policy in policies.policies))
    return 16 if largest < 1 << 16 else 32


def check_identifier(name: str, where: str, reserved: Collection[str]) -> None:
    """Refuse what cannot begin the names of a program."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or name in reserved:
        raise InvalidValueError(
            "not an identifier", where=where, value=name,
            allowed="up to 40 lower-case letters, digits and _, from a letter on, and no keyword")


def template(name: str, values: dict[str, object]) -> str:
    """A file beside this module, with what stands there between two ``@`` replaced."""
    values = {"version": __version__, **values}
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return re.sub(r"@(\w+)@", lambda found: str(values[found[1]]), text)
