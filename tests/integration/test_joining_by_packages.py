"""A machine with the packages joins by one pasted line, in a bare Debian 12 with systemd as its first process."""

import os

import pytest

import debian_root
from test_pages_in_a_bare_debian import INSTALL, blocks
from test_packages import INSIDE, of_services, packages  # noqa: F401: a fixture

pytestmark = [pytest.mark.long,
              pytest.mark.skipif(bool(debian_root.missing()), reason=debian_root.missing() or "-"),
              pytest.mark.skipif(os.environ.get("STRATA_PRESET", "release") != "release", reason="packages are of release builds")]

# The authority where an administrator has put it, whom the page tells how to move it, and a change of it.
AUTHORITY = r"""
authority() { strata cluster authority "$1" 2>&1; }
# The node that the worker was before there were certificates.
strata node remove "$(hostname)" >/dev/null || fail=1
serves() { sed -i '/^authority/d' /etc/strata/coordinator.toml; echo "authority = \"$1\"" >>/etc/strata/coordinator.toml
           systemctl restart strata-coordinator; wait_for sh -c 'strata node list | grep -q box'; }
install -d -g strata -m 0750 /etc/strata/authority
install -g strata -m 0640 -t /etc/strata/authority /var/lib/strata/authority/*.pem
rm -r /var/lib/strata/authority
serves /etc/strata/authority
has "another cluster is not made over it" "$(strata cluster init 2>&1)" "already, in /etc/strata/authority"
strata cluster certificate client anna --out /root/anna >/dev/null || fail=1
wait_for sh -c '! strata cluster authority status --json | tr -d " \n" | grep -q "\"followed\":false"'
has "its sandbox keeps the service from changing it" "$(authority rotate)" "cannot make"
has "and the page is named" "$(authority rotate)" docs/INSTALL.md
MOVES
serves /var/lib/strata/authority
rm -r /etc/strata/authority
for step in rotate switch finish; do
    wait_for strata cluster authority $step
    wait_for sh -c "strata cluster authority status --json | tr -d ' \n' | grep -q 'signer'"
done
has "another authority signs" "$(authority status)" "signs, and it alone is trusted"
is "which the service wrote" "$(stat -c '%U %a' /var/lib/strata/authority/ca-key.pem)" "strata 600"
has "it answers under that" "$(ask)" Paris
""".replace("MOVES", blocks(INSTALL, "An authority in /etc/strata")[0][1])

# From within its sandbox, to the networks of this machine, which are loopback alone.
ANNOUNCED = r"""
apt-get install -q -y --no-install-recommends avahi-utils >/avahi.log 2>&1 || { cat /avahi.log; fail=1; }
# The bus has not heard of what avahi-daemon may.
systemctl reload dbus; systemctl restart avahi-daemon
echo 'announce = true' >>/etc/strata/coordinator.toml; systemctl restart strata-coordinator
found() { avahi-browse --resolve --parsable --terminate --no-db-lookup _strata._tcp; }
wait_for sh -c 'avahi-browse --resolve --parsable --terminate --no-db-lookup _strata._tcp | grep -q "^="'
has "the coordinator is announced, by its authority" "$(found)" "ca=$(strata cluster authority status --json | grep -oE '"signer": *"[0-9a-f]+' | cut -d'"' -f4)"
has "and its port for joining" "$(found)" ";7069;"
"""

JOINS = INSIDE + r"""
apt-get install -q -y --no-install-recommends /debs/*.deb >/install.log 2>&1 || { cat /install.log; exit; }
wait_for systemctl is-active strata-worker
systemctl stop strata-worker
export HOME=/root; cd /root
strata cluster init --name home --hosts 127.0.0.1 --no-worker >/init || { cat /init; fail=1; }
has "it prints what comes next" "$(cat /init)" "strata-worker join strata-join-1."
is "the authority is the service's alone" "$(stat -c '%U %G %a' /var/lib/strata/authority /var/lib/strata/authority/ca-key.pem | xargs)" \
    "strata strata 700 strata strata 600"
is "and so is the key" "$(stat -L -c '%U %G %a' /etc/strata/tls/key.pem)" "root strata 640"
is "the coordinator runs" "$(active strata-coordinator)" active
is "without a flag, as who made it" "$(strata status >/dev/null 2>&1; echo $?)" 0
line=$(strata node token 2>/dev/null)
has "the line is a command" "$line" "strata-worker join strata-join-1."
joined=$($line --name box --hosts 127.0.0.1 2>&1) || fail=1
has "it says what it did" "$joined" "box is part of the cluster home now, at 127.0.0.1:7070"
has "it started the service" "$joined" "started strata-worker.service"
wait_for systemctl is-active strata-worker
is "which runs" "$(active strata-worker)" active
is "and is enabled" "$(systemctl is-enabled strata-worker)" enabled
is "its key is the service's alone" "$(stat -L -c '%U %G %a' /etc/strata/worker-tls/key.pem)" "root strata 640"
is "nobody else comes to it" "$(stat -L -c '%a' /etc/strata/worker-tls)" 750
has "what the file said before is there" "$(cat /etc/strata/worker.toml)" "threads"
strata model add /usr/share/strata/models/recall >/dev/null || fail=1
strata model load recall >/dev/null || fail=1
has "the model answers" "$(ask)" Paris
has "by the node of that name" "$(strata node list)" box
""" + AUTHORITY + ANNOUNCED + r"""
finish
"""


def test_a_pasted_line_makes_a_service_a_member(packages, tmp_path):  # noqa: F811
    with debian_root.Root(tmp_path / "debian") as root:
        root.fetch(of_services(packages), others=("avahi-utils",))
        said = root.boot(JOINS)
        print(said)
        assert "ALL-WELL" in said and "FAILED" not in said, said
