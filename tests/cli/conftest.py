"""A command line in an empty folder."""

import json
import shlex

import onnx
import onnx_ir as ir
import pytest
from onnx_text import proto_of

from gdn_ir.cli import exit_code


class Result:
    """What a command left: its exit code and what it printed."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        """Standard output as JSON, in which NaN and Infinity are errors."""

        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=refuse)

    def fails(self, code, *words):
        """Asserts one line on standard error that has these words, and nothing else."""
        assert (self.code, self.out) == (code, "")
        assert self.err.startswith("error: ")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """`cli("optimize m.onnx -o o.onnx", more, ...)` runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(line, *more):
        code = exit_code([*shlex.split(line), *map(str, more)])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def write(tmp_path):
    """Writes a model, ONNX text or bytes to a file of the folder."""

    def to(name, content):
        if isinstance(content, ir.Model):
            content = ir.to_proto(content)
        elif isinstance(content, str):
            content = proto_of(content)
        if isinstance(content, onnx.ModelProto):
            content = content.SerializeToString()
        (tmp_path / name).write_bytes(content)

    return to
