import shutil

import pytest

FAILED = pytest.StashKey()


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; only under ./dev test --all")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        item.stash[FAILED] = True


# What clusters keep would add up to gigabytes over a run. The folder of a test that failed stays, to be looked at.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    yield
    if folder is not None and not item.stash.get(FAILED, False):
        shutil.rmtree(folder, ignore_errors=True)
