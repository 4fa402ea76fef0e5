"""A recipe of one's own, built from a catalog recipe.

autorecipe recipes show examples/own_recipe.py:llama3_8b_4k_config
"""

from autorecipe.api.recipes import DerivedRecipe, derive


def llama3_8b_4k_config() -> DerivedRecipe:
    """Llama 3 8B pretraining at 4,096 tokens, which needs no context parallelism: one GPU holds a replica."""
    return derive(
        "llama3_8b_pretrain_config",
        {
            "dataset.seq_length": 4096,
            "model.seq_length": 4096,
            "model.context_parallel_size": 1,
            "train.global_batch_size": 256,
            "train.train_iters": 10_000,
            "scheduler.lr_warmup_iters": 500,
        },
    )


def llama3_8b_4k_two_stages_config() -> DerivedRecipe:
    """The same training on two pipeline stages: a derived recipe is a base like any other."""
    return derive(llama3_8b_4k_config(), {"model.pipeline_model_parallel_size": 2})
