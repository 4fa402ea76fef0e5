"""Errors of `recommend` in Japanese: the same codes, paths, values and commands.

An error that no phrase knows stays as it is, whole: half a translation would be worse. Start at `say_problem`.
"""

from __future__ import annotations

from autorecipe import phrases
from autorecipe.errors import Problem
from autorecipe.record import replace

KINDS = (
    ("answer", "答え"),
    ("command", "コマンド"),
    ("framework", "フレームワーク"),
    ("gpu", " GPU"),
    ("model", "モデル"),
    ("recipe", "レシピ"),
    ("release", "リリース"),
    ("rule", "規則"),
)
"""What may be unknown."""

PARTS = (
    *KINDS,
    ("No such file or directory", "そのようなファイルやフォルダーはありません"),
    ("Permission denied", "読み取る権限がありません"),
    ("Is a directory", "ファイルではなくフォルダーです"),
)

MESSAGES = (
    (
        "unknown dataset preset {name}; did you mean {close}?",
        "未知のデータセットプリセット {name}。{close} の間違いではありませんか",
    ),
    ("unknown dataset preset {name}", "未知のデータセットプリセット {name}"),
    ("unknown {kind} {name}; did you mean {close}?", "未知の{kind:say} {name}。{close} の間違いではありませんか"),
    ("unknown {kind} {name}", "未知の{kind:say} {name}"),
    ("the question says both {one} and {other}", "質問に {one} と {other} の両方があります"),
    ("the question names two goals: {goals}", "質問に目的が 2 つあります: {goals:list}"),
    (
        "{hosts} hosts x {each} GPUs are {product}, not {gpus}",
        "{hosts} ノード x GPU {each} 台は {product} 台で、{gpus} 台と合いません",
    ),
    ("{gpus} GPUs do not divide into {part} hosts", "GPU {gpus} 台は {part} ノードに等分できません"),
    ("{gpus} GPUs do not divide into {part} GPUs per host", "GPU {gpus} 台は、1 ノード {part} 台では割り切れません"),
    (
        "benchmark PEFT recipes are fixed LoRA; DoRA cannot be benchmarked with them",
        "ベンチマーク用 PEFT レシピは LoRA 固定のため、DoRA は測れません",
    ),
    (
        "no facts about GPU type {name}; known are {known}",
        "GPU の種類 {name} の情報がありません。使えるのは {known} です",
    ),
    (
        "{model} has no usable {goal} recipe in release {release}; {name} exists and cannot be built: {error}",
        "リリース {release} には、{model} の使える {goal} レシピがありません。{name} は存在しますが、"
        "構築できません(上流のエラー: {error})",
    ),
    (
        "{model} has no usable {goal} recipe in release {release}",
        "リリース {release} には、{model} の使える {goal} レシピがありません",
    ),
    (
        "the nearest model with a usable {goal} recipe is {model} ({recipe}); it differs, with {asked} in brackets: {facts}",
        "使える {goal} レシピがあるモデルのうち、最も近いのは {model}({recipe})です。違い(括弧内は {asked}): {facts}",
    ),
    (
        "the nearest model with a usable {goal} recipe is {model} ({recipe}); no fact that is known here differs",
        "使える {goal} レシピがあるモデルのうち、最も近いのは {model}({recipe})です。分かっている範囲に違いはありません",
    ),
    (
        "{model} has recipes for other goals: {goals}; for {goal} it takes a recipe of your own",
        "{model} には別の目的のレシピがあります: {goals}。{goal} には独自のレシピが必要です",
    ),
    (
        "is a recipe of your own, and recommend chooses among upstream's: there is nothing to choose",
        "これは独自のレシピです。recommend は上流のレシピから選ぶため、選ぶものがありません",
    ),
    ("no catalog of release {release}; there are {known}", "リリース {release} のカタログがありません。あるのは {known} です"),
    ("cannot be read: {why}", "読み取れません({why:say})"),
    ("is no JSON: {why}", "JSON ではありません({why})"),
    (
        "has no num_hidden_layers and hidden_size, so it describes no transformer",
        "num_hidden_layers と hidden_size がないため、Transformer の構成ではありません",
    ),
    ("{words} is no whole number above {least}", "{words} は {least} より大きい整数ではありません"),
    # What click says.
    ("Invalid value for {option}: {value} is not in the range x>={least}.", "{option} の値 {value} は範囲外です({least} 以上)"),
    ("Invalid value for {option}: {value} is not a valid integer range.", "{option} の値 {value} は整数ではありません"),
    ("Invalid value for {option}: {value} is not a valid integer.", "{option} の値 {value} は整数ではありません"),
    ("Invalid value for {option}: {value} is not one of {choices}.", "{option} の値 {value} は {choices} のいずれでもありません"),
    ("No such option {option}. Did you mean {close}?", "{option} というオプションはありません。{close} の間違いではありませんか"),
    (
        "No such option {option}. (Possible options: {close})",
        "{option} というオプションはありません。近いもの: {close}",
    ),
    ("No such option {option}.", "{option} というオプションはありません"),
    ("Option {option} requires an argument.", "オプション {option} には値が必要です"),
    ("Option {option} does not take a value.", "オプション {option} は値を取りません"),
    ("Missing argument {name}.", "引数 {name} がありません"),
    ("{option} {word} is not NAME=VALUE", "{option} {word} は NAME=VALUE の形ではありません"),
    ("--gpus {gpus} is not a multiple of --nodes {nodes}", "--gpus {gpus} は --nodes {nodes} の倍数ではありません"),
)

