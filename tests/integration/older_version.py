"""Packages of an older version, which tests upgrade from and have beside this one.

STRATA_OLDER_PACKAGES is a folder of them. How they are made: docs/HACKING.md.
"""

import os
import pathlib
import subprocess

# What a refusal says that a client answers by sending the request again.
SENT_AGAIN = "send the request again|no coordinator answers|is loading|is not loaded|waits for"


def packages():
    """The older packages; none where the tests were given none."""
    folder = os.environ.get("STRATA_OLDER_PACKAGES")
    return sorted(pathlib.Path(folder).glob("*.deb")) if folder else []


def binaries(folder):
    """A folder with the programs of the older version."""
    for deb in packages():
        subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
    return folder / "usr/bin"
