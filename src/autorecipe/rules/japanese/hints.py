"""Japanese of hints and of notes beside ways out."""

from autorecipe.rules.japanese.remedies import REMEDIES

EXPERIMENT = "新しい収束実験"

NOTES = (
    ("a new convergence experiment", EXPERIMENT),
    ("another adapter: a new convergence experiment", f"別のアダプターになる({EXPERIMENT})"),
    ("another optimizer: a new convergence experiment", f"別のオプティマイザーになる({EXPERIMENT})"),
    ("another seed: a new convergence experiment", f"別のシードになる({EXPERIMENT})"),
    ("changes arithmetic: a new convergence experiment", f"演算精度が変わる({EXPERIMENT})"),
    ("changes routing precision: a new convergence experiment", f"ルーティングの精度が変わる({EXPERIMENT})"),
    ("changes routing: a new convergence experiment", f"ルーティングが変わる({EXPERIMENT})"),
    ("changes the sequence length: a new convergence experiment", f"シーケンス長が変わる({EXPERIMENT})"),
    ("changes the update: a new convergence experiment", f"更新が変わる({EXPERIMENT})"),
    ("restarts the optimizer: a new convergence experiment", f"オプティマイザーを最初から始める({EXPERIMENT})"),
    ("trains by {path}: a new convergence experiment", f"{{path}} で学習する({EXPERIMENT})"),
    ("optimizer-state precision is convergence", "オプティマイザー状態の精度は収束条件"),
    ("the sequence length is convergence", "シーケンス長は収束条件"),
    ("packs as long as dataset.seq_length", "パックの長さは dataset.seq_length と同じ"),
    ("rows are padded, not packed", "行をパックせずにパディングする"),
    ("packs are convergence", "パックの作り方は収束条件"),
    ("continues the saved schedule", "保存済みのスケジュールを続ける"),
    ("drops the override", "オーバーライドを取り下げる"),
    ("even split", "均等な分割"),
    ("uneven split", "不均等な分割"),
    ("larger pipeline bubble", "パイプラインバブルが大きくなる"),
    ("shrinks the pipeline bubble", "パイプラインバブルが小さくなる"),
    ("more GPUs", "GPU を増やす"),
    (
        "needs another layer layout (model.pipeline_model_parallel_layout)",
        "別の層の割り当て(model.pipeline_model_parallel_layout)が必要",
    ),
    ("needs another layer layout", "別の層の割り当てが必要"),
    ("needs another split", "別の分割が必要"),
    ("needs the recipe's layout of that size", "そのサイズ用のレシピの割り当てが必要"),
    ("packs of the same length, more accumulation", "パックの長さは同じで、勾配累積が増える"),
    ("the same tokens per step in longer packs", "パックは長くなるが、1 ステップのトークン数は同じ"),
    ("starts anew", "最初から始める"),
    ("switches a correctness check off", "正確性チェックが無効になる"),
    ("the canonical count", "正規の台数"),
    ("unset it before the launch", "起動の前に環境変数を unset する"),
    ("what upstream would use", "上流が使う値"),
    ("what was probably meant", "おそらく意図していた指定"),
    ("DP={dp}", "DP={dp}"),
)

