#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gemma3 verify`, `perplexity` and `bench` as their users call them, on the two small
checkpoints of tests/golden.

  python3 tests/gemma3/test_verify.py PROGRAM PROJECT

What must pass passes with every set of kernels and every size of a prefill step, and
whatever is wrong (a deviation built into the engine, a weight of the file, an expected
value, an output that is missing) is found.
"""

import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

PROGRAM, PROJECT = sys.argv[1], pathlib.Path(sys.argv[2])
GOLDEN = {name: PROJECT / "tests/golden" / name for name in ("tiny-mm", "tiny-text", "tiny-window")}
DIR = pathlib.Path(tempfile.mkdtemp(prefix="gemma3-verify-"))
# Threads that wait by spinning make small steps slow where other tests run beside this one.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
failures = []
calls = 0


def bad(text):
    failures.append(text)
    print("FAILED:", text, flush=True)


def call(status, *words, says=None):
    """Runs the program, which must end with this status and say these words."""
    global calls
    calls += 1
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True,
                          timeout=300, env=ENVIRONMENT, check=False)
    shown = " ".join(map(str, words))
    if done.returncode != status:
        bad(f"status {done.returncode}, not {status}: {shown}\n{done.stdout[-600:]}{done.stderr[-600:]}")
    elif "Sanitizer" in done.stderr or "runtime error" in done.stderr:
        bad(f"{shown}\n{done.stderr[-2000:]}")
    elif says is not None and says not in done.stdout + done.stderr:
        bad(f"no \"{says}\" from {shown}\n{done.stdout[-600:]}{done.stderr[-600:]}")
    return done


def last_line(done):
    lines = done.stdout.splitlines()
    return lines[-1] if lines else ""


# ---- safetensors files, to be changed ------------------------------------------------


def read(path):
    """{name: [type, shape, bytes]}."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: [value["dtype"], value["shape"],
                   data[8 + size + value["data_offsets"][0]:8 + size + value["data_offsets"][1]]]
            for name, value in header.items()}


def write(tensors, path):
    header, offset = {}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text
                     + b"".join(data for _, _, data in tensors.values()))
    return path


def floats(tensor):
    return list(struct.unpack(f"<{len(tensor[2]) // 4}f", tensor[2]))


def integers(tensor):
    return list(struct.unpack(f"<{len(tensor[2]) // 4}i", tensor[2]))


def put_float(tensors, name, index, change):
    values = floats(tensors[name])
    values[index] = change(values[index])
    tensors[name][2] = struct.pack(f"<{len(values)}f", *values)


def put_id(tensors, name, index, value):
    values = integers(tensors[name])
    values[index] = value
    tensors[name][2] = struct.pack(f"<{len(values)}i", *values)


def altered(name, change):
    """The golden's expected file after change(tensors)."""
    tensors = read(GOLDEN[name] / "expected.safetensors")
    change(tensors)
    return write(tensors, DIR / "expected.safetensors")


def verify(status, name, *words, says=None, expected=None, model=None):
    return call(status, "verify", "--model", model or GOLDEN[name], "--expected",
                expected or GOLDEN[name] / "expected.safetensors", *words, says=says)


# ---- The tests --------------------------------------------------------------------------


def kernel_sets():
    """The sets this CPU has, by the flags that the system shows."""
    sets = ["scalar"]
    flags = set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split())
            break
    if {"avx2", "fma", "f16c"} <= flags:
        sets.append("avx2")
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= flags:
            sets.append("avx512")
    return sets


def test_goldens():
    for name in GOLDEN:
        lines = read(GOLDEN[name] / "expected.safetensors")
        outputs = sum(1 for n in lines if n.endswith(("logits", "decode_ids", "image_features")))
        for kernels in kernel_sets():
            for chunk in ("1", "5", "7", "16", "64", None):
                words = ["--kernels", kernels] + (["--chunk", chunk] if chunk else [])
                done = verify(0, name, *words)
                if not last_line(done).startswith(f"ok: {outputs} outputs; logits"):
                    bad(f"{name} {words}: last line {last_line(done)!r}")
        verify(0, name, "--threads", "1", "--device", "sim:256MiB")
        verify(0, name, "--kv", "f16", "--tolerance", "0.1")
        verify(1, name, "--tolerance", "0", says="FAILED: ")


