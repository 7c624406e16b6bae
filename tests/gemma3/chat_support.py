# SPDX-License-Identifier: MIT
"""What the tests of `gemma3 chat` share: the small checkpoint, pictures, and runs."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

MIB = 1 << 20
SKIP = 77


class Chat:
    """The program, the small checkpoint, and a folder for what a test makes."""

    def __init__(self, program, source):
        self.program = program
        self.source = pathlib.Path(source)
        self.model = self.source / "tests/golden/tiny-mm"
        self.holder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.holder.name)
        self.runs = 0
        self.failed = 0

    def check(self, holds, *what):
        """Counts and tells a failure; the test goes on."""
        if not holds:
            self.failed += 1
            print("FAILED:", *what)
        return holds

    def equal(self, got, wanted, *what):
        return self.check(got == wanted, *what, f"is {got!r}, not {wanted!r}")

    def variant(self, name, tokenizer=None, **text):
        """A copy of the checkpoint with other values in its text configuration, or with
        its tokenizer changed by a function."""
        to = self.folder / name
        shutil.copytree(self.model, to)
        config = json.loads((to / "config.json").read_text())
        for key, value in text.items():
            if key == "eos_token_id":
                config[key] = value
                general = to / "generation_config.json"
                if general.exists():
                    general.write_text(json.dumps({**json.loads(general.read_text()), key: value}))
            config["text_config"][key] = value
        (to / "config.json").write_text(json.dumps(config))
        if tokenizer:
            path = to / "tokenizer.json"
            path.write_text(json.dumps(tokenizer(json.loads(path.read_text()))))
        return to

    def not_numbers(self, name, tensor):
        """A copy of the checkpoint in which a tensor has no numbers."""
        to = self.folder / name
        shutil.copytree(self.model, to)
        path = to / "model.safetensors"
        data = bytearray(path.read_bytes())
        head = 8 + struct.unpack("<Q", data[:8])[0]
        begin, end = json.loads(data[8:head])[tensor]["data_offsets"]
        data[head + begin:head + end] = b"\xff" * (end - begin)
        path.write_bytes(data)
        return to

    def raw(self, *words, status=0, **more):
        """Runs the program; standard output, standard error."""
        run = subprocess.run([self.program, *map(str, words)], capture_output=True, timeout=300, **more)
        self.equal(run.returncode, status, "exit status of", *words, run.stderr[-400:])
        return run.stdout, run.stderr

    def run(self, lines, *options, model=None, status=0):
        """A scripted chat: its figures, with what it printed under "out" and "err"."""
        self.runs += 1
        script = self.folder / f"script{self.runs}.txt"
        figures = self.folder / f"figures{self.runs}.json"
        script.write_bytes(b"".join((l if isinstance(l, bytes) else l.encode()) + b"\n" for l in lines))
        out, err = self.raw("chat", "--model", model or self.model, "--script", script, "--stats-json", figures,
                            *options, status=status)
        run = json.loads(figures.read_text())
        run["out"], run["err"] = out, err.decode(errors="replace")
        self.equal(run["end"], {"device_bytes_left": 0, "pool_check": "ok"}, "the end of", script)
        return run

    def calm(self, run):
        """Nothing was trimmed while a turn was at work."""
        for turn in run["turns"]:
            inside = turn["inside"]
            self.equal((inside["trims"], inside["released_bytes"], inside["retries"]), (0, 0, 0),
                       "trims inside turn", turn["turn"])

    def finish(self):
        self.holder.cleanup()
        print(f"{self.runs} chats, {self.failed} failures")
        return 1 if self.failed else 0


def picture(path, width, height, seed):
    """A small PNG, every seed another picture."""
    def pixel(x, y):
        return bytes(((x * 7 + seed * 31) & 255, (y * 11 + seed * 17) & 255, (x * y + seed) & 255))

    rows = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(width)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pathlib.Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) +
                                   chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


def main(tests):
    """test.py PROGRAM SOURCE [TEST...]"""
    # Threads of a model this small would only wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"
    chat = Chat(sys.argv[1], sys.argv[2])
    if not (chat.model / "tokenizer.json").exists():
        print(f"{chat.model} has no tokenizer")
        sys.exit(SKIP)
    for test in tests:
        if len(sys.argv) < 4 or test.__name__ in sys.argv[3:]:
            before = chat.failed
            test(chat)
            print("ok  " if chat.failed == before else "BAD ", test.__name__)
    sys.exit(chat.finish())
