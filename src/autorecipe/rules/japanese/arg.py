"""Japanese of ARG: old and rare options of Megatron-LM."""

TITLES = {
    "ARG001": "名前の変わったオプションは受け付けられない",
    "ARG002": "メモリーの記録は、ほかのログ出力と同じ反復で行う",
    "ARG003": "長い推論バッチの分割には、パイプライン並列が必要で、CUDA グラフは使えない",
    "ARG004": "強化学習のオプションには整合性が必要",
}

MESSAGES = (("{option} is refused; use {instead}", "{option} は受け付けられない。代わりに {instead} を使う"),)
