"""Published clients, unmodified, on two workers: a loop with a tool and a structured answer each, whole and streamed."""

import pathlib

import pytest

from calling_model import CONTEXT, make_caller
from client_environment import environment, run
from cluster import Cluster, cut

LOOPS = pathlib.Path(__file__).parent / "clients" / "loops"
CLIENTS = {  # By the script of its loops.
    "openai": ["openai==3.57.0"],
    "pydantic_ai": ["pydantic-ai-slim[openai]==2.68.0"],
    "instructor": ["instructor==1.17.0"],
    "langchain": ["langchain-openai==1.7.4", "langchain==1.5.2"],
    "litellm": ["litellm[mcp]==1.110.2"],
    "agents": ["openai-agents==0.24.0"],
    "hub": ["huggingface_hub==2.4.0", "pydantic==2.14.4"],
    "llm": ["llm==0.36"],
    "smolagents": ["smolagents[openai]==1.26.0"],
    "dspy": ["dspy==3.4.1"],
    "llamaindex": ["llama-index-llms-openai-like==0.8.1"],
    "haystack": ["haystack-ai==3.4.1"],
    "autogen": ["autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"],
    "ag2": ["ag2[openai]==1.2.1"],
    "crewai": ["crewai==1.15.30"],
    "gradio": ["gradio==6.31.0", "openai==3.57.0"],
    "lorax": ["lorax-client==0.6.3"],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("loops")) as c:
        c.start_workers(2)
        folder = make_caller(tmp_path_factory.mktemp("model") / "caller")
        c.load("caller", folder, cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=CONTEXT, sessions=2)
        yield c


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_has_its_loop_and_its_structured_answer(cluster, client):
    run(environment(f"loops-{client}", *CLIENTS[client]), LOOPS / f"{client}_loop.py", cluster.http)
