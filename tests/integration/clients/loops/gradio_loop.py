import gradio
from common import ANSWER, MODEL, QUESTION, URL

chat = gradio.load_chat(URL, model=MODEL, token="none")
*_, last = chat.fn(QUESTION, [])
assert (last if isinstance(last, str) else last["content"]) == ANSWER, last
