"""Every command that README.md and docs/OPERATIONS.md show, word for word, in the order of the page, by programs that
were just built. (test_pages_in_a_bare_debian.py types them, and docs/INSTALL.md, where packages are installed.)

Blocks of `sh` are typed into one shell a page, in namespaces of its own, so that ports, /var/lib and 10.77.0.1 are
as the page has them. `systemctl` is a stand-in there that starts and stops processes as the packages' units do. A
line that starts a coordinator or a worker is what a reader has in a terminal of its own: it stays.
"""

import os
import re
import shlex
import shutil
import subprocess
import textwrap

import pytest

from cluster import BIN, GIVE_UP_S, SOURCE
from test_every_command import COMMANDS

PAGES = ("README.md", "docs/OPERATIONS.md", "docs/INSTALL.md", "docs/GPU.md")
# Blocks of commands that are not of `sh`, and why. They are commands of ./dev help (below).
NOT_RUN = {"./dev quickstart\n": "it builds all; test_bare_build.py types it",
           "./dev build --cuda\n": "it builds all, with a compiler that it fetches"}
IS_COMMAND = re.compile(r"^\s*(?:sudo )?(?:strata|\./dev|curl|openssl|systemctl|apt|apt-get|dpkg|export|pip|python3|tar|mkdir|rm)\b")
SERVES = re.compile(r"^strata-(?:coordinator|worker)(?: --|$)")

PREAMBLE = r"""
set -e
ip link set lo up
ip address add 10.77.0.1/24 dev lo
mount -t tmpfs tmpfs /var/lib
mkdir -p /var/lib/strata/coordinator .local/share
ln -s /var/lib/strata .local/share/strata
ln -s "$SOURCE/models" models
export HOME=$PWD PATH=$BIN:$PATH
unset XDG_DATA_HOME STRATA_COORDINATOR STRATA_API_KEY
declare -A running
# eventually COMMAND...: until it succeeds.
eventually() {
  for _ in $(seq "$TRIES"); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
  echo "in vain: $*; nodes and logs:"; strata node list || true; strata status || true; cat ./*.log; return 1
}
# Who types is slower than workers that join again, and than the coordinator that sees one go.
all_joined() {
  [ "$(strata node list --json | tr -d ' \n' | grep -oE '"state":"(ready|serving|draining)"' | wc -l)" -ge $((${#running[@]} - 1)) ]
}
gone() { ! strata node show "$1" --json | tr -d ' \n' | grep -qE '"state":"(ready|serving|draining)"'; }
# serve NAME COMMAND...: returns when the coordinator listens or the worker has joined.
serve() {
  local name=$1 said='^listening on'
  shift
  case $name in
    strata-worker*) said='joined the cluster' ;;
    *) [ -z "${running[strata-coordinator]:-}" ] || systemctl stop strata-coordinator ;;
  esac
  "$@" >"$name.log" 2>&1 </dev/null &
  running[$name]=$!
  eventually grep "$said" "$name.log"
  [ "$name" != strata-coordinator ] || eventually all_joined
}
systemctl() {
  local unit=$2
  case $1 in
    start)
      case $unit in
        strata-coordinator) serve "$unit" strata-coordinator --data-dir /var/lib/strata/coordinator \
          --listen 0.0.0.0:7070 --insecure ;;
        strata-worker@*) serve "$unit" strata-worker --coordinator 127.0.0.1:7070 --name "${unit#*@}" \
          --threads 1 --data-dir "/var/lib/strata/worker-${unit#*@}" ;;
        *) echo "no unit $unit"; return 1 ;;
      esac ;;
    stop)
      kill "${running[$unit]}"
      wait "${running[$unit]}"
      unset "running[$unit]"
      case $unit in strata-worker@*) eventually gone "${unit#*@}" ;; esac ;;
    restart) systemctl stop "$unit"; systemctl start "$unit" ;;
    *) echo "no verb $1"; return 1 ;;
  esac
}
"""


def blocks(page, language="sh"):
    """The page's blocks of this language, without their indentation."""
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", (SOURCE / page).read_text(), re.M | re.S)
    return [textwrap.dedent(block) for block in found]


def indented(page):
    """The page's blocks that are set off by four spaces."""
    return [textwrap.dedent(block) for block in re.findall(r"\n\n((?: {4}\S.*\n)+)", (SOURCE / page).read_text())]


def lines(block):
    return block.replace("\\\n", " ").splitlines()


def can_unshare():
    return shutil.which("unshare") and shutil.which("ip") and subprocess.run(
        ["unshare", "-rnmpf", "--mount-proc", "sh", "-c",
         "ip link set lo up && mount -t tmpfs tmpfs /var/lib"], capture_output=True).returncode == 0


