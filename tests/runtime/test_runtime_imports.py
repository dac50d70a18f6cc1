"""What a serving system embeds stays light."""

import subprocess
import sys


def test_importing_the_runtime_loads_nothing_heavy():
    code = (
        "import sys; import ramsis.runtime; "
        "heavy = {'numpy', 'scipy', 'numba', 'pandas', 'click', 'rich', 'jsonschema'}; "
        "own = {m for m in sys.modules if m.startswith('ramsis.')}; "
        "print(sorted(heavy & set(sys.modules))); "
        "light = ('runtime', 'errors', 'fields', 'files', 'checks', 'figures', 'lazy_names', "
        "'reprs', 'tables'); "
        "print(sorted(m for m in own if m.split('.')[1] not in light))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["[]", "[]"]


def test_everything_the_runtime_offers_is_there():
    from ramsis import runtime

    assert all(hasattr(runtime, name) for name in runtime.__all__)
