"""Words and colors of probe families and token inputs."""

from bindscope.studies.binding_information.columns import TOKENS
from bindscope.studies.binding_information.names import family_shown, family_tick, tokens_shown
from bindscope.studies.binding_information.registry import FAMILIES


def test_families_and_token_inputs_have_names_and_new_ones_show_their_slug():
    for shown, slugs in ((family_shown, FAMILIES), (tokens_shown, TOKENS)):
        assert len({shown(slug).color for slug in slugs}) == len(slugs)
        for name in slugs:
            assert shown(name) != shown("new")
            assert shown(name).words.startswith(("a ", "an ", "the ", "[CLS]"))
        assert shown("new").name == "new"
        assert "new" in shown("new").words
    assert family_tick("new") == "new"
    assert family_tick("dnn") == "neural\nnet"