HINTS = (
    ("releases at hand: {names}", "使えるリリース: {names}"),
    ("say one of them, or give {option}", "どちらか一方だけを書くか、{option} を指定してください"),
    ("presets: {names}", "使えるプリセット: {names}"),
    ("give two of --nodes, --gpus-per-node and --gpus", "--nodes、--gpus-per-node、--gpus のうち 2 つを指定してください"),
    (
        "give --gpus as a multiple of --nodes and of --gpus-per-node",
        "--gpus は --nodes と --gpus-per-node の倍数にしてください",
    ),
    (
        "ask for --goal dora without a benchmark to get the library recipe, which takes DoRA",
        "ベンチマークではなく --goal dora を指定すると、DoRA を使えるライブラリレシピを推奨します",
    ),
    (
        "use --gpu {name} with the closest type in memory and generation",
        "メモリーと世代が最も近い種類を --gpu {name} で指定してください",
    ),
    (
        "ask for one at a time, separated by `;`, or give {option}",
        "`;` で区切って 1 つずつ質問するか、{option} を指定してください",
    ),
    ("its recipes: {names}", "このモデルのレシピ: {names}"),
    (
        "`{command}` answers for it; `{option}` with the config.json of {asked} compares the rest, such as its attention",
        "`{command}` で、そのモデルについて答えます。"
        "`{option}` に {asked} の config.json を渡すと、アテンションなどの残りも比較します",
    ),
    ("`{command}` answers for it", "`{command}` で、そのモデルについて答えます"),
    (
        "`{command}` answers for that; {page} shows how to build on one",
        "`{command}` で、その目的について答えます。レシピを土台にする方法は {page} にあります",
    ),
    ("search with `{command}`", "`{command}` で検索できます"),
    (
        "`{plan}` sizes it, `{check}` judges it, `{launch}` starts it",
        "`{plan}` で構成を決め、`{check}` で検査し、`{launch}` で起動できます",
    ),
    ("give the path of a Hugging Face config.json", "Hugging Face の config.json のパスを指定してください"),
    ("give a Hugging Face config.json", "Hugging Face の config.json を指定してください"),
    (
        "give the config.json that lies beside the model's weights",
        "モデルの重みと同じ場所にある config.json を指定してください",
    ),
    ("use one of {names}", "使えるもの: {names}"),
    ("one of {names}", "使えるもの: {names}"),
    ("`{command}` finds recipes by words", "`{command}` で、言葉からレシピを検索できます"),
    ("only one package exports it: use {name}", "このレシピは片方のパッケージにしかありません。{name} を使ってください"),
    ("`{command}` lists what is legal", "使える指定は `{command}` で確認できます"),
    ("`{command}` lists the ids", "ID の一覧は `{command}` で確認できます"),
    ("`{command}` lists all rules", "規則の一覧は `{command}` で確認できます"),
)


def say_problem(problem: Problem) -> Problem:
    """Say an error and its hint, each only where a phrase knows it whole."""
    message = phrases.say(problem.message, MESSAGES, PARTS)
    hint = phrases.say(problem.hint, HINTS, PARTS)
    return replace(problem, message=message or problem.message, hint=hint or problem.hint)


def render_problem(problem: Problem) -> str:
    """Render an error in Japanese, as `Problem.render` does in English."""
    return say_problem(problem).render(error="エラー", hint="ヒント")
