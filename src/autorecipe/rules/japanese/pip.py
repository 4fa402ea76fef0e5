"""Japanese of PIP: pipeline stages and schedule."""

TITLES = {
    "PIP001": "層はステージと仮想ステージに均等に分割できる必要がある",
    "PIP002": "不均等な分割では、中間ステージに均等な層数が残る必要がある",
    "PIP003": "明示的な割り当ては、すべての層を一度ずつ含み、PP と VP に合っている必要がある",
    "PIP004": "インターリーブスケジュールには、十分な数の、割り切れるマイクロバッチが必要",
    "PIP005": "仮想ステージにはパイプライン並列が必要",
    "PIP006": "両端ステージの層数指定と account_for_* フラグは併用できない",
    "PIP007": "明示的な割り当ては、ほかの分割指定と併用できない",
    "PIP008": "p2p 通信をオーバーラップしない仮想ステージには、2 段を超えるステージが必要",
    "PIP009": "仮想ステージを決めるオプションは 1 つだけにする",
    "PIP010": "仮想ステージあたりの層数と両端ステージの層数指定は併用できない",
    "PIP011": "層は、仮想ステージが整数個になるようにステージへ分割できる必要がある",
    "PIP012": "埋め込みや損失を数えた両端ステージの層数が 0 を下回ってはならない",
    "PIP013": "未指定のパイプライン dtype はパラメーターの dtype に従う",
    "PIP014": "埋め込みの勾配計算の遅延には、パイプラインと融合した勾配累積が必要",
    "PIP015": "ウォームアップとフラッシュのオーバーラップには、バッチ化しない p2p のオーバーラップが必要",
    "PIP016": "仮想ステージがなければ、p2p のオーバーラップは自動的に無効になる",
    "PIP017": "未指定のマイクロバッチグループの大きさは PP になる",
    "PIP018": "PP や VP を変えると、レシピの両端ステージの層数指定は破棄される",
}

MESSAGES = (
    (
        "{layers} do not split evenly over PP={pp}: {total} % {pp} = {rest}",
        "{layers:say} は PP={pp} に均等に分割できない。{total} % {pp} = {rest}",
    ),
    (
        "{each} layers per stage ({total} / PP={pp}) do not split over VP={vp}",
        "1 ステージあたり {each} 層({total} / PP={pp})は VP={vp} に分割できない",
    ),
    (
        "num_layers={layers} with first={first}, last={last} leaves {middle} layers for {stages} middle stages (PP={pp}, VP={vp})",
        "num_layers={layers}、first={first}、last={last} では、中間ステージ {stages} 段に {middle} 層が残る(PP={pp}、VP={vp})",
    ),
    (
        "the layout {text} cannot be read; letters are E, t, m, L, and | ends a stage",
        "割り当て {text} は読み取れない。使える文字は E、t、m、L で、| がステージの区切り",
    ),
    ("the pipeline layout is not legal: {problems}", "パイプラインの割り当てが正しくない: {problems:each}"),
    (
        "microbatch_group_size_per_vp_stage={group} is below PP={pp}",
        "microbatch_group_size_per_vp_stage={group} が PP={pp} より小さい",
    ),
    (
        "{count} microbatches (GBS={gbs} / (MBS={mbs} x DP={dp})) are fewer than the group of {size}",
        "マイクロバッチ {count} 個(GBS={gbs} / (MBS={mbs} x DP={dp}))は、グループの大きさ {size} より少ない",
    ),
    (
        "{count} microbatches % group {size} = {rest}, which is neither 0 nor at least PP={pp}",
        "マイクロバッチ {count} 個 % グループ {size} = {rest} は、0 でも PP={pp} 以上でもない",
    ),
)

PARTS = (
    ("num_layers={layers} plus embedding and loss", "num_layers={layers} に埋め込みと損失を加えた層数"),
    ("num_layers={layers} plus embedding", "num_layers={layers} に埋め込みを加えた層数"),
    ("num_layers={layers} plus loss", "num_layers={layers} に損失を加えた層数"),
    ("{stages} stages are not a multiple of PP={pp}", "{stages} ステージは PP={pp} の倍数ではない"),
    (
        "{stages} stages over PP={pp} give VP={virtual}, but VP={given} is set",
        "{stages} ステージを PP={pp} に置くと VP={virtual} になるが、VP={given} が指定されている",
    ),
    ("embedding must come first, once", "embedding は先頭に 1 つだけ必要"),
    ("loss must come last, once", "loss は末尾に 1 つだけ必要"),
    ("{layers} decoder layers, but num_layers={given}", "decoder が {layers} 層あるが、num_layers={given} が指定されている"),
    ("{depths} MTP layers, but mtp_num_layers={given}", "MTP が {depths} 層あるが、mtp_num_layers={given} となっている"),
    ("MTP layers must share one last virtual stage", "MTP の層は最後の仮想ステージ 1 つにまとめる必要がある"),
    ("num_layers={layers}", "num_layers={layers}"),
)
