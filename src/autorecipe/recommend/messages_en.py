"""English sentences by code. `{fact}` is filled in; `{fact:gib}` and the like are explained in `language`."""

MESSAGES = {
    # What was understood.
    "title": "{model}, {goal}, {hardware}",
    "assume.gpus": "no GPU count was given: sized for the {gpus} of the recipe's name. Say how many with --gpus N",
    "assume.gpus-first-run": "no GPU count was given: sized for one host of {gpus}. Say how many with --gpus N",
    "assume.gpu": "no GPU type was given: {gpu:gpu} taken, as in the recipe's name. Say which with --gpu TYPE",
    "assume.seq-length": "no sequence length was given: the recipe's own {seq_length} tokens. Say how many with --seq-length N",
    "assume.model": "no model was named: {models} taken as the usual first try for this. Say which with --model NAME",
    "assume.mode": "no goal was given: {mode:mode} taken. Say which with --goal pretrain|sft|lora|dora|benchmark",
    "assume.task": "no task was named: pretraining is measured. For SFT or LoRA say so in the question",
    "assume.adapter": "LoRA taken, the recipe's own adapter. For DoRA say --goal dora",
    "assume.settings": "the question also sets {overrides:list}: not in the command, because the answer sizes the recipe. Append what you want "
    "to keep, and run `autorecipe check` again",
    "assume.unread": "{said:list}: not used, because no field of a recipe says it. train.train_iters counts steps",
    # Summary.
    "summary.as-shipped": "{name} runs on {gpus} x {gpu:gpu} as shipped: {layout}, DP={dp}.",
    "summary.resized": "{name} runs on {gpus} x {gpu:gpu} with the overrides below: {layout} (as shipped {shipped}), DP={dp}.",
    "summary.resized-same-layout": "{name} runs on {gpus} x {gpu:gpu} with the overrides below, in its own layout {layout}, DP={dp}.",
    "summary.no-fit": "{name} does not fit on {gpus} x {gpu:gpu}: it needs {needed} x {gpu:gpu} ({needed_layout}).",
    "summary.shorter": "With {tokens} tokens (--seq-length {tokens}, another experiment) it would run on {gpus} x {gpu:gpu}: {layout}.",
    "summary.no-fit-unknown": "{name} does not fit on {gpus} x {gpu:gpu}, nor on any number up to {limit} with the layouts tried.",
    "summary.benchmark": "{name} measures throughput on exactly {gpus} x {gpu:gpu}.",
    "summary.benchmark-broken": "{name} cannot run on the {gpus} x {gpu:gpu} of its name: its layout {layout} needs {minimum} GPUs or a multiple.",
    "summary.benchmark-broken-next": "It ships so. `autorecipe check {name}` shows ways out; each of them makes another measurement, not the canonical one.",
    "summary.benchmark-no-fit": "No benchmark recipe of {model} fits {gpus} x {gpu:gpu}: the nearest needs exactly {needed} x {needed_gpu:gpu}.",
    "summary.idle": "{idle} of the {asked} GPUs stay idle: with {asked} no legal layout divides GBS={gbs}. Changing the global batch "
    "to use them all would be a new experiment.",
    "summary.shipped-needs": "As shipped it needs at least {minimum} GPUs ({layout}, sequence {seq_length}); its name says {gpus} x {gpu:gpu}.",
    "summary.shipped-oom": "Beware of the recipe's own {gpus} x {gpu:gpu}: there the shipped layout is estimated at {peak:gib} allocated, "
    "and one {gpu:gpu} has {capacity:gib}.",
    "summary.memory.fits": "Memory: about {peak:gib} allocated on the fullest GPU, {low:gib} to {high:gib} of {capacity:gib} {source:word} with "
    "reserve and context. It fits (estimate, {evidence}).",
    "summary.memory.at-risk": "Memory: about {peak:gib} allocated on the fullest GPU, {low:gib} to {high:gib} of {capacity:gib} {source:word} with "
    "reserve and context. It is at the limit (estimate, {evidence}): watch the first steps.",
    "summary.memory.oom": "Memory: about {peak:gib} allocated on the fullest GPU, {low:gib} to {high:gib} of {capacity:gib} {source:word} with "
    "reserve and context. It does not fit (estimate, {evidence}).",
    "summary.memory-language": "That is the language model alone: encoders of other inputs ({modality}) and their activations come on top and are not "
    "modelled.",
    "summary.memory-diffusion": "That counts the {modality} transformer like a language model: text encoder and VAE are not modelled, so take it as a rough figure.",
    "summary.memory-unknown": "Memory: not estimated, because the recipe leaves the model's shape open.",
    "summary.peft-instead": "Fewer GPUs are enough for PEFT: {name} starts at {gpus:gpus}.",
    # Why this recipe.
    "pick.named": "because the question names this recipe",
    "pick.model": "{model} because the question says {asked}",
    "pick.model-typo": "{model} because {asked} was read as {read_as}",
    "pick.model-hf": "{model} because it is the recipe of {asked}",
    "pick.model-topic": "{model} because the quick reference offers it first for {topic:topic}",
    "pick.model-first-run": "{model} because Bridge's first smoke test is this recipe with mock data",
    "pick.mode": "*_{mode}_config because the goal is {mode:mode}",
    "pick.alias": "{name} is the short name of {canonical}",
    "pick.only": "it is the only {mode:mode} recipe of {model}",
    "reason.seq-exact": "ships with the sequence length asked for, {seq_length} tokens",
    "reason.seq-longer": "ships with {seq_length} tokens, more than the {asked} asked for",
    "reason.seq-shorter": "ships with {seq_length} tokens; {asked} is an override",
    "reason.long-variant": "written for long context ({seq_length} tokens), which was not asked for",
    "reason.precision": "runs in {precision}, not in {asked}: another arithmetic is another experiment",
    "reason.gpu-exact": "written for {gpu:gpu}",
    "reason.gpu-other": "written for {gpu:gpu}, not for {asked:gpu}",
    "reason.gpus-exact": "written for exactly {gpus:gpus}",
    "reason.gpus-grow": "written for {gpus:gpus}; its layout also divides {asked}, which only adds data parallelism",
    "reason.gpus-shrink": "written for {gpus:gpus}; its layout also divides {asked}, with less data parallelism",
    "reason.gpus-resize": "written for {gpus:gpus}; {asked} needs another layout",
    "reason.benchmark-smaller": "measures on {gpus} GPUs, fewer than the {asked} at hand",
    "reason.benchmark-broken": "cannot run on the {gpus} GPUs of its name: its layout needs {minimum} GPUs or a multiple",
    "reason.benchmark-larger": "needs {gpus} GPUs, more than the {asked} at hand",
    "reason.variant": "is the variant {variant}",
    "reason.other-mode": "the {mode:mode} recipe of the same model; starts at {gpus:gpus}",
    "reason.other-model": "the same goal with another model",
    "reason.nearest-next": "next nearest model",
    "reason.not-for-training": "benchmark recipe: throughput only, never for training",
    "reason.for-training": "library recipe: the one to train with",
    "reason.purpose.deterministic": "bit-exact variant, slower",
    "reason.purpose.muon": "Muon optimizer instead of Adam: another experiment",
    "reason.purpose.energon": "reads Energon data",
    "reason.purpose.functional": "made for functional tests ({variant})",
    "reason.purpose.smoke": "made for smoke tests ({variant})",
    "reason.purpose.fsdp": "uses Megatron FSDP ({variant})",
    "reason.purpose.packed": "with packed sequences ({variant})",
    "reason.purpose.dev": "development variant ({variant})",
    "reason.purpose.large_scale": "variant for large scale ({variant})",
    "reason.purpose.yarn": "extends the context with YaRN ({variant})",
    "reason.purpose.hf_json": "reads local JSON data ({variant})",
    "reason.purpose.no_mtp": "without multi-token prediction",
    # Nearest architecture.
    "nearest.name": "there is no recipe of {asked}; {model} is the nearest by family and size",
    "nearest.size": "there is no recipe of {asked} and no architecture is known for it; {model} is the nearest by size alone ({size}B). "
    "Give its config.json with --model PATH to compare the architectures",
    "nearest.config": "there is no recipe for the architecture in {asked}; {model} is the nearest",
    "nearest.same": "its architecture agrees with {model} in all {count} facts compared",
    "nearest.difference": "{fact}: {asked_value} there, {model_value} in {model}",
    "nearest.unknown-facts": "how {asked} differs from {model} is unknown here; give its config.json with --model PATH",
    "nearest.template": "the command trains {model} itself. For {asked} set what differs, each an architecture and so a convergence override: {overrides}",
    "nearest.template-unknown": "the command trains {model} itself, not {asked}: use it as a template",
    "nearest.many": "{asked} could also be {models}",
    # Kind.
    "kind.training": "Library recipe (src/megatron/bridge/recipes/, run by scripts/training/run_recipe.py), because the goal is training. "
    "Benchmark recipes (src/megatron/bridge/perf_recipes/) measure an upper bound of throughput with their own data and settings and "
    "are no training recipes.",
    "kind.throughput": "Benchmark recipe (src/megatron/bridge/perf_recipes/, run by exact name through scripts/training/train.sh), because "
    "throughput is what is asked for. It keeps its canonical data and settings; its losses and checkpoints prove nothing about "
    "convergence. For training use a library recipe.",
    "kind.forced-balance": "{name} sets moe_router_force_load_balancing=true: experts get equal shares whatever the router says.",
    # Data.
    "dataset.mock": "{preset}: generated tokens, for pretraining and smoke tests only. Real data: megatron-indexed",
    "dataset.tune": "{preset}: a fine-tuning preset. mock is for pretraining only and never goes with SFT or PEFT",
    "dataset.tune-vision": "{preset}: a vision-language preset with real images. Without images the run trains and its output is nonsense",
    "dataset.asked": "{preset}, as asked",
    "dataset.own": "the recipe's own data; the launcher has no {modality} preset for this goal",
    "dataset.benchmark": "the recipe's own benchmark data: --dataset is not accepted for benchmark recipes",
    # Overrides.
    "change.tp": "TP {before} -> {after} to lie on {gpus} GPUs",
    "change.pp": "PP {before} -> {after} to lie on {gpus} GPUs",
    "change.cp": "CP {before} -> {after} to lie on {gpus} GPUs",
    "change.ep": "EP {before} -> {after} to lie on {gpus} GPUs",
    "change.etp": "ETP {before} -> {after} to lie on {gpus} GPUs",
    "change.etp-kept": "the recipe leaves ETP unset, and with EP={ep} an unset ETP is no longer {etp}",
    "change.vp": "interleaves PP={pp} to shrink the bubble",
    "change.vp-off": "no interleaving with PP={pp}",
    "change.sp": "sequence parallelism is on whenever TP > 1 (TP={tp})",
    "change.sp-off": "no sequence parallelism without TP",
    "change.pipeline-layout": "the recipe's split of layers belongs to its own PP; PP={pp} splits evenly",
    "change.pipeline-split": "layers that do not divide over PP={pp}, or unevenly spread by the recipe, need their split in writing",
    "change.micro-batch": "the first thing to lower when memory is short; the global batch stays",
    "change.recompute": "full recomputation: about a third more compute for far fewer activations",
    "change.recompute-part": "belongs to the recomputation above",
    "change.recompute-selective": "recomputes {modules:list} only: enough to fit, and cheaper than whole layers",
    "change.sequence": "{tokens} tokens as asked: another sequence length is another experiment",
    "change.sequence-model": "follows dataset.seq_length; alone it would be overwritten by it",
    "change.checkpoint-peft": "PEFT always needs the base model: a Megatron or Hugging Face checkpoint folder",
    "change.checkpoint-sft": "the model to fine-tune: a Megatron or Hugging Face checkpoint folder",
    "change.repair": "the recipe itself breaks rule {rule} here (`autorecipe explain {rule}`): this is the fix that the rule names",
    "change.gbs": "keeps the global batch at {gbs}; without it the launcher scales it to {scaled} on {gpus} GPUs",
    # Rules.
    "rule.search-fastest": "{layout} is the fastest of the {fitting} layouts that fit, by estimated time ({seconds} s a step). `autorecipe plan` "
    "shows the others",
    "rule.search-near": "{layout} changes the recipe least among the {equal} layouts within {limit}% of the fastest by estimated time "
    "({seconds} s a step; {fastest} would be {slower}% faster, which is within the estimate's error; {fitting} fit). `autorecipe plan` shows the others",
    "rule.search-only": "{layout} is the only layout that fits ({seconds} s a step, estimated)",
    "rule.search-lean": "none of the legal layouts is sure to fit; {layout} needs least memory of the {count} that may",
    "rule.tp": "TP must divide num_query_groups={groups}: valid TP here = {valid:list}; TP={tp}",
    "rule.tp-replicated": "TP should divide num_query_groups={groups} (valid TP = {valid:list}); the recipe uses TP={tp}, a multiple, which "
    "replicates the KV heads",
    "rule.tp-node": "TP stays within one host ({per_node:gpus}), as {gpu:gpu} hosts are not joined by NVLink; TP={tp}",
    "rule.tp-domain": "TP may span hosts within the NVLink domain of {limit} {gpu:gpu} (NVL72 class); TP={tp}",
    "rule.sp-on": "SP is on, as it must be with TP={tp} > 1",
    "rule.sp-off": "SP should be on with TP={tp} > 1; the recipe ships it off. model.sequence_parallel=true saves activation memory at no "
    "cost in speed, but packs samples to another multiple, so decide it before the first run",
    "rule.sp-none": "SP needs TP > 1; it is not used here",
    "rule.pp-none": "PP=1: no pipeline bubble. Raise PP only when TP alone does not hold the model, and then set VP",
    "rule.pp": "PP={pp}, VP={vp}: keep PP minimal, VP shrinks the bubble",
    "rule.pp-bubble": "PP={pp}, VP={vp}: bubble (PP-1)/(VP x {microbatches} micro batches) = {bubble}%",
    "rule.ep": "EP shards expert parameters only: {experts} experts / EP={ep} = {each} on each rank (valid powers of two: {valid:list}). "
    "Attention and embeddings are replicated; on MoE OOM raise EP, not TP",
    "rule.cp": "CP={cp}: {tokens} tokens / {cp} = {each} on each rank, exchanged by cp_comm_type={comm}. a2a+p2p lets CP exceed the KV heads",
    "rule.cp-missing": "{tokens} tokens are more than {limit}: set CP when more GPUs are at hand (here CP={cp})",
    "rule.cp-none": "{tokens} tokens are at most {limit}: no CP needed",
    "rule.world": "minimum world = PP x TP x CP = {pp} x {tp} x {cp} = {minimum}",
    "rule.world-moe": "minimum world = PP x max(TP x CP, EP x ETP) = {pp} x max({tp} x {cp}, {ep} x {etp}) = {minimum}; the meshes overlap, "
    "TP and EP are never multiplied",
    "rule.dp": "DP is implicit: {world} / (TP {tp} x PP {pp} x CP {cp}) = {dp}",
    "rule.edp": "expert DP: {world} / (PP {pp} x EP {ep} x ETP {etp}) = {edp}",
    "rule.batch": "GBS {gbs} = MBS {mbs} x DP {dp} x {accumulation} accumulation steps; {tokens:count} tokens a step decide the training",
    # Pitfalls.
    "pitfall.tp-over-kv": "TP over num_query_groups={groups}: before Megatron-Core 0.16 it crashes ('TP must divide num_query_groups'), since then a "
    "multiple replicates the KV heads",
    "pitfall.pp-without-vp": "PP={pp} without VP leaves a large bubble: set virtual_pipeline_model_parallel_size where the layers divide",
    "pitfall.ep-small": "EP={ep} leaves {each} of {experts} experts on each rank: on expert OOM raise EP",
    "pitfall.graphs-packed": "CUDA graphs ({impl}) do not take packed sequences: 'CUDA graph accepts only Tensor inputs'. Switch packing off "
    "or use the local full-iteration graph",
    "pitfall.graphs-recompute": "CUDA graphs ({impl}) with full recomputation assert, except the local full-iteration graph",
    "pitfall.graphs-rng": "CUDA graphs ({impl}) need model.use_te_rng_tracker=true and rng.te_rng_tracker=true",
    "pitfall.graphs-later": "when you switch CUDA graphs on, set model.use_te_rng_tracker=true and rng.te_rng_tracker=true too",
    "pitfall.fsdp-tp": "FSDP with TP={tp} on H100 is bound by communication: prefer TP 1 or 2",
    "pitfall.long-without-cp": "{tokens} tokens without CP run out of activation memory first: CP 2, 4 or 8, or a *_16k, *_64k, *_128k recipe",
    "pitfall.moe-overlap": "MoE on H100: most presets keep ddp.overlap_grad_reduce=false; this recipe has it on, compare both",
    "pitfall.packing-off": "--dataset {preset} switches off the packing that the recipe has (dataset.enable_offline_packing=false): a sample then "
    "fills up to {tokens} tokens alone, so a step holds fewer tokens than the recipe was tuned for, which is another experiment. Without "
    "--dataset the recipe's own packed data stay",
    "pitfall.engine": "the engine of this project trains text models only: with its scripts/training/run_recipe.py add --engine bridge ({modality}), which "
    "starts Megatron Bridge's own program",
    "pitfall.vlm-images": "VLM fine-tuning without images runs and yields nonsense: give a real multimodal dataset",
    "pitfall.qwen35-fsdp": "Qwen3.5-VL MoE with FSDP was only tried on Blackwell: verify on H100 first",
    "pitfall.rope": "{tokens} tokens exceed max_position_embeddings={limit}: decide RoPE scaling first, it changes convergence",
    "pitfall.stale-checkpoint": "rm -rf nemo_experiments before a fresh run: a stale checkpoint resumes silently",
    "pitfall.short-run": "a short train.train_iters needs scheduler.lr_warmup_iters and scheduler.lr_decay_iters too",
    "pitfall.checkpoint": "replace {placeholder} in the command: without the base model PEFT stops with an assertion and SFT starts from "
    "random weights",
    # OOM.
    "oom.micro-batch": "train.micro_batch_size {before} -> 1 first: about {peak:gib} of {capacity:gib}",
    "oom.micro-batch-unsized": "train.micro_batch_size {before} -> 1 first",
    "oom.micro-batch-done": "train.micro_batch_size is 1 already, so it cannot be lowered first",
    "oom.ep": "EP {before} -> {after} (TP does not shrink experts): about {peak:gib} of {capacity:gib}",
    "oom.ep-unsized": "EP {before} -> {after} on more GPUs (TP does not shrink experts)",
    "oom.ep-done": "EP={ep} is as wide as these GPUs allow with PP={pp}; TP does not shrink experts",
    "oom.cp": "CP {before} -> {after}: about {peak:gib} of {capacity:gib}",
    "oom.cp-unsized": "CP {before} -> {after}, with as many more GPUs",
    "oom.recompute": "model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=1: about {peak:gib} of "
    "{capacity:gib}",
    "oom.recompute-unsized": "model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=1",
    "oom.tp": "TP {before} -> {after}, with SP: about {peak:gib} of {capacity:gib}",
    "oom.tp-unsized": "TP {before} -> {after}, with SP, on more GPUs",
    "oom.tp-moe": "TP {before} -> {after}, with SP, for the dense layers only: about {peak:gib} of {capacity:gib}",
    "oom.tp-moe-unsized": "TP {before} -> {after}, with SP, for the dense layers only, on more GPUs",
    "oom.pp": "PP {before} -> {after}, then VP against the bubble: about {peak:gib} of {capacity:gib}",
    "oom.pp-unsized": "PP {before} -> {after}, then VP against the bubble, on more GPUs",
    "oom.more-gpus": "{gpus} GPUs: the optimizer states are shared by more ranks",
    "oom.more-gpus-peft": "{gpus} GPUs, to split the frozen weights further",
    "oom.generic": "lower train.micro_batch_size first, then recompute activations",
    "oom.benchmark": "a benchmark recipe is canonical only unchanged: any of this makes another measurement",
    # What a run proves.
    "evidence.mock": "Mock data show that the run starts, fits and how fast it is. Their losses prove nothing about convergence.",
    "evidence.own-data": "A pretraining run shows convergence for its own data, tokenizer and schedule only.",
    "evidence.tune": "The loss on {preset} shows that the adaptation learns; quality needs an evaluation of its own.",
    "evidence.tune-own": "The loss on the recipe's own data shows that the adaptation learns; quality needs an evaluation of its own.",
    "evidence.layout": "A layout, micro batch or recompute change keeps the updates up to rounding: check the loss of the first steps again "
    "(`autorecipe parity compare`).",
    "evidence.cohort": "Absolute losses of different architectures or tokenizers are not compared; trends at equal tokens are.",
    "evidence.benchmark": "The run shows an upper bound of throughput for this hardware, precision and GPU count.",
    "evidence.benchmark-not": "Mock data, forced balancing and checks switched off are shortcuts: losses and checkpoints prove nothing about "
    "convergence.",
    # Checklist of the first answer.
    "checklist.1": "Library recipes (src/megatron/bridge/recipes/) are for functional training and run through "
    "scripts/training/run_recipe.py.",
    "checklist.2": "Benchmark recipes (src/megatron/bridge/perf_recipes/) measure an upper bound of throughput with canonical data and "
    "settings; they are not offered for production training.",
    "checklist.3": "Bridge's first smoke test is llama3_8b_pretrain_config with --dataset mock.",
    "checklist.4": "SFT and PEFT take a fine-tuning preset such as --dataset squad or --dataset tulu3; pretraining and smoke tests take "
    "--dataset mock. mock is for pretraining only and never goes with SFT or PEFT.",
    "checklist.5": "Resizing: TP divides num_key_value_heads; TP stays in one host unless NVLink is NVL72 class; SP on when TP > 1; CP for long "
    "context; DP is implicit; on OOM lower micro_batch_size first.",
    "checklist.6": "Every override is labelled: convergence (a new experiment) or execution (same updates, verify). Throughput bought with "
    "convergence is a new experiment and is called that.",
    # Benchmarks.
    "bench.exact": "The allocation must be exactly the {gpus} GPUs of the name: {nodes} x {per_node}.",
    "bench.canonical": "Any KEY=VALUE override makes it non-canonical: say so beside the number.",
    "bench.use-fewer": "{gpus} of the {asked} GPUs are used: no benchmark recipe of {model} on {gpu:gpu} in {precision} is written for {asked}.",
    "bench.use-other": "{gpus} of the {asked} GPUs are used by this recipe; {other} is written for {asked}",
    "bench.weak-scaling": "On {asked} GPUs instead of {gpus} the launcher scales train.global_batch_size {gbs} -> {scaled} (weak scaling). "
    "train.global_batch_size={gbs} keeps it; that is a convergence change against the other.",
    "bench.peft": "Benchmark PEFT recipes are fixed LoRA; DoRA needs a library recipe: {library}.",
    "bench.other-counts": "Written for {gpu:gpu} in {precision}: {counts:list} GPUs.",
    "bench.selector": "Other sizes or data go through the selector launcher: {command}",
    "bench.train-with": "To train for real use {library}.",
    "bench.rejected": "{name} is a benchmark recipe: it is not offered for training. {library} is the library recipe of the same size.",
    # Notes.
    "note.dataset-mock": "mock was asked for, and is for pretraining only: it never goes with {mode:mode}. {preset} is used instead",
    "note.dataset-invalid": "{asked} is not valid for {mode:mode} of this model (valid: {valid:list}). {preset} is used instead",
    "note.dataset-benchmark": "{asked} was asked for and is not used: benchmark recipes keep their own data",
    "note.dataset-own": "{asked} was asked for and is not used: this recipe keeps its own data",
    "note.option-wins": "the question says {said}, the option {name}={given}: the option is used",
    "note.ambiguous-name": "{name} is exported by both packages ({count} names are). Upstream's launcher takes the benchmark definition; "
    "{alias} is the library one",
    "note.index": "upstream's recipe index says {column} {index_value}; the recipe itself has {code_value}. The recipe counts",
    "note.failed": "{name} exists and cannot be used: {error}",
    "note.no-mode": "{model} has no {mode:mode} recipe",
    "note.hosts": "{gpus} GPUs do not fill hosts of {usual}: taken as {nodes} x {per_node}",
    "note.correlation": "to compare with Megatron-LM: entry points are scripts/training/run_recipe.py and 3rdparty/Megatron-LM/pretrain_gpt.py, "
    "both started by `uv run python -m torch.distributed.run`. Megatron-LM needs PYTHONPATH=3rdparty/Megatron-LM:$PYTHONPATH and its "
    "files are never edited. rm -rf nemo_experiments first. Equal settings give the same lm loss within BF16 rounding",
    "note.short-smoke": "for a smoke test of minutes add train.train_iters=20 scheduler.lr_warmup_iters=2 scheduler.lr_decay_iters=20 validation.eval_interval=20 validation.eval_iters=2 (convergence overrides, so its losses compare with nothing)",
    "note.laptop": "without GPUs, a toy that really trains: python -m torch.distributed.run --nproc_per_node=2 scripts/training/run_recipe.py --recipe vanilla_gpt_pretrain_config --dataset mock model.num_layers=2 model.hidden_size=256 model.num_attention_heads=4 model.ffn_hidden_size=1024 model.seq_length=512 dataset.seq_length=512 train.train_iters=10 train.global_batch_size=32 train.micro_batch_size=4 scheduler.lr_warmup_iters=1 scheduler.lr_decay_iters=10",
    "note.first-smoke": "new to Bridge? Start with `autorecipe recommend --first-run`: llama3_8b_pretrain_config with mock data",
    # What must be asked.
    "ask.model": "which model, and which size? A name (Qwen3 30B-A3B), a Hugging Face id, or the path of a config.json",
    "ask.model-size": "which size of {asked}? Recipes exist for {models:list}",
    "ask.model-unknown": "nothing is known about {asked}: give its size, its Hugging Face id, or the path of its config.json",
    "ask.mode": "what is the goal: pretraining, SFT, LoRA, DoRA, or a throughput benchmark?",
    "ask.gpus": "how many GPUs? (without it: the count in the recipe's name)",
    "ask.gpu": "which GPU type? (without it: the one in the recipe's name)",
    "ask.seq-length": "which sequence length, in tokens? (without it: the recipe's own)",
}
