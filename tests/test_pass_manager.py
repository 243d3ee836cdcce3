"""Who hears of what, in which order, and what stops a run."""

import dataclasses
from typing import ClassVar

import onnx_ir as ir
import pytest
from onnx_text import model_of, ops_of, value_of

from gdn_ir.observers import Dumps, Record
from gdn_ir.pass_base import CleanUp, Pass
from gdn_ir.pass_manager import Observer, run
from gdn_ir.passes.dce import DeadCode
from gdn_ir.region import Region, replace
from gdn_ir.rewrite import Declined, Rewrite

TEXT = """g (float[2] x) => (float[2] y) {
  a = Neg (x)
  b = Neg (a)
  y = Exp (b)
}"""


@dataclasses.dataclass(frozen=True)
class NegToSub(Pass):
    """-x = 0 - x, of all Neg nodes but the skipped one."""

    name: ClassVar[str] = "neg-to-sub"

    skip: str = ""

    def rewrites(self, model):
        for node in [node for node in model.graph if node.op_type == "Neg"]:
            (x,), (y,) = node.inputs, node.outputs
            where = y.name  # the replacement takes it over
            if where == self.skip:
                yield Declined(str(self), where, "it is skipped")
                continue
            build = lambda emit, x=x: [emit.op("Sub", emit.op("Sub", x, x), x)]  # noqa: E731
            before, after = replace(model, Region.between([x], [y]), build, tag=str(self))
            yield Rewrite(str(self), where, "a Neg", before, after, (), lambda: ())


class Listener(Observer):
    """Writes down what it hears; raises when it hears `stop_at`."""

    def __init__(self, heard, name="", stop_at=None):
        self.heard, self.name, self.stop_at = heard, name, stop_at

    def _hear(self, what):
        self.heard.append(f"{self.name}{what}")
        if what == self.stop_at:
            raise RuntimeError(what)

    def before(self, pass_, model):
        self._hear(f"before {pass_}")

    def rewrote(self, rewrite):
        self._hear(f"rewrote {rewrite.where}")

    def declined(self, declined):
        self._hear(f"declined {declined.where}")

    def after(self, pass_, model):
        self._hear(f"after {pass_}")


def test_observers_hear_everything_in_order():
    heard = []
    passes = [NegToSub(skip="a"), DeadCode()]
    run(model_of(TEXT), passes, [Listener(heard, "1 "), Listener(heard, "2 ")])
    assert heard == [
        f"{number} {what}"
        for what in (
            "before neg-to-sub{skip=a}",
            "declined a",
            "rewrote b",
            "after neg-to-sub{skip=a}",
            "before dce",
            "after dce",
        )
        for number in (1, 2)
    ]


def test_a_model_is_sorted_when_its_pass_is_done():
    model = model_of(TEXT)
    run(model, [NegToSub()])
    assert ops_of(model.graph) == ["Sub"] * 4 + ["Exp"]
    assert [value.name for value in model.graph[3].outputs] == ["b"]


@pytest.mark.parametrize(
    ("stop_at", "subs"), [("before neg-to-sub", 0), ("rewrote a", 2), ("after neg-to-sub", 4)]
)
def test_an_observer_that_raises_stops_the_run(stop_at, subs):
    model, heard = model_of(TEXT), []
    observers = [Listener(heard, stop_at=stop_at), Listener(heard, "late ")]
    with pytest.raises(RuntimeError, match=stop_at):
        run(model, [NegToSub(), DeadCode()], observers)
    assert ops_of(model.graph).count("Sub") == subs
    assert heard[-1] == stop_at  # neither the later observer nor the later pass


def test_an_observer_need_not_listen():
    run(model_of(TEXT), [NegToSub(skip="a")], [Observer()])


def test_a_pass_runs_in_an_onnx_ir_pipeline():
    model = model_of(TEXT)
    result = ir.passes.Sequential(NegToSub(), DeadCode())(model)
    assert isinstance(NegToSub(), ir.passes.InPlacePass)
    assert result.modified
    assert result.model is model
    assert ops_of(model.graph) == ["Sub"] * 4 + ["Exp"]
    assert not ir.passes.Sequential(NegToSub(), DeadCode())(model).modified


def test_a_pass_that_declines_everything_modifies_nothing():
    model = model_of("g (float[2] x) => (float[2] y) { y = Neg (x) }")
    assert not NegToSub(skip="y")(model).modified
    assert NegToSub()(model).modified


def test_a_clean_up_pass_says_whether_it_changed_anything():
    model = model_of("g (float[2] x) => (float[2] y) { a = Exp (x) y = Neg (x) }")
    assert issubclass(DeadCode, CleanUp)
    assert DeadCode()(model).modified
    assert not DeadCode()(model).modified


# --- Observers that come along --------------------------------------------------------------------


def test_a_record_of_each_pass():
    record = Record()
    run(model_of(TEXT), [NegToSub(skip="a"), DeadCode()], [record])
    first, second = record.passes
    assert (first.pass_text, first.nodes_before, first.nodes_after) == ("neg-to-sub{skip=a}", 3, 4)
    assert first.op_delta == {"Neg": -1, "Sub": 2}
    assert [rewrite.where for rewrite in first.rewrites] == ["b"]
    assert first.declined == [Declined("neg-to-sub{skip=a}", "a", "it is skipped")]
    assert first.seconds >= 0
    assert (second.pass_text, second.op_delta, second.rewrites) == ("dce", {}, [])


def test_dumps_are_numbered(tmp_path):
    folder = tmp_path / "a" / "b"
    model = model_of(TEXT)
    run(model, [NegToSub(), DeadCode(), DeadCode()], [Dumps(folder)])
    names = [path.name for path in sorted(folder.iterdir())]
    assert names == ["000-input.onnx", "001-neg-to-sub.onnx", "002-dce.onnx", "003-dce.onnx"]
    assert ops_of(ir.load(folder / names[0]).graph) == ["Neg", "Neg", "Exp"]
    assert ops_of(ir.load(folder / names[1]).graph) == ["Sub"] * 4 + ["Exp"]
    assert value_of(ir.load(folder / names[3]), "y").is_graph_output()
