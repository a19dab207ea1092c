"""A tiny Llama with random weights and a tokenizer of bytes: made here, nothing is downloaded.

usage: model.py DIRECTORY
"""

import json
import pathlib
import sys

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 257,
    "eos_token_id": 258,
    "pad_token_id": 259,
    "torch_dtype": "bfloat16",
}
"""1 KiB of KV a token: 4 layers, 2 heads, 32 numbers of 2 bytes, keys and values."""


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "config.json", CONFIG)
    write(folder / "generation_config.json", {"bos_token_id": 257, "eos_token_id": 258})
    tokenizer(folder)
    weights(folder / "model.safetensors")


def write(path, value):
    path.write_text(json.dumps(value, indent=1))


def tokenizer(folder):
    """One token for each byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = {byte: i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words["<unk>"] = len(words)
    tokens = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    special = ("<s>", "</s>", "<pad>")
    tokens.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokens.save(str(folder / "tokenizer.json"))
    write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "model_max_length": CONFIG["max_position_embeddings"],
        },
    )


def weights(path):
    """The same numbers every time: outputs of two runs can be compared."""
    import torch
    from safetensors.torch import save_file

    random = torch.Generator().manual_seed(0)

    def some(*shape):
        return (torch.randn(*shape, generator=random) * 0.02).to(torch.bfloat16)

    hidden, vocab = CONFIG["hidden_size"], CONFIG["vocab_size"]
    inner, head = CONFIG["intermediate_size"], CONFIG["head_dim"]
    queries, keys = CONFIG["num_attention_heads"] * head, CONFIG["num_key_value_heads"] * head
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    tensors = {
        "model.embed_tokens.weight": some(vocab, hidden),
        "lm_head.weight": some(vocab, hidden),
        "model.norm.weight": ones.clone(),
    }
    for layer in range(CONFIG["num_hidden_layers"]):
        shapes = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        for name, shape in shapes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = some(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = ones.clone()
    save_file(tensors, str(path), metadata={"format": "pt"})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
