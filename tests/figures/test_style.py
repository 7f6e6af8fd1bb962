"""The one look of all figures: text as it is, files without traces of the machine."""

import ast
from pathlib import Path

import matplotlib as mpl
from matplotlib.text import Text

from bindscope.figures import style


def test_the_last_bits_of_the_layout_do_not_reach_the_svg(tmp_path):
    """The solver of the layout leaves them different from process to process."""
    for shift in (0.0, 1e-13):
        figure = mpl.figure.Figure(figsize=(2, 2))
        axes = figure.add_axes((0.1 + shift, 0.1, 0.4, 0.8))
        axes.plot([0, 2], [0, 1])
        figure.add_axes((0.6, 0.1, 0.3, 0.8)).plot([0, 3], [1, 0])
        style.save(figure, tmp_path / "a.png", tmp_path / f"{shift}.svg")
    first, second = ((tmp_path / f"{shift}.svg").read_bytes() for shift in (0.0, 1e-13))
    assert first == second
    for clip in (b"clip0", b"clip1"):
        assert first.count(b'<clipPath id="%s">' % clip) == 1
        assert b"url(#%s)" % clip in first


def test_names_are_shown_and_not_parsed(tmp_path):
    """No label of ours needs formulas, logarithmic axes included; a value may hold `$`."""

    @style.styled
    def draw():
        figure = style.new_figure(2)
        linear, empty = figure.subplots(1, 2)
        linear.plot([1, 1000], [1, 1000], label="$x_{$")
        linear.set(xscale="log", yscale="log", title="$x_{$")
        empty.bar(["$x_{$"], [1])
        empty.set_xscale("log", base=2)
        empty.set_xlim(1, 3)
        style.legend_below(figure, [style.handle("$x_{$")])
        return figure

    figure = draw()
    style.save(figure, tmp_path / "a.png", tmp_path / "a.svg")
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert "$x_{$" in texts
    assert "1000" in texts
    assert not [text for text in texts if "math" in text]
    for path in Path(style.__file__).parents[1].rglob("*.py"):
        if "figures" not in (path.stem, path.parent.name):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "$" not in node.value.rstrip("$"), f"{path}:{node.lineno}"


def test_no_two_of_many_names_look_the_same() -> None:
    styles = style.looks([str(i) for i in range(64)]).values()
    assert len({tuple(sorted(look.items())) for look in styles}) == 64
