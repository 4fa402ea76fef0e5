"""Findings of the rules in Japanese: the rules that upstream's own recipes break, whose findings answers print.

A finding keeps its numbers, paths and values; a rule that is not listed keeps its English sentence (`say_finding` gives None). Data,
and the few words of conditions. Start at `say_finding`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from autorecipe.schema.finding import Finding

TITLES: Mapping[str, str] = {
    "CUD027": "マルチモーダルモデルの CUDA グラフには Transformer Engine の乱数トラッカーが必要",
    "DAT010": "インデックスをキャッシュから読むには、そのフォルダーの指定が必要",
    "MOE005": "エキスパートが多い場合は、ルーターをより高い精度で計算することが望ましい",
    "MOE025": "ディスパッチャーの SM 数を指定する古い 2 つの項目は一致させるか、新しい項目に置き換える必要がある",
    "PAR009": "TP > 1 で MoE モデルを学習するにはシーケンス並列が必要",
    "PCK002": "バッチ内パッキングには、つなげる行が複数必要",
    "PIT011": "TP はシーケンス並列と一緒に使う",
    "REC033": "この再計算モジュールには、このリリースに対応するコアより新しいコアが必要(分かっている範囲)",
    "SCH015": "最小学習率は最大学習率を超えてはならず、負にもできない",
}
"""What must hold, for rules that state a need."""

SENTENCES: Mapping[str, tuple[str, str]] = {
    "BAT001": (
        r"global_batch_size=(?P<gbs>\d+) is not a multiple of micro_batch_size=(?P<mbs>\d+) x DP=(?P<dp>\d+) = (?P<step>\d+)",
        "global_batch_size={gbs} は micro_batch_size={mbs} x DP={dp} = {step} の倍数ではない",
    ),
    "PIP001": (
        r"num_layers=(?P<layers>\d+) do not split evenly over PP=(?P<pp>\d+): (?P<sum>.*)",
        "num_layers={layers} は PP={pp} に均等に分割できない: {sum}",
    ),
    "PIP003": (
        r"the pipeline layout is not legal: (?P<stages>\d+) stages over PP=(?P<pp>\d+) give VP=(?P<vp>\d+), but VP=(?P<given>\d+) is set",
        "パイプラインの割り当てが正しくない: ステージ {stages} 個を PP={pp} に置くと VP={vp} になるが、VP={given} が指定されている",
    ),
    "PIT002": (
        r"PP=(?P<pp>\d+) without virtual stages and (?P<count>\d+) microbatches has a bubble of (?P<bubble>[\d.]+%) of the compute time"
        r"(?:; VP=(?P<vp>\d+) makes it (?P<less>[\d.]+%))?",
        "仮想ステージのない PP={pp} とマイクロバッチ {count} 個では、バブルが計算時間の {bubble} になる",
    ),
    "PIT003": (
        r"EP=(?P<ep>\d+) leaves (?P<each>\d+) of (?P<all>\d+) experts on each rank",
        "EP={ep} では、エキスパート {all} 個のうち {each} 個が各ランクに残る",
    ),
    "PIT004": (
        r"a sequence of (?P<tokens>\d+) tokens without context parallelism",
        "コンテキスト並列なしで {tokens} トークンのシーケンスを扱う",
    ),
    "SCH002": (
        r"warmup of (?P<warmup>\d+) iters does not end before decay after (?P<decay>\d+) iters: .*",
        "ウォームアップ {warmup} 反復が、減衰の終わる {decay} 反復までに終わらない。Bridge はそこで打ち切り、学習率は減衰しない",
    ),
}
"""Pattern of the English sentence, and the Japanese one."""

WORDS = (
    (r"(\S+) unset\b", r"\1 を指定しない"),
    (r"(\S+) set\b", r"\1 の指定"),
    (r"(\S+) off\b", r"\1=false"),
    (r" within ", " は次の範囲: "),
    (r" is one of ", " は次のいずれか: "),
    (r" and ", " かつ "),
    (r" or ", " または "),
)
"""Words of conditions."""


def say_finding(finding: Finding) -> str | None:
    """Return the Japanese sentence of a finding, or None for a rule that has none."""
    title = TITLES.get(finding.rule)
    if title is not None:
        needs = re.fullmatch(r"[^:]*: needs (?P<needs>.*?)(?:, but (?P<values>.*))?", finding.message)
        return None if needs is None else _say_need(title, needs["needs"], needs["values"] or "")
    pattern, sentence = SENTENCES.get(finding.rule, ("", ""))
    match = re.fullmatch(pattern, finding.message) if pattern else None
    if match is None:
        return None
    more = f"。VP={match['vp']} なら {match['less']}" if finding.rule == "PIT002" and match["vp"] else ""
    return sentence.format(**match.groupdict()) + more


def _say_need(title: str, needs: str, values: str) -> str:
    for pattern, words in WORDS:
        needs = re.sub(pattern, words, needs)
    return f"{title}。必要な条件: {needs}" + (f"(現在は {values})" if values else "")