def test_faults():
    for name in GOLDEN:
        for fault in ("weight", "scale", "window"):
            for words in ([], ["--chunk", "5"]):
                done = verify(1, name, "--fault", fault, *words)
                if not last_line(done).startswith("FAILED: "):
                    bad(f"{name} {fault}: last line {last_line(done)!r}")
        verify(0, name, "--fault", "none")
    done = verify(1, "tiny-mm", "--fault", "local-rope")
    if not last_line(done).startswith("FAILED: "):
        bad(f"local-rope: last line {last_line(done)!r}")
    verify(1, "tiny-text", "--fault", "local-rope", says="scales no positions")


def test_model_file():
    """A few weights of one matrix, four times as large."""
    names = {"tiny-text": ["model.layers.5.self_attn.k_proj.weight",
                           "model.layers.11.mlp.down_proj.weight"],
             "tiny-mm": [n for n in read(GOLDEN["tiny-mm"] / "model.safetensors")
                         if n.endswith(("layers.1.mlp.fc2.weight", "mm_input_projection_weight"))]}
    for name, weights in names.items():
        folder = DIR / f"changed-{name}"
        shutil.copytree(GOLDEN[name], folder)
        for weight in weights:
            tensors = read(GOLDEN[name] / "model.safetensors")
            data = bytearray(tensors[weight][2])
            for at in range(0, 64, 2):  # the exponent up by two
                bits, = struct.unpack_from("<H", data, at)
                struct.pack_into("<H", data, at, bits + 0x100)
            tensors[weight][2] = bytes(data)
            write(tensors, folder / "model.safetensors")
            verify(1, name, model=folder, says="FAILED: ")
        shutil.copy(GOLDEN[name] / "model.safetensors", folder / "model.safetensors")
        verify(0, name, model=folder)


def test_expected_values():
    off = lambda v: v + 0.005
    text = lambda change: altered("tiny-text", change)
    mm = lambda change: altered("tiny-mm", change)
    nan = lambda v: math.nan
    verify(0, "tiny-text", expected=text(lambda t: None))
    verify(1, "tiny-text", says="turn0.logits", expected=text(lambda t: put_float(t, "turn0.logits", 0, off)))
    verify(1, "tiny-text", expected=text(lambda t: put_float(t, "turn1.logits", 13 * 384 - 1, off)))
    verify(1, "tiny-text", expected=text(lambda t: put_float(t, "turn1.decode7.logits", 383, off)))
    for where in ("turn0.logits", "turn0.decode3.logits"):
        verify(1, "tiny-text", says="nan", expected=text(lambda t: put_float(t, where, 7, nan)))
        verify(1, "tiny-text", says="FAILED", expected=text(lambda t: put_float(t, where, 7, lambda v: math.inf)))
    verify(1, "tiny-mm", says="FAILED: 1 of", expected=mm(lambda t: put_float(t, "turn2.image_features", 767, off)))
    verify(1, "tiny-mm", says="nan", expected=mm(lambda t: put_float(t, "turn2.image_features", 0, nan)))
    verify(1, "tiny-mm", expected=mm(lambda t: put_float(t, "turn0.pixel_values", 100, lambda v: v + 3.0)))
    # The last id of a decode is wrong: found by the ids and by the logits behind it.
    verify(1, "tiny-text", says="not all equal", expected=text(lambda t: put_id(t, "turn1.decode_ids", 7, 5)))
    verify(1, "tiny-text", expected=text(lambda t: put_id(t, "turn0.input_ids", 3, 5)))

    def wide(tensors):
        for name in ("turn0.input_ids", "turn1.decode_ids"):
            values = integers(tensors[name])
            tensors[name] = ["I64", [len(values)], struct.pack(f"<{len(values)}q", *values)]

    verify(0, "tiny-text", expected=text(wide))


