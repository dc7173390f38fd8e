"""Makes chat completion calls with the official OpenAI client.

Reads {"base_url", "api_key", "calls": [{"model", "prompt", "max_tokens", "stream", "include_usage", "headers"}]} from
standard input and writes a JSON list of one result a call to standard output:
{"id", "model", "text", "finish_reason", "chunks", "usage", "headers", "error"}. Retries are off: each call is one request.
"""

import json
import sys

import openai


def chat(client, call):
    arguments = {
        "model": call["model"],
        "messages": [{"role": "user", "content": call["prompt"]}],
        "extra_headers": call["headers"],
    }
    if call["max_tokens"]:
        arguments["max_tokens"] = call["max_tokens"]
    if call["stream"]:
        arguments["stream"] = True
        if call["include_usage"]:
            arguments["stream_options"] = {"include_usage": True}
    return client.chat.completions.with_raw_response.create(**arguments)


def whole(raw, result):
    completion = raw.parse()
    choice = completion.choices[0]
    result.update(id=completion.id, model=completion.model, text=choice.message.content, finish_reason=choice.finish_reason)
    if completion.usage:
        result["usage"] = completion.usage.model_dump()


def streamed(raw, result):
    for chunk in raw.parse():
        result["chunks"] += 1
        result.update(id=chunk.id, model=chunk.model)
        for choice in chunk.choices:
            result["text"] += choice.delta.content or ""
            result["finish_reason"] = choice.finish_reason or result["finish_reason"]
        if chunk.usage:
            result["usage"] = chunk.usage.model_dump()


def run(client, call):
    result = {"id": "", "model": "", "text": "", "finish_reason": "", "chunks": 0, "usage": None, "headers": {}, "error": None}
    try:
        raw = chat(client, call)
        result["headers"] = dict(raw.headers)
        (streamed if call["stream"] else whole)(raw, result)
    except openai.APIError as error:
        result["error"] = {
            "class": type(error).__name__,
            "status": getattr(error, "status_code", 0),
            "message": error.message,
            "type": error.type,
            "code": error.code,
            "body": json.dumps(error.body),
        }
        if isinstance(error, openai.APIStatusError):
            result["headers"] = dict(error.response.headers)
    return result


def main():
    order = json.load(sys.stdin)
    client = openai.OpenAI(base_url=order["base_url"], api_key=order["api_key"], max_retries=0, timeout=60)
    json.dump([run(client, call) for call in order["calls"]], sys.stdout)


main()
