"""Golden files: `golden("name.txt") == text`, rewritten by `pytest --update-golden`."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Slow machines are no fault of what is tested.
settings.register_profile("gdn-ir", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gdn-ir")

GOLDEN = Path(__file__).parent / "golden"


class Golden:
    """Text in tests/golden that a test's output must equal."""

    def __init__(self, path: Path, update: bool) -> None:
        self._path = path
        self._update = update

    def check(self, text: str) -> None:
        """Fails with a diff where the text is not the file's; with --update-golden, writes it."""
        if self._update:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(text, encoding="utf-8")
        assert self._path.exists(), f"{self._path.name} is missing: run pytest --update-golden"
        assert text == self._path.read_text(encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """`golden("file.txt").check(text)`."""
    update = request.config.getoption("--update-golden")
    return lambda name: Golden(GOLDEN / name, update)
