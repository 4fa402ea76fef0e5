"""Japanese of SCH: length and schedule."""

TITLES = {
    "SCH001": "学習の長さは、反復数、サンプル数、エポック数のいずれか 1 つで指定する",
    "SCH002": "ウォームアップは、減衰が終わる前に終わる必要がある",
    "SCH003": "サンプル数による学習には、正の長さと、固定の正のバッチが必要",
    "SCH004": "エポック数による学習には、正のエポック数と固定バッチが必要",
    "SCH005": "エポック数で学習するには、batch ローダーを使う有限のファインチューニング用データセットが必要",
    "SCH006": "反復数による学習は、サンプル数の指定と併用できない",
    "SCH007": "サンプル数による学習は、反復数の指定と併用できない",
    "SCH008": "スケジュールは実行の単位(サンプル数)に揃える必要がある",
    "SCH009": "スケジュールは実行の単位(反復数)に揃える必要がある",
    "SCH010": "スケジュールの反復数の項目とサンプル数の項目は混在できない",
    "SCH011": "ウォームアップの割合は、ウォームアップの回数と併用できない",
    "SCH012": "スケジュールの終点は正で、学習の終わりより前であってはならない",
    "SCH013": "未指定の減衰の長さは、学習の長さになる",
    "SCH014": "減衰の長さは正の値である必要がある",
    "SCH015": "最小学習率も開始学習率も、最大学習率を超えてはならない",
    "SCH016": "WSD(warmup-stable-decay)には、減衰の長さが必要",
    "SCH017": "重み減衰は減ってはならず、constant の場合は一定である必要がある",
    "SCH018": "スケジュールの上書きと、チェックポイントのスケジュールの採用は併用できない",
    "SCH019": "効くのはスケジューラーの重み減衰で、オプティマイザーの値ではない",
    "SCH020": "重み減衰は、一定か、開始値と終了値の両方を指定する",
    "SCH021": "重み減衰の適用除外の古い指定は、オプティマイザーのオプションになった",
}

MESSAGES = (
    ("{paths} are set; only one may be", "{paths:list} が同時に指定されている。指定できるのは 1 つだけ"),
    (
        "none of train_iters, train_samples and num_epochs is set",
        "train_iters、train_samples、num_epochs のどれも指定されていない",
    ),
    (
        "warmup of {warm} {unit} is not over after {name}={total}: the learning rate only rises",
        "{warm} {unit:say}のウォームアップが {name}={total} までに終わらない。学習率は上がり続けるだけになる",
    ),
    (
        "warmup of {warm} {unit} does not end before decay after {decay} {end}: Bridge caps it there, and the rate never decays",
        "ウォームアップ({warm} {unit:say})が、減衰の終わり({decay} {end:say})までに終わらない。Bridge はそこで打ち切り、学習率は減衰しない",
    ),
    (
        "warmup of {warm} {unit} does not end before decay after {decay} {end}: upstream stops",
        "ウォームアップ({warm} {unit:say})が、減衰の終わり({decay} {end:say})までに終わらない。上流は停止する",
    ),
)

PARTS = (
    ("iters", "反復"),
    ("samples", "サンプル"),
)
