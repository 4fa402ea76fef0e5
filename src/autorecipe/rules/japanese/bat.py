"""Japanese of BAT: batch."""

TITLES = {
    "BAT001": "グローバルバッチは、すべてのデータ並列ランクでマイクロバッチの整数倍になる必要がある",
    "BAT002": "評価バッチは、すべてのデータ並列ランクでマイクロバッチの整数倍になる必要がある",
    "BAT003": "バッチスケジュールは 0 から始まり、単調に増え、サイズは正である必要がある",
    "BAT004": "マイクロバッチサイズは必須で、正の値である必要がある",
    "BAT005": "グローバルバッチサイズは必須で、正の値である必要がある",
    "BAT006": "未指定のグローバルバッチは、データ並列ランクごとに 1 マイクロバッチになる",
    "BAT007": "実行中のバッチは、マイクロバッチの整数倍に切り捨てられる",
    "BAT008": "バッチスケジュールは、固定バッチや丸めたバッチと併用できない",
    "BAT009": "TP x PP x 評価時の CP は GPU 台数を割り切る必要がある",
    "BAT010": "データセットには、少なくとも 1 グローバルバッチ分のサンプルが必要",
    "BAT011": "再開する実行には、まだ使っていないサンプルが残っている必要がある",
}

MESSAGES = (
    (
        "{name}={gbs} is not a multiple of {micro}={mbs} x DP={dp} = {step}",
        "{name}={gbs} は {micro}={mbs} x DP={dp} = {step} の倍数ではない",
    ),
    ("train.step_batch_size_schedule={text}: {problem}", "train.step_batch_size_schedule={text}: {problem:say}"),
)

PARTS = (
    ("{entry} is not THRESHOLD:SIZE", "{entry} は THRESHOLD:SIZE の形ではない"),
    ("the first threshold must be 0", "最初のしきい値は 0 である必要がある"),
    ("thresholds must rise", "しきい値は単調に増える必要がある"),
    ("sizes must be positive", "サイズは正である必要がある"),
)
