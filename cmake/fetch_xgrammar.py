#!/usr/bin/env python3
"""Prints the folder with XGrammar's sources, fetched to the user's cache where they are not there.

usage: fetch_xgrammar.py

The cache is strata/ in $XDG_CACHE_HOME, or in ~/.cache. What is fetched is the source package of PyPI, by pip,
and has to have the digest below.
"""
import hashlib
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

VERSION = "0.2.8"
SHA256 = "8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80"


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "strata"
    target = cache / f"xgrammar-{VERSION}"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--retries", "1", "--timeout", "15",
                            "--no-deps", "--no-binary", "xgrammar", "-d", folder, f"xgrammar=={VERSION}"], check=False, stdout=sys.stderr)
            package = pathlib.Path(folder) / f"xgrammar-{VERSION}.tar.gz"
            if not package.exists():
                sys.exit("pip did not fetch xgrammar's source package")
            digest = hashlib.sha256(package.read_bytes()).hexdigest()
            if digest != SHA256:
                sys.exit(f"{package.name} has the digest {digest}, not {SHA256}")
            with tarfile.open(package) as archive:
                archive.extractall(folder)
            try:
                os.rename(pathlib.Path(folder) / f"xgrammar-{VERSION}", target)
            except OSError:
                if not target.exists():  # Another build was not faster.
                    raise
    print(target)


if __name__ == "__main__":
    main()
