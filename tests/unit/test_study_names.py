"""Words and colors of probe families and token inputs."""

from bindscope.studies.binding_information.columns import TOKENS
from bindscope.studies.binding_information.names import label_family, label_tokens
from bindscope.studies.binding_information.registry import FAMILIES


def test_families_and_token_inputs_have_names_and_new_ones_show_their_slug():
    for look_up, slugs in ((label_family, FAMILIES), (label_tokens, TOKENS)):
        assert len({look_up(slug).color for slug in slugs}) == len(slugs)
        for name in slugs:
            assert look_up(name) != look_up("new")
            assert look_up(name).words.startswith(("a ", "an ", "the ", "[CLS]"))
        assert look_up("new").name == "new"
        assert "new" in look_up("new").words
    assert label_family("new").tick == "new"
    assert label_family("dnn").tick == "neural\nnet"
