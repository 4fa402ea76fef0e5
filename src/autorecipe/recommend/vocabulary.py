"""Words of a question, English and Japanese, as patterns. Data for `question`; no logic."""

from __future__ import annotations

from autorecipe.record import dataclass
from autorecipe.schema.recipe import Mode
from autorecipe.schema.recommendation import Topic


@dataclass(frozen=True)
class Wording:
    """A pattern, compiled only for a text that holds one of some words: compiling all would take longer than the rest of reading.

    Attributes:
        pattern: regular expression over folded text.
        words: space-separated; one of these is in every text that the pattern matches (a test draws such texts).
    """

    pattern: str
    words: str

    def may_match(self, text: str) -> bool:
        """Return whether the pattern is worth compiling for a text."""
        return any(word in text for word in self.words.split())


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

OTHER_GPUS = Wording(
    r"(?<![a-z0-9])(?:v100|p100|t4|a10g?|a30|a40|a6000|l4|l40s?|rtx[ -]?\d{4}(?:[ -]?ti)?|[345]0[6-9]0|mi[123]\d{2}x?|tpu\w*|"
    r"gaudi\d?)s?(?![a-z0-9])",
    "v100 p100 t4 a10 a30 a40 a6000 l4 rtx 060 070 080 090 mi1 mi2 mi3 tpu gaudi",
)
"""Accelerators that people name and that are not in the GPU table: answered by name rather than overlooked."""

GOALS: tuple[tuple[Mode, Wording], ...] = (
    (
        Mode.PEFT,
        Wording(
            r"(?<![a-z])(?:q?lora|q?dora|peft|adapters?|parameter[- ]efficient(?:[- ]fine[- ]?tun\w+)?)(?![a-z])|アダプター?",
            "lora dora peft adapter parameter アダプタ",
        ),
    ),
    (
        Mode.SFT,
        Wording(
            r"(?<![a-z])(?:sft|(?:full[- ])?fine[- ]?tun(?:e|es|ed|ing)|(?:instruction|supervised)[- ](?:fine[- ]?)?tun(?:e|ing)|"
            r"instruct[- ]?tun(?:e|ing)|post[- ]?train(?:ing)?)(?![a-z])|"
            r"ファインチュー?ニング|ファインチューン|微調整|教師あり|指示チューニング|インストラクションチューニング|事後学習",
            "sft tun post ファイン 微調整 教師あり チューニング 事後学習",
        ),
    ),
    (
        Mode.PRETRAIN,
        Wording(
            r"(?<![a-z])(?:(?:continued?|continual)[- ])?pre[- ]?train(?:ed|ing)?(?![a-z])|from scratch|(?<![a-z])cpt(?![a-z])|"
            r"(?:継続|追加)?事前学習|継続学習|プレトレーニング|プリトレーニング|スクラッチ(?:から|で)",
            "train scratch cpt 事前学習 継続学習 プレトレーニング プリトレーニング スクラッチ",
        ),
    ),
)

FURTHER_TRAINING = Wording(r"追加学習|再学習", "追加学習 再学習")
"""Says SFT only where no other goal is named: people also call continued pretraining and LoRA so."""

ADAPTERS = {
    "dora": Wording(r"(?<![a-z])q?dora(?![a-z])", "dora"),
    "lora": Wording(r"(?<![a-z])q?lora(?![a-z])", "lora"),
}

