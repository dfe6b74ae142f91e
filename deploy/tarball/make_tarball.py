#!/usr/bin/env python3
"""Makes a tarball with all libraries but glibc's, for other Linux systems of glibc 2.36 or later:

    make_tarball.py BUILD_FOLDER

Leaves BUILD_FOLDER/packages/strata-VERSION-linux-MACHINE.tar.xz. Needs patchelf.
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("strata", "strata-coordinator", "strata-worker")
# Of the system that it runs on: they belong to its kernel and its configuration.
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|nss_.*|util|anl))\.so")

INSTALL = """\
bin/ has the programs, which find their libraries in lib/ wherever this folder lies. Nothing has to be
installed: bin/strata-coordinator, bin/strata-worker --coordinator HOST:7070, bin/strata --help.
share/strata/models/recall is a small model to try it with, and recall-tools beside it calls tools.

Services: copy bin and lib to /opt/strata, systemd/ to /etc/systemd/system with /usr/bin replaced by
/opt/strata/bin and /usr/lib/strata by /opt/strata/lib/strata, systemd/sysusers to /etc/sysusers.d, and
etc/*.toml to /etc/strata.

Needs glibc 2.36 or later. `strata model pull` finds certificates where Debian has them; elsewhere set
SSL_CERT_FILE and CURL_CA_BUNDLE.
"""


def libraries(program):
    """Those that it loads, but glibc's: [path]."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    if "not found" in said:
        sys.exit(f"{program}: {said}")
    return [path for name, path in re.findall(r"^\s*(\S+) => (\S+)", said, re.M) if not GLIBC.match(name)]


def make(build, out):
    shutil.rmtree(out, ignore_errors=True)
    for folder in ("bin", "lib/strata", "share/strata/models", "share/man", "etc", "systemd/sysusers"):
        (out / folder).mkdir(parents=True)
    for name in PROGRAMS:
        program = out / "bin" / name
        shutil.copy2(build / "bin" / name, program)
        for library in libraries(build / "bin" / name):
            target = out / "lib" / pathlib.Path(library).name
            if not target.exists():
                shutil.copy(library, target)
                target.chmod(0o644)
                subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", target], check=True)
        subprocess.run(["strip", program], check=True)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../lib", program], check=True)
    documents = build / "packages" / "documents"
    for folder in ("man", "bash", "zsh"):
        shutil.copytree(documents / folder, out / "share" / folder, dirs_exist_ok=True)
    for name in ("coordinator.toml", "worker.toml"):
        shutil.copy(documents / name, out / "etc" / name)
    units = SOURCE / "deploy" / "systemd"
    for unit in units.glob("*.service"):
        shutil.copy(unit, out / "systemd")
    for name in ("coordinator", "worker"):
        shutil.copy(units / f"sysusers-{name}.conf", out / "systemd" / "sysusers" / f"strata-{name}.conf")
    shutil.copy2(units / "restart-delay", out / "lib" / "strata")
    for name in ("recall", "recall-tools"):
        shutil.copytree(SOURCE / "models" / name, out / "share" / "strata" / "models" / name)
    shutil.copy(SOURCE / "LICENSE", out)
    (out / "INSTALL").write_text(INSTALL)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    said = subprocess.run([build / "bin" / "strata", "--version"], capture_output=True, text=True, check=True)
    name = f"strata-{said.stdout.split()[-1]}-linux-{platform.machine()}"
    packages = build / "packages"
    make(build, packages / name)
    subprocess.run(["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C", packages, "-cJf",
                    packages / f"{name}.tar.xz", name], check=True)
    shutil.rmtree(packages / name)
    print(packages / f"{name}.tar.xz")


if __name__ == "__main__":
    main()
