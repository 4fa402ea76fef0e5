"""Japanese of HYB: hybrid models."""

TITLES = {
    "HYB001": "層数はパターンの長さと一致する",
    "HYB002": "パターンはパイプラインステージに分割できる必要がある",
    "HYB003": "パターンには既知の文字だけを使い、アテンションは 1 種類、MTP の各段は同一にする必要がある",
    "HYB004": "予測の段数はパターンから決まる",
    "HYB005": "Bridge のハイブリッドモデルでは仮想ステージを使えない",
    "HYB006": "パターンの新旧の名前は併用できない",
    "HYB007": "Mamba のチャンクには 1 つ以上の位置が必要",
    "HYB008": "パターンは、ほかの分割指定と併用できない",
    "HYB009": "MLA の文字があると、マルチヘッド潜在アテンションが自動的に有効になる",
    "HYB010": "Mamba のヘッドとグループは TP で分割できる必要がある",
    "HYB011": "FP8 の Mamba では、射影の大きさが 16 の倍数である必要がある",
    "HYB012": "Gated DeltaNet には、すべての次元の指定が必要",
    "HYB013": "Gated DeltaNet の value ヘッド数は key ヘッド数の倍数である必要がある",
    "HYB014": "Gated DeltaProduct には 1 つ以上の鏡映が必要",
}

MESSAGES = (
    (
        "the layer pattern has {length} layers, but num_layers={layers}; Megatron-LM takes the pattern",
        "層パターンは {length} 層だが、num_layers={layers} となっている。Megatron-LM はパターンを採用する",
    ),
    (
        "the layer pattern has {length} layers, but num_layers={layers}",
        "層パターンは {length} 層だが、num_layers={layers} となっている",
    ),
    (
        "a pattern with | already says where stages end; edge counts are refused",
        "| を含むパターンはステージの区切りを自分で決めるため、両端ステージの層数指定は受け付けられない",
    ),
    ("{count} segments are not a multiple of PP={pp}", "{count} セグメントは PP={pp} の倍数ではない"),
    (
        "{layers} layers of the pattern do not split over PP={pp} with edges {edges}",
        "パターンの {layers} 層は、両端の層数 {edges} では PP={pp} に分割できない",
    ),
    ("{layers} layers of the pattern do not split over PP={pp}", "パターンの {layers} 層は PP={pp} に分割できない"),
    ("hybrid_layer_pattern={text}: {problems}", "hybrid_layer_pattern={text}: {problems:each}"),
    (
        "the pattern has {found} prediction depths, but mtp_num_layers={depths}",
        "パターンの予測の段数は {found} だが、mtp_num_layers={depths} となっている",
    ),
)

PARTS = (
    ("unknown layer letters {letters}", "未知の層の文字 {letters}"),
    ("attention and MLA or sparse attention are mixed", "通常のアテンションと、MLA またはスパースアテンションが混在している"),
    ("MTP depths differ: {depths}", "MTP の各段が異なる: {depths}"),
)
