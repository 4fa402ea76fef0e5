"""What the code in `error[CODE]` means, for every code in small letters; `explain` shows it.

Ids in capitals belong elsewhere: rules and upstream constraints to `autorecipe.rules`, traps to `autorecipe.config.traps`.
Codes that several modules use are in `autorecipe.errors.SHARED_CODES`. Start reading at `meaning_of`.
"""

from __future__ import annotations

from autorecipe.errors import SHARED_CODES

OWN_CODES = {
    "already-set": "+KEY=VALUE adds a key, and the key has a value already",
    "another-program": "Megatron-LM options of a program that trains something else than GPT; only GPT's are translated",
    "bad-adapter": "the configuration beside an adapter's weights cannot be read",
    "bad-gradient": "the gradient norm of a training step is not finite; the run stops without saving",
    "bad-loss": "the loss of a training step is not finite; the run stops without saving",
    "bad-repeat": "a log given as a repeat of one side of a comparison that is no further run of it",
    "bad-rows": "rows of fine-tuning data that lack what the format asks for",
    "bad-side": "one side of a parity comparison that is no command line",
    "bad-yaml": "a YAML file of Megatron-LM options that is no YAML, or no mapping of options",
    "batch-size": "the global batch is no multiple of micro batch times data-parallel ranks",
    "cannot-match": "a difference between two frameworks that no option can undo, so their losses cannot be the same",
    "catalog-data": "a file of the catalog of a release is missing or damaged",
    "catalog-differs": "a catalog that is built again differs from the one at hand",
    "contract": "a cohort's contract file that is no mapping of the contract's keys",
    "corrupt-archive": "a wheel that cannot be opened",
    "does-not-act": "an option that is written, but another value acts in the translated run",
    "empty": "one side of a comparison of configurations names nothing",
    "empty-log": "a log that holds no training iteration",
    "hf-tensors": "tensors of a Hugging Face checkpoint that are missing, left over or of another shape",
    "hub-unreachable": "the Hugging Face hub does not answer and its cache lacks the files",
    "import-failed": "the modules of a release cannot be imported while its catalog is built",
    "launch-allocation": "hosts and GPUs per host of a launch that are no allocation",
    "launch-dense-mesh": "TP x PP x CP does not divide the GPUs of a launch",
    "launch-env-name": "--env got what is not the name of a variable",
    "launch-env-unset": "--env names a variable that this shell does not export",
    "launch-env-value": "--env got a value; only names are taken, so that no secret gets into a script",
    "launch-expert-mesh": "PP x EP x ETP does not divide the GPUs of a launch",
    "launch-hosts": "several hosts cannot be started from one of them without a scheduler",
    "launch-mount": "--mount got what is not HOST or HOST:CONTAINER",
    "launch-site": "an option that every Slurm site asks for is missing",
    "launch-site-option": "a site option that cannot be one option of sbatch",
    "launch-srun-argument": "an empty --srun-arg",
    "launch-time-limit": "a time limit that Slurm cannot read",
    "layout": "the layout of an estimate does not divide its GPUs",
    "machine-too-small": "the run needs more memory than this machine has",
    "megatron-core": "Megatron-Core refuses the model's configuration; the message is its own",
    "name-taken": "a recipe of one's own has the name of an upstream recipe",
    "nearest-model": "what a refusal offers instead: the nearest model that has a recipe for the goal, and how it differs",
    "no-adapter": "a checkpoint that is to be merged holds no adapter",
    "no-benchmark": "no benchmark recipe of that model, GPU and precision",
    "no-checkout": "the folder named for an upstream program does not hold it",
    "no-common-start": "layouts of an adapter run need weights that all of them start from",
    "no-core": "building a catalog needs Megatron-Core, and none was given or is installed",
    "no-layout": "a layout of a parity run that cannot be started",
    "no-match": "no module of the model has a name that the adapter is to be attached to",
    "no-options": "a release without a table of Megatron-LM options",
    "no-recipe": "no recipe is the answer to the question",
    "no-recipes": "a release in which no recipe function was found",
    "no-rows": "a fine-tuning data set without a row",
    "no-saved-args": "a checkpoint that holds no arguments of Megatron-LM",
    "no-settings": "a log whose header states no settings",
    "no-slurm": "a job was to be submitted and this machine has no sbatch",
    "no-start": "the run that draws the common start weights wrote none",
    "no-such-checkpoint": "a folder or file given as a Megatron-LM checkpoint is not one",
    "no-such-log": "a log given for a comparison is not there",
    "no-text": "a row of pretraining text lacks the key that holds the text",
    "no-training-command": "a shell script starts no command with Megatron-LM options that can be read without running it",
    "no-training-script": "a training script of the repository is missing: the package runs without its checkout",
    "no-upstream": "the upstream program of --engine is not installed and no checkout is named",
    "no-weights": "a Hugging Face folder holds no .safetensors file",
    "no-workload": "only benchmark recipes with a GPU count in their name have a workload",
    "not-a-checkpoint": "a file given as a Megatron-LM checkpoint that torch did not write",
    "not-a-configuration": "a file that is no mapping of configuration keys",
    "not-fine-tuning": "a fine-tuning command got a recipe that pretrains",
    "not-in-megatron-lm": "a setting for which Megatron-LM has no option, so that it would train another model",
    "other-core": "a catalog that was built with another release of Megatron-Core",
    "other-goals": "what a refusal offers instead: the other goals for which the model has recipes",
    "own-recipe-hangs": "a recipe function of one's own does not return",
    "peft-tensors": "tensors of an adapter that are missing, left over or of another shape",
    "peft-unsupported": "an adapter setting that is not merged or not exported",
    "pretrained-missing": "the folder of the weights to start from holds no checkpoint that can be loaded",
    "random-draws": "a setting that draws other random numbers in each layout, so that no two layouts have the same loss",
    "run-failed": "one run of a comparison ended with an error; the end of its log is shown",
    "run-timeout": "one run of a comparison took longer than its time limit",
    "sbatch-refused": "Slurm refused the job; the message is its own",
    "trace": "the model could not be built under fake tensors",
    "unmapped": "an option that has no counterpart in the other framework, so that the two sides would train differently",
    "unset-section": "an override of a field whose section is null in this recipe",
    "weights-damaged": "a file of Hugging Face weights cannot be read",
    "weights-missing": "a file of Hugging Face weights is in the index and not in the folder",
    "world-size": "the layout does not divide the number of processes",
    "wrong-tree": "a folder or wheel that is not the package it was given as",
    "wrong-value": "a key that cannot be deleted as it was asked for",
}
"""Errors that one module finds."""

UNKNOWN = "unknown-"
NAMED_KINDS = (
    "answer",
    "contract key",
    "dataset",
    "dataset preset",
    "engine",
    "engine option",
    "family",
    "framework",
    "gpu",
    "mode",
    "model",
    "precision",
    "precision preset",
    "recipe",
    "release",
    "rule",
    "section",
)
"""What `errors.unknown_name` is asked about; the code is `unknown-` and the kind with `-` for spaces."""


def all_codes() -> dict[str, str]:
    """Return every code in small letters with its meaning."""
    unknown = {
        f"{UNKNOWN}{kind.replace(' ', '-')}": f"no {kind} has that name; the message lists near misses" for kind in NAMED_KINDS
    }
    return {**SHARED_CODES, **OWN_CODES, **unknown}


def meaning_of(code: str) -> str:
    """Return what an error's code means, or nothing if there is no such code."""
    return all_codes().get(code.lower(), "")
