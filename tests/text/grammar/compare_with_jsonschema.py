#!/usr/bin/env python3
"""Random schemas, read by Strata and by the Python package jsonschema.

usage: compare_with_jsonschema.py JUDGE [--seed S] [--schemas N]

JUDGE is build/tests/grammar_judge. Of each schema that Strata takes: texts drawn from its grammar are valid
by jsonschema, and instances that jsonschema finds valid are admitted in some order of members, others in
none. Numbers are kept where binary fractions are exact, and patterns where both libraries agree.
"""
import argparse
import itertools
import json
import random
import subprocess
import sys

import jsonschema

NAMES = ["a", "b", "ab", "é"]
SCALARS = [None, True, False, 0, 1, -1, 2, 2.5, -0.5, 10, 100, "", "a", "ab", "é\"", "aab", "b"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, choices, low, high):
        return self.random.sample(choices, min(len(choices), self.random.randint(low, high)))

    def instance(self, depth=2):
        kind = self.random.random()
        if depth == 0 or kind < 0.5:
            return self.random.choice(SCALARS)
        if kind < 0.7:
            return [self.instance(depth - 1) for _ in range(self.random.randint(0, 3))]
        return {name: self.instance(depth - 1) for name in self.some(NAMES, 0, 3)}

    def schema(self, depth=3):
        if depth == 0 or self.random.random() < 0.08:
            return self.random.choice([True, False, {"type": "string"}, {"type": "integer"}, {"const": "a"}, {}])
        makers = {
            "type": lambda: self.random.choice(["string", "integer", "number", "object", "array", "boolean", "null",
                                                ["integer", "string"], ["object", "null"]]),
            "enum": lambda: [self.instance(1) for _ in range(self.random.randint(1, 4))],
            "const": lambda: self.instance(1),
            "minimum": lambda: self.random.choice([-1, 0, 0.5, 2]),
            "maximum": lambda: self.random.choice([-0.5, 0, 1, 10.25]),
            "exclusiveMinimum": lambda: self.random.choice([-2.5, 0, 1]),
            "exclusiveMaximum": lambda: self.random.choice([0, 2, 100]),
            "multipleOf": lambda: self.random.choice([1, 2, 0.5, 5]),
            "minLength": lambda: self.random.randint(0, 2),
            "maxLength": lambda: self.random.randint(0, 3),
            "pattern": lambda: self.random.choice(["^a+$", "a", "^[^b]*$", "b$", "^(a|é\")", "^[^c]{1,2}$"]),
            "prefixItems": lambda: [self.schema(depth - 1) for _ in range(self.random.randint(1, 2))],
            "items": lambda: self.schema(depth - 1),
            "minItems": lambda: self.random.randint(0, 2),
            "maxItems": lambda: self.random.randint(0, 3),
            "contains": lambda: self.schema(depth - 1),
            "properties": lambda: {name: self.schema(depth - 1) for name in self.some(NAMES, 1, 3)},
            "patternProperties": lambda: {self.random.choice(["^a", "b", "é$"]): self.schema(depth - 1)},
            "additionalProperties": lambda: self.schema(depth - 1),
            "propertyNames": lambda: self.schema(depth - 1),
            "required": lambda: self.some(NAMES, 1, 2),
            "minProperties": lambda: self.random.randint(0, 2),
            "maxProperties": lambda: self.random.randint(0, 2),
            "dependentRequired": lambda: {self.random.choice(NAMES): self.some(NAMES, 1, 2)},
            "dependentSchemas": lambda: {self.random.choice(NAMES): self.schema(depth - 1)},
            "allOf": lambda: [self.schema(depth - 1) for _ in range(self.random.randint(1, 2))],
            "anyOf": lambda: [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))],
            "oneOf": lambda: [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))],
            "not": lambda: self.schema(depth - 1),
            "if": lambda: self.schema(depth - 1),
            "then": lambda: self.schema(depth - 1),
            "else": lambda: self.schema(depth - 1),
            "unevaluatedProperties": lambda: self.schema(0),
            "unevaluatedItems": lambda: self.schema(0),
            "$ref": lambda: "#/$defs/d",
        }
        return {key: makers[key]() for key in self.some(list(makers), 1, 4)}


def orders(value):
    """`value` with its members in every order."""
    if isinstance(value, list):
        return [list(items) for items in itertools.product(*map(orders, value))]
    if isinstance(value, dict):
        return [dict(zip(names, members)) for names in itertools.permutations(value)
                for members in itertools.product(*(orders(value[name]) for name in names))]
    return [value]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("judge")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schemas", type=int, default=2000)
    arguments = parser.parse_args()
    judge = subprocess.Popen([arguments.judge], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    maker = Maker(arguments.seed)
    taken, drawn, checked, faults = 0, 0, 0, 0
    for _ in range(arguments.schemas):
        schema = maker.schema()
        if isinstance(schema, dict):
            schema["$defs"] = {"d": maker.schema(1)}
        validator = jsonschema.Draft202012Validator(schema)
        instances = [maker.instance() for _ in range(12)] + [maker.random.choice(SCALARS) for _ in range(6)]
        texts = [(instance, json.dumps(ordered, ensure_ascii=maker.random.random() < 0.5))
                 for instance in instances for ordered in orders(instance)[:200]]
        judge.stdin.write(json.dumps({"schema": json.dumps(schema), "texts": [t for _, t in texts], "draw": 10}) + "\n")
        judge.stdin.flush()
        answer = json.loads(judge.stdout.readline())
        try:
            valid = {json.dumps(i): validator.is_valid(i) for i in instances}
        except RecursionError:
            continue
        if "reason" in answer:
            if answer["reason"] == "SCHEMA_ADMITS_NOTHING":
                answer = {"admitted": [False] * len(texts), "drawn": []}
            else:
                if answer["reason"] not in ("SCHEMA_UNSUPPORTED", "SCHEMA_TOO_COMPLEX"):
                    print("WRONGLY INVALID", json.dumps(schema), answer)
                    faults += 1
                continue
        taken += 1
        admitted = {}
        for (instance, _), is_admitted in zip(texts, answer["admitted"]):
            key = json.dumps(instance)
            admitted[key] = admitted.get(key, False) or is_admitted
        for key, is_valid in valid.items():
            checked += 1
            if admitted[key] != is_valid:
                faults += 1
                print("ADMITS" if admitted[key] else "REFUSES", key, "of", json.dumps(schema))
        for text in answer["drawn"]:
            drawn += 1
            if not validator.is_valid(json.loads(text)):
                faults += 1
                print("DRAWS", text, "of", json.dumps(schema))
    judge.stdin.close()
    print(f"{arguments.schemas} schemas, {taken} taken, {checked} instances, {drawn} drawn, {faults} faults")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
