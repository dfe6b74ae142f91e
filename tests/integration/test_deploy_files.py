"""What deploy/ has for systems that tests here cannot run: as far as Linux can check it."""

import plistlib
import re
import shutil
import subprocess

import pytest

from cluster import BIN, SOURCE

DEPLOY = SOURCE / "deploy"


@pytest.mark.parametrize("name", ["coordinator", "worker"])
def test_launchd_calls_the_program_with_flags_that_it_has(name):
    plist = plistlib.loads((DEPLOY / f"macos/org.strata.{name}.plist").read_bytes())
    assert plist["Label"] == f"org.strata.{name}"
    program, *arguments = plist["ProgramArguments"]
    assert program.endswith(f"/bin/strata-{name}")
    said = subprocess.run([BIN / f"strata-{name}", "--help"], capture_output=True, text=True, check=True).stdout
    for flag in arguments[::2]:
        assert re.search(rf"^  {flag} ", said, re.M), flag
    assert plist["KeepAlive"] == {"SuccessfulExit": False} and plist["ExitTimeOut"] > 30


def test_the_formula_installs_what_the_documents_are_called():
    formula = (DEPLOY / "macos/strata.rb").read_text()
    for path in re.findall(r'"(deploy/[^"]+|models)"', formula):
        assert (SOURCE / path).exists(), path
    assert formula.count(" do\n") + len(re.findall(r"^\s*(?:class|def) ", formula, re.M)) == len(
        re.findall(r"^\s*end$", formula, re.M))


@pytest.mark.skipif(not shutil.which("ruby"), reason="no ruby")
def test_the_formula_is_ruby():
    subprocess.run(["ruby", "-c", DEPLOY / "macos/strata.rb"], check=True, stdout=subprocess.DEVNULL)


def test_the_container_is_made_of_packages_that_there_are():
    text = (DEPLOY / "container/Containerfile").read_text()
    assert set(re.findall(r"(\S+)_\*\.deb", text)) == {"strata-cli", "strata-coordinator", "strata-worker"}
