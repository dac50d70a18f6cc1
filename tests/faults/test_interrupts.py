"""Ctrl-C ends a command with its exit code, and what it has written is whole."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ramsis.policy import validate_set
from ramsis.profiles import save
from tests.faults.interrupts import INTERRUPTED, interrupted, interrupted_often
from tests.faults.kills import told
from tests.fuzz.kit import make_kit
from tests.serving.servers import make
from tests.synthesis.samples import tiny_profile

AFTER_S = (0.0, 0.4, 0.8, 1.2)


@pytest.mark.slow
def test_an_interrupted_central_queue(tmp_path):
    save(tiny_profile(), tmp_path / "profile.json")

    def generated(after_s: float) -> tuple[int, str, list[str]]:
        return interrupted(
            ["generate", "--profiles", str(tmp_path / "profile.json"), "--slo-ms", "100",
             "--workers", "2", "--dispatch", "central-queue", "--load", "10:600:10", "--out",
             str(tmp_path / str(after_s))], after_s)

    with ThreadPoolExecutor() as pool:
        for after_s, (code, said, stays) in zip(
                AFTER_S, pool.map(generated, AFTER_S), strict=True):
            assert (code, stays) == (130, []), said
            assert "Traceback" not in said
            if (tmp_path / str(after_s) / "manifest.json").exists():
                validate_set(tmp_path / str(after_s))
            assert not list(tmp_path.glob(f"{after_s}/.*"))


def test_an_interrupt_that_an_import_swallows_is_not_lost(tmp_path):
    (tmp_path / "swallowing.py").write_text(
        "import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\n"
        "except BaseException:\n    pass\n")
    code = ("import sys, time, ramsis.__main__ as process, ramsis.cli.main as command\n"
            f"sys.path.insert(0, {str(tmp_path)!r})\n"
            "command.main = lambda: (__import__('swallowing'), time.sleep(60))\n"
            "process.main()\n")
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERRUPTED)
def test_interrupts_at_random_moments(name, tmp_path):
    kit = make_kit(tmp_path / "kit", lambda words: told(words, tmp_path / "printed"))
    (kit / "serving").mkdir()
    make(kit / "serving", slo_ms=200.0)
    assert not [one for several in interrupted_often(name, kit, tmp_path, 6, seed=0)
                for one in several]
