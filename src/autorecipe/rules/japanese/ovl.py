"""Japanese of OVL: communication overlap."""

TITLES = {
    "OVL001": "comm_overlap がある場合、オーバーラップは ddp ではなく comm_overlap で決まる",
    "OVL002": "TP やシーケンス並列がなければ、TP のオーバーラップは自動的に無効になる",
    "OVL003": "TP のオーバーラップにはシーケンス並列が必要",
    "OVL004": "ステージ間で活性化をやり取りする方法は comm_overlap が決める",
    "OVL005": "パラメーターの all-gather をオーバーラップするには、オプティマイザー状態のシャーディングが必要",
    "OVL006": "パラメーターの all-gather をオーバーラップするには、勾配リダクションのオーバーラップも必要",
    "OVL007": "オプティマイザーステップ内の all-gather には、仮想ステージと torch 形式が必要",
    "OVL008": "一定間隔でのパラメーター保存は、all-gather のオーバーラップと併用できない",
    "OVL009": "分散オプティマイザーの 2 つのフラグは、どちらか一方で両方が有効になる",
    "OVL010": "パラメーター all-gather のオーバーラップの 2 つのフラグは、どちらか一方で両方が有効になる",
    "OVL011": "重み勾配の遅延計算には、対応するリリースの Transformer Engine の層が必要",
    "OVL012": "CUDA グラフ内での重み勾配の遅延計算には、融合した勾配累積が必要で、アテンションのバイアスは使えない",
    "OVL013": "勾配リダクションのオーバーラップは、独自の no_sync 関数と併用できない",
}

MESSAGES = (
    (
        "{given} will not act: comm_overlap sets {acting}",
        "{given} は効かない。comm_overlap が {acting} を設定する",
    ),
)
