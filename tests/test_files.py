"""Reading and writing JSON: size limit, damage, byte-stable text, whole files or none."""

import contextlib
import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis import files
from ramsis.errors import InputFileError, OutputError
from ramsis.files import (
    canonical_json,
    fingerprint,
    folder_lock,
    read_json,
    read_text,
    write_atomic,
)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Whole numbers of more digits are read as floats.
_PLAIN = (st.none() | st.booleans() | st.integers(-10**18 + 1, 10**18 - 1)
          | st.floats(allow_nan=False, allow_infinity=False) | _TEXT)
DOCUMENTS = st.dictionaries(
    _TEXT,
    st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=4)
                 | st.dictionaries(_TEXT, inner, max_size=4), max_leaves=12),
    max_size=5,
)


@given(DOCUMENTS, st.randoms())
def test_canonical_text_does_not_depend_on_the_order_of_keys(document, random):
    keys = list(document)
    random.shuffle(keys)
    shuffled = {key: document[key] for key in keys}
    assert canonical_json(shuffled) == canonical_json(document)
    assert fingerprint(shuffled) == fingerprint(document)


@given(DOCUMENTS)
def test_what_is_written_is_read_again(tmp_path_factory, document):
    path = tmp_path_factory.getbasetemp() / "round.json"
    text = canonical_json(document)
    write_atomic(path, text)
    assert read_json(path) == json.loads(text) == document


def test_canonical_text_has_sorted_keys_and_short_lists_on_a_line():
    document = {"b": [1, 2.5, "é"], "a": {"y": [], "x": {}}, "c": [[1, 2], [3]], "d": (True, None)}
    assert canonical_json(document) == (
        '{\n "a": {\n  "x": {},\n  "y": []\n },\n "b": [1, 2.5, "é"],\n'
        ' "c": [\n  [1, 2],\n  [3]\n ],\n "d": [true, null]\n}\n'
    )


def test_fingerprints_tell_documents_apart():
    one = fingerprint({"a": 1})
    assert one == fingerprint(canonical_json({"a": 1}))
    assert one.startswith("sha256:")
    assert len({one, fingerprint({"a": 2}), fingerprint({"a": "1"}), fingerprint({})}) == 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [lambda x: x, lambda x: [1.0, x], lambda x: [[x]],
                                   lambda x: {"deep": [{"er": x}]}])
def test_numbers_that_json_does_not_have_are_not_written(value, place):
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"a": place(value)})


