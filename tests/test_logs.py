"""What `verbose` says goes to the log where there is one, and is printed elsewhere."""

import logging

import pytest

from sktifa.logs import say


@pytest.fixture
def quiet():
    """Without pytest's own handlers, as a user's process begins."""
    root = logging.getLogger()
    handlers, root.handlers[:] = root.handlers[:], []
    yield
    root.handlers[:] = handlers


def test_it_is_printed_where_nobody_logs(quiet, capsys):
    say("epoch 10")
    assert capsys.readouterr().out == "epoch 10\n"


def test_it_is_logged_where_somebody_does(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="sktifa"):
        say("epoch 10")
    assert caplog.messages == ["epoch 10"]
    assert capsys.readouterr().out == ""
