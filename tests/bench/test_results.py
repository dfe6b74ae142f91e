"""The charts of docs/PERFORMANCE.md are as the data files of bench/results have it, and what makes them finds
data that is wrong."""

import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).parent.parent.parent


def charts(tree, *arguments):
    return subprocess.run(["python3", tree / "bench/charts.py", *arguments], capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(SOURCE / "bench", tmp_path / "bench")
    shutil.copytree(SOURCE / "docs/charts", tmp_path / "docs/charts")
    return tmp_path


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_charts_and_the_list_are_as_the_data_have_it():
    done = charts(SOURCE, "--check")
    assert done.returncode == 0, done.stderr


def test_a_number_that_changes_changes_the_chart(tree):
    change(tree / "bench/results/2026-11-25-clients-amx.csv", "198", "199")
    done = charts(tree, "--check")
    assert done.returncode == 1 and "docs/charts/clients.svg" in done.stderr
    assert charts(tree).returncode == 0 and charts(tree, "--check").returncode == 0


def test_a_chart_that_was_drawn_by_hand_is_found(tree):
    change(tree / "docs/charts/hop.svg", "</svg>", "<!-- --></svg>")
    assert "docs/charts/hop.svg" in charts(tree, "--check").stderr


def test_a_file_that_is_not_listed_is_found(tree):
    shutil.copy(tree / "bench/results/2026-11-22-hop.csv", tree / "bench/results/2026-11-22-hop-again.csv")
    assert "bench/results/README.md" in charts(tree, "--check").stderr


def test_a_file_without_machine_or_with_a_short_row_is_found(tree):
    change(tree / "bench/results/2026-11-22-hop.csv", "# machine", "# computer")
    change(tree / "bench/results/2026-11-28-texts.csv", "times alone,0.42", "times alone")
    said = charts(tree, "--check").stderr
    assert "2026-11-22-hop.csv: no «# machine" in said
    assert "2026-11-28-texts.csv: row 4 has 1 cells, not 2" in said
