"""Pipeline text, what is wrong with it, and where passes come from."""

import dataclasses
import importlib.metadata
from typing import ClassVar, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gdn_ir.pass_base import Pass
from gdn_ir.passes.cse import CommonSubexpressions
from gdn_ir.passes.dce import DeadCode
from gdn_ir.passes.fold_constants import FoldConstants
from gdn_ir.passes.parallel_inverse import ParallelInverse
from gdn_ir.pipeline import BadPipeline, parse, registry, to_text

# --- Text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("dce", (DeadCode(),)),
        ("dce{}", (DeadCode(),)),
        ("dce,cse", (DeadCode(), CommonSubexpressions())),
        (" dce ,\n cse ", (DeadCode(), CommonSubexpressions())),
        ("fold-constants{limit=7}", (FoldConstants(limit=7),)),
        (
            "parallel-inverse { leaf=8   method=neumann\ttol=1e-3 }",
            (ParallelInverse(method="neumann", leaf=8, tol=1e-3),),
        ),
    ],
)
def test_parse(text, passes):
    assert parse(text) == passes


def test_options_that_differ_from_their_default_are_printed():
    passes = (ParallelInverse(leaf=16), ParallelInverse("doubling", leaf=4), DeadCode())
    assert to_text(passes) == "parallel-inverse,parallel-inverse{method=doubling leaf=4},dce"


def options_of(hint):
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if hint is float:
        return st.floats(0, 1e30)
    texts = st.from_regex(r"[0-9]{1,3}(:[0-9]{1,2})?", fullmatch=True)  # such as factor=16:4
    return {bool: st.booleans(), int: st.integers(-1000, 1000), str: texts}[hint]


@st.composite
def passes(draw):
    cls = draw(st.sampled_from(sorted(registry().values(), key=lambda cls: cls.name)))
    hints = get_type_hints(cls)
    fields = {field.name: options_of(hints[field.name]) for field in dataclasses.fields(cls)}
    options = draw(st.fixed_dictionaries({}, optional=fields))
    try:
        return cls(**options)
    except ValueError:  # options that mean nothing together
        return assume(False)


