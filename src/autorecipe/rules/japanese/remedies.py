"""Japanese of remedies: what to type where an override does not act."""

REMEDIES = (
    ("set both to false", "両方を false にする"),
    ("set scheduler.max_steps=null to use lr_decay_iters", "lr_decay_iters を使うには scheduler.max_steps=null を指定する"),
    (
        "set scheduler.lr_warmup_iters to less than {decay}, or scheduler.max_steps to the full length",
        "scheduler.lr_warmup_iters を {decay} 未満にするか、scheduler.max_steps を全体の長さにする",
    ),
    ("set scheduler.lr_warmup_samples to less than {decay}", "scheduler.lr_warmup_samples を {decay} 未満にする"),
    ("set {decay} where that is not meant", "意図と違う場合は {decay} を指定する"),
    (
        "set {decay} for a full schedule (a new experiment), or leave it for a shortened one",
        "全体のスケジュールにするには {decay} を指定し(新しい実験)、短縮したままでよければ何もしない",
    ),
    (
        "set {path} to keep it (a new experiment otherwise)",
        "保つには {path} を指定する(指定しなければ新しい実験)",
    ),
    (
        "put the field on a mixed_precision object, or set mixed_precision=null",
        "mixed_precision オブジェクト側で指定するか、mixed_precision=null にする",
    ),
    ("put the field on a mixed_precision object: {setting}", "mixed_precision オブジェクト側で指定する: {setting}"),
    ("replace the name by an object: {setting}", "名前の代わりにオブジェクトを指定する: {setting}"),
    ("set the field of the same name on comm_overlap", "comm_overlap の同じ名前の項目を指定する"),
    (
        "set scheduler.max_steps to the full length, or scheduler.lr_warmup_iters and lr_decay_iters too",
        "scheduler.max_steps を全体の長さにするか、scheduler.lr_warmup_iters と lr_decay_iters も指定する",
    ),
    (
        "add train.train_iters=null, scheduler.lr_decay_iters=null and scheduler.lr_warmup_iters=0",
        "train.train_iters=null、scheduler.lr_decay_iters=null、scheduler.lr_warmup_iters=0 も指定する",
    ),
    ("set the validation field and leave the train field null", "validation 側の項目を指定し、train 側は null のままにする"),
    (
        "raise model.tensor_model_parallel_size, or leave it off",
        "model.tensor_model_parallel_size を増やすか、無効のままにする",
    ),
    ("set it when comparing with Megatron-LM", "Megatron-LM と比べるときは明示的に指定する"),
    (
        "pin model.vocab_size and set tokenizer.use_tokenizer_vocab_size=false",
        "model.vocab_size を固定し、tokenizer.use_tokenizer_vocab_size=false を指定する",
    ),
    (
        "remove the folder (nemo_experiments by default) or set checkpoint.load=null",
        "フォルダー(既定は nemo_experiments)を削除するか、checkpoint.load=null を指定する",
    ),
    ("nothing: the loss would be wrong otherwise", "対処は不要(そうしないと損失が誤った値になる)"),
    (
        "fix dataset.offline_packing_specs.pad_seq_to_mult to a common multiple of the layouts compared",
        "比較する構成の公倍数に dataset.offline_packing_specs.pad_seq_to_mult を固定する",
    ),
    ("set the layout with the pipeline size", "パイプライン並列サイズと一緒に割り当ても指定する"),
    ("set dataset.blend or dataset.data_path", "dataset.blend か dataset.data_path を指定する"),
    ("unset it in the shell or the launcher", "シェルかランチャーで unset する"),
    ("set it to null", "null を指定する"),
    ("write +KEY=VALUE", "+KEY=VALUE と書く"),
    ("write {setting} there", "代わりに {setting} と書く"),
    ("set fields of {path}", "{path} の項目を指定する"),
    (
        "set scheduler.start_weight_decay and scheduler.end_weight_decay",
        "scheduler.start_weight_decay と scheduler.end_weight_decay を指定する",
    ),
    (
        "set dataset.random_seed={seed} too where the order should move",
        "データの順序も変えるなら dataset.random_seed={seed} も指定する",
    ),
    ("set dataset.random_seed too", "dataset.random_seed も指定する"),
    ("set {settings}", "{settings} を指定する"),
)
