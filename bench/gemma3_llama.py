#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speed and perplexity of `gemma3` and of llama.cpp on one file, in turns.

Every round measures llama.cpp and then `gemma3 bench` (A B A B ...), with the same
threads, the same prompt length and the same number of single-token steps, so that
what else runs on the machine meets both alike. llama.cpp is driven through the
low-level interface of llama-cpp-python: one llama_decode with `prompt` tokens and
logits of the last of them (prefill), then `decode` calls with one token each, which
follow the prompt (decode). Nothing is sampled in either program. The cache is f16.

Perplexity has the definition of llama.cpp's own tool: the text's tokens with <bos>
in front are cut into chunks of `ctx`; the first token of each is replaced by <bos>;
positions ctx/2 .. ctx-2 are scored by the token that follows them; what does not
fill a chunk is left out.

  python3 bench/gemma3_llama.py --model FILE.gguf [--gemma3 PROGRAM] [--out FILE]

Without --gemma3 only llama.cpp is measured. The JSON holds every raw sample.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
from llama_cpp import __version__ as binding_version
from llama_cpp import llama_cpp as llama

ROOT = pathlib.Path(__file__).resolve().parent.parent


@llama.llama_log_callback
def silent(_level, _text, _user):
    """Takes the library's log."""


class Llama:
    """A model and a context of llama.cpp."""

    def __init__(self, path, threads, ctx, batch):
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama.llama_model_load_from_file(os.fsencode(path), params)
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        self.vocab = llama.llama_model_get_vocab(self.model)
        self.vocab_size = llama.llama_vocab_n_tokens(self.vocab)
        params = llama.llama_context_default_params()
        params.n_ctx = ctx
        params.n_batch = batch
        params.n_ubatch = batch
        params.n_threads = threads
        params.n_threads_batch = threads
        params.no_perf = True
        self.context = llama.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp cannot make a context")
        self.batch = llama.llama_batch_init(batch, 0, 1)

    def close(self):
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.context)
        llama.llama_model_free(self.model)

    def tokens(self, text):
        room = len(text) + 8
        ids = (llama.llama_token * room)()
        count = llama.llama_tokenize(self.vocab, text, len(text), ids, room, True, False)
        if count < 0:
            sys.exit("llama.cpp cannot tokenise the text")
        return list(ids[:count])

    def clear(self):
        llama.llama_memory_clear(llama.llama_get_memory(self.context), True)

    def step(self, ids, first, wanted):
        """Runs one batch; wanted: positions of it whose logits are asked for."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = first + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1 if i in wanted else 0
        if llama.llama_decode(self.context, batch) != 0:
            sys.exit("llama_decode failed")

    def logits(self, index):
        row = llama.llama_get_logits_ith(self.context, index)  # waits for the step
        return numpy.ctypeslib.as_array(ctypes.cast(row, ctypes.POINTER(ctypes.c_float)),
                                        (self.vocab_size,))

    def measure(self, ids, prompt, decode):
        """Tokens a second of a prefill and of the steps after it."""
        self.clear()
        start = time.perf_counter()
        self.step(ids[:prompt], 0, {prompt - 1})
        self.logits(prompt - 1)
        middle = time.perf_counter()
        for i in range(decode):
            self.step([ids[(prompt + i) % len(ids)]], prompt + i, {0})
            self.logits(0)
        end = time.perf_counter()
        return prompt / (middle - start), decode / (end - middle)

    def perplexity(self, text, ctx):
        ids = self.tokens(text)
        bos = llama.llama_vocab_bos(self.vocab)
        chunks, first = len(ids) // ctx, ctx // 2
        if chunks == 0:
            sys.exit(f"the text has {len(ids)} tokens, less than one chunk of {ctx}")
        scores = []
        for chunk in range(chunks):
            part = ids[chunk * ctx : (chunk + 1) * ctx]
            part[0] = bos
            self.clear()
            self.step(part, 0, set(range(first, ctx)))
            for i in range(first, ctx - 1):
                row = self.logits(i).astype(numpy.float64)
                top = row.max()
                scores.append(top + math.log(numpy.exp(row - top).sum()) - row[part[i + 1]])
        return summary_of_scores(scores, chunks)


def summary_of_scores(scores, chunks):
    mean = statistics.fmean(scores)
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    value = math.exp(mean)
    return {"perplexity": value, "standard_error": value * error, "mean_nll": mean,
            "chunks": chunks, "scored_tokens": len(scores)}


def run_gemma3(arguments):
    """Runs the program with --json and gives the object that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "out.json")
        done = subprocess.run([*arguments, "--json", str(path)], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(arguments)}: status {done.returncode}\n{done.stderr}")
        return json.loads(path.read_text())


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def rounds(options, engine, ids):
    """The raw samples, one object a round, in the order in which they were taken."""
    engine.measure(ids, options.prompt, 8)  # not counted: pages and threads come up
    samples = []
    for number in range(options.repeat):
        load = os.getloadavg()[0]
        prefill, decode = engine.measure(ids, options.prompt, options.decode)
        sample = {"round": number, "load_before": load,
                  "llama": {"prefill_tokens_s": prefill, "decode_tokens_s": decode}}
        if options.gemma3:
            sample["gemma3"] = run_gemma3(
                [options.gemma3, "bench", "--model", options.model, "--repeat", "1",
                 "--prompt", str(options.prompt), "--decode", str(options.decode),
                 "--threads", str(options.threads)])
        samples.append(sample)
        print(f"round {number}: llama.cpp prefill {prefill:.1f}/s decode {decode:.2f}/s"
              + gemma3_words(sample.get("gemma3")) + f" (load {load:.1f})", flush=True)
    return samples


