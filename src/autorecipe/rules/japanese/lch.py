"""Japanese of LCH: launch and environment."""

TITLES = {
    "LCH001": "データセットのプリセットは、事前学習用かファインチューニング用のどちらか",
    "LCH002": "モードはレシピ名と一致させる",
    "LCH003": "ベンチマークレシピは、自身のデータ、ステップ、固定の LoRA 設定のまま使う",
    "LCH004": "ベンチマークレシピは、名前にある台数の GPU で実行する",
    "LCH005": "ランチャーに渡すのは環境変数の名前だけで、値は渡さない",
    "LCH006": "起動するプロセスの数は、ワールドのランク数と一致させる",
    "LCH007": "実験の名前は、構成を保証しない",
    "LCH008": "モードは、指定するか、レシピ名に含める必要がある",
    "LCH009": "BF16 の Adam を使うベンチマークレシピでは、精度対応オプティマイザー(precision-aware optimizer)が使われる",
    "LCH010": "シードは正の値である必要がある",
    "LCH011": "上流の実行には CUDA デバイスが必要",
    "LCH012": "分散化したプロセスグループは、gloo や階層型コンテキスト並列と併用できない",
    "LCH013": "遅延初期化では、モデルを CPU 上に構築する",
    "LCH014": "プロセス内再起動では、プロセスグループを自分で作る",
    "LCH015": "Blackwell より前の GPU で TP か CP を使うには、CUDA コネクションを 1 本にする必要がある",
    "LCH016": "TP か CP と、FSDP またはエキスパート通信のオーバーラップとでは、必要な CUDA コネクション数が食い違う",
    "LCH017": "マルチストレージのパスには専用クライアントが必要",
}

MESSAGES = (
    (
        "data set {preset} is for fine-tuning, the mode is {mode}",
        "データセット {preset} はファインチューニング用だが、モードは {mode}",
    ),
    ("data set {preset} is for pretraining, the mode is {mode}", "データセット {preset} は事前学習用だが、モードは {mode}"),
    ("{recipe} is a {named} recipe, the mode is {given}", "{recipe} は {named} 用のレシピだが、モードは {given}"),
    (
        "exported benchmark PEFT recipes are fixed LoRA; they take no DoRA",
        "エクスポートされたベンチマーク用 PEFT レシピは LoRA 固定で、DoRA は使えない",
    ),
    ("a benchmark recipe takes no --dataset ({preset})", "ベンチマークレシピに --dataset({preset})は指定できない"),
    (
        "the recipe is for {canonical} GPUs, and {world} are given: the launcher scales the global batch from {before} to {after}",
        "GPU {canonical} 台用のレシピに {world} 台が指定されている。ランチャーはグローバルバッチを {before} から {after} に変える",
    ),
    ("the recipe is for {canonical} GPUs, and {world} are given", "GPU {canonical} 台用のレシピに {world} 台が指定されている"),
    (
        "--env {name}=... gives a value; the launcher takes the name only",
        "--env {name}=... には値が付いている。ランチャーに渡すのは名前だけ",
    ),
    ("{flag} {value} is not a positive number", "{flag} {value} は正の数ではない"),
    (
        "{processes} processes start, but the run is sized for {world} ranks: it would hang",
        "起動するプロセスは {processes} 個だが、実行は {world} ランク用に組まれている。このままではハングする",
    ),
    (
        "the failing product {product} = PP{pp} x (ETP x EP), so ETP x EP = {rest}, not {expected} as the name says: one of them was overridden after naming",
        "エラーに出た積 {product} = PP{pp} x (ETP x EP) から ETP x EP = {rest} であり、名前の示す {expected} ではない。名前を付けた後でどちらかが上書きされている",
    ),
    ("the name of the experiment disagrees: {axes}", "実験の名前が構成と食い違う: {axes:each}"),
)

PARTS = (("{axis} in the name, {real} in the configuration", "名前では {axis}、構成では {real}"),)