BENCHMARK = Wording(
    r"(?<![a-z])(?:bench(?:mark(?:s|ing)?)?|throughput|tflops?|mfu|tokens? (?:per|/) ?s(?:ec(?:ond)?)?|speed[- ]?test|"
    r"peak performance)"
    r"(?![a-z])|ベンチマーク|ベンチを|スループット|(?:性能|速度)(?:を|の)?(?:測定|計測|測り|測る)",
    "bench throughput tflop mfu token speed peak ベンチ スループット 性能 速度",
)
FIRST_RUN = Wording(
    r"first[- ](?:time|run|try|try-?out|smoke)|try-?out|getting started|get started|smoke[- ]?test|hello[- ]?world|"
    r"new to (?:megatron|bridge)|"
    r"初めて|はじめて|初回|お試し|スモークテスト|動作確認|入門",
    "first try started smoke hello new 初 はじめ お試し スモーク 動作確認 入門",
)
CORRELATION = Wording(
    r"correlat\w+|loss parity|same loss|compare .{0,30}megatron-?lm|相関|(?:損失|loss)(?:が|の|を)?(?:比較|一致|同じ|揃)|"
    r"megatron-?lm ?(?:と|との|と比べ).{0,20}(?:比較|比べ|一致)",
    "correlat loss compare 相関 損失 megatron",
)
PRECISION = Wording(r"(?<![a-z0-9])(?P<name>bf16|fp8[-_ ]?(?:mx|cs|sc|ds)|mxfp8|nvfp4|fp4|fp8)(?![a-z0-9])", "bf16 fp8 fp4")
MOCK_DATA = Wording(
    r"(?:synthetic|dummy|fake|random) data|モックデータ|モック|ダミーデータ", "synthetic dummy fake random モック ダミー"
)

NEGATION = Wording(
    r"(?:(?<![a-z])(?:not|no|never|without|instead of|rather than|don't|isn't)(?: (?:a|an|the|for|do|want))*\s*$)",
    "not no never without instead rather don't isn't",
)
NEGATION_AFTER = Wording(r"^\s*(?:ではなく|でなく|じゃなく|なしで|はしない|は不要|不要)", "なく なし しない 不要")

TOPICS: tuple[tuple[Topic, Wording], ...] = (
    (
        Topic.SMALL_MOE,
        Wording(r"(?:small|medium|little|tiny)(?:[- ]sized?)? moe|(?:小規模|小さ[いな]|中規模)な? ?(?:の)?moe", "moe"),
    ),
    (Topic.LARGE_MOE, Wording(r"(?:large|big|huge|giant)(?:[- ]scale)? moe|(?:大規模|大き[いな]|巨大)な? ?(?:の)?moe", "moe")),
    (
        Topic.VLM,
        Wording(
            r"(?<![a-z])vlms?(?![a-z])|vision[- ]language|multi-?modal|image[- ]text|視覚言語|マルチモーダル|画像",
            "vlm vision modal image 視覚言語 マルチモーダル 画像",
        ),
    ),
    (
        Topic.DIFFUSION,
        Wording(
            r"diffusion|(?:text|image)[- ]to[- ](?:video|image)|video generation|image generation|拡散|動画生成|画像生成",
            "diffusion video image 拡散 動画 画像",
        ),
    ),
    (
        Topic.LONG_CONTEXT,
        Wording(
            r"long[- ]?(?:context|sequence)|長い?コンテキスト|長文|ロングコンテキスト|長い(?:系列|シーケンス)", "long 長 ロング"
        ),
    ),
    (Topic.SMALL_MOE, Wording(r"(?<![a-z])moe(?![a-z])|mixture[- ]of[- ]experts|混合エキスパート", "moe experts エキスパート")),
    (Topic.DENSE, Wording(r"(?<![a-z])dense(?![a-z])|密結合|密な", "dense 密")),
)
"""Checked in this order: the first that matches is the topic."""

SEQUENCE_UNITS = r"(?:tokens?|context|ctx|seq(?:uence)?(?:[- ]?len(?:gth)?)?|window|トークン|コンテキスト|系列|シーケンス|文脈)"
SEQUENCE_WORDS = "token context ctx seq window トークン コンテキスト 系列 シーケンス 文脈"
"""One of these is in every text that `SEQUENCE_UNITS` matches."""

NOT_A_SEQUENCE = r"\s*(?:steps?|iters?|iterations?|samples?|examples?|rows?|documents?|gpus?|hours?|ステップ|サンプル|件|ドル|円)"

_FILLERS = """
i we you my our your want wanted would like need to how can could should do does please help me us with on using use for the
a an of in at and or it is are have has got only just some real really what which recipe recipes recommend train training
trained run running model models llm llms gpu gpus node nodes data dataset datasets over across from by as fast best good
full large small dense moe context long length sequence token tokens single machine cluster then goal size type mode start
starting try first time bridge megatron framework
"""
FILLERS = frozenset(_FILLERS.split())
"""Words that are no part of a model's name."""