def test_expected_shapes():
    text = lambda change: altered("tiny-text", change)
    mm = lambda change: altered("tiny-mm", change)
    for name in ("turn0.logits", "turn1.decode3.logits", "turn1.decode_ids"):
        verify(1, "tiny-text", says=f"{name} is missing", expected=text(lambda t: t.pop(name)))
    verify(1, "tiny-text", says="turn0.input_ids is missing", expected=text(lambda t: t.pop("turn0.input_ids")))
    verify(1, "tiny-text", says="account for", expected=text(lambda t: t.pop("turn1.input_ids")))
    verify(1, "tiny-mm", says="turn2.image_features is missing", expected=mm(lambda t: t.pop("turn2.image_features")))
    verify(1, "tiny-mm", says="pixel_values is missing", expected=mm(lambda t: t.pop("turn2.pixel_values")))

    def no_picture(tensors):
        del tensors["turn0.pixel_values"], tensors["turn0.image_features"]

    verify(1, "tiny-mm", says="more runs of picture tokens", expected=mm(no_picture))

    def extra(tensors):
        tensors["turn7.logits"] = tensors["turn1.logits"]

    verify(1, "tiny-text", says="account for", expected=text(extra))

    def narrow(tensors):
        kind, shape, data = tensors["turn0.logits"]
        tensors["turn0.logits"] = [kind, [shape[1], shape[0]], data]

    verify(1, "tiny-text", says="[41, 384]", expected=text(narrow))

    def fewer(tensors):
        kind, shape, data = tensors["turn1.logits"]
        tensors["turn1.logits"] = [kind, [12, shape[1]], data[:12 * shape[1] * 4]]

    verify(1, "tiny-text", says="[13, 384]", expected=text(fewer))
    verify(1, "tiny-mm", says="run of 3 picture tokens", expected=mm(lambda t: put_id(t, "turn2.input_ids", 4, 9)))
    verify(1, "tiny-mm", says="run of 5 picture tokens", expected=mm(lambda t: put_id(t, "turn2.input_ids", 3, 511)))
    verify(1, "tiny-text", says="the model has 384 ids", expected=text(lambda t: put_id(t, "turn0.input_ids", 0, 384)))
    verify(1, "tiny-text", says="the model has 384 ids", expected=text(lambda t: put_id(t, "turn0.decode_ids", 0, -1)))
    verify(1, "tiny-text", expected=GOLDEN["tiny-mm"] / "expected.safetensors")
    verify(1, "tiny-mm", expected=GOLDEN["tiny-text"] / "expected.safetensors")
    whole = (GOLDEN["tiny-text"] / "expected.safetensors").read_bytes()
    (DIR / "short.safetensors").write_bytes(whole[:-4])
    verify(1, "tiny-text", expected=DIR / "short.safetensors")
    verify(1, "tiny-text", expected=DIR / "absent.safetensors", says="absent.safetensors")


def piece(token):
    return {4: "a", 5: "b", 6: "ab", 7: "\u2581"}.get(token, chr(0x4E00 + token))


def text_model():
    """tiny-text with a vocabulary in which nearly every id is one character."""
    folder = DIR / "with-tokenizer"
    shutil.copytree(GOLDEN["tiny-text"], folder)
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    vocabulary = {**{s: i for i, s in enumerate(special)}, **{piece(i): i for i in range(4, 384)}}
    (folder / "tokenizer.json").write_text(json.dumps({
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "added_tokens": [{"id": i, "content": s, "special": True} for i, s in enumerate(special)],
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": False,
                  "vocab": vocabulary, "merges": [["a", "b"]]}}))
    return folder


def test_tokenizer(folder):
    cases = [{"text": "ab", "ids": [6]}, {"text": "ba b", "ids": [5, 4, 7, 5]},
             {"text": "a<eos>\u4E08", "ids": [4, 1, 8]}, {"text": "", "ids": []}]

    def tokens(status, content, says):
        path = DIR / "cases.json"
        path.write_text(content if isinstance(content, str) else json.dumps({"cases": content}))
        return call(status, "verify", "--model", folder, "--tokenizer", path, says=says)

    if last_line(tokens(0, cases, "ok")) != "ok: 4 of 4 cases":
        bad("no \"ok: 4 of 4 cases\"")
    wrong = tokens(1, cases + [{"text": "a\n\"", "ids": [4, 5]}], "expected 4 5")
    if last_line(wrong) != "FAILED: 4 of 5 cases" or "\"a\\n\\\"\"" not in wrong.stdout:
        bad(f"a wrong case prints {wrong.stdout!r}")
    tokens(1, [{"text": "ab", "ids": [6, 1]}], "got      6")
    tokens(1, [{"text": "ab", "ids": [4, 5]}], "FAILED: 0 of 1")
    tokens(1, [{"text": "<eos>a", "ids": [1]}], "got      1 4")
    tokens(1, [{"text": "<eos>a", "ids": [1, 4, 4]}], "got      1 4")
    tokens(1, [{"text": "ab", "ids": [4]}], "ids of \"ab\" give back \"a\"")
    tokens(1, [{"text": "ab", "ids": [4, 5, 4]}], "give back \"aba\"")
    # The mark for spaces comes back as a space.
    tokens(0, [{"text": "a\u2581b", "ids": [4, 7, 5]}], "ok: 1 of 1")
    tokens(1, [{"text": "ab", "ids": ["6"]}], "ids[0] is no id")
    tokens(1, [{"ids": [6]}], "case 0")
    tokens(1, [], "no \"cases\"")
    tokens(1, "{", "cases.json")
    call(1, "verify", "--model", GOLDEN["tiny-text"], "--tokenizer", DIR / "cases.json")