@pytest.mark.parametrize(("content", "says"), [
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
    (b"\xff\xfe{\0}\0", "not UTF-8 text; allowed: text in UTF-8; iconv -f UTF-16"),
    (b'{"a": "\xe4"}', "not UTF-8 text; allowed: text in UTF-8; of a spreadsheet, iconv"),
    (b"[1]", "top level is not an object: got 'list'; allowed: a JSON object"),
    (b"3", "got 'int'"),
    (b"null", "got 'NoneType'"),
], ids=lambda value: str(value)[:30])
def test_what_is_no_json_object_is_refused(tmp_path, content, says):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as refusal:
        read_json(path)
    message = str(refusal.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert "\n" not in message


def test_pairs_of_surrogates_are_characters(tmp_path):
    (tmp_path / "file.json").write_text('{"a": "\\ud83d\\ude00"}')
    assert read_json(tmp_path / "file.json") == {"a": "😀"}


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(InputFileError, match=r"none.json: cannot read file \(No such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputFileError, match=r"cannot read file \(Is a directory\)"):
        read_json(tmp_path)


def test_the_size_limit_is_the_largest_size(tmp_path, monkeypatch):
    assert files.MAX_FILE_BYTES == 64 * 2**20
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    path = tmp_path / "file.json"
    path.write_text('{"abc": 1}')
    assert read_json(path) == {"abc": 1}
    path.write_text('{"abcde": 1}')
    with pytest.raises(InputFileError, match="too large: got '12 bytes'; allowed: at most 10"):
        read_json(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless device")
def test_the_size_limit_holds_for_what_does_not_state_its_size(monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    with pytest.raises(InputFileError, match="/dev/zero: file is too large"):
        read_json("/dev/zero")


def test_writing_makes_missing_folders_and_a_readable_file(tmp_path):
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
    tmp_path, monkeypatch, step, error
):
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_moment_leaves_a_whole_file_and_nothing_else(tmp_path):
    """At every step of the interpreter's in the writing code, each in a run of its own.

    A handle that an interrupt leaves open ends with the process, so warnings of it are no matter.
    """
    path = tmp_path / "file.json"
    write_atomic(path, "old")
    before = sys.gettrace()
    for moment in count():
        left = iter(range(moment))

        def trace(frame: FrameType, event: str, _: object, left: Iterator[int] = left) -> Any:
            if frame.f_code.co_filename not in (files.__file__, contextlib.__file__):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and next(left, None) is None:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            write_atomic(path, "new")
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert os.listdir(tmp_path) == ["file.json"], moment
        assert path.read_text() in ("old", "new")
        path.write_text("old")
    assert moment > 100


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "x.json", tmp_path / "file" / "below" / "x.json"):
        with pytest.raises(OutputError, match=f"^{path}: cannot write file"):
            write_atomic(path, "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="folder: cannot write file"):
        write_atomic(tmp_path / "folder", "text")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("content", ['{"a": 1, "a": 2}', '{"b": [{"a": 1, "c": 0, "a": 1}]}'])
def test_a_key_that_stands_twice_is_refused(tmp_path, content):
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(InputFileError, match="key 'a' appears twice"):
        read_json(tmp_path / "file.json")


def test_numbers_too_large_to_count_with_are_floats(tmp_path):
    (tmp_path / "file.json").write_text('{"a": 1' + "0" * 24 + ', "b": 123456789012345678}')
    assert read_json(tmp_path / "file.json") == {"a": 1e24, "b": 123456789012345678}


def test_permissions_follow_the_old_file_or_the_umask(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        write_atomic(old, "x")
        write_atomic(new, "x")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (old, new)] == [0o640, 0o640]
    new.chmod(0o604)
    write_atomic(new, "y")
    assert new.stat().st_mode & 0o777 == 0o604


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real" / "file.json")
    write_atomic(link, "x")  # what it names need not exist
    assert link.is_symlink()
    assert (tmp_path / "real" / "file.json").read_text() == "x"


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_atomic(pipe, "through")
        assert reader.communicate(timeout=30)[0] == b"through"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_to_and_stays():
    write_atomic(os.devnull, "gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_name_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(OutputError, match="null"):
        write_atomic(f"{tmp_path}/a\0b", "x")
    with pytest.raises(InputFileError, match="null"):
        read_text(f"{tmp_path}/a\0b")


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path):
    program = ("import sys, time; from ramsis.files import folder_lock\n"
               "with folder_lock(sys.argv[1]): print('held', flush=True); time.sleep(0.5)")
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)],
                          stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with folder_lock(tmp_path):
            assert holder.wait(timeout=10) == 0 or holder.poll() is not None
    assert not list(tmp_path.iterdir())


def test_what_a_killed_writer_left_is_removed_by_the_next_and_a_living_one_keeps_its_own(tmp_path):
    code = ("import os, signal, sys, time\n"
            "from ramsis.files import written_whole\n"
            "with written_whole(sys.argv[1]) as stream:\n"
            "    stream.write('half')\n"
            "    stream.flush()\n"
            "    print('begun', flush=True)\n"
            "    sys.stdin.readline()\n")
    killed, living = (
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name)], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in ("killed.json", "living.json"))
    for one in (killed, living):
        assert one.stdout.readline() == "begun\n"
    killed.kill()
    killed.wait()
    assert len(os.listdir(tmp_path)) == 2
    files._CLEARED.clear()
    write_atomic(tmp_path / "next.json", "whole")
    left = [name for name in os.listdir(tmp_path) if name != "next.json"]
    assert [name.startswith(".living.json.") for name in left] == [True]
    living.communicate("go on\n")
    assert living.returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["living.json", "next.json"]
    assert (tmp_path / "living.json").read_text() == "half"
    assert killed.stdin is not None
    for stream in (killed.stdin, killed.stdout):
        stream.close()


def test_bytes_are_written_whole_too(tmp_path):
    write_atomic(tmp_path / "figure.png", b"\x89PNG\r\n")
    assert (tmp_path / "figure.png").read_bytes() == b"\x89PNG\r\n"


def test_an_error_while_writing_is_not_taken_for_one_of_the_disk(tmp_path):
    def write() -> None:
        with files.written_whole(tmp_path / "a") as out:
            out.write("half")
            raise InputFileError("mine")

    with pytest.raises(InputFileError, match="mine"):
        write()
    assert not os.listdir(tmp_path)
