"""Japanese of PIT: it runs, and is likely not what is wanted."""

TITLES = {
    "PIT001": "KV ヘッド数を超える TP は、KV ヘッドを複製する",
    "PIT002": "仮想ステージのないパイプラインは、遊ぶ時間が長い",
    "PIT003": "大規模な MoE ではエキスパート並列を使うことが望ましい",
    "PIT004": "長いシーケンスではコンテキスト並列を使うことが望ましい",
    "PIT005": "NVLink がノードをまたがない限り、TP は 1 ノード内に収める",
    "PIT006": "強制的な負荷分散とモックデータは、収束の根拠にならない",
    "PIT007": "Hopper の FSDP では TP を 1 か 2 にする",
    "PIT008": "Hopper の MoE は、勾配リダクションのオーバーラップで遅くなることがある",
    "PIT009": "視覚言語モデルのファインチューニングには画像が必要",
    "PIT010": "Qwen3.5-VL MoE の FSDP は Blackwell でしか試されていない",
    "PIT011": "TP はシーケンス並列と一緒に使う",
    "PIT012": "all-to-all のコンテキスト並列は、KV ヘッドを分割する",
    "PIT013": "CUDA グラフでは、2 つの乱数トラッカーを揃える",
}

MESSAGES = (
    (
        "TP={tp} exceeds num_query_groups={groups}: each key-value head is copied to {copies} ranks",
        "TP={tp} が num_query_groups={groups} を超えている。KV ヘッドはそれぞれ {copies} ランクに複製される",
    ),
    (
        "PP={pp} without virtual stages and {count} microbatches has a bubble of {bubble} of the compute time; VP={vp} makes it {less}",
        "仮想ステージのない PP={pp} とマイクロバッチ {count} 個では、バブルが計算時間の {bubble} になる。VP={vp} なら {less} で済む",
    ),
    (
        "PP={pp} without virtual stages and {count} microbatches has a bubble of {bubble} of the compute time",
        "仮想ステージのない PP={pp} とマイクロバッチ {count} 個では、バブルが計算時間の {bubble} になる",
    ),
    (
        "EP={ep} leaves {each} of {all} experts on each rank",
        "EP={ep} では、各ランクに全 {all} 個中 {each} 個のエキスパートが載る",
    ),
    (
        "a sequence of {tokens} tokens without context parallelism",
        "{tokens} トークンのシーケンスに対してコンテキスト並列を使っていない",
    ),
    (
        "TP={tp} reaches beyond the {reach} GPUs that NVLink joins",
        "TP={tp} が、NVLink でつながる GPU {reach} 台を超えている",
    ),
    (
        "moe_router_force_load_balancing is on: routing is forced, so that loss and checkpoints are benchmark-only",
        "moe_router_force_load_balancing が有効になっている。ルーティングが強制されるため、損失とチェックポイントはベンチマーク専用",
    ),
)
