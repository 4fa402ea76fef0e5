"""Japanese of the notes of a resolution: what was typed and does not act, and what to type instead."""

from autorecipe import phrases
from autorecipe.rules.japanese.reasons import REASONS

UNITS = (("iters", "反復"), ("samples", "サンプル"))

NOTES = (
    ("{text} does not act: {reason}, so {path} is {value}", "{text} は効かない({reason:say})。{path} は {value} になる"),
    ("{text} has no effect: it merges nothing into {path}", "{text} は効果がない。{path} に何も統合しない"),
    ("{text} has no effect: Megatron Bridge keeps the section", "{text} は効果がない。Megatron Bridge はセクションを残す"),
    (
        "{text} has no effect: Megatron Bridge restores a declared field, {path} stays {value}",
        "{text} は効果がない。Megatron Bridge は宣言済みの項目を元に戻すため、{path} は {value} のまま",
    ),
    (
        "train.train_samples={samples} and train.train_iters={iters} are both set, which Megatron Bridge refuses",
        "train.train_samples={samples} と train.train_iters={iters} の両方が指定されており、Megatron Bridge は受け付けない",
    ),
    (
        "warmup ({why} = {steps} samples) is not shorter than the decay ({decay} samples): it is capped, the learning rate still ramps at "
        "the end and never decays",
        "ウォームアップ({why:say} = {steps} サンプル)が減衰({decay} サンプル)より短くない。打ち切られ、学習率は最後まで上がり続けて減衰しない",
    ),
    (
        "the learning rate reaches its minimum after {decay} of {length} {unit}",
        "学習率は {length} {unit:say}のうち {decay} で最小値に達する",
    ),
    (
        "the learning rate decays over {decay} {unit} but the training stops after {length}: it never reaches its minimum",
        "学習率は {decay} {unit:say}かけて減衰するが、学習は {length} で終わるため、最小値に達しない",
    ),
    (
        "{path} was written for the recipe's own PP and VP; Megatron Bridge rebuilds it only where the recipe has a layout builder",
        "{path} はレシピ自身の PP と VP 用に書かれている。Megatron Bridge が作り直すのは、レシピに割り当ての生成器がある場合だけ",
    ),
    ("{path} does not fit {size}, so the launcher clears it", "{path} は {size} に合わないため、ランチャーが消去する"),
    ("{path} is {scaled}, not {batch}: {reason}", "{path} は {batch} ではなく {scaled} になる({reason:say})"),
    (
        "use_megatron_fsdp is on, but data_parallel_sharding_strategy is {strategy}: nothing is sharded",
        "use_megatron_fsdp は有効だが data_parallel_sharding_strategy は {strategy} なので、何もシャーディングされない",
    ),
    (
        "rng.seed={seed} does not move {data}: the data order stays",
        "rng.seed={seed} では {data} は変わらず、データの順序はそのまま",
    ),
    (
        "{path} is a new key of {holder}; Megatron Bridge itself wants a plus sign",
        "{path} は {holder} の新しいキー。Megatron Bridge 自身では先頭に + が必要",
    ),
)


def say_resolution_note(note: str) -> str:
    """Say a note of a resolution, `TRAP-X: message; remedy`; one that no phrase knows stays whole."""
    from autorecipe.rules.japanese.hints import HINTS

    trap, _, rest = note.partition(": ")
    message, _, remedy = rest.rpartition("; ")
    said, next_step = phrases.say(message, NOTES, (*UNITS, *REASONS)), phrases.say(remedy, HINTS)
    return note if said is None or next_step is None else f"{trap}: {said}。{next_step}"
