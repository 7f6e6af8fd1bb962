"""The training figure draws curves of models and probes, and no panel without any."""

from drawing import reason
from sample_tables import history, words

from bindscope.studies.binding_information.figures.training import histories, training

ORDER = ("vit-objects", "vit-features", "vit-random")


def fit(model, tokens, family, rows):
    return rows, {"model": model, "tokens": tokens, "family": family}


def test_training_draws_models_and_probes():
    model = [
        {"step": s, "split": p, "loss_bits": 9.0 - s} for p in ("train", "val") for s in (0, 5)
    ]
    probes = histories(
        [
            fit("vit-objects", "cls", "linear", history() + history(1)),
            fit("vit-random", "mean", "dnn", history(targets=("object",))),
        ]
    )
    trained = histories([(model, {"model": "vit-objects"}), ([], {"model": "vit-random"})])
    nothing = histories([([], {"model": "vit-random"})])
    assert reason(training, nothing, nothing) is not None
    for models in (trained, nothing):
        figure = training.draw(models, probes, ORDER)
        assert {"linear", "step", "vit-random"} <= set(words(figure))
    assert "vit-objects" in words(training.draw(trained, nothing))


def test_a_panel_of_the_training_curves_without_lines_is_not_drawn():
    """The first family has no plain target; the next panel has the row's numbers and name."""
    probes = histories(
        [
            fit("a", "cls", "linear", history(targets=("chained",))),
            fit("a", "cls", "dnn", history(targets=("object", "chained"))),
        ]
    )
    figure = training.draw(histories([]), probes)
    plain, chained = (part.axes for part in figure.subfigs)
    assert [axes.axison for axes in plain] == [False, True]
    assert [axes.axison for axes in chained] == [True, True]
    assert not any(len(axes.lines) == 0 for axes in [*plain, *chained] if axes.axison)
    assert plain[1].get_ylabel().startswith("O, plain probe")
    assert [axes.get_title(loc="left") for axes in plain] == ["", "neural\nnet"]
    assert [axes.get_title(loc="left") for axes in chained] == ["linear", ""]
