"""Japanese of PRC: precision and determinism."""

TITLES = {
    "PRC001": "精度プリセットは、対象の項目を上書きする",
    "PRC002": "精度プリセットは、登録済みのものである必要がある",
    "PRC003": "低精度のオプティマイザー状態には、精度対応オプティマイザー(precision-aware optimizer)が必要",
    "PRC004": "FP16 と BF16 は併用できない",
    "PRC005": "オプティマイザーの精度フラグは併用できない",
    "PRC006": "精度対応オプティマイザー(precision-aware optimizer)の精度フラグは、モデルのフラグと一致させる",
    "PRC007": "残差を FP32 にすると、パイプラインも FP32 になる",
    "PRC008": "FP32 の残差は FP16 か BF16 のためのもの",
    "PRC009": "動的な損失スケールを使う FP16 では、NaN 検査が自動的に無効になる",
    "PRC010": "BF16 の学習では、勾配を FP32 で累積する",
    "PRC011": "FP32 での累積には、FP32 のメイン勾配が必要",
    "PRC012": "FP32 で累積すると、FP32 の reduce-scatter は自動的に無効になる",
    "PRC013": "半精度の交差エントロピーには FP16 が必要",
    "PRC014": "クエリ・キーの層スケーリングを使うと、アテンションのソフトマックスは FP32 になる",
    "PRC015": "融合した交差エントロピーは native か Transformer Engine のもの",
    "PRC016": "Transformer Engine の融合した交差エントロピーは推奨されない",
    "PRC017": "対称メモリーの all-reduce には torch 2.7 と Transformer Engine 2.3 が必要",
    "PRC018": "FP8 と FP4 は併用できない",
    "PRC019": "低精度のパラメーターには、その精度の有効化が必要",
    "PRC020": "FP4 には Transformer Engine 2.7 が必要",
    "PRC021": "両端の層を BF16 にする設定は、delayed scaling と併用できない",
    "PRC022": "BF16 にする両端の層は、1 つのパイプラインステージに収まる必要がある",
    "PRC023": "custom レシピには、量子化器のファクトリーが必要",
    "PRC024": "FP8 の出力射影には MXFP8 が必要",
    "PRC025": "FP8 パラメーターの all-gather には、オプティマイザー状態のシャーディングが必要",
    "PRC026": "MXFP8 パラメーターの all-gather では、勾配バッファーを再利用する必要がある",
    "PRC027": "勾配バッファーを再利用しない MXFP8 は、メモリーを多く使う",
    "PRC028": "勾配バッファーの再利用は、オプティマイザーステップ内の all-gather と併用できない",
    "PRC029": "FP8 パラメーターの 2 つの指定は、同じ値に揃えられる",
    "PRC030": "活性化関数の入力を FP8 で保持するには SwiGLU が必要",
    "PRC031": "決定的モードには、NCCL_ALGO の指定と、交差エントロピーを融合しないことが必要",
    "PRC032": "決定的モードは、融合した交差エントロピーや TP のオーバーラップと併用できない",
    "PRC033": "決定的モードで使える環境変数の値は限られる",
    "PRC034": "バッチ不変モードで使える構成は限られる",
}

MESSAGES = (
    (
        "mixed_precision={preset} is not a registered preset; did you mean {close}?",
        "mixed_precision={preset} は登録済みのプリセットではない。{close} の間違いではないか",
    ),
    ("mixed_precision={preset} is not a registered preset", "mixed_precision={preset} は登録済みのプリセットではない"),
    (
        "{given} will not act: mixed_precision sets it to {acting}",
        "{given} は効かない。mixed_precision が {acting} に設定する",
    ),
    (
        "{given} without the precision-aware optimizer",
        "精度対応オプティマイザー(precision-aware optimizer)なしで {given} が指定されている",
    ),
)
