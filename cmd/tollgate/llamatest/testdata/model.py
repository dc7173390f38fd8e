"""Writes a GGUF model file: a llama of half a megabyte with random weights from a fixed seed.

Usage: model.py FILE

The tokenizer knows a few words, every byte and every ASCII character. One dimension of the embedding is held large so that
the rows of the words win in the output: the text is readable, and sometimes it ends by itself. Nothing of this is
trained, so no model file has to be downloaded or kept.
"""

import sys

import numpy
from gguf import GGUFWriter, TokenType

WORDS = (
    "the gate way toll cost token budget limit key model cache red is and of to in a we route then count spend reply stream"
).split()
EMBEDDING = 64
BLOCKS = 2
HEADS = 4
FEED_FORWARD = 128
CONTEXT = 4096
END = 2
FIRST_WORD = 3 + 256


def vocabulary():
    """The tokens as (text, type, score); their order fixes END and FIRST_WORD."""
    tokens = [("<unk>", TokenType.UNKNOWN, 0.0), ("<s>", TokenType.CONTROL, 0.0), ("</s>", TokenType.CONTROL, 0.0)]
    tokens += [("<0x%02X>" % byte, TokenType.BYTE, 0.0) for byte in range(256)]
    tokens += [("\u2581" + word, TokenType.NORMAL, -float(i + 1)) for i, word in enumerate(WORDS)]
    tokens += [(chr(c), TokenType.NORMAL, -100.0 - c) for c in range(33, 127)]
    tokens += [("\u2581", TokenType.NORMAL, -99.0)]
    return tokens


def write_header(writer, tokens):
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in tokens])
    writer.add_token_types([int(kind) for _, kind, _ in tokens])
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    writer.add_chat_template(
        "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant :{% endif %}"
    )


def write_tensors(writer, size):
    rng = numpy.random.default_rng(7)

    def random(*shape, scale):
        return (rng.standard_normal(shape) * scale).astype(numpy.float32)

    embedding = random(size, EMBEDDING, scale=1.0)
    embedding[:, 0] = 12.0
    output = random(size, EMBEDDING, scale=0.6)
    output[:, 0] = -3.0
    output[FIRST_WORD : FIRST_WORD + len(WORDS), 0] = 2.0
    output[END, 0] = 1.6
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", numpy.ones(EMBEDDING, numpy.float32))
    writer.add_tensor("output.weight", output)
    for block in range(BLOCKS):
        name = f"blk.{block}."
        writer.add_tensor(name + "attn_norm.weight", numpy.ones(EMBEDDING, numpy.float32))
        writer.add_tensor(name + "ffn_norm.weight", numpy.ones(EMBEDDING, numpy.float32))
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(name + part + ".weight", random(EMBEDDING, EMBEDDING, scale=0.15))
        writer.add_tensor(name + "ffn_gate.weight", random(FEED_FORWARD, EMBEDDING, scale=0.15))
        writer.add_tensor(name + "ffn_up.weight", random(FEED_FORWARD, EMBEDDING, scale=0.15))
        writer.add_tensor(name + "ffn_down.weight", random(EMBEDDING, FEED_FORWARD, scale=0.15))


def main():
    tokens = vocabulary()
    writer = GGUFWriter(sys.argv[1], "llama")
    write_header(writer, tokens)
    write_tensors(writer, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
