"""What test_hints_in_their_states.py is about: HINTS has every hint of the sources that names a
command of `strata`, and by which of its days it is followed; ELSEWHERE those whose state no test
can make.
"""

import collections

from hints import WORD

# The command as `told` has it, a part of what is said with it, and the day.
Hint = collections.namedtuple("Hint", "command said day")

HINTS = {
    # Nothing is there yet.
    "no model, in status": Hint("strata model add PATH", "none yet; register one", "first"),
    "no model, in the list": Hint("strata model add PATH", "No model is registered", "first"),
    "a path that the coordinator cannot read": Hint(
        f"strata model add {WORD} --upload", "cannot read", "first"),
    "no such model": Hint("strata model add PATH", "there is no model '", "first"),
    "not healthy": Hint("strata status", "no model is ready", "first"),
    "no model is loaded": Hint("strata model load NAME", "no model is loaded", "first"),
    "nobody to plan with": Hint("strata node list", "there is no ready node '", "first"),
    "no node to show": Hint("strata node list", "there is no node '", "first"),
    "no node to drain": Hint("strata node list", "there is no node '", "first"),
    "no session": Hint("strata session list", "in flight", "first"),
    "not loaded, at a request": Hint(f"strata model load {WORD}", "' is not loaded", "first"),
    "not loaded, at unload": Hint("strata model list", "' is not loaded", "first"),
    "not loaded, at resize": Hint(
        f"strata model load {WORD} --kv-tokens N", "' is not loaded", "first"),
    "no template": Hint(f"strata generate {WORD} PROMPT", "has no chat template", "first"),
    "no template and no tokenizer": Hint(
        f"strata generate {WORD} --token-ids IDS", "it has no tokenizer either", "first"),
    "another model": Hint(f"strata model remove {WORD}", "there is another model '", "first"),
    "uploaded before": Hint(f"strata model remove {WORD}", "there is a model '", "first"),
    "a folder in the way of an upload": Hint(
        f"strata model add {WORD} --name {WORD}", "already, which no model is registered from",
        "first"),
    "pulled before": Hint(f"strata model remove {WORD}", " exists already", "first"),
    "a folder in the way of a pull": Hint(
        f"strata model add {WORD} --name {WORD}", " exists already", "first"),
    "added in the background": Hint(
        "strata model list", "is being registered at the coordinator", "first"),
    "Ctrl-C at add": Hint("strata model list", "detached", "first"),
    "files have changed": Hint(f"strata model remove {WORD} --force", "put the file back", "first"),
    "files have changed, and are wanted so": Hint(
        f"strata model add {WORD} --name {WORD}", "register what it is now", "first"),
    # Something runs.
    "loaded, at remove": Hint(f"strata model unload {WORD}", "is loaded", "running"),
    "a node in use": Hint(f"strata model unload {WORD}", "has layers on node '", "running"),
    "a node alive": Hint(f"strata node drain {WORD}", "is alive and would join again", "running"),
    "in flight, at unload": Hint("strata session cancel ID", " requests in flight", "running"),
    "in flight, at another load": Hint(
        f"strata model unload {WORD} --force", "is loaded otherwise and has ", "running"),
    "resizing, at resize": Hint(
        f"strata model show {WORD}", "try again once it is ready", "running"),
    "a promise that a resize would break": Hint(
        f"strata session cancel {WORD}", "was promised ", "running"),
    "past its deadline": Hint(
        "strata status", "the deadline passed before the answer was complete", "running"),
    "nobody to check with": Hint("strata node list", "there is no ready worker", "running"),
    "no node to check with": Hint("strata node list", "there is no node '", "running"),
    # Nodes come and go.
    "one joined": Hint(f"strata model load {WORD}", "joined and holds no layers yet", "nodes"),
    "many joined": Hint(
        f"strata model load {WORD}", "nodes joined and hold no layers yet", "nodes"),
    "one is lost": Hint(f"strata node remove {WORD}", ") is lost", "nodes"),
    "many are lost": Hint("strata node remove --gone", "nodes are lost", "nodes"),
    "more are lost than shown": Hint("strata node list", "more that are lost", "nodes"),
    "one with layers is lost": Hint(
        f"strata model load {WORD}", "places the model on other nodes", "nodes"),
    "a request to a lost one": Hint(f"strata model load {WORD}", "', is lost", "nodes"),
    "a request to a stopping one": Hint(
        f"strata model load {WORD}", "', is being stopped", "nodes"),
    "a request to one that is away": Hint(f"strata model load {WORD}", "' waits for ", "nodes"),
    "a loaded model that is gone": Hint(
        f"strata model unload {WORD}", "was loaded before the coordinator started", "nodes"),
    # Loads take long, or fail.
    "loading in the background": Hint(
        f"strata model show {WORD}", "is being loaded on ", "loading"),
    "Ctrl-C at load": Hint(f"strata model show {WORD}", "detached", "loading"),
    "loading, at a request": Hint(f"strata model show {WORD}", "' is ", "loading"),
    "tried again by itself": Hint(
        f"strata model show {WORD}", "the load is tried again by itself", "loading"),
    "a load that stands still": Hint(f"strata node drain {WORD}", " to load layers ", "loading"),
    "a load that stands still, elsewhere": Hint(
        f"strata model load {WORD}", "place the model on others", "loading"),
    "stages are not linked": Hint(f"strata node show {WORD}", " to link its stage", "links"),
    # One computes wrongly.
    "two nodes differ": Hint(
        f"strata node drain {WORD}", "one of the two nodes computes wrongly", "wrong"),
    "two nodes differ, elsewhere": Hint(
        f"strata model load {WORD}", "one of the two nodes computes wrongly", "wrong"),
    "a node differs from itself": Hint(
        f"strata node drain {WORD}", "the two differ on one node", "wrong"),
    "a node differs from itself, elsewhere": Hint(
        f"strata model load {WORD}", "place the model elsewhere", "wrong"),
    # Keys.
    "a name that pages use": Hint("strata key create", "is not reached by the name", "keys"),
    "no key": Hint("strata key create", "send `authorization: Bearer KEY`", "keys"),
    "a key's priority": Hint(
        "strata key create --max-priority N", "may not have priority ", "keys"),
    "a key's guarantee": Hint("strata key create --guaranteed", "may not be guaranteed", "keys"),
    "no such key": Hint("strata key list", "there is no key '", "keys"),
    "the last admin key": Hint("strata key create --admin", "is the last admin key", "keys"),
    "no admin key": Hint(
        "strata key create --admin", "may send requests, not administrate", "keys"),
    "whose session": Hint("strata session list", "several API keys have a request '", "keys"),
    "anybody administrates": Hint(
        "strata key create --admin", "whoever can connect may administrate", "keys"),
}

