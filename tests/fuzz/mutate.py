"""Damage to files, as programs, disks and people do it."""

import copy
import csv
import io
import json
import random
import re
from collections.abc import Callable
from typing import Any

ODD_TEXTS = ("", " ", "nan", "NaN", "inf", "-inf", "-1", "0", "-0", "1e308", "1e-308", "1e400",
             "1e26", "9" * 30, "9" * 400, "1_0", "１２", "0x10", "1e", "--", "x" * 300, "é",
             "\u202e", "\u2028", "a b", "a,b", "a:b", "a=b", "=", ":", ",", ";", "'", '"', "[",
             "{", "%s", "{0}", "\\", "../x", "null", "true", "None", "1.5", "1000000000",
             "0.0000001")
HOSTILE_TEXTS = ("evil:f", "evil.py:f", "round-robin:arrivals=evil:f,service=p95,max_queue=4",
                 "evil:f:alpha=1", "a\x1b[31mb", "a\r\nb", "a\u202eb", "a\x00b", "=1+1", "@sum(1)",
                 ".".join("a" * 5000), "[" * 3000, "x" * 200_000, "1" * 5000)
"""What someone writes into a file to hurt: names of code, control characters, formulas, bombs."""
_ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 1.5, -0.5, 10**6, 10**9, 10**24, 10**400, 1e308, 1e-308, 5e-324,
    float("nan"), float("inf"), "", "x", "1", "é" * 50, "x" * 5000, "a\nb", "\x00", [], {}, [[]],
    [None], [1, "a"], {"a": 1}, [0] * 1000, "../x", "/etc/passwd", *HOSTILE_TEXTS, [[]] * 10_000,
    {str(i): i for i in range(5000)})
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def mutated(content: bytes, syntax: str, rng: random.Random) -> bytes:
    """A file's content after one to three damages that suit its syntax."""
    ways = _WAYS[syntax]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        way = rng.choice(ways)
        try:
            content = way(content, rng)
        except (ValueError, IndexError, RecursionError, csv.Error):
            content = _bytes(content, rng)
    return content


def _bytes(content: bytes, rng: random.Random) -> bytes:
    """Bytes lost, changed, added or repeated."""
    first, last = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    span = min(last - first, 40)
    way = rng.randrange(8)
    if way == 0:
        return content[:first]
    if way == 1:
        return content[:first] + content[first + max(span, 1):]
    if way == 2:
        return content[:first] + content[first:first + span] * rng.choice((2, 50)) + content[last:]
    if way == 3:
        return content[:first] + bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 20)))) \
            + content[first:]
    if way == 4:
        before = (b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\x1f\x8b", b"\n" * 100)
        return rng.choice(before) + content
    if way == 5 and content:
        place = rng.randrange(len(content))
        return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) \
            + content[place + 1:]
    if way == 6:
        return content.replace(b"\n", rng.choice((b"\r", b"\r\n", b"\n\n", b"")))
    return b"\x00" * len(content) if rng.random() < 0.3 else content + content


def _number(content: bytes, rng: random.Random) -> bytes:
    """Another number in the place of one."""
    found = list(_NUMBER.finditer(content))
    one = rng.choice(found)
    return content[:one.start()] + rng.choice(ODD_TEXTS).encode() + content[one.end():]


def _json(content: bytes, rng: random.Random) -> bytes:
    """A value, key or entry of a document changed."""
    document = json.loads(content)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            items: Any = list(value.items())
        elif isinstance(value, list):
            items = list(enumerate(value))[:40]
        else:
            return
        for key, inner in items:
            places.append((value, key))
            walk(inner)

    walk(document)
    parent, key = rng.choice(places)
    way = rng.randrange(7)
    if way <= 2:
        parent[key] = rng.choice(_ODD_VALUES)
    elif way == 3:
        del parent[key]
    elif way == 4 and isinstance(parent, dict):
        parent[rng.choice(("", "x", key + "s", key.upper()))] = copy.deepcopy(parent[key])
    elif way == 4:
        parent.extend(copy.deepcopy(parent[key]) for _ in range(rng.choice((1, 300))))
    elif way == 5:
        other, at = rng.choice(places)
        parent[key] = copy.deepcopy(other[at])
    else:
        value = parent[key]
        for _ in range(rng.choice((1, 30))):
            value = [value]
        parent[key] = value
    return json.dumps(document, indent=1).encode()


def _csv(content: bytes, rng: random.Random) -> bytes:
    """A cell, row or column of a table changed."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    row = rng.randrange(len(rows))
    column = rng.randrange(len(rows[row]))
    way = rng.randrange(7)
    if way <= 2:
        rows[row][column] = rng.choice((*ODD_TEXTS, *HOSTILE_TEXTS))
    elif way == 3:
        rows[row:row + 1] = [rows[row]] * rng.choice((0, 2, 300))
    elif way == 4:
        for one in rows:
            del one[column:column + 1]
    elif way == 5:
        rows[row].append(rng.choice(ODD_TEXTS))
    else:
        for one in rows:
            one.append(rng.choice(ODD_TEXTS) if one is not rows[0] else rng.choice(rows[0]))
    text = io.StringIO()
    csv.writer(text, delimiter=rng.choice(",,,,;\t"), lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _lines(content: bytes, rng: random.Random) -> bytes:
    """A line lost, repeated, moved or replaced."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    way = rng.randrange(4)
    if way == 0:
        del lines[at]
    elif way == 1:
        lines[at:at] = [lines[at]] * rng.choice((1, 300))
    elif way == 2:
        lines.insert(rng.randrange(len(lines)), lines.pop(at))
    else:
        lines[at] = rng.choice(ODD_TEXTS).encode()
    return b"\n".join(lines)


def _toml(content: bytes, rng: random.Random) -> bytes:
    """The value of a key changed, or a key added."""
    lines = content.decode().split("\n")
    at = rng.choice([i for i, line in enumerate(lines) if "=" in line])
    key = lines[at].partition("=")[0]
    value = rng.choice((*ODD_TEXTS, *map(json.dumps, HOSTILE_TEXTS), "[]", "{}", "[[]]",
                        "[1, 'a']", "'x'", "nan", "inf",
                        "1979-05-27", "[0, -1]", "['small']", "99999999999999999999",
                        "[" * 200 + "]" * 200,
                        "'mod:ule'", "'1:2:0'", "'100:1e9:1e-3'", "['all', 'all']"))
    if rng.random() < 0.8:
        lines[at] = f"{key}= {value}"
    else:
        lines.insert(at, f"{rng.choice(('x', 'seeds', 'cv', 'trace', key.strip()))} = {value}")
    return "\n".join(lines).encode()


_Way = Callable[[bytes, random.Random], bytes]
_WAYS: dict[str, tuple[_Way, ...]] = {
    "json": (_json, _json, _json, _number, _bytes),
    "csv": (_csv, _csv, _number, _bytes),
    "toml": (_toml, _toml, _number, _bytes),
    "lines": (_lines, _number, _bytes),
    "bytes": (_bytes,),
}
