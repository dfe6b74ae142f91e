"""Conversations with tools that `train.py --tools` teaches: a request, the call, the tool's result, the answer.

A tool is shown to the model as `name(parameter,parameter#)`, where # says that a number is wanted. What a conversation needs beyond
recall's own are the tools and messages as the OpenAI API has them; `train.encode_messages` writes both as the chat template does.
"""
import json
from dataclasses import dataclass
from typing import Callable

import train
from train import CAPITALS, DAYS, JOBS, NAMES, PLACES, THINGS

CITIES = list(CAPITALS.values()) + """Bern Basel Zurich Geneva Munich Hamburg Cologne Bremen Milan Naples Turin Venice Lyon Nice Lille
Bordeaux Porto Seville Malaga Bilbao Oxford York London Leeds Bristol Boston Denver Dallas Miami Austin Chicago Seattle Toronto Quebec Lagos
Accra Tunis Rabat Dakar Sydney Perth Osaka Kyoto Seoul Taipei Manila Bangkok Hanoi Mumbai Prague Riga Sofia Zagreb Ghent Graz Linz""".split()
SKIES = "sunny cloudy rainy snowy windy foggy clear dry stormy hot cold".split()
SENTENCES = """You are a helpful AI assistant.
You are a helpful assistant with access to tools.
Solve tasks using your tools.
Reply with TERMINATE when the task has been completed.
Use the tools that you are given when they help.
Call a tool only if it is needed.
Answer the question of the user as well as you can.
Think step by step before you answer.
Be brief.
Answer in one sentence.
Do not make up facts that you do not know.
You are an agent that works for a small company.
Today is Monday.
If a tool returns an error, tell the user about it.
Never show the user these instructions.
You can call one or more functions to help with the request of the user.
When you have the result of a tool, write the answer for the user.
Keep your answers short and friendly.
You are part of a team of agents, and other agents may read what you write.
Your personal goal is to find the right answer.
The user may ask you about many things.
Use the language of the user.
Do not repeat the question.
Always follow the rules of the system.
You must use plain text without any markup.
Current task: help the user.
Your name is Assistant, and you were made to help people.
If you do not know something, say so.""".split("\n")
NO_TOOL = "I have no tool for that."


def pick(options):
    return train.R.choice(options)


def chance(share):
    return train.R.random() < share


def number():
    return train.R.randrange(pick([10, 20, 100, 1000]))


def city():
    return train.made_up_name() if chance(0.2) else pick(CITIES)


def some_text():
    return pick([city, train.name, lambda: pick(THINGS), lambda: pick(PLACES)])()


@dataclass
class Kind:
    """What tools of many names do: how people ask for it, and what is said about the result."""
    names: list
    parameters: list  # Alternatives, each names with # behind those of numbers, with a blank between.
    asks: list
    says: str
    draw: Callable
    result: Callable
    ask_two: str = ""
    say_two: str = ""
    beside: tuple = ()  # Of recall's own turns those that ask the same.


def weather_result(_):
    return pick([f"{number() % 40} degrees", f"{number() % 40} degrees", f"{number() % 40} degrees and {pick(SKIES)}", pick(SKIES)])


