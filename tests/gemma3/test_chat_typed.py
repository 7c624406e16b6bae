#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gemma3 chat` on a terminal: prompts, Ctrl-C, idle work while nobody types."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

from chat_support import Chat, main, picture

PATIENCE = 120


class Terminal:
    """The program with a terminal of its own; no echo, so that only it is heard."""

    def __init__(self, chat, *options, colour=False):
        self.figures = chat.folder / f"typed{chat.runs}.json"
        chat.runs += 1
        self.chat = chat
        self.fd, other = pty.openpty()
        settings = termios.tcgetattr(other)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(other, termios.TCSANOW, settings)
        environment = {**os.environ, "NO_COLOR": "" if colour else "1"}
        self.process = subprocess.Popen([chat.program, "chat", "--stats-json", self.figures, *map(str, options)], stdin=other,
                                        stdout=other, stderr=other, start_new_session=True, env=environment,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(other)
        self.heard = b""

    def hear(self, pattern, what):
        """Waits for the pattern in what is said from now on; forgets up to its end."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.heard, re.S)):
            ready, _, _ = select.select([self.fd], [], [], max(0.0, end - time.monotonic()))
            try:
                more = os.read(self.fd, 65536) if ready else b""
            except OSError:
                more = b""
            if not more:
                self.chat.check(False, what, "was not heard, but", self.heard[-300:])
                return b""
            self.heard += more
        said = self.heard[:found.end()]
        self.heard = self.heard[found.end():]
        return said

    def type(self, text):
        os.write(self.fd, text.encode())

    def finish(self, status=0):
        self.chat.equal(self.process.wait(timeout=PATIENCE), status, "exit status")
        os.close(self.fd)
        run = json.loads(self.figures.read_text())
        self.chat.equal(run["end"], {"device_bytes_left": 0, "pool_check": "ok"}, "the end")
        return run


def endless(chat, name):
    """The checkpoint with a context of a million positions: greedy, it says the same for ever."""
    return chat.variant(name, max_position_embeddings=1000000)


def an_answer_can_be_stopped(chat: Chat):
    terminal = Terminal(chat, "--model", endless(chat, "endless"), "--temp", "0", "--max-tokens", "900000", "--ctx", "1000000",
                        "--device", "sim:4GiB")
    terminal.hear(rb"> ", "the first prompt")
    terminal.type("hello\n")
    terminal.hear(rb"\n[^>]*\n", "the beginning of an answer")
    terminal.type("\x03")
    terminal.hear(rb"\[stopped\].*> ", "that it stopped, and the next prompt")
    terminal.type("/stats\n")
    terminal.hear(rb"after 1 turns.*> ", "the report")
    terminal.type("\x03")
    terminal.hear(rb"/quit or Ctrl-D.*> ", "the hint")
    terminal.type("go on\n")
    terminal.hear(rb"\n[^>]*\n", "another answer")
    terminal.type("\x03")
    terminal.hear(rb"\[stopped\].*> ", "that it stopped again")
    terminal.type("/quit\n")
    run = terminal.finish()
    chat.equal([t["end"] for t in run["turns"]], ["interrupted"] * 2, "ends")
    first, second = run["turns"]
    chat.check(first["added"] and second["added"], "both are in the conversation")
    chat.equal(second["length"], first["length"] + second["prompt_tokens"] + second["new_tokens"] - 1, "positions")
    chat.calm(run)


def idle_work_is_done_at_the_prompt(chat: Chat):
    terminal = Terminal(chat, "--model", chat.model, "--max-tokens", "5", "--optimizer", "threshold=1GiB,interval=1,idle=on")
    terminal.hear(rb"> ", "the first prompt")
    terminal.type("hello\n")
    terminal.hear(rb"> ", "the next prompt")
    time.sleep(0.5)
    terminal.type("\x04")
    run = terminal.finish()
    chat.check(run["optimizer"]["idle_calls"] >= 2, "idle calls", run["optimizer"])
    chat.check(run["optimizer"]["idle_released_bytes"] > 0, "idle work gave back", run["optimizer"])
    chat.equal([t["optimizer"]["acted"] for t in run["turns"]], [False], "the step did not act")
    chat.calm(run)
    terminal = Terminal(chat, "--model", chat.model, "--max-tokens", "5", "--optimizer", "threshold=1GiB,interval=1,idle=off",
                        colour=True)
    terminal.hear(rb"\x1b\[1m> ", "a prompt in bold")
    terminal.type("hello\n")
    terminal.hear(rb"> ", "the next prompt")
    terminal.type("/quit\n")
    chat.equal(terminal.finish()["optimizer"]["idle_calls"], 0, "idle calls where it is off")


def idle_work_waits_while_a_picture_is_attached(chat: Chat):
    """What is idle then is what the picture takes."""
    one = picture(chat.folder / "typed.png", 30, 30, 4)

    def calls(*lines):
        terminal = Terminal(chat, "--model", chat.model, "--max-tokens", "5", "--optimizer", "threshold=1GiB,interval=1,idle=on")
        terminal.hear(rb"> ", "the first prompt")
        time.sleep(1.0)  # until nothing is left to give back
        for line in lines:
            terminal.type(line + "\n")
            terminal.hear(rb"> ", "the prompt after " + line)
            time.sleep(0.4)
        terminal.type("/clear\n/quit\n")
        return terminal.finish()["optimizer"]["idle_calls"]

    alone = calls()
    chat.equal(calls(f"/image {one}", f"/image {one}"), alone, "idle calls with a picture that waits")
    chat.check(calls("/stats") > alone, "idle calls without one")


def a_script_can_be_stopped(chat: Chat):
    """Ctrl-C stops the answer, and the script goes on."""
    script = chat.folder / "endless.txt"
    script.write_text("hello\n/stats\n")
    figures = chat.folder / "stopped.json"
    process = subprocess.Popen([chat.program, "chat", "--model", endless(chat, "script"), "--script", script, "--stats-json",
                                figures, "--temp", "0", "--max-tokens", "900000", "--ctx", "1000000", "--device", "sim:4GiB"],
                               stdout=subprocess.PIPE, bufsize=0)
    heard = b""
    while heard.count(b"\n") < 6:
        heard += process.stdout.read(64)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    chat.check(b"[stopped]" in out and b"after 1 turns" in out, "the script goes on", out[-200:])
    chat.equal(process.returncode, 0, "exit status")
    chat.equal(json.loads(figures.read_text())["turns"][0]["end"], "interrupted", "the end")


main([an_answer_can_be_stopped, idle_work_is_done_at_the_prompt, idle_work_waits_while_a_picture_is_attached,
      a_script_can_be_stopped])
