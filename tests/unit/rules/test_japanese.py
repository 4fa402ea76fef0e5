"""Every rule in Japanese: nothing missing, the same facts as in English, no sentence left in English."""

import ast
import importlib
import itertools
import re
from pathlib import Path

import pytest

import autorecipe.config
import autorecipe.rules.families
from autorecipe import phrases
from autorecipe.config.traps import _BY_ID
from autorecipe.rules.check import judge
from autorecipe.rules.derived import AXIS_PATHS
from autorecipe.rules.expression import Expression
from autorecipe.rules.japanese.conditions import say_condition
from autorecipe.rules.japanese.findings import STAGES, say_finding, say_hint, say_message, say_title
from autorecipe.rules.japanese.notes import NOTES, say_resolution_note
from autorecipe.rules.japanese.reasons import REASONS
from autorecipe.rules.pages import example_situation
from autorecipe.rules.registry import FAMILIES, all_rules
from autorecipe.rules.wording import render_condition
from autorecipe.schema.finding import Stage

RULES = {rule.id: rule for rule in all_rules()}
TOPICS = (*FAMILIES, "GEN")
ENGLISH = re.compile(r"(?<![\w./=<>:,'\[-])[a-z]{2,} [a-z]{2,}(?![\w.=])")
NAMES = re.compile(
    "fully parallel save|delayed scaling|"
    "op fuser|expandable segments|precision-aware optimizer|compute capability|rm -rf|autorecipe config"
)
"""Terms that Japanese engineers write in English, and commands."""


def topic(name):
    return importlib.import_module(f"autorecipe.rules.japanese.{name.lower()}")


def is_japanese(text):
    return re.search("[\u3040-\u9fff]", text) is not None


def facts(text):
    """Numbers, identifiers and assignments; formulas keep their order, sentences may not."""
    text = text.replace("、", " ").replace("。", " ")
    return sorted(re.findall(r"\d+(?:\.\d+)?|[A-Za-z]\w*[_.][\w.]*\w|[A-Z][A-Z0-9]+(?![A-Za-z0-9])", text))


def leftover(text):
    """English words in a row that are no term, after the quoted values."""
    return ENGLISH.search(NAMES.sub("", re.sub(r"'[^']*'|`[^`]*`", "", text)))


def test_every_rule_has_a_japanese_sentence_and_every_sentence_a_rule():
    for name in TOPICS:
        ids = {rule for rule in RULES if rule.startswith(name)} if name != "GEN" else {"GEN001"}
        assert set(topic(name).TITLES) == ids
    assert set(STAGES) == set(Stage)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sentence_names_the_same_things(name):
    for rule, title in topic(name).TITLES.items():
        assert is_japanese(title), rule
        assert leftover(title) is None, rule
        english = facts(RULES[rule].title)
        assert [fact for fact in english if facts(title).count(fact) < english.count(fact)] == [], rule


@pytest.mark.parametrize("name", FAMILIES)
def test_the_example_of_a_rule_is_said_with_its_facts(name):
    for rule in (rule for key, rule in RULES.items() if key.startswith(name)):
        found = [item for item in judge(example_situation(rule), rules=(rule,), verify=False) if item.rule == rule.id]
        assert found, rule.id
        for finding in found:
            said = say_finding(finding)
            assert "原文" not in said.message, (rule.id, finding.message)
            english = set(re.findall(r"\d+(?:\.\d+)?|[\w.]+=[^\s,;:)]+", finding.message.removeprefix(rule.title)))
            assert {fact for fact in english if fact not in said.message} == set(), said.message
            assert said.paths == finding.paths
            assert [fix.overrides for fix in said.fixes] == [fix.overrides for fix in finding.fixes]
            for text in (said.message, said.hint, *(fix.note for fix in said.fixes)):
                assert leftover(text) is None, text
                assert not text.startswith("「") or text.count("「") > 1, text


def test_every_condition_has_the_same_facts():
    for rule in RULES.values():
        for text in getattr(rule, "predicates", ())[1:]:
            node = Expression(text).node
            said = say_condition(node)
            assert leftover(said) is None, said
            assert set(re.findall(r"\w+", render_condition(node))) - WORDS <= set(re.findall(r"\w+", said)), said


WORDS = {"off", "set", "unset", "is", "one", "of", "none", "and", "or", "not", "no", "in", "both", "within", "length", "empty"}
WORDS |= {"given", "what", "lies", "at", "isnumber"}