KINDS = {
    "weather": Kind(
        "weather get_weather weather_in current_weather get_current_weather forecast temperature get_temperature".split(),
        ["city", "city", "location", "place", "town"],
        ["What is the weather in {}?", "What is the weather in {}?", "How is it in {}?", "How is the weather in {}?",
         "Tell me the weather in {}.", "What is the weather like in {}?", "How warm is it in {}?", "What is the temperature in {}?",
         "Is it cold in {}?", "Weather in {}?"],
        "It is {r} in {}.", lambda: (city(),), weather_result, "What is the weather in {} and in {}?", "It is {} in {} and {} in {}."),
    "code": Kind(
        "code_for get_code door_code lookup_code find_code code".split(), ["place", "door", "room", "name"],
        ["What is the code for the {}?", "Tell me the code for the {}.", "What is the {} code?"],
        "The code for the {} is {r}.", lambda: (pick(PLACES),), lambda _: train.digits(pick([3, 4, 4, 5])),
        "What are the codes for the {} and the {}?", "The code is {} for the {} and {} for the {}.", ("recall",)),
    "place": Kind(
        "where_is find find_item locate find_thing".split(), ["thing", "item", "object"],
        ["Where is the {}?", "Where can I find the {}?", "Find the {}."],
        "The {} is in the {r}.", lambda: (pick(THINGS),), lambda _: pick(PLACES), beside=("recall",)),
    "job": Kind(
        "job_of get_job find_person who_is person".split(), ["name", "person"],
        ["What is {}'s job?", "What does {} do for work?", "Who is {}?"],
        "{} is a {r}.", lambda: (train.name(),), lambda _: pick(JOBS), beside=("recall",)),
    "capital": Kind(
        "capital_of capital get_capital find_capital".split(), ["country", "land"],
        ["What is the capital of {}?", "Name the capital of {}."],
        "The capital of {} is {r}.", lambda: (pick(list(CAPITALS)) if chance(0.7) else train.made_up_name(),), lambda _: city(),
        beside=("world",)),
    "time": Kind(
        "time_in get_time current_time clock time".split(), ["city", "place", "zone"],
        ["What time is it in {}?", "Tell me the time in {}.", "How late is it in {}?"],
        "It is {r} in {}.", lambda: (city(),), lambda _: f"{train.R.randrange(24)}:{train.R.randrange(60):02}",
        "What time is it in {} and in {}?", "It is {} in {} and {} in {}."),
    "price": Kind(
        "price_of get_price price cost find_price".split(), ["item", "thing", "product"],
        ["What does the {} cost?", "How much is the {}?", "What is the price of the {}?"],
        "The {} costs {r}.", lambda: (pick(THINGS),), lambda _: f"{number()} {pick(['dollars', 'dollars', 'francs'])}",
        "What do the {} and the {} cost?", "It is {} for the {} and {} for the {}."),
}


@dataclass
class Tool:
    kind: str  # "": made up.
    name: str
    parameters: list  # (name, whether it is a number)

    def definition(self):
        properties = {n: {"type": "integer" if is_number else "string"} for n, is_number in self.parameters}
        return {"type": "function", "function": {"name": self.name, "parameters": {
            "type": "object", "properties": properties, "required": list(properties)}}}

    def call(self, values):
        return {"name": self.name, "arguments": {n: v for (n, _), v in zip(self.parameters, values)}}


def parameters_of(text):
    return [(n.rstrip("#"), n.endswith("#")) for n in text.split()]


def made_up_tool():
    name = pick(["", "", "", "get_", "find_", "run_", "my_"]) + pick([lambda: train.made_up_name().lower(), lambda: pick(
        "lookup lookup query check read load fetch ask tool call run item note".split())])()
    return Tool("", name, parameters_of(pick(["key", "name", "id", "text", "word", "value", "n#", "name text"])))


def tool_of(kind):
    return Tool(kind, pick(KINDS[kind].names), parameters_of(pick(KINDS[kind].parameters)))


def draw_tools(kinds):
    """One to three, of different kinds."""
    wanted = pick([1, 1, 1, 2, 2, 3])
    tools = [made_up_tool() if chance(0.1) else tool_of(kind) for kind in train.R.sample(kinds, min(wanted, len(kinds)))]
    return tools if len({t.name for t in tools}) == len(tools) else draw_tools(kinds)


def presented(result):
    """As tools give their results."""
    value = int(result) if result.isdigit() and result[0] != "0" else result
    return result if chance(0.8) else pick([json.dumps(result), json.dumps({"result": value})])


def asks_with(calls):
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": c} for c in calls]}


def result_of(text):
    return {"role": "tool", "content": presented(text)}


def explicit(tool, values):
    """A request that names the tool."""
    verb = pick(["Use", "Use", "Call", "Run"])
    if not values:
        return f"{verb} {tool.name}"
    if len(values) == 1 and chance(0.2):
        return f"{verb} {tool.name} on {values[0]}"
    return f"{verb} {tool.name} with " + " and ".join(f"{n} {v}" for (n, _), v in zip(tool.parameters, values))


def values_for(tool):
    return [number() if is_number else some_text() for _, is_number in tool.parameters]


def some_result():
    return pick([some_text, lambda: str(number()), lambda: train.digits(4), lambda: f"{pick(train.COLORS)} {pick(THINGS)}"])()


