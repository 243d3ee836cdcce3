"""The example in CONTRIBUTING.md does what it says: installed as a package, its own test passes."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from gdn_ir import pipeline

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
MODULES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", TEXT, re.DOTALL))
(ENTRY_POINTS,) = re.findall(
    r'```toml\n\[project\.entry-points\."(.*?)"\]\n(.*?)```', TEXT, re.DOTALL
)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder on the path with the modules, and the metadata that an installer would write."""
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
    metadata = tmp_path / "my_passes-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-passes\nVersion: 1\n")
    group, lines = ENTRY_POINTS
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{lines}".replace('"', ""))
    monkeypatch.syspath_prepend(tmp_path)
    pipeline.registry.cache_clear()
    yield
    pipeline.registry.cache_clear()
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_example_passes_its_own_test(installed):
    assert set(MODULES) == {"my_passes", "test_my_passes"}
    tests = vars(importlib.import_module("test_my_passes"))
    functions = [value for name, value in tests.items() if name.startswith("test_")]
    assert len(functions) == 1
    for function in functions:
        function()
    assert pipeline.registry()["square"].__module__ == "my_passes"
