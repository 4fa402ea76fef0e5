"""Japanese of SEQ: sequence length and context parallelism."""

TITLES = {
    "SEQ001": "階層型コンテキスト並列には、積が CP になるサイズの指定が必要",
    "SEQ002": "シーケンス長を決めるのはデータセット",
    "SEQ003": "位置テーブルはシーケンス長以上である必要がある",
    "SEQ004": "コンテキスト並列でのファインチューニングは、損失をトークン単位で平均する",
    "SEQ005": "ランチャーは、コンテキスト並列でのファインチューニングをトークン単位の平均に変える",
    "SEQ006": "collate するデータセットには、コンテキスト並列とシーケンス並列のランクに分割できるシーケンス長が必要",
    "SEQ007": "コンテキスト並列には Transformer Engine のアテンションが必要",
    "SEQ008": "パック済みシーケンスには Transformer Engine のアテンションが必要",
    "SEQ009": "ハイブリッドコンテキスト並列で使える構成は限られる",
    "SEQ010": "ハイブリッドコンテキスト並列には、偶数個のデータ並列ランクが必要",
    "SEQ011": "スパースアテンションで使える構成は限られる",
    "SEQ012": "複数ステージにまたがるバッチ内パッキングでは、シーケンス長が可変になる",
    "SEQ013": "スパースアテンションではコンテキスト並列を使えない",
    "SEQ014": "Gated DeltaNet ではコンテキスト並列を使えない",
}

MESSAGES = (
    (
        "cp_comm_type lists {listed} layers, but num_layers={layers}",
        "cp_comm_type は {listed} 層分を並べているが、num_layers={layers} となっている",
    ),
    ("cp_comm_type={kind} is neither a text nor a list", "cp_comm_type={kind} はテキストでも一覧でもない"),
    (
        "cp_comm_type={kind} with CP={cp} needs hierarchical_context_parallel_sizes: attention would be silently local",
        "cp_comm_type={kind} で CP={cp} の場合、hierarchical_context_parallel_sizes が必要。指定しないと、アテンションが通知なしに"
        "各ランク内で閉じてしまう",
    ),
    (
        "hierarchical_context_parallel_sizes={sizes} multiply to {product}, but CP={cp}",
        "hierarchical_context_parallel_sizes={sizes} の積は {product} だが、CP={cp} となっている",
    ),
    (
        "model.seq_length={model} will not act: {owner}={data} owns the sequence",
        "model.seq_length={model} は効かない。シーケンス長は {owner}={data} が決める",
    ),
)