# Of those whose state no test can make: the command, what is said with it, and why; or that they
# are no hints.
ELSEWHERE = [
    ("strata node token", "if it is to belong to the cluster again", "test_live_certificates.py: it joins anew"),
    ("strata cluster token operator", "if they are to administrate again", "test_joining.py types it"),
    ("strata cluster token client", "if they are to be let in again", "test_live_certificates.py makes one by hand"),
    ("strata cluster token client", "Who gets a certificate of that name later is let in", "help"),
    ("strata node token", "Who gets a certificate of that name later is let in", "help"),
    ("strata node remove NODE", "revokes those of a worker too", "help"),
    ("strata cluster authority status", "for the next step", "of what is under way; test_live_certificates.py types it"),
    ("strata cluster authority status", "for the next step", "of what is not; test_live_certificates.py types it"),
    ("strata cluster authority rotate", "makes one", "test_live_certificates.py types it"),
    ("strata cluster authority rotate", "one of a coordinator ends with its authority", "test_live_certificates.py types it"),
    (f"strata node remove {WORD}", "start its worker, or", "test_live_certificates.py starts it"),
    ("strata node token", "its certificate cannot be renewed", "test_joining.py types it"),
    ("strata node token", "have the one that answered make a token", "test_discovery.py: the other cluster's operator types it"),
    ("strata cluster init", "make them by", "certificates of openssl's, or none"),
    ("strata cluster authority switch", "has it sign", "test_live_certificates.py types it"),
    ("strata cluster authority finish", "ends that", "test_live_certificates.py types it"),
    ("strata cluster init", "this coordinator signs no certificates", "test_joining.py: it wants a coordinator's flags too"),
    ("strata cluster init", "certificate names no cluster", "an authority of openssl's, which signs by hand"),
    ("strata cluster init", "makes an authority; its user alone can read it", "test_cluster_certificates.py, before there is any"),
    ("strata cluster init", "made one for operators", "test_roles.py, where it was typed before"),
    ("strata cluster init", "nobody can get a certificate from a coordinator that has none", "the flags are checked before"),
    ("strata cluster init", "made the authority", "help; test_cluster_certificates.py types it"),
    ("strata cluster certificate coordinator coordinator --hosts ADDRESS", "has no address that another machine can dial",
     "test_cluster_certificates.py types its like"),
    ("strata cluster token client", "prints the whole command", "help; test_joining.py types it"),
    ("strata cluster token client", "What `strata cluster token client` printed", "help"),
    (f"strata node remove {WORD}", "this machine takes its place", "test_joining.py: it wants a machine that has gone"),
    ("strata node token", "and paste what it prints", "test_joining.py types it"),
    ("strata node token", "gets a certificate by the TOKEN", "help; test_joining.py types it"),
    ("strata node token", "TOKEN is required", "test_joining.py types it"),
    ("strata node token", "paste the whole line that", "test_joining.py types it"),
    ("strata node token", "have it join under the other name", "test_joining.py types it"),
    ("strata node token", "for people", "help"),
    ("strata node token", "makes those of workers", "test_joining.py types it"),
    ("strata cluster certificate coordinator coordinator --hosts ADDRESS", "cluster certificate coordinator", "test_cluster_certificates.py types its like"),
    (f"strata cluster certificate worker {WORD} --hosts ADDRESS", "or join anew", "test_cluster_certificates.py types its like"),
    ("strata node token", "or join anew", "test_joining.py types it"),
    (f"strata node remove {WORD}", "or forget it", "test_doctor.py has the lost node; another of these days types it"),
    ("strata model remove M", "deletes what was uploaded or pulled", "another of these days types it"),
    ("strata model move M", "places layers anew", "test_recovery.py types it"),
    ("strata doctor", "what `strata doctor` finds", "help"),
    ("strata doctor --local", "where it does not start", "test_doctor.py types it"),
    ("strata node token", "node token` makes more", "test_joining_by_packages.py types it"),
    ("strata node token", "has other machines join that cluster", "test_joining_by_packages.py types it"),
    ("strata node resume 7", "the node is drained until", "deployer_test.cc: an upgrade that fails on the way"),
    ("strata node list", "lists the workers", "test_deploy.py types it"),
    ("strata cluster upgrade INVENTORY", "replaces them, machine by machine", "test_deploy.py types it"),
    ("strata model list", "unload that one first with", "deployments are asked before"),
    ("strata model unload NAME", "unload that one first with", "deployments are asked before"),
    ("strata node list", "says which nodes cannot be reached",
     "five links that break in a row while every node answers"),
    ("strata node list", "could not be linked in time",
     "a link that opens at neither end and breaks at neither"),
    ("strata node list", "did not link its stage in time",
     "a link of a prepared move that opens at neither end: deployment_move_test.cc"),
    ("strata model list", "no registered model has the content",
     "only a worker is told, whose load the model's removal has ended"),
    (f"strata model load {WORD}", "it is loaded again by itself in",
     "for causes without hints: what only a worker's backend refuses"),
    (f"strata model show {WORD}", "again after it failed (",
     "for causes without hints, and those for which a load is tried again have some"),
    (f"strata model load {WORD}", "cannot compute any more", "a GPU that fails for good: test_mixed_devices.py types it"),
    (f"strata model show {WORD}", "is being unloaded or placed anew",
     "lasts as long as the store takes a record"),
    (f"strata model show {WORD}", "nobody waits any more", "is told to a client that is gone"),
    (f"strata model show {WORD}", "is being moved to other nodes", "test_recovery.py types it"),
    (f"strata model show {WORD}", "is being moved to other nodes already", "test_recovery.py types it"),
    (f"strata model show {WORD}", "try again once it is ready", "of a move: a resize says the same"),
    (f"strata model show {WORD}", "a move was given up", "for causes without hints"),
    (f"strata model show {WORD}", "is on its way to", "test_recovery.py types it"),
    (f"strata model load {WORD}", "' is not loaded", "of a move: a resize says the same"),
    (f"strata model load {WORD}", "has used all epochs up to",
     "thousands of epochs while the store takes no record"),
    ("strata model list", "there is no model '", "of the store: the registry says it first"),
    ("strata node list", "there is no node '", "of the store: the cluster says it first"),
    (f"strata model show {WORD}", "the coordinator does not say how many tokens",
     "an older coordinator"),
    ("strata model list", "without saying what became of the model", "a faulty coordinator"),
    ("strata model list", "ended the upload without registering", "a faulty coordinator"),
    (f"strata {WORD} COMMAND --help", "explains each.", "help"),
    ("strata chat recall", "The prompt goes to the model as it is", "help"),
    ("strata model show NAME", "and what it cannot do;", "help"),
    ("strata node resume a", "what else runs on it", "help"),
    ("strata status", "says nothing of links that it was asked to measure", "help"),
    ("strata status", "Less than this free on the disk", "help"),
    ("strata model add PATH", "No weights are read.", "help"),
    (f"strata model load {WORD}", ", which is not loaded", "test_draft_model.py types it"),
    (f"strata node drain {WORD}", "two kinds may choose others of nearly equal ones", "kinds that differ by more than they may"),
    (f"strata model load {WORD}", "two kinds may choose others of nearly equal ones", "kinds that differ by more than they may"),
]
