"""Japanese of GEN: what could not be checked."""

TITLES = {"GEN001": "適用されるが検査できなかった規則がある"}

MESSAGES = (
    (
        "{count} rules apply and could not be checked, because these are not known: {paths}",
        "次の値が分からないため、適用される {count} 個の規則を検査できなかった: {paths:each}",
    ),
)

PARTS = (
    ("what lies at {path} ({rules})", "{path} にあるもの({rules})"),
    ("{path} ({rules})", "{path}({rules})"),
)
