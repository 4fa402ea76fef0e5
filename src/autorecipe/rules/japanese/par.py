"""Japanese of PAR: world size and parallel axes."""

TITLES = {
    "PAR001": "TP x PP x CP は GPU 台数を割り切る必要がある",
    "PAR002": "EP x ETP x PP は GPU 台数を割り切る必要がある",
    "PAR003": "TP は KV グループ数に合っている必要がある",
    "PAR004": "TP はアテンションヘッド数を割り切る必要がある",
    "PAR005": "EP はエキスパート数を割り切る必要がある",
    "PAR006": "コンテキスト並列では、シーケンス長が 2 x CP の倍数である必要がある",
    "PAR007": "線形アテンションのヘッド数は TP x CP の倍数である必要がある",
    "PAR008": "TP が 1 なら、シーケンス並列は自動的に無効になる",
    "PAR009": "TP > 1 で MoE モデルを学習するには、シーケンス並列が必要",
    "PAR010": "エキスパート並列にはエキスパートが必要",
    "PAR011": "未指定のエキスパートテンソル並列サイズは、Bridge では 1、Megatron-LM では TP になる",
    "PAR012": "未指定のエキスパートテンソル並列サイズは TP になる",
    "PAR013": "オプティマイザーのインスタンス数は DP x CP を割り切る必要がある",
    "PAR014": "並列サイズは正の値である必要がある",
}

MESSAGES = (
    (
        "{world} GPUs are not a multiple of TP{tp} x PP{pp} x CP{cp} = {product}; the layout needs {minimum} GPUs or a multiple",
        "GPU {world} 台は TP{tp} x PP{pp} x CP{cp} = {product} の倍数ではない。この構成には {minimum} 台かその倍数が必要",
    ),
    (
        "{world} GPUs are not a multiple of EP{ep} x ETP{etp} x PP{pp} = {product}; the layout needs {minimum} GPUs or a multiple",
        "GPU {world} 台は EP{ep} x ETP{etp} x PP{pp} = {product} の倍数ではない。この構成には {minimum} 台かその倍数が必要",
    ),
    (
        "tp={tp} does not fit num_query_groups={groups} in core {core}: {problems}",
        "core {core} では tp={tp} は num_query_groups={groups} に合わない({problems:each})",
    ),
    (
        "num_attention_heads={heads} is not a multiple of TP={tp}",
        "num_attention_heads={heads} は TP={tp} の倍数ではない",
    ),
    ("num_moe_experts={experts} is not a multiple of EP={ep}", "num_moe_experts={experts} は EP={ep} の倍数ではない"),
    ("seq_length={length} is not a multiple of 2 x CP = {chunk}", "seq_length={length} は 2 x CP = {chunk} の倍数ではない"),
    (
        "linear heads {key} and {value} are not multiples of TP x CP = {product}",
        "線形アテンションのヘッド数 {key} と {value} は TP x CP = {product} の倍数ではない",
    ),
)

PARTS = (
    ("TP must divide the groups", "TP はグループ数を割り切る必要がある"),
    ("neither divides the other", "どちらも他方を割り切れない"),
    ("TP={tp} is legal from core {since}", "core {since} 以降なら TP={tp} も使える"),
)
