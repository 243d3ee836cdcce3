"""Numbers of things, and names that are near to a wrong one."""

import pytest

from gdn_ir.wording import counted, did_you_mean, nearest


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 masks"), (1, "1 mask"), (2, "2 masks"), (1000, "1000 masks")]
)
def test_numbers(number, text):
    assert counted(number, "mask") == text


def test_irregular_nouns():
    assert counted(1, "copy", "copies") == "1 copy"
    assert counted(2, "copy", "copies") == "2 copies"


def test_names():
    assert did_you_mean("ded", ["cse", "dce"]) == "; did you mean 'dce'?"
    assert did_you_mean("k1", ["k0", "k2", "v"], most=3) == "; did you mean 'k2' or 'k0'?"
    assert did_you_mean("zzz", ["cse", "dce"]) == ""
    assert nearest("ded", ["cse", "dce"]) == "; did you mean 'dce'?"
    assert nearest("zzz", ["dce", "cse"]) == "; there are: cse, dce"
    assert nearest("zzz", []) == "; there are: none"
