"""The command lines of `scripts/`: the programs that Megatron Bridge users already type.

`training` is run_recipe.py's, `experiment` is train.sh's and training/setup_experiment.py's, `benchmark` is
performance/setup_experiment.py's; `submission` is what the two launchers share, `refused` says of each upstream option that has
no meaning here what to do instead. The scripts themselves only start these.
"""
