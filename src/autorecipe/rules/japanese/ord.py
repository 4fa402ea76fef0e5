"""Japanese of ORD: order of application, and why an override does not act."""

from autorecipe.rules.japanese.reasons import REASONS

TITLES = {
    "ORD001": "オーバーライドした値は、実際に効く必要がある",
    "ORD002": "キーはすべて、構成のいずれかのセクションに属する必要がある",
    "ORD003": "精度プリセットの項目は、1 つずつ上書きできない",
    "ORD004": "モデルとデータには、それぞれ別のシードがある",
    "ORD005": "エクスポート済みの環境変数は、レシピの値より優先される",
    "ORD006": "環境変数には名前があり、値はスカラーである必要がある",
}

MESSAGES = (
    (
        "{text} does not act: upstream uses {path}={acting} ({reason})",
        "{text} は効かない。上流では {path}={acting} になる({reason:say})",
    ),
    ("{text} does not act: upstream uses {path}={acting}", "{text} は効かない。上流では {path}={acting} になる"),
    ("no such section: {paths}", "このようなセクションはない: {paths}"),
    (
        "{exported} is exported; the recipe's {given} does not act",
        "{exported} がエクスポートされているため、レシピの {given} は効かない",
    ),
    ("{given} is not a scalar", "{given} はスカラーではない"),
)

PARTS = REASONS
