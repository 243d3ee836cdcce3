"""Bar charts."""

from xml.etree import ElementTree

from gdn_ir.visualizations.bars import bars

ROWS = [("before.onnx", 20.0, "20 ms"), ("after.onnx", 5.0, "5 ms"), ("none", 0.0, "0 ms")]


def shapes(text):
    root = ElementTree.fromstring(text)  # noqa: S314
    return [e.attrib for e in root if e.tag.endswith("rect")][1:]


def test_bars_are_as_long_as_what_they_stand_for():
    long, short, none = shapes(bars("t", ROWS))
    assert float(long["width"]) == 4 * float(short["width"])
    assert float(none["width"]) == 1, "still to be seen"
    assert long["fill"] != short["fill"] == none["fill"]


def test_names_are_escaped_and_cut():
    text = bars("a < b & c", [("<script>\x01" + "x" * 80, 1.0, "1 & 2")])
    root = ElementTree.fromstring(text)  # noqa: S314
    words = [e.text for e in root if e.tag.endswith("text")]
    assert words[0] == "a < b & c"
    assert words[1].startswith("<script>?")
    assert len(words[1]) <= 30


def test_the_same_text_for_the_same_rows_and_nothing_for_none():
    assert bars("t", ROWS) == bars("t", ROWS)
    assert shapes(bars("t", [])) == []
