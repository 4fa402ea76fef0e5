import json

from autorecipe.cli.main import execute


def test_bare_command_helps(capsys):
    assert execute([]) == 0
    assert "Usage: autorecipe" in capsys.readouterr().out


def test_unknown_command_is_usage_error(capsys):
    assert execute(["no-such-command"]) == 2
    assert "unknown command 'no-such-command'" in capsys.readouterr().err


def test_errors_are_json_when_asked(capsys):
    assert execute(["no-such-command", "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["errors"][0]["code"] == "usage"
