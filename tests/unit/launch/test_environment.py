from autorecipe.launch.environment import merge_environment, parse_forwarded, parse_mounts, shadowed
from autorecipe.launch.training import carried_environment
from autorecipe.schema.run import RunConfig


def test_values_are_refused_in_arguments():
    names, problems = parse_forwarded(["HF_TOKEN=secret"], {"HF_TOKEN": "secret"})
    assert names == ()
    assert problems[0].code == "launch-env-value"
    assert "secret" not in problems[0].render()
    assert "--env HF_TOKEN" in problems[0].hint


def test_a_name_that_is_not_exported_is_refused():
    assert parse_forwarded(["HF_HOME"], {})[1][0].code == "launch-env-unset"


def test_names_count_once_and_keep_their_order():
    assert parse_forwarded(["B", "A", "B"], {"A": "1", "B": "2"}) == (("B", "A"), [])


def test_odd_names_are_refused():
    assert parse_forwarded(["A B"], {"A B": "1"})[1][0].code == "launch-env-name"


def test_a_mount_of_one_path_is_the_same_inside():
    assert parse_mounts(["/data", "/a:/b:ro", "/data"]) == (("/data:/data", "/a:/b:ro"), [])
    assert [problem.code for problem in parse_mounts([":/x", "/x:"])[1]] == ["launch-mount", "launch-mount"]


def test_the_recipes_variables_act_only_where_the_shell_has_none():
    config = RunConfig(values={"env_vars.A": 1, "env_vars.B": True, "env_vars.C": None, "env_vars._class": "x", "train.a": 1})
    carried = carried_environment(config)
    assert carried == {"A": "1", "B": "1"}
    assert merge_environment(carried, {"B": "0"}) == {"A": "1", "B": "0"}
    assert shadowed(carried, {"A": "1", "B": "0"}) == {"B": ("1", "0")}
