"""docs/INSTALL.md, README.md and docs/OPERATIONS.md typed word for word in a bare Debian 12 with the packages, as a new
user would: against systemd and services as they are installed.

What a reader does besides typing is in READER: pressing `y`, writing into files what a page shows of them, and one's own
name for what a page says is an example. Commands that start a process by hand are typed by test_documented_commands.py.
"""

import re
import shlex
import textwrap

import pytest

import debian_root
from cluster import SOURCE
from test_documented_commands import SERVES, lines
from test_packages import INSIDE, of_services, packages  # noqa: F401: a fixture

INSTALL, README, OPERATIONS = "docs/INSTALL.md", "README.md", "docs/OPERATIONS.md"
BLOCK = re.compile(r"^ *```(sh|toml)\n(.*?)^ *```", re.M | re.S)

READER = INSIDE + r"""
ip link set lo up; ip address add 10.77.0.1/24 dev lo
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/yes
cd /debs; HOME=/root; unset DEBIAN_FRONTEND
host=$(hostname)
type_it() {
    echo "$ $1"
    # Who types is slower than workers that join again after the coordinator's restart.
    eval "$1" </dev/null || { echo "FAILED: $1"; fail=1; finish; exit; }
    case $1 in systemctl*) settled ;; esac
}
# All workers that run are in the list, none is there that has gone, and no load is under way.
is_settled() {
    [ "$(active strata-coordinator)" = active ] || return 0
    run=$(systemctl list-units --no-legend --state=active,activating,reloading 'strata-worker*.service' | wc -l)
    there=$(strata node list --json | tr -d ' \n' | grep -oE '"state":"(ready|serving|draining)"' | wc -l)
    [ "$run" = "$there" ] && ! strata model list --json | grep -q '"state": *"loading"'
}
settled() { wait_for is_settled; }
# edit FILE: has the lines on stdin, instead of those of the same keys.
edit() {
    while read -r line; do
        case $line in ''|'#'*) continue ;; esac
        sed -i "/^${line%%=*}=/d" "$1"
        echo "$line" >>"$1"
    done
}
printf '#!/bin/sh\nprintf "[Service]\\nCPUAffinity=0\\n" >"$1"\n' >/usr/local/bin/an-editor
chmod +x /usr/local/bin/an-editor
export SYSTEMD_EDITOR=an-editor TERM=dumb
"""


def blocks(page, title):
    """[(language, text)] of a section, without those of sections in it."""
    text = (SOURCE / page).read_text()
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", re.sub(r"^# (?=/etc)", "#\0 ", text, flags=re.M), re.M | re.S)
    assert found, f"{page}: no section {title}"
    return [(language, textwrap.dedent(block.replace("#\0 ", "# "))) for language, block in BLOCK.findall(found[1])]


def typed(language, block):
    """How a reader follows a block."""
    if language == "toml":
        return [f"edit {re.match('# (/etc/.*)', block)[1]} <<'EOF'\n{block}EOF"]
    said = []
    for line in lines(block):
        if SERVES.match(line):
            continue  # By hand; the services do it here.
        line = re.sub(r"(?<![/\w])models/recall", "/usr/share/strata/models/recall", line)
        line = re.sub(r"^(strata node \w+) ([ab])$", r"\1 $host-\2", line)
        line = line.replace("--nodes a,b", "--nodes $host-a,$host-b")
        if line.startswith("systemctl edit"):  # It wants a terminal.
            line = f"script -qec {shlex.quote(line)} /dev/null"
        said.append(f"type_it {shlex.quote(line)}")
    return said


def follow(page, *titles):
    followed = [(page, block) for title in titles for _, block in blocks(page, title)]
    return followed, [line for title in titles for block in blocks(page, title) for line in typed(*block)]


