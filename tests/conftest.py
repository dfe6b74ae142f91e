def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; only under ./dev test --all")