HINTS = (
    (
        "setting a capacity factor drops tokens: a new convergence experiment",
        f"容量係数を指定するとトークンが破棄される({EXPERIMENT})",
    ),
    (
        "lower train.global_batch_size to the number of samples, or give more data",
        "train.global_batch_size をサンプル数まで下げるか、データを増やす",
    ),
    (
        "keep the data-parallel size, or drop the loader state (new data order: a new convergence experiment)",
        f"データ並列サイズを変えないか、ローダーの状態を破棄する(データの順序が変わるため{EXPERIMENT})",
    ),
    (
        "use checkpoint.pretrained_checkpoint=PATH and checkpoint.load=null",
        "checkpoint.pretrained_checkpoint=PATH と checkpoint.load=null を指定する",
    ),
    (
        "write run_config.yaml from the checkpoint's common.pt and the exact Hugging Face reference",
        "チェックポイントの common.pt と、対応する Hugging Face モデルから run_config.yaml を作成する",
    ),
    (
        "point checkpoint.load at the folder that holds latest_checkpointed_iteration.txt or iter_*",
        "checkpoint.load には、latest_checkpointed_iteration.txt か iter_* があるフォルダーを指定する",
    ),
    (
        "set checkpoint.pretrained_checkpoint=DIR to a Megatron or Hugging Face checkpoint",
        "checkpoint.pretrained_checkpoint=DIR に Megatron か Hugging Face のチェックポイントを指定する",
    ),
    (
        "set model.cuda_graph_impl=transformer_engine to capture them",
        "キャプチャするには model.cuda_graph_impl=transformer_engine を指定する",
    ),
    ("unset CUDA_DEVICE_MAX_CONNECTIONS before the launch", "起動の前に CUDA_DEVICE_MAX_CONNECTIONS を unset する"),
    ("megatron_fsdp_version=1 supports these", "megatron_fsdp_version=1 なら使える"),
    ("--mode pretrain, sft or peft", "--mode に pretrain、sft、peft のいずれかを指定する"),
    ("use --engine core to run on the CPU", "CPU で実行するには --engine core を使う"),
    ("measure both", "両方を測って比べる"),
    (
        "pin dataset.offline_packing_specs.pad_seq_to_mult to a common multiple of the layouts compared",
        "比較する構成の公倍数に dataset.offline_packing_specs.pad_seq_to_mult を固定する",
    ),
    ("use train.train_iters or train.train_samples", "train.train_iters か train.train_samples を使う"),
    ("lower optimizer.min_lr with optimizer.lr", "optimizer.lr と一緒に optimizer.min_lr も下げる"),
    (
        "raise max_position_embeddings with the sequence, and decide on rope scaling (convergence)",
        "シーケンス長と一緒に max_position_embeddings も増やし、RoPE スケーリングを決める(収束条件が変わる)",
    ),
    (
        "set dataset.random_seed too, or leave the order alone on purpose",
        "dataset.random_seed も指定するか、データの順序を意図的にそのままにする",
    ),
    ("use {name} in {near}, or another DP", "{name} を {near} のいずれかにするか、DP を変える"),
    ("use tp in {legal}, or Megatron-Core {core} and newer", "TP を {legal} のいずれかにするか、Megatron-Core {core} 以降を使う"),
    ("use {axis} in {legal}", "{axis} を {legal} のいずれかにする"),
    (
        "keep num_microbatches a multiple of {size}: dp <= {dp}",
        "マイクロバッチ数(num_microbatches)を {size} の倍数に保つ。DP <= {dp}",
    ),
    ("use a multiple of {size} microbatches", "マイクロバッチ数を {size} の倍数にする"),
    ("give {batch} to keep the batch", "バッチを保つには {batch} を指定する"),
    ("use {gpus} GPUs", "GPU を {gpus} 台使う"),
    (
        "start with --nproc_per_node={world} (world size comes from WORLD_SIZE, not from the device count)",
        "--nproc_per_node={world} で起動する(ワールドサイズはデバイス数ではなく WORLD_SIZE で決まる)",
    ),
    ("--dataset {preset}", "--dataset {preset} を指定する"),
    ("use the recipe's {task} variant", "このモデルの {task} 用レシピを使う"),
    ("use a configurable *_peft_config library recipe", "設定可能なライブラリレシピ *_peft_config を使う"),
    (
        "use a library recipe, or scripts/performance/setup_experiment.py",
        "ライブラリレシピか scripts/performance/setup_experiment.py を使う",
    ),
    ("export {name} and pass --env {name}", "{name} をエクスポートし、--env {name} を渡す"),
    (
        "inspect the resolved configuration: `{command}`",
        "解決後の構成を確認する: `{command}`",
    ),
    ("give model.pipeline_model_parallel_layout yourself", "model.pipeline_model_parallel_layout を自分で指定する"),
    ("put the setting on comm_overlap", "comm_overlap 側で指定する"),
    ("use a multiple of {gpus} GPUs, or shrink an axis", "GPU を {gpus} 台の倍数にするか、並列軸のどれかを小さくする"),
    (
        "dense and expert grids lie over the same ranks: lower EP first, then PP",
        "密結合メッシュとエキスパートメッシュは同じランクに重なる。まず EP を、次に PP を下げる",
    ),
    (
        "clear both edge counts when PP becomes {pp}",
        "PP が {pp} になるときは、両端ステージの層数指定を両方消す",
    ),
    ("choose edges that leave whole middle stages", "中間ステージに均等な層数が残るように、両端の層数を選ぶ"),
    (
        "state the layers of the first and the last stage, or a layout",
        "最初と最後のステージの層数か、割り当て全体を指定する",
    ),
    ("more microbatches or virtual stages shrink the bubble", "マイクロバッチか仮想ステージを増やすとバブルが小さくなる"),
    ("on out-of-memory raise EP, not TP", "メモリー不足なら TP ではなく EP を増やす"),
    ("needs more GPUs for context parallelism", "コンテキスト並列には GPU を増やす必要がある"),
    ("use pipeline or context parallelism across nodes", "ノード間ではパイプライン並列かコンテキスト並列を使う"),
    (
        "use the library recipe of the same size for training",
        "学習には同じサイズのライブラリレシピを使う",
    ),
    (
        "resume at the saved layout, or drop the optimizer; save with {setting} next time",
        "保存時と同じ構成で再開するか、オプティマイザーを破棄する。次回は {setting} で保存する",
    ),
    ("rm -rf {path}, or set checkpoint.load=null", "rm -rf {path} を実行するか、checkpoint.load=null を指定する"),
    ("rm -rf {path}, or set another checkpoint.save", "rm -rf {path} を実行するか、別の checkpoint.save を指定する"),
    (
        "shorten {warmup} and set {decay} with {length}",
        "{length} と一緒に、{warmup} を短くし、{decay} も指定する",
    ),
    ("set the field on a mixed_precision object: {setting}", "mixed_precision オブジェクト側で指定する: {setting}"),
    (
        "give the ranks inside a node, then the rest: {setting}",
        "ノード内のランク数、残りの順に指定する: {setting}",
    ),
    ("give the ranks inside a node, then the rest: ", "ノード内のランク数、残りの順に指定する"),
    (
        "give them (KEY=VALUE, --gpus, --env NAME=VALUE, --package NAME=RELEASE), or use --here on the machine that runs it",
        "値を渡す(KEY=VALUE、--gpus、--env NAME=VALUE、--package NAME=RELEASE)か、実行するマシン上で --here を使う",
    ),
    ("use {option}", "{option} を使う"),
    ("model.context_parallel_size={cp}", "model.context_parallel_size={cp} を指定する"),
    *REMEDIES,
)