@given(st.lists(passes(), min_size=1, max_size=4))
def test_printing_and_parsing_are_inverse(pipeline_passes):
    text = to_text(pipeline_passes)
    assert parse(text) == tuple(pipeline_passes)
    assert to_text(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exp_mask", "no pass 'exp_mask'; did you mean 'exp-mask'?"),
        ("fold-constant", "no pass 'fold-constant'; did you mean 'fold-constants'?"),
        ("", "the pipeline is empty; name a pass, or leave it out for the default"),
        (" \n", "the pipeline is empty"),
        ("dce,zzzzz", "no pass 'zzzzz'; there are: cse, dce, "),
        ("dce{limit=1}", "pass 'dce' has no option 'limit'; there are: none"),
        ("parallel-inverse{leav=8}", "has no option 'leav'; did you mean 'leaf'?"),
        ("parallel-inverse{zzz=8}", "no option 'zzz'; there are: leaf, method, tol"),
        ("parallel-inverse{leaf}", "pass 'parallel-inverse': option 'leaf' has no value; "),
        ("parallel-inverse{leaf = 8}", "option 'leaf' has no value; write key=value"),
        ("parallel-inverse{leaf=8 leaf=8}", "option 'leaf' is given twice"),
        ("parallel-inverse{leaf=}", "option 'leaf' takes a value of type int, not ''"),
        ("parallel-inverse{leaf=8.5}", "option 'leaf' takes a value of type int, not '8.5'"),
        ("parallel-inverse{tol=small}", "option 'tol' takes a value of type float, not 'small'"),
        (
            "parallel-inverse{method=blok}",
            "is one of block, substitution, doubling, neumann, not 'blok'; did you mean 'block'?",
        ),
        ("parallel-inverse{leaf=1}", "pass 'parallel-inverse': option 'leaf' is between 2 and"),
        ("dce,", "pipeline 'dce,' ends in a comma; remove it or name a pass"),
        ("dce , ", "ends in a comma"),
        (",", "expected a pass at ','; write a,b{option=value option=value}"),
        ("dce,,cse", "expected a pass at ',cse'"),
        ("dce cse", "expected a pass at 'cse'"),
        ("dce;cse", "expected a pass at ';cse'"),
        ("dce{", "expected a pass at '{'"),
        ("dce}", "expected a pass at '}'"),
        ("dce{a=1{}}", "expected a pass at '{a=1{}}'"),
        ("!", "expected a pass at '!'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_text(text, message):
    with pytest.raises(BadPipeline) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tol", ["nan", "inf"])
def test_a_tolerance_is_a_finite_number(tol):
    with pytest.raises(BadPipeline):
        parse(f"parallel-inverse{{method=neumann tol={tol}}}")


@given(st.text(alphabet="ab-{}=, \n1", max_size=12))
def test_any_text_is_parsed_or_refused(text):
    try:
        to_text(parse(text))
    except BadPipeline as error:
        assert str(error)


# --- The registry ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Louder(Pass):
    """Does nothing, but `loudly`."""

    name: ClassVar[str] = "louder"

    loudly: bool = False

    def rewrites(self, model):
        return iter(())


@dataclasses.dataclass(frozen=True)
class OtherDeadCode(Louder):
    """Takes a name that is taken."""

    name: ClassVar[str] = "dce"


@dataclasses.dataclass(frozen=True)
class Demanding(Louder):
    """Has an option without a default."""

    name: ClassVar[str] = "demanding"

    loudly: int = dataclasses.field()


class EntryPoint:
    """As much of importlib.metadata.EntryPoint as the registry uses."""

    def __init__(self, load):
        self.load = load
        self.name = "third"
        self.value = "third:Party"


@pytest.fixture
def install(monkeypatch):
    """Installs third-party passes."""

    def installer(*loads):
        def entry_points(*, group):
            return [EntryPoint(load) for load in loads] if group == "gdn_ir.passes" else []

        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
        registry.cache_clear()

    yield installer
    registry.cache_clear()


def test_every_concrete_pass_of_the_package_is_found():
    assert {"cse", "dce", "exp-mask", "parallel-inverse"} <= set(registry())
    for name, cls in registry().items():
        assert cls.name == name
        assert cls.__module__.startswith("gdn_ir.passes.")
        assert cls() == cls()


def test_a_third_party_pass_is_found_and_takes_options(install):
    install(lambda: Louder)
    assert registry()["louder"] is Louder
    assert parse("dce,louder{loudly=true}") == (DeadCode(), Louder(loudly=True))
    assert to_text([Louder(loudly=True)]) == "louder{loudly=true}"
    with pytest.raises(BadPipeline, match="option 'loudly' is true or false, not 'yes'"):
        parse("louder{loudly=yes}")


def test_one_pass_under_two_entry_points_is_no_clash(install):
    install(lambda: Louder, lambda: Louder)
    assert registry()["louder"] is Louder


def test_two_passes_of_one_name_are_an_error(install):
    install(lambda: OtherDeadCode)
    with pytest.raises(BadPipeline) as caught:
        parse("cse")
    assert str(caught.value) == (
        f"two passes are called 'dce': gdn_ir.passes.dce and {__name__}; uninstall or rename one"
    )


def test_a_third_party_pass_that_does_not_load_is_named(install):
    def load():
        raise ImportError("no module named nowhere")

    install(load)
    with pytest.raises(BadPipeline, match="third"):
        parse("cse")


def test_an_entry_point_that_is_no_pass_is_named(install):
    install(lambda: dict)
    with pytest.raises(BadPipeline, match="third"):
        parse("cse")


def test_an_option_without_a_default_must_be_given(install):
    install(lambda: Demanding)
    assert parse("demanding{loudly=3}") == (Demanding(3),)
    with pytest.raises(BadPipeline, match="loudly"):
        parse("demanding")