def script(commands):
    """The commands as they are typed, each said before it runs."""
    typed, workers = [], 0
    for line in commands:
        typed.append(f"echo {shlex.quote('$ ' + line)}")
        if SERVES.match(line):
            name = line.split()[0]
            if name == "strata-worker":
                workers += 1
                name += f"-by-hand-{workers}"
            line = f"serve {name} {line}"
        typed.append(line)
    return PREAMBLE + "\n".join(typed) + "\necho THE-END\n"


def type_all(tmp_path, commands):
    """What they said; fails if one of them does."""
    (tmp_path / "typed.sh").write_text(script(commands))
    done = subprocess.run(["unshare", "-rnmpf", "--mount-proc", "bash", "typed.sh"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=GIVE_UP_S,
                          env={**os.environ, "BIN": str(BIN), "SOURCE": str(SOURCE), "TRIES": str(GIVE_UP_S // 2)})
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "THE-END" in said, said
    return said


needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="needs namespaces")


@needs_namespaces
def test_the_readmes_commands_give_a_first_answer(tmp_path):
    said = type_all(tmp_path, [line for block in blocks("README.md") for line in lines(block)])
    assert "489." in said and "Paris" in said


@needs_namespaces
def test_the_operators_commands_do_what_they_say(tmp_path):
    # Who operates has the README behind them: a coordinator, two workers and the bundled model.
    before = ["systemctl start strata-coordinator", "systemctl start strata-worker@a", "systemctl start strata-worker@b",
              "strata model add models/recall --name recall"]
    # Its places are those of before the restore, on workers that come back one by one.
    after = ['eventually strata chat recall Hello', 'strata chat recall "What is the capital of France?"', "strata model check recall"]
    typed = [line for block in blocks("docs/OPERATIONS.md") for line in lines(block)]
    said = type_all(tmp_path, before + typed + after)
    assert "Paris" in said


def test_every_command_of_these_pages_is_in_a_block_that_is_run():
    for page in PAGES:
        for block in [*blocks(page, r"(?!sh\n)\w*"), *indented(page)]:
            if any(IS_COMMAND.match(line) for line in lines(block)):
                assert block in NOT_RUN, f"{page}: make it ```sh, or say in NOT_RUN why not:\n{block}"
    for block in NOT_RUN:
        assert dev_complaint(block.strip()) is None


def dev_complaint(command):
    """What is wrong with a `./dev …`, or nothing."""
    said = subprocess.run(["bash", SOURCE / "dev", "help"], capture_output=True, text=True, check=True).stdout
    names = {"help"} | {name for line in re.findall(r"^\./dev (\w+(?: \| \w+)*)", said, re.M) for name in line.split(" | ")}
    name, *words = command.split()[1:]
    takes_more = name in ("bench", "sim")  # Whose programs have flags of their own.
    gone = [word for word in words if word.startswith("--") and word not in said and not takes_more]
    return None if name in names and not gone else f"`{command}` is not of ./dev help"


def test_commands_of_dev_in_all_pages_are_of_its_help():
    wrong = []
    for page in [*pages(), SOURCE / "CONTRIBUTING.md", *SOURCE.glob("deploy/**/README.md")]:
        for command in re.findall(r"(?:`|^ *)(\./dev [a-z][^`\n#]*)", page.read_text(), re.M):
            said = dev_complaint(command)
            if said:
                wrong.append(f"{page.relative_to(SOURCE)}: {said}")
    assert not wrong, "\n".join(wrong)
    assert dev_complaint("./dev bild") and dev_complaint("./dev build --cude") and not dev_complaint("./dev lint")


def pages():
    return sorted(p for p in [SOURCE / "README.md", *SOURCE.glob("docs/**/*.md")])


def complaint(command):
    """What is wrong with an inline `strata …`, or nothing. Words in capitals and … stand for a reader's own."""
    words = command.split()[1:]
    path = tuple(word for word in words if re.fullmatch(r"[a-z]+", word))
    known = [p for p in COMMANDS if p == path[:len(p)]]
    if not known:
        above = any(p[:len(path)] == path for p in COMMANDS)  # A group, as `strata key`.
        return None if above and "--" not in command else f"`{command}`: there is no such command"
    flags = re.findall(r"--[a-z][a-z-]*", command)
    unknown = [flag for flag in flags if not re.search(rf"{flag}\b", COMMANDS[known[0]])]
    return f"`{command}`: there is no {', '.join(unknown)}" if unknown else None


def test_commands_in_sentences_are_commands_with_flags_that_they_have():
    wrong = []
    for page in pages():
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
        for command in re.findall(r"`(strata [a-z][^`]*)`", text):
            said = complaint(" ".join(command.split()))
            if said:
                wrong.append(f"{page.relative_to(SOURCE)}: {said}")
    assert not wrong, "\n".join(wrong)


def test_a_command_that_is_gone_is_found():
    assert complaint("strata model lode recall") and complaint("strata status --colour")
    assert complaint("strata model load M --layers a:0-3") is None and complaint("strata key") is None
