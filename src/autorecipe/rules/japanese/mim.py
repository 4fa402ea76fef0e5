"""Japanese of MIM: multi-module grids."""

TITLES = {
    "MIM001": "モジュールグリッドは、サイズが正、TP が 2 の累乗、DP が互いに割り切れる値で、ワールド全体を隙間なく覆う必要がある",
}

MESSAGES = (("the module grids are not legal: {problems}", "モジュールグリッドが正しくない: {problems:each}"),)

PARTS = (
    ("{name} has a size below 1", "{name} に 1 未満のサイズがある"),
    ("{name}: TP={tp} is not a power of two", "{name}: TP={tp} は 2 の累乗ではない"),
    (
        "{name}: TP x CP x DP = {product} is not a multiple of ETP x EP = {expert}",
        "{name}: TP x CP x DP = {product} は ETP x EP = {expert} の倍数ではない",
    ),
    (
        "DP of {one} ({first}) and {other} ({second}) do not divide each other",
        "{one} の DP({first})と {other} の DP({second})は、どちらも他方を割り切れない",
    ),
    (
        "{name} starts at rank {start}, expected {expected}",
        "{name} はランク {start} から始まるが、{expected} から始まる必要がある",
    ),
    (
        "ranks 0 to {covered} are covered, the world has {world}",
        "覆われているのはランク 0 から {covered} までだが、ワールドは {world} ランク",
    ),
)
