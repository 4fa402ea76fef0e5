import shlex
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.launch.local import assign_default
from autorecipe.launch.shell import Expression, quote_word, render_command


@given(
    st.lists(st.text(alphabet=st.characters(blacklist_characters="\x00", blacklist_categories=("Cs",)), min_size=1), min_size=1)
)
def test_a_rendered_command_reads_back_as_the_same_words(words):
    assert shlex.split(render_command(words).replace(" \\\n", " ")) == words


def test_an_option_stays_on_the_line_of_its_value():
    words = ["python", "run.py", "--recipe", "r" * 40, "--dataset", "d" * 40, "model.a=1"]
    lines = render_command(words, width=60).split(" \\\n")
    assert [line.strip() for line in lines] == [
        "python run.py",
        f"--recipe {'r' * 40}",
        f"--dataset {'d' * 40}",
        "model.a=1",
    ]


def test_short_commands_stay_on_one_line():
    assert render_command(["python", "-m", "x", "a=[1,2]"]) == "python -m x 'a=[1,2]'"


def test_expressions_are_left_to_the_shell_and_words_are_not():
    assert render_command([Expression('"$HOME"'), "$HOME"]) == "\"$HOME\" '$HOME'"
    assert quote_word("") == "''"


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=12))
def test_a_default_is_used_only_where_the_shell_has_no_value(value):
    line = f'{assign_default("X", value)}; printf %s "$X"'
    fresh = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env={})
    assert fresh.stdout == value
    taken = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env={"X": "mine"})
    assert taken.stdout == "mine"
