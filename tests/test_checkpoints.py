"""Training checkpoints as configs, and the seeds of the embedded family."""

import pytest

from rbptrack.config.compose import Composer
from rbptrack.config.ladders import config, names
from rbptrack.config.patterns import match


def test_pythia_has_154_checkpoints_of_each_size():
    every = [n for n in names() if n.startswith("pythia-checkpoints/70m-")]
    assert len(every) == 154
    assert len([n for n in names() if n.startswith("pythia-checkpoints/")]) == 1540
    steps = [n.removeprefix("pythia-checkpoints/70m-step") for n in match("pythia-checkpoints/70m-*", every)]
    assert steps[:4] == ["0", "1", "2", "4"]
    assert steps[9:13] == ["256", "512", "1000", "2000"]
    assert steps[-1] == "143000"


def test_a_checkpoint_knows_its_tokens_and_revision():
    checkpoint = config("pythia-checkpoints/1.4b-step1000")
    assert checkpoint == {
        "family": "pythia-checkpoints",
        "size": "1.4b",
        "repo": "EleutherAI/pythia-1.4b",
        "revision": "step1000",
        "training_tokens": 2_097_152_000,
    }


@pytest.mark.parametrize(
    "name",
    ["pythia-checkpoints/70m-step3", "pythia-checkpoints/9m-step1", "pythia/70m", "nano-checkpoints/115k-step64"],
)
def test_other_names_are_no_checkpoints(name):
    assert config(name) is None


def test_hydra_composes_them():
    composer = Composer("config", [])
    model = composer.compose_typed(["model=pythia-checkpoints/70m-step512"]).model
    assert (model.repo, model.revision, model.training_tokens) == ("EleutherAI/pythia-70m", "step512", 512 * 2097152)
    assert model.name == "pythia-checkpoints-70m@step512"
    assert "pythia-checkpoints/70m-step512" in composer.options("model")


def test_seeds_have_names_of_their_own():
    model = Composer("config", []).compose_typed(["model=nano-seeds/15k-seed2"]).model
    assert model.name == "nano-15k-seed2"
    assert model.family == "nano"
