"""Trains what a Megatron-LM command line says, translated, on this engine with Megatron-Core's own local modules. Not a test."""

from typing import Any

from autorecipe.api.train import TrainRequest, prepare_training
from autorecipe.api.translate import MlmSource, to_bridge
from autorecipe.engine.train import TrainOptions, train
from autorecipe.translate.render import override_texts


def train_words(request: dict[str, Any]) -> int:
    """Translate and train; the log goes where the caller has put standard output."""
    translation = to_bridge(MlmSource(words=["pretrain_gpt.py", *request["words"]]))
    assert not translation.lost, translation.lost
    own = ("checkpoint.save=null", "logger.tensorboard_dir=null", f"engine.modules={request['modules']}")
    overrides = (*override_texts(translation), *own)
    plan = prepare_training(TrainRequest(recipe=translation.recipe, overrides=overrides, mode="pretrain", dataset="mock"))
    return train(plan.run, TrainOptions())
