"""Japanese of CKP: checkpoints, resuming, adapters."""

TITLES = {
    "CKP001": "fully parallel save なしで保存したオプティマイザーは、同じ構成でしか読み込めない",
    "CKP002": "読み込み先のフォルダーにチェックポイントがあると、通知なしにそこから再開する",
    "CKP003": "開始チェックポイントは存在し、中身がチェックポイントである必要がある",
    "CKP004": "再開時のスケジュールはチェックポイントと一致させるか、どちらを優先するかを指定する必要がある",
    "CKP005": "Energon のローダーは、同じデータ並列サイズでしか再開できない",
    "CKP006": "checkpoint.load に指定できるのは Megatron のチェックポイントだけ",
    "CKP007": "Megatron-LM のチェックポイントには実行構成が含まれていない",
    "CKP008": "再開時に探すのは指定したフォルダーだけで、その下のフォルダーは探さない",
    "CKP009": "メインパラメーターの読み込みは、オプティマイザーの読み込みと併用できない",
    "CKP010": "非同期保存には、保存先フォルダー、永続ワーカー、分散形式が必要",
    "CKP011": "永続ワーカーのない非同期保存は自動的に無効になる",
    "CKP012": "Hugging Face 形式のコピーを保存するには、変換できる形式と変換元が必要",
    "CKP013": "読み込むステップを指定するには、読み込み元のフォルダーが必要",
    "CKP014": "完全に再シャーディングできるオプティマイザー形式は、メモリー効率版と併用できない",
    "CKP015": "FSDP 形式には Megatron FSDP が必要",
    "CKP016": "torch_dcp 形式には、TP も PP も使わない PyTorch FSDP2 が必要",
    "CKP017": "gloo なしの分散オプティマイザーには、分散チェックポイント形式が必要",
    "CKP018": "保存間隔は正である必要があり、保持する間隔はその倍数である必要がある",
    "CKP019": "テンソルをキャッシュするには、保存と読み込みのプロセスグループを同じにする必要がある",
    "CKP020": "反復回数の上書きは、ファインチューニングと併用できない",
    "CKP021": "学習をスキップすると、オプティマイザーは破棄される",
    "CKP022": "非永続チェックポイントは global か、フォルダーを指定した local にする",
    "CKP023": "ローカルチェックポイントには resiliency 拡張が必要",
    "CKP024": "レプリケーションには、ジャンプ幅とローカルチェックポイントが必要",
    "CKP025": "レプリケーションを使わなければ、レプリケーションのジャンプ幅は破棄される",
    "CKP026": "チェックポイントから引数を引き継ぐには、永続チェックポイントが必要",
    "CKP027": "形式の変換には、変換元と変換先が必要",
    "CKP028": "非同期保存の方式は既知のものである必要があり、整合性検査には torch_dist が必要",
    "CKP029": "ロジットの保存には、その個数と非同期保存が必要",
    "CKP030": "ModelOpt の状態を復元するには、勾配を融合せず、ローカルチェックポイントも使わない必要がある",
    "CKP031": "アダプターには、出発点となるベースモデルが必要",
    "CKP032": "ファインチューニングには開始チェックポイントが必要",
    "CKP033": "canonical LoRA の対象は、分割された射影である必要がある",
    "CKP034": "アダプターの設定には整合性が必要",
}

MESSAGES = (
    (
        "the checkpoint's optimizer was saved without fully parallel save, and the layout changed: {changed}",
        "チェックポイントのオプティマイザーは fully parallel save なしで保存されており、構成が変わっている: {changed}",
    ),
    (
        "checkpoint.load={load} holds a checkpoint: the run resumes from it, and pretrained_checkpoint={path} is not used",
        "checkpoint.load={load} にはチェックポイントがあり、実行はそこから再開する。pretrained_checkpoint={path} は使われない",
    ),
    (
        "checkpoint.load={load} holds a checkpoint: the run resumes from it",
        "checkpoint.load={load} にはチェックポイントがあり、実行はそこから再開する",
    ),
    (
        "checkpoint.save={save} holds a checkpoint of another run; without checkpoint.load it is not resumed from, but written over, "
        "and its tracker file reused",
        "checkpoint.save={save} には別の実行のチェックポイントがある。checkpoint.load がないため再開はされず、上書きされ、"
        "そのトラッカーファイルが再利用される",
    ),
    ("checkpoint.pretrained_checkpoint={path} does not exist", "checkpoint.pretrained_checkpoint={path} は存在しない"),
    (
        "checkpoint.pretrained_checkpoint={path} holds no checkpoint: pretraining would start from random weights without an error",
        "checkpoint.pretrained_checkpoint={path} にチェックポイントがない。事前学習はエラーなしに乱数の重みから始まってしまう",
    ),
    (
        "checkpoint.pretrained_checkpoint={path} holds no checkpoint",
        "checkpoint.pretrained_checkpoint={path} にチェックポイントがない",
    ),
    (
        "the checkpoint's schedule is used, but the first step still takes the new weight decay ({text})",
        "チェックポイントのスケジュールを使うが、最初のステップだけは新しい重み減衰になる({text})",
    ),
    ("the schedule differs from the checkpoint's: {text}", "スケジュールがチェックポイントと異なる: {text}"),
)
