"""What the tests that install packages do where no package index can be asked."""

import sys

import pytest

from client_environment import blame_the_index


@pytest.fixture
def pip(tmp_path):
    """Writes a pip that ends with this status."""

    def write(status):
        path = tmp_path / "pip"
        path.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no route' if {status} else 0)\n")
        path.chmod(0o755)
        return path

    return write


@pytest.mark.parametrize("ci, outcome", [("true", pytest.fail.Exception),
                                         ("", pytest.skip.Exception)])
def test_without_an_index_tests_are_skipped_but_fail_in_ci(pip, tmp_path, monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    # Either, so that a wrong skip does not skip this test.
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception),
                       match="no package index is reachable: no route") as caught:
        blame_the_index(pip(1), tmp_path)
    assert caught.type is outcome


def test_an_index_that_is_there_is_not_blamed(pip, tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "")
    blame_the_index(pip(0), tmp_path)
