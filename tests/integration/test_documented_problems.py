"""docs/OPERATIONS.md has every problem of `strata status` and every alert, with what to do; alerts are of metrics that
it lists. docs/internals/placing.md has every sentence by which a plan leaves a node out."""

import re

from cluster import SOURCE

PAGE = (SOURCE / "docs/OPERATIONS.md").read_text()
RULES = (SOURCE / "deploy/prometheus/strata.rules.yml").read_text()
# Where problems are made, and the calls that make them.
PROBLEMS = ("coordinator/cluster/cluster_state.cc", "coordinator/service/process/status_report.cc",
            "coordinator/store/disk_watch.cc", "coordinator/audit/audit_log.cc",
            "coordinator/http_security.cc", "coordinator/own_certificate.cc")
MADE = re.compile(r'\b(?:problems(?:->|\.)Add|add)\(\s*"([^"]*)"|AddOne\(\s*\{\s*"([^"]*)"')


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title):
    """The first cells of a section's first table."""
    table = re.search(r"^\|.*\n\|---.*\n((?:\|.*\n)+)", section(title), re.M).group(1)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def problems_in(source):
    """The first words of each problem that a source makes."""
    return ["".join(found).strip() for found in MADE.findall(source)]


def is_listed(problem):
    """Whether a row has the words, which stand for a name behind them where they end so."""
    plain = re.sub(r"[`«»]", "", section("What strata status says"))
    return problem in plain


def test_every_problem_is_in_the_table():
    made = [p for path in PROBLEMS for p in problems_in((SOURCE / path).read_text())]
    assert len(made) >= 15, made
    missing = [p for p in made if not is_listed(p)]
    assert not missing, f"add to «What strata status says» of docs/OPERATIONS.md: {missing}"


def test_a_problem_that_is_new_is_missing():
    made = problems_in('problems.Add("the moon of node " + name + " is full", "wait");')
    assert made == ["the moon of node"] and not is_listed(made[0])


# Where a plan says it, and the words that all such sentences have.
SAYS_LEFT_OUT = ("coordinator/planner/explain.cc", "coordinator/service/models/placement.cc")
LEFT_OUT = re.compile(r"left out|^without |no room for its weights")


def left_out_in(source):
    """The words of each sentence of a source by which a node is left out, without names and numbers."""
    said = []
    for call in re.findall(r"(?:StrCat|add_why)\((.*?)\);", source, re.S):
        words = re.findall(r'"([^"]*)"', call)
        if any(LEFT_OUT.search(word) for word in words):
            said += [word.replace(" is left out: ", "").strip(" ,.:") for word in words if word not in ("Node ", ".", "more node")]
    return [word for word in said if word]


def is_explained(words):
    page = (SOURCE / "docs/internals/placing.md").read_text()
    return words in page.split("\n## Why a plan left a node out\n")[1].split("\n## ")[0]


def test_every_sentence_that_leaves_a_node_out_is_explained():
    said = [words for path in SAYS_LEFT_OUT for words in left_out_in((SOURCE / path).read_text())]
    assert len(said) >= 9, said
    missing = [words for words in said if not is_explained(words)]
    assert not missing, f"add to «Why a plan left a node out» of docs/internals/placing.md: {missing}"


def test_a_sentence_that_is_new_is_missing():
    said = left_out_in('return absl::StrCat("Node ", name, " is left out: it is ", colour, ", which is no colour.");')
    assert said == ["it is", "which is no colour"] and not is_explained(said[1])


def test_every_alert_is_in_the_table_and_the_other_way_round():
    alerts = re.findall(r"- alert: (\w+)", RULES)
    assert len(set(alerts)) == len(alerts) > 5
    assert [cells[0].strip("`") for cells in rows("Alerts")] == alerts
    assert all(len(cells) == 3 and cells[2].rstrip("| ") for cells in rows("Alerts"))


def test_alerts_are_of_metrics_that_the_page_lists():
    asked = set(re.findall(r"strata_[a-z_]+", "\n".join(re.findall(r"expr: (.*)", RULES))))
    listed = set(re.findall(r"`(strata_[a-z_]+)`", section("Metrics") + section("Metrics of a worker")))
    assert asked and {re.sub(r"_bucket$", "", name) for name in asked} <= listed


# Where the doctor makes findings, and their kinds there.
FINDINGS = re.compile(r'(?:Error|Warn|TellGroups|return)\(?\s*(?:kind\.empty\(\) \? )?"([A-Z]+(?:_[A-Z]+)+)"')


def kinds_of_findings():
    found = set()
    for path in (SOURCE / "common/doctor").glob("*.cc"):
        found |= set(FINDINGS.findall(path.read_text()))
    return found


def test_every_finding_of_the_doctor_is_in_the_table_and_the_other_way_round():
    kinds = kinds_of_findings()
    assert len(kinds) > 40, kinds
    documented = {kind for cells in rows("The doctor") for kind in re.findall(r"`([A-Z_]+)`", cells[0])}
    assert documented == kinds, f"docs/OPERATIONS.md, The doctor: it lacks {kinds - documented}, and has too much: {documented - kinds}"
    assert all(len(cells) == 3 and cells[2].rstrip("| ") for cells in rows("The doctor"))


def test_a_finding_that_is_new_is_missing():
    (kind,) = FINDINGS.findall('out->Warn("MOON_FULL", facts.node(), "the moon is full", "wait");')
    assert kind not in kinds_of_findings()