def templates(folder, *, calls, keyword):
    """Yield every text that a keyword of some calls may have; what is computed is a 7."""
    for path in sorted(Path(folder).glob("*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            names = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    names.setdefault(node.targets[0].id, []).extend(texts(node.value, names))
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    known = names.setdefault(node.target.id, [])
                    known += [left + right for left in known for right in texts(node.value, names)]
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in calls:
                    for item in node.keywords:
                        if item.arg == keyword:
                            yield from ((path.name, text) for text in texts(item.value, names))


def texts(node, names):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        parts = [texts(value, names) for value in node.values]
        return ["".join(chosen) for chosen in itertools.product(*parts)]
    if isinstance(node, ast.FormattedValue):
        return texts(node.value, names)
    if isinstance(node, ast.IfExp):
        return [*texts(node.body, names), *texts(node.orelse, names)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in texts(node.left, names) for right in texts(node.right, names)]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "AXIS_PATHS":
        return [AXIS_PATHS[ast.literal_eval(node.slice)]]
    return names.get(node.id) or ["7"] if isinstance(node, ast.Name) else ["7"]


FAMILY = Path(autorecipe.rules.families.__file__).parent
CONFIG = Path(autorecipe.config.__file__).parent


def test_every_template_of_a_message_is_known():
    known = [pair for name in FAMILIES for pair in getattr(topic(name), "MESSAGES", ())]
    seen = 0
    for path, text in templates(FAMILY, calls={"Breach"}, keyword="message"):
        seen += 1
        assert phrases.say(text, known) is not None, (path, text)
    assert seen > 50


@pytest.mark.parametrize(("keyword", "say"), [("hint", 0), ("note", 1)])
def test_every_hint_and_note_is_known(keyword, say):
    from autorecipe.rules.japanese.hints import HINTS, NOTES

    calls = {"Breach", "Fix", "requires", "adjusts", "Finding"}
    found = {text for _, text in templates(FAMILY, calls=calls, keyword=keyword)} - {"", "7"}
    assert len(found) > 15
    assert [text for text in sorted(found) if phrases.say(text, (HINTS, NOTES)[say]) is None] == []
    for rule in RULES.values():
        for text in {getattr(rule, f"_{keyword}", "")} - {""}:
            assert phrases.say(text, (HINTS, NOTES)[say]) is not None, text


def test_every_reason_of_a_resolution_is_known():
    calls = {"replace", "overrule", "respell", "Origin"}
    found = {text for _, text in templates(CONFIG, calls=calls, keyword="detail")} - {"", "7"}
    assert len(found) > 30
    assert [text for text in sorted(found) if phrases.say(text, REASONS, REASONS) is None] == []


def test_every_remedy_is_known():
    found = {text for _, text in templates(CONFIG, calls={"note", "overrule"}, keyword="remedy")} - {"", "7"}
    found |= {trap.remedy for trap in _BY_ID.values()}
    assert [text for text in sorted(found) if say_hint(text).startswith("「")] == []


def test_every_note_of_a_resolution_is_known():
    found = set()
    for path in sorted(CONFIG.glob("*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            names = {
                node.targets[0].id: texts(node.value, {})
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "note" and len(node.args) == 2:
                    found.update(texts(node.args[1], names))
    assert len(found) > 10
    assert [text for text in sorted(found) if phrases.say(text, NOTES) is None] == []


def test_a_message_that_no_template_knows_is_quoted_whole():
    assert say_message("PIT004", "worded otherwise: 7") == f"{say_title('PIT004')}。原文: 「worded otherwise: 7」"
    assert say_message("PAR009", "worded otherwise: 7") == f"{say_title('PAR009')}。原文: 「worded otherwise: 7」"


@pytest.mark.parametrize(
    ("rule", "message", "japanese"),
    [
        (
            "MOE005",
            "many experts want a router in higher precision: needs moe_router_dtype set, but model.moe_router_dtype=null",
            "エキスパートが多い場合は、ルーターをより高い精度で計算することが望ましい。"
            "必要な条件: moe_router_dtype が指定されている(現在は model.moe_router_dtype=null)",
        ),
        (
            "FSD012",
            "Megatron FSDP version 2 takes a narrow configuration: needs TP == 1, but model.tensor_model_parallel_size=2; needs "
            "FP8 unset and FP4 unset, but model.fp8=hybrid, model.fp4=e2m1",
            "Megatron FSDP バージョン 2 で使える構成は限られる。必要な条件: TP == 1; FP8 が未指定、かつ FP4 が未指定"
            "(現在は model.tensor_model_parallel_size=2, model.fp8=hybrid, model.fp4=e2m1)",
        ),
        (
            "PIP003",
            "the pipeline layout is not legal: 16 stages over PP=4 give VP=4, but VP=2 is set; loss must come last, once",
            "パイプラインの割り当てが正しくない: 16 ステージを PP=4 に置くと VP=4 になるが、VP=2 が指定されている; "
            "loss は末尾に 1 つだけ必要",
        ),
        (
            "SCH002",
            "warmup of 512 iters does not end before decay after 50 iters: Bridge caps it there, and the rate never decays",
            "ウォームアップ(512 反復)が、減衰の終わり(50 反復)までに終わらない。Bridge はそこで打ち切り、学習率は減衰しない",
        ),
        (
            "ORD001",
            "model.seq_length=32768 does not act: upstream uses model.seq_length=8192 "
            "(dataset.seq_length=8192 owns the sequence and is copied over it)",
            "model.seq_length=32768 は効かない。上流では model.seq_length=8192 になる"
            "(シーケンス長は dataset.seq_length=8192 が決め、その値がコピーされる)",
        ),
        (
            "GEN001",
            "2 rules apply and could not be checked, because these are not known: env.NCCL_ALGO (PRC031, PRC033); "
            "what lies at /x (CKP003)",
            "次の値が分からないため、適用される 2 個の規則を検査できなかった: env.NCCL_ALGO(PRC031, PRC033); "
            "/x にあるもの(CKP003)",
        ),
    ],
)
def test_messages_are_said_whole(rule, message, japanese):
    assert say_message(rule, message) == japanese


def test_a_note_is_said_whole_or_stays_whole():
    note = "TRAP-SEED: rng.seed=42 does not move dataset.random_seed=1234: the data order stays; set dataset.random_seed too"
    said = (
        "TRAP-SEED: rng.seed=42 では dataset.random_seed=1234 は変わらず、データの順序はそのまま。dataset.random_seed も指定する"
    )
    assert say_resolution_note(note) == said
    assert (
        say_resolution_note("TRAP-SEED: worded otherwise; set both to false") == "TRAP-SEED: worded otherwise; set both to false"
    )
