"""Reading and writing JSON: size limit, damage, byte-stable text, whole files or none."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis import files
from ramsis.errors import InputFileError, OutputError
from ramsis.files import canonical_json, fingerprint, read_json, write_atomic

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False,
                                                               allow_infinity=False) | _TEXT
DOCUMENTS = st.dictionaries(
    _TEXT,
    st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=4)
                 | st.dictionaries(_TEXT, inner, max_size=4), max_leaves=12),
    max_size=5,
)


@given(DOCUMENTS)
def test_canonical_text_is_json_of_the_same_document(document: dict[str, Any]) -> None:
    assert json.loads(canonical_json(document)) == document


@given(DOCUMENTS, st.randoms())
def test_canonical_text_does_not_depend_on_the_order_of_keys(
    document: dict[str, Any], random: Any
) -> None:
    keys = list(document)
    random.shuffle(keys)
    shuffled = {key: document[key] for key in keys}
    assert canonical_json(shuffled) == canonical_json(document)
    assert fingerprint(shuffled) == fingerprint(document)


@given(DOCUMENTS)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.json"
    write_atomic(path, canonical_json(document))
    assert read_json(path) == document


def test_canonical_text_has_sorted_keys_and_short_lists_on_a_line() -> None:
    document = {"b": [1, 2.5, "é"], "a": {"y": [], "x": {}}, "c": [[1, 2], [3]], "d": (True, None)}
    assert canonical_json(document) == (
        '{\n "a": {\n  "x": {},\n  "y": []\n },\n "b": [1, 2.5, "é"],\n'
        ' "c": [\n  [1, 2],\n  [3]\n ],\n "d": [true, null]\n}\n'
    )


def test_fingerprints_tell_documents_apart() -> None:
    one = fingerprint({"a": 1})
    assert one == fingerprint(canonical_json({"a": 1}))
    assert one.startswith("sha256:")
    assert len({one, fingerprint({"a": 2}), fingerprint({"a": "1"}), fingerprint({})}) == 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [lambda x: x, lambda x: [1.0, x], lambda x: [[x]],
                                   lambda x: {"deep": [{"er": x}]}])
def test_numbers_that_json_does_not_have_are_not_written(value: float, place: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": place(value)})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "file is empty; allowed: a JSON object"),
        (b" \n\t", "file is empty"),
        (b'{"a": 1', "cut off or damaged"),
        (b'{"a": 1}}', "cut off or damaged"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cut off or damaged"),
        (b'{"a":' * 100_000, "cut off or damaged"),
        (b'{"a": "\\ud800"}', "surrogates not allowed"),
        (b'{"a": "\\uDBFF."}', "surrogates not allowed"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[1]", "top level is not an object: got 'list'; allowed: a JSON object"),
        (b"3", "got 'int'"),
        (b"null", "got 'NoneType'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as refusal:
        read_json(path)
    message = str(refusal.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert "\n" not in message


def test_pairs_of_surrogates_are_characters(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text('{"a": "\\ud83d\\ude00"}')
    assert read_json(tmp_path / "file.json") == {"a": "😀"}


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"none.json: cannot read file \(No such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputFileError, match=r"cannot read file \(Is a directory\)"):
        read_json(tmp_path)


def test_the_size_limit_is_the_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.MAX_FILE_BYTES == 64 * 2**20
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    path = tmp_path / "file.json"
    path.write_text('{"abc": 1}')
    assert read_json(path) == {"abc": 1}
    path.write_text('{"abcde": 1}')
    with pytest.raises(InputFileError, match="too large: got '12 bytes'; allowed: at most 10"):
        read_json(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless device")
def test_the_size_limit_holds_for_what_does_not_state_its_size(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    with pytest.raises(InputFileError, match="/dev/zero: file is too large"):
        read_json("/dev/zero")


def test_writing_makes_missing_folders_and_a_readable_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.json"
    write_atomic(path, "text é\n")
    assert path.read_text(encoding="utf-8") == "text é\n"
    assert path.stat().st_mode & 0o777 == 0o644
    write_atomic(path, "other\n")
    assert path.read_text() == "other\n"
    assert os.listdir(path.parent) == ["file.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("step", ["replace", "chmod", "fdopen"])
def test_a_failure_at_any_step_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")

    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(files.os, step, fail)
    expected = OutputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as failure:
        write_atomic(path, "new")
    if expected is OutputError:
        assert str(failure.value) == f"{path}: cannot write file (No space left on device)"
    assert os.listdir(tmp_path) == ["file.json"]
    assert path.read_text() == "old"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "x.json", tmp_path / "file" / "below" / "x.json"):
        with pytest.raises(OutputError, match=f"^{path}: cannot write file"):
            write_atomic(path, "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="folder: cannot write file"):
        write_atomic(tmp_path / "folder", "text")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