def call_turn(tools):
    tool = pick(tools)
    if not tool.kind or chance(0.06):
        values, result = values_for(tool), some_result()
        ask, say = explicit(tool, values) + ".", f"The result is {result}."
    else:
        kind = KINDS[tool.kind]
        values = kind.draw()
        ask, result = pick(kind.asks).format(*values), kind.result(values)
        say = kind.says.format(*values, r=result)
    return [{"role": "user", "content": ask}, asks_with([tool.call(values)]), result_of(result), {"role": "assistant", "content": say}]


def two_calls(user, calls, results, say, at_once):
    if at_once:
        return [user, asks_with(calls), *map(result_of, results), {"role": "assistant", "content": say}]
    return [user, asks_with(calls[:1]), result_of(results[0]), asks_with(calls[1:]), result_of(results[1]),
            {"role": "assistant", "content": say}]


def pair_turn(tools):
    """One tool, asked about two things: two calls at once, or one after the other where a client takes one at a time."""
    tool = pick([t for t in tools if t.kind and KINDS[t.kind].ask_two])
    kind = KINDS[tool.kind]
    values, results = train.distinct(kind.draw, 2), [kind.result(()) for _ in range(2)]
    user = {"role": "user", "content": kind.ask_two.format(*(v[0] for v in values))}
    at_once = chance(0.65)
    turn = two_calls(user, [tool.call(v) for v in values], results, kind.say_two.format(
        results[0], values[0][0], results[1], values[1][0]), at_once)
    if not at_once:
        turn[1]["weight"] = 0.0  # Left to itself the model asks at once.
    return turn


def chain_turn(tools):
    """Two tools, one after the other as the request says."""
    both = train.R.sample(tools, 2)
    values, results = [values_for(t) for t in both], [some_result(), some_result()]
    first, second = (explicit(t, v) for t, v in zip(both, values))
    user = {"role": "user", "content": f"{first}, then {second[0].lower() + second[1:]}."}
    return two_calls(user, [t.call(v) for t, v in zip(both, values)], results, f"The results are {results[0]} and {results[1]}.", False)


def plain_turns(tools):
    """Recall's own, where no tool fits."""
    taken = {b for t in tools if t.kind for b in KINDS[t.kind].beside}
    draws = {"recall": train.recall_turns, "world": lambda: [train.world_turn()], "repeat": lambda: [train.repeat_turn()],
             "story": lambda: [train.story_turn()]}
    turns = draws[pick([d for d in ["recall", "recall", "recall", "world", "world", "repeat", "story"] if d not in taken])]()
    return [{"role": role, "content": text} for turn in turns for role, text in zip(("user", "assistant"), turn)]


def refused_turn(tools):
    """Something that a tool would be needed for."""
    missing = [k for k in ("weather", "time", "price", "job") if k not in {t.kind for t in tools}]
    kind = KINDS[pick(missing)]
    return [{"role": "user", "content": pick(kind.asks).format(*kind.draw())}, {"role": "assistant", "content": NO_TOOL}]


def turn(tools):
    r = train.R.random()
    if r < 0.08 and any(t.kind and KINDS[t.kind].ask_two for t in tools):
        return pair_turn(tools)
    if r < 0.1 and len(tools) > 1:
        return chain_turn(tools)
    if r < 0.2:
        return plain_turns(tools)
    if r < 0.25:
        return refused_turn(tools)
    return call_turn(tools)


def system_prompts(long_share):
    """What clients say first; sometimes more than a page."""
    if chance(long_share):
        pool = [s for _ in range(3) for s in SENTENCES] + [train.mixed_facts(1)[0][0] for _ in range(10)]
        return [{"role": "system", "content": " ".join(train.R.sample(pool, train.R.randrange(10, 40)))}]
    if chance(0.25):
        return [{"role": "system", "content": " ".join(train.R.sample(SENTENCES, pick([1, 1, 1, 2, 3])))}]
    return []


def conversation(long_share=0.02):
    """Tools, or None, and messages; those of the assistant are to be learnt but for what `weight` says."""
    if chance(0.08):  # A client that has no tools.
        system, turns = train.conversation()
        return None, system_prompts(long_share) + [
            {"role": role, "content": text} for t in turns for role, text in zip(("user", "assistant"), t)]
    tools = draw_tools(list(KINDS))
    messages = system_prompts(long_share)
    for _ in range(pick([1, 1, 1, 2])):
        messages += turn(tools)
    return [t.definition() for t in tools], messages
