"""What checks of clients share."""


def expect(error, saying, act):
    """`act` raises that error, of that very class, and it says so."""
    try:
        act()
    except error as raised:
        assert type(raised) is error and saying in str(raised), repr(raised)
        return
    raise AssertionError(f"no {error}")