def test_perplexity(folder):
    """The same figure from the reference's logits: its first turn is one chunk."""
    tensors = read(GOLDEN["tiny-text"] / "expected.safetensors")
    ids, logits = integers(tensors["turn0.input_ids"]), floats(tensors["turn0.logits"])
    ctx, scores = len(ids), []
    for i in range(ctx // 2, ctx - 1):
        row = logits[i * 384:(i + 1) * 384]
        top = max(row)
        scores.append(top + math.log(sum(math.exp(v - top) for v in row)) - row[ids[i + 1]])
    mean = sum(scores) / len(scores)
    variance = sum((s - mean) ** 2 for s in scores) / len(scores)
    words = "".join(piece(i) for i in ids[1:])
    out = DIR / "perplexity.json"
    # Once; and twice, with what stands where the second <bos> goes, and a rest that is left out.
    for chunks, text in ((1, words), (2, words + piece(200) + words + piece(201) * 9)):
        (DIR / "text").write_text(text)
        for place in (["--text", DIR / "text"], [DIR / "text"]):
            call(0, "perplexity", "--model", folder, *place, "--ctx", ctx, "--kv", "f32",
                 "--precision", "float32", "--json", out, says="perplexity ")
            got = json.loads(out.read_text())
            count = len(scores) * chunks
            error = math.exp(mean) * math.sqrt(variance / (count - 1))
            if got["chunks"] != chunks or got["scored_tokens"] != count or got["ctx"] != ctx:
                bad(f"{chunks} chunks: {got}")
            if not abs(got["mean_nll"] - mean) < 1e-3:
                bad(f"mean {got['mean_nll']}, not {mean}")
            if not abs(got["perplexity"] / math.exp(mean) - 1) < 1e-3:
                bad(f"perplexity {got['perplexity']}, not {math.exp(mean)}")
            if not abs(got["standard_error"] / error - 1) < 1e-2:
                bad(f"standard error {got['standard_error']}, not {error}")
    call(0, "perplexity", DIR / "text", "--model", folder, f"--ctx={ctx}", "--chunks=1", says="in 1 chunks")
    call(1, "perplexity", "--model", folder, DIR / "text", "--ctx", "512", says="less than one chunk")
    call(2, "perplexity", "--model", folder, says="no text")
    call(2, "perplexity", "--model", folder, DIR / "text", DIR / "text")
    call(2, "perplexity", "--model", folder, DIR / "text", "--ctx", "3", says="--ctx")
    call(1, "perplexity", "--model", folder, DIR / "absent", says="absent")


def test_bench():
    out = DIR / "bench.json"
    config = json.loads((GOLDEN["tiny-text"] / "config.json").read_text())
    call(0, "bench", "--model", GOLDEN["tiny-text"], "--prompt", "20", "--decode", "6", "--repeat",
         "3", "--threads", "2", "--kernels", "scalar", "--json", out, says="decode reads")
    got = json.loads(out.read_text())
    for name in ("prefill_tokens_s", "decode_tokens_s"):
        figure = got[name]
        if len(figure["samples"]) != 3 or figure["median"] != sorted(figure["samples"])[1]:
            bad(f"{name}: {figure}")
        if not 0 < figure["min"] == min(figure["samples"]) <= max(figure["samples"]) == figure["max"]:
            bad(f"{name}: {figure}")
    positions = [sum(c if kind == "full_attention" else min(c, config["sliding_window"])
                     for kind in config["layer_types"]) for c in range(21, 27)]
    kv = sum(positions) / 6 * 2 * 2 * config["num_key_value_heads"] * config["head_dim"]
    if abs(got["kv_bytes_a_token"] - kv) > 1e-6 * kv:
        bad(f"keys and values: {got['kv_bytes_a_token']}, not {kv}")
    if got["decode_context"] != [20, 26] or got["environment"]["kernels"] != "scalar":
        bad(f"bench: {got['decode_context']} {got['environment']}")
    if got["environment"]["threads"] not in (1, 2) or not got["environment"]["cpu"]:
        bad(f"environment: {got['environment']}")
    # Every weight but those of a few norms is read once: the file less its header.
    size = (GOLDEN["tiny-text"] / "model.safetensors").stat().st_size
    if not 0.9 * size < got["weight_bytes_a_token"] < 1.15 * size:
        bad(f"{got['weight_bytes_a_token']} bytes of weights a token; the file has {size}")
    rate = got["decode_tokens_s"]["median"] * (got["weight_bytes_a_token"] + kv)
    if abs(got["fraction_of_read_bandwidth"] * got["read_bytes_s"] / rate - 1) > 1e-6:
        bad(f"fraction {got['fraction_of_read_bandwidth']} of {got['read_bytes_s']}")
    pool = got["pool"]
    if not pool["reserved_bytes"] >= pool["allocated_bytes"] >= pool["weights_bytes"] > 0.9 * size:
        bad(f"pool: {pool}")
    for path in (DIR / "no" / "file", DIR):
        begun = time.monotonic()
        call(1, "bench", "--model", GOLDEN["tiny-text"], "--prompt", "2000", "--repeat", "100", "--json", path,
             says="cannot be written")
        if time.monotonic() - begun > 60:
            bad("bench measures before it knows where its figures go")
    call(1, "bench", "--model", GOLDEN["tiny-text"], "--prompt", "5000", says="4096")
    call(1, "bench", "--model", DIR / "absent", says="absent")
    call(1, "bench", "--model", GOLDEN["tiny-text"], "--device", "sim:64KiB")
    call(1, "bench", "--model", GOLDEN["tiny-text"], "--prompt", "8", "--decode", "1", "--repeat",
         "1", "--json", DIR / "no" / "such" / "folder", says="cannot be written")
    call(2, "bench", "--model", GOLDEN["tiny-text"], "--repeat", "0", says="--repeat")


def test_usage():
    text = GOLDEN["tiny-text"]
    call(2, "verify", "--model", text, says="either --expected or --tokenizer")
    call(2, "verify", "--model", text, "--expected", "x", "--tokenizer", "y", says="either")
    # Without --model: what the environment names, or where to get it.
    ENVIRONMENT["VRAMPOOL_GEMMA3_270M"] = str(DIR / "absent")
    for command in (["verify", "--expected", "x"], ["bench"], ["perplexity", "x"]):
        call(1, *command, says="fetch_model.sh")
    ENVIRONMENT["VRAMPOOL_GEMMA3_270M"] = str(text)
    call(0, "bench", "--prompt", "8", "--decode", "2", "--repeat", "1", says="tokens/s")
    call(0, "verify", "--expected", text / "expected.safetensors", says="ok:")
    del ENVIRONMENT["VRAMPOOL_GEMMA3_270M"]
    for words in (["--chunk", "0"], ["--kernels", "sse"], ["--fault", "all"], ["--tolerance", "nan"],
                  ["--tolerance", "-1"], ["--precision", "f8"], ["--what", "1"]):
        call(2, "verify", "--model", text, "--expected", "x", *words, says=words[0])
    for command in ("verify", "bench", "perplexity"):
        call(0, command, "--help", says="usage:")
    verify(1, "tiny-text", "--device", "tpu:0", says="tpu:0")
    verify(1, "tiny-text", "--device", "sim:64KiB")
    call(1, "verify", "--model", DIR / "absent", "--expected", text / "expected.safetensors", says="absent")


def main():
    try:
        test_goldens()
        test_faults()
        test_model_file()
        test_expected_values()
        test_expected_shapes()
        folder = text_model()
        test_tokenizer(folder)
        test_perplexity(folder)
        test_bench()
        test_usage()
    finally:
        shutil.rmtree(DIR, ignore_errors=True)
    if not failures:
        print(f"{calls} calls behaved")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
