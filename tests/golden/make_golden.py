#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a small random Gemma-3 checkpoint and its reference outputs.

    make_golden.py NAME FOLDER      NAME: one of the shapes below

Needs torch, transformers (5.17 was used) and safetensors. The weights are exactly
bfloat16 and everything is computed in float32, eager attention, one uncached pass
over the whole conversation for every output. FOLDER gets the checkpoint and
expected.safetensors, in the form that `gemma3 verify --expected` reads.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import Gemma3Config, Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Gemma3TextConfig

# A window smaller than a picture, pictures side by side, a picture in a later turn, an
# attention scale that is not head_dim's, few kv heads, a vocabulary that fills no group.
SHAPES = {
    "tiny-window": dict(
        vocab=270, hidden=48, heads=6, kv_heads=2, head_dim=16, ffn=72, layers=6, window=9, pattern=3,
        scalar=40, eps=1e-5, factor=4.0, tie=True, vision=dict(image=56, patch=7, hidden=24, heads=2, ffn=40,
        layers=2, tokens=16), turns=[(20, [3, 9]), (12, []), (24, [2])], shards=3, old=True, seed=3),
    "tiny-untied": dict(
        vocab=301, hidden=72, heads=3, kv_heads=3, head_dim=24, ffn=100, layers=8, window=5, pattern=4,
        scalar=24, eps=1e-6, factor=1.0, tie=False, vision=None, turns=[(33, []), (7, []), (19, [])],
        shards=1, old=False, seed=5),
    "tiny-wide": dict(
        vocab=512, hidden=128, heads=8, kv_heads=4, head_dim=64, ffn=256, layers=13, window=32, pattern=6,
        scalar=168, eps=1e-6, factor=8.0, tie=True, vision=dict(image=112, patch=14, hidden=72, heads=1, ffn=96,
        layers=3, tokens=4), turns=[(90, [0, 40]), (61, [30]), (150, [])], shards=2, old=False, seed=7),
}


def configuration(s):
    kinds = ["full_attention" if (i + 1) % s["pattern"] == 0 else "sliding_attention" for i in range(s["layers"])]
    full = dict(rope_theta=1e6, rope_type="default") if s["factor"] == 1 else dict(
        rope_theta=1e6, rope_type="linear", factor=s["factor"])
    text = dict(
        vocab_size=s["vocab"], hidden_size=s["hidden"], num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"], head_dim=s["head_dim"], intermediate_size=s["ffn"],
        num_hidden_layers=s["layers"], sliding_window=s["window"], layer_types=kinds,
        query_pre_attn_scalar=s["scalar"], rms_norm_eps=s["eps"], max_position_embeddings=4096,
        rope_parameters=dict(full_attention=full, sliding_attention=dict(rope_theta=1e4, rope_type="default")),
        tie_word_embeddings=s["tie"], bos_token_id=2, eos_token_id=1, pad_token_id=0)
    if s["vision"] is None:
        return Gemma3TextConfig(**text), Gemma3ForCausalLM
    v = s["vision"]
    vision = dict(
        hidden_size=v["hidden"], num_attention_heads=v["heads"], intermediate_size=v["ffn"],
        num_hidden_layers=v["layers"], image_size=v["image"], patch_size=v["patch"], layer_norm_eps=1e-6,
        vision_use_head=False)
    return Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=v["tokens"], boi_token_index=s["vocab"] - 3,
        eoi_token_index=s["vocab"] - 2, image_token_index=s["vocab"] - 1, image_token_id=s["vocab"] - 1,
        tie_word_embeddings=s["tie"]), Gemma3ForConditionalGeneration


def randomise(model):
    for name, p in model.named_parameters():
        with torch.no_grad():
            if p.dim() < 2:
                p.normal_(0, 0.2)
                if "layer_norm" in name or "layernorm" in name and "vision" in name:
                    if name.endswith("weight"):
                        p.add_(1)
            elif "embed_tokens" in name or "lm_head" in name:
                p.normal_(0, 0.35)
            elif "position_embedding" in name:
                p.normal_(0, 0.3)
            else:
                p.normal_(0, 1.3 / p[0].numel() ** 0.5)
            p.copy_(p.bfloat16().float())


def run(model, ids, pixels, image_id):
    kwargs = dict(input_ids=torch.tensor([ids]), use_cache=False)
    if image_id is not None:
        kwargs["token_type_ids"] = torch.tensor([[int(i == image_id) for i in ids]])
        if pixels:
            kwargs["pixel_values"] = torch.cat(pixels)
    return model(**kwargs).logits[0].float()


def conversation(model, s, out):
    vision, vocab = s["vision"], s["vocab"]
    g = torch.Generator().manual_seed(s["seed"])
    image_id = vocab - 1 if vision else None
    history, pixels = [], []
    for turn, (count, images) in enumerate(s["turns"]):
        ids = torch.randint(3, vocab - 3, (count,), generator=g).tolist()
        if turn == 0:
            ids[0] = 2
        for at in sorted(images, reverse=True):
            ids[at:at] = [vocab - 3] + [image_id] * vision["tokens"] + [vocab - 2]
        new = [torch.randn(1, 3, vision["image"], vision["image"], generator=g).clamp(-1, 1) for _ in images]
        history += ids
        pixels += new
        logits = run(model, history, pixels, image_id)
        out[f"turn{turn}.input_ids"] = torch.tensor(ids, dtype=torch.int64)
        out[f"turn{turn}.logits"] = logits[-len(ids):].clone()
        if new:
            out[f"turn{turn}.pixel_values"] = torch.cat(new)
            features = model.model.get_image_features(torch.cat(new))
            features = getattr(features, "pooler_output", features)
            if isinstance(features, (tuple, list)):
                features = torch.cat(list(features))
            out[f"turn{turn}.image_features"] = features.float().reshape(len(new), vision["tokens"], -1).clone()
        decoded = []
        for i in range(5):
            decoded.append(int(logits[-1, :vocab - 3].argmax()))
            history.append(decoded[-1])
            logits = run(model, history, pixels, image_id)
            out[f"turn{turn}.decode{i}.logits"] = logits[-1].clone()
        out[f"turn{turn}.decode_ids"] = torch.tensor(decoded, dtype=torch.int64)


def old_spelling(path, s):
    config = json.load(open(path))
    text = config.get("text_config", config)
    rope = text.pop("rope_parameters")
    text["rope_theta"] = rope["full_attention"]["rope_theta"]
    text["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    if s["factor"] != 1:
        text["rope_scaling"] = {"rope_type": "linear", "factor": s["factor"]}
    text.pop("layer_types", None)
    text.pop("_sliding_window_pattern", None)
    text["sliding_window_pattern"] = s["pattern"]
    json.dump(config, open(path, "w"), indent=2)


def main():
    name, folder = sys.argv[1], sys.argv[2]
    s = SHAPES[name]
    torch.manual_seed(s["seed"])
    config, kind = configuration(s)
    model = kind._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    randomise(model)
    model.tie_weights()
    out = {}
    with torch.no_grad():
        conversation(model, s, out)
    os.makedirs(folder, exist_ok=True)
    save_file(out, os.path.join(folder, "expected.safetensors"))
    size = sum(p.numel() for p in model.parameters()) * 2
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size=size // s["shards"] + 1)
    if s["old"]:
        old_spelling(os.path.join(folder, "config.json"), s)
    print(name, "transformers", transformers.__version__, "bytes", size,
          "largest logit", max(float(v.abs().max()) for k, v in out.items() if k.endswith("logits")))


main()