def gemma3_words(result):
    if result is None:
        return ""
    return (f", gemma3 prefill {result['prefill_tokens_s']['median']:.1f}/s"
            f" decode {result['decode_tokens_s']['median']:.2f}/s")


def parse():
    parser = argparse.ArgumentParser(description="gemma3 and llama.cpp in turns")
    parser.add_argument("--model", required=True)
    parser.add_argument("--gemma3", help="the program; without it only llama.cpp is measured")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--text", default=str(ROOT / "tests/golden/perplexity.txt"))
    parser.add_argument("--ctx", type=int, default=512, help="chunk of the perplexity")
    parser.add_argument("--no-perplexity", action="store_true")
    parser.add_argument("--out", help="JSON; by default a new file in bench/results")
    return parser.parse_args()


def main():
    options = parse()
    llama.llama_log_set(silent, None)
    llama.llama_backend_init()
    text = pathlib.Path(options.text).read_bytes()
    longest = max(options.prompt, options.ctx)
    engine = Llama(options.model, options.threads, options.prompt + options.decode, longest)
    ids = engine.tokens(text)
    if len(ids) < options.prompt:
        sys.exit(f"the text has {len(ids)} tokens, fewer than --prompt {options.prompt}")
    result = {
        "environment": {
            "cpu": cpu_name(), "cpus": os.cpu_count(), "system": platform.platform(),
            "llama_cpp_python": binding_version,
            "llama_cpp_system_info": llama.llama_print_system_info().decode(),
            "load_at_start": os.getloadavg(),
        },
        "model": pathlib.Path(options.model).name,
        "threads": options.threads, "prompt": options.prompt, "decode": options.decode,
        "decode_context": [options.prompt, options.prompt + options.decode],
        "llama_cache": "f16", "llama_flash_attention": "auto",
        "rounds": rounds(options, engine, ids),
    }
    engine.close()
    result["summary"] = {"llama": {}}
    for name in ("llama",) + (("gemma3",) if options.gemma3 else ()):
        result["summary"][name] = {
            key: spread([r[name][key] if name == "llama" else r[name][key]["median"]
                         for r in result["rounds"]])
            for key in ("prefill_tokens_s", "decode_tokens_s")}
    if not options.no_perplexity:
        engine = Llama(options.model, options.threads, options.ctx, longest)
        result["perplexity"] = {"text": pathlib.Path(options.text).name, "ctx": options.ctx,
                                "llama": engine.perplexity(text, options.ctx)}
        engine.close()
        for precision in ("int8", "float32") if options.gemma3 else ():
            result["perplexity"][f"gemma3_{precision}"] = run_gemma3(
                [options.gemma3, "perplexity", "--model", options.model, options.text,
                 "--ctx", str(options.ctx), "--precision", precision])
    result["environment"]["load_at_end"] = os.getloadavg()
    out = pathlib.Path(options.out or ROOT / "bench/results"
                       / time.strftime("gemma3_llama_%Y-%m-%d_%H%M%S.json"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({"summary": result["summary"], "perplexity": result.get("perplexity")},
                     indent=1))
    print(f"written to {out}")


if __name__ == "__main__":
    main()
