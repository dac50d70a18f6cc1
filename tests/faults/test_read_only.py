"""An installation that cannot be written to, of a user without a home."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ramsis
from ramsis import policy
from ramsis.profiles import save
from tests.synthesis.samples import tiny_profile

PACKAGE = Path(ramsis.__file__).parent
SCRIPT = """
mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" || exit 77
touch "$0/written" 2>/dev/null && exit 77
exec "$@"
"""


@pytest.mark.slow  # nothing that was compiled is kept
@pytest.mark.parametrize("words", [
    ("generate", "--max-queue", "4", "--grid", "fixed:10", "--load", "100", "--out", "set"),
    ("simulate", "--scheduler", "greedy", "--load", "100", "--duration-s", "1", "--csv",
     "rows.csv"),
    ("bound", "--load", "100"),
])
def test_commands_work_from_a_read_only_installation(words, tmp_path):
    save(tiny_profile(), tmp_path / "profile.json")
    settings = {name: value for name, value in os.environ.items()
                if name not in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-c", SCRIPT, str(PACKAGE), sys.executable, "-m", "ramsis",
         *words, "--profiles", "profile.json", "--slo-ms", "100", "--workers", "2"],
        env={**settings, "PYTHONPATH": str(PACKAGE.parent), "NUMBA_CACHE_LOCATOR_CLASSES":
             "_InTreeCacheLocator"},
        cwd=tmp_path, text=True, capture_output=True, check=False)
    if ran.returncode == 77 or "unshare" in ran.stderr or "mount" in ran.stderr:
        pytest.skip("nothing can be mounted here")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout
    if words[0] == "generate":
        assert policy.validate_set(tmp_path / "set").loads() == (100.0,)
