"""Words of a question, English and Japanese, as patterns. Data for `question`; no logic."""

from __future__ import annotations

from autorecipe.schema.recipe import Mode
from autorecipe.schema.recommendation import Topic

NUMBER_WORDS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "single": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "twelve": 12,
    "sixteen": 16,
    "twenty": 20,
    "twenty-four": 24,
    "thirty-two": 32,
    "forty-eight": 48,
    "sixty-four": 64,
    "hundred": 100,
    "一": 1,
    "二": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "六": 6,
    "七": 7,
    "八": 8,
    "九": 9,
    "十": 10,
    "十六": 16,
    "三十二": 32,
    "六十四": 64,
}

OTHER_GPUS = r"v100|p100|t4|a10g?|a30|a40|a6000|l4|l40s?|rtx[ -]?\d{4}(?:[ -]?ti)?|[345]0[6-9]0|mi\d{3}x?|tpu\w*|gaudi\d?"
"""Accelerators that people name and that are not in the GPU table: answered by name rather than overlooked."""

GOAL_PATTERNS: tuple[tuple[Mode, str], ...] = (
    (
        Mode.PEFT,
        r"(?<![a-z])(?:q?lora|q?dora|peft|adapters?|parameter[- ]efficient(?:[- ]fine[- ]?tun\w+)?)(?![a-z])|アダプター?",
    ),
    (
        Mode.SFT,
        r"(?<![a-z])(?:sft|(?:full[- ])?fine[- ]?tun(?:e|es|ed|ing)|(?:instruction|supervised)[- ](?:fine[- ]?)?tun(?:e|ing)|"
        r"instruct[- ]?tun(?:e|ing)|post[- ]?train(?:ing)?)(?![a-z])|"
        r"ファインチュー?ニング|ファインチューン|微調整|教師あり|指示チューニング|インストラクションチューニング|事後学習",
    ),
    (
        Mode.PRETRAIN,
        r"(?<![a-z])(?:(?:continued?|continual)[- ])?pre[- ]?train(?:ed|ing)?(?![a-z])|from scratch|(?<![a-z])cpt(?![a-z])|"
        r"事前学習|プレトレーニング|プリトレーニング|スクラッチ(?:から|で)",
    ),
)

BENCHMARK_PATTERN = (
    r"(?<![a-z])(?:bench(?:mark(?:s|ing)?)?|throughput|tflops?|mfu|tokens? (?:per|/) ?s(?:ec(?:ond)?)?|speed[- ]?test|"
    r"peak performance)"
    r"(?![a-z])|ベンチマーク|スループット|性能測定"
)
FIRST_RUN_PATTERN = (
    r"first[- ](?:time|run|try|try-?out|smoke)|try-?out|getting started|get started|smoke[- ]?test|hello[- ]?world|"
    r"new to (?:megatron|bridge)|"
    r"初めて|はじめて|初回|お試し|スモークテスト|動作確認|入門"
)
FIRST_RUN_WORDS = (
    "first try started smoke hello new 初 はじめ お試し スモーク 動作確認 入門".split()  # noqa: SIM905
)
"""One of these is in every text that `FIRST_RUN_PATTERN` matches."""

CORRELATION_PATTERN = r"correlat\w+|loss parity|same loss|compare .{0,30}megatron-?lm|相関|損失を?比較"

NEGATION = r"(?:(?<![a-z])(?:not|no|never|without|instead of|rather than|don't|isn't)(?: (?:a|an|the|for|do|want))*\s*$)"
NEGATION_AFTER = r"^\s*(?:ではなく|でなく|じゃなく|なしで|はしない|は不要|不要)"

TOPIC_PATTERNS: tuple[tuple[Topic, str], ...] = (
    (Topic.SMALL_MOE, r"(?:small|medium|little|tiny)(?:[- ]sized?)? moe|(?:小規模|小さ[いな]|中規模)な? ?(?:の)?moe"),
    (Topic.LARGE_MOE, r"(?:large|big|huge|giant)(?:[- ]scale)? moe|(?:大規模|大き[いな]|巨大)な? ?(?:の)?moe"),
    (Topic.VLM, r"(?<![a-z])vlms?(?![a-z])|vision[- ]language|multi-?modal|image[- ]text|視覚言語|マルチモーダル|画像"),
    (
        Topic.DIFFUSION,
        r"diffusion|(?:text|image)[- ]to[- ](?:video|image)|video generation|image generation|拡散|動画生成|画像生成",
    ),
    (Topic.LONG_CONTEXT, r"long[- ]?(?:context|sequence)|長い?コンテキスト|長文|ロングコンテキスト|長い(?:系列|シーケンス)"),
    (Topic.SMALL_MOE, r"(?<![a-z])moe(?![a-z])|mixture[- ]of[- ]experts|混合エキスパート"),
    (Topic.DENSE, r"(?<![a-z])dense(?![a-z])|密結合|密な"),
)
"""Checked in this order: the first that matches is the topic."""

SEQUENCE_UNITS = r"(?:tokens?|context|ctx|seq(?:uence)?(?:[- ]?len(?:gth)?)?|window|トークン|コンテキスト|系列|シーケンス|文脈)"
SEQUENCE_WORDS = ("token", "context", "ctx", "seq", "window", "トークン", "コンテキスト", "系列", "シーケンス", "文脈")
"""One of these is in every text that `SEQUENCE_UNITS` matches."""

NOT_A_SEQUENCE = r"\s*(?:steps?|iters?|iterations?|samples?|examples?|rows?|documents?|gpus?|hours?|ステップ|サンプル|件|ドル|円)"