# In the order of a reader who goes where the pages send them; lines that stand alone are the reader's own.
WAY = [
    (INSTALL, "Debian 12"),
    'has "a first answer" "$(ask)" Paris',
    'has "what compiles constraints runs in the service" "$(strata generate recall Once --choice held 2>&1)" held',
    "strata generate recall Once --max-tokens 2 --request-id my-request; useradd me",
    "type_it 'journalctl STRATA_REQUEST_ID=my-request | grep my-request'",
    "type_it 'journalctl -u strata-coordinator | grep listening'",
    """type_it "journalctl -p warning -u 'strata*'" """,
    "type_it 'adduser me strata'",
    "type_it 'systemd-analyze security strata-coordinator | grep Overall'",
    "type_it 'systemctl status strata-coordinator | grep Status'",
    "cd /root; type_it 'strata model unload recall'; type_it 'strata model remove recall'",
    (README, "First answer"),
    (OPERATIONS, "Install"),
    (INSTALL, "Several workers on a machine"),
    "printf 'threads = 1\\nmemory = \"1GiB\"\\n' | edit /etc/strata/worker-a.toml; systemctl restart strata-worker@a",
    'is "the setting of the unit" "$(systemctl show -p CPUAffinity --value strata-worker@a)" 0',
    "cp /etc/strata/worker-a.toml /etc/strata/worker-b.toml; type_it 'systemctl enable --now strata-worker@b'",
    "type_it 'strata model unload recall'",
    (OPERATIONS, "Size"),
    (OPERATIONS, "TLS"),
    (OPERATIONS, "Certificates of an authority of your own"),
    (INSTALL, "TLS"),
    "export STRATA_TLS_DIR=/root/strata-cluster/operator",
    "for each in a b; do printf 'coordinator = \"10.77.0.1:7070\"\\ntls-dir = \"/etc/strata/tls\"\\n' | "
    "edit /etc/strata/worker-$each.toml; done; systemctl restart --no-block strata-worker@a strata-worker@b",
    (OPERATIONS, "Add a machine"),
    (OPERATIONS, "Faster nodes"),
    (OPERATIONS, "When a node is lost"),
    (OPERATIONS, "Weights for the loss of a node"),
    (INSTALL, "A machine that only computes"),
    'has "it has joined" "$(systemctl show -p StatusText --value strata-worker)" "joined 10.77.0.1:7070"',
    (OPERATIONS, "Take a machine away"),
    (OPERATIONS, "Upgrade"),
    'has "an answer over TLS" "$(ask)" Paris',
    (OPERATIONS, "Back up and restore"),
    "wait_for ask",
    'has "an answer after the restore" "$(ask)" Paris',
    "install -d -g strata -m 0750 /etc/strata/authority",
    "install -g strata -m 0640 -t /etc/strata/authority /root/strata-cluster/authority/*.pem",
    (INSTALL, "An authority in /etc/strata"),
    'is "whose the authority is" "$(stat -c \'%U %a\' /var/lib/strata/authority/ca-key.pem)" "strata 600"',
    "rm -r /etc/strata/authority",
    (OPERATIONS, "A worker's disk is full"),
    (OPERATIONS, "API keys"),
    "wait_for ask",
    (OPERATIONS, "The audit"),
    'is "whose the state is" "$(find /var/lib/strata/coordinator ! -user strata)" ""',
    (INSTALL, "Remove"),
    'is "what stays is of a reader\'s own" "$(echo $(find /etc /lib /usr /var/lib -name "*strata*" | sort; ls /etc/strata))" '
    '"/etc/strata /etc/systemd/system/strata-worker@a.service.d tls"',
    'is "no account stays" "$(getent passwd strata; getent group strata)" ""',
    'is "nor a process" "$(ls -l /proc/[0-9]*/exe 2>/dev/null | grep /strata)" ""',
]


@pytest.mark.long
@pytest.mark.skipif(bool(debian_root.missing()), reason=debian_root.missing() or "-")
def test_a_new_user_who_types_what_the_pages_say_gets_what_they_promise(packages, tmp_path):  # noqa: F811
    script = [READER]
    for step in WAY:
        script += [step] if isinstance(step, str) else follow(step[0], step[1])[1]
    with debian_root.Root(tmp_path / "debian") as root:
        debs = of_services(packages)
        root.fetch(debs, others=("curl", "iproute2"))
        script.insert(0, "apt-get install -q -y curl iproute2 >/dev/null 2>&1\n")
        said = root.boot("\n".join([*script, "finish"]))
    print(said)
    assert "ALL-WELL" in said and "FAILED" not in said, said
    assert said.count("Paris") >= 1 and "489." in said


# Commands within sentences that are typed elsewhere, or are no more than an example of their kind.
IN_SENTENCES = {
    "apt install": "a block of docs/INSTALL.md", "apt remove strata-worker": "test_packages.py",
    "systemctl restart strata-worker@NAME": "as strata-worker@a, once a reader has written its settings",
    "dpkg --force-confold -i": "test_packages.py", "bin/strata-coordinator": "test_packages.py, from the tarball",
    "grep ID": "of a log that is a file; `journalctl STRATA_REQUEST_ID=my-request` here",
    "taskset -c 0-7 strata-worker …": "an example of cores of one's own",
}
PROGRAMS = "systemctl|journalctl|systemd-analyze|apt|dpkg|adduser|taskset|curl|grep|openssl|tar|chgrp|bin/strata-coordinator"


def test_commands_in_sentences_are_typed_too():
    done = "\n".join(step for step in WAY if isinstance(step, str)) + "".join(
        block for page in (INSTALL, README, OPERATIONS) for _, block in BLOCK.findall((SOURCE / page).read_text()))
    for page in (INSTALL, README, OPERATIONS):
        text = re.sub(r"^ *```.*?^ *```", "", (SOURCE / page).read_text(), flags=re.M | re.S)
        for command in re.findall(rf"`((?:{PROGRAMS})[^`]*)`", text):
            command = " ".join(command.split())
            assert command in done or command in IN_SENTENCES, f"{page}: nothing types `{command}`"


def test_every_block_of_these_pages_is_typed():
    followed = [item for step in WAY if not isinstance(step, str) for item in follow(*step)[0]]
    for page in (INSTALL, README, OPERATIONS):
        for _, block in BLOCK.findall((SOURCE / page).read_text()):
            block = textwrap.dedent(block)
            assert (page, block) in followed, f"{page}: give its section a place in WAY:\n{block}"
