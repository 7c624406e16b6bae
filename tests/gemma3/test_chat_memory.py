#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where the memory of `gemma3 chat` is: nothing grows, /clear gives back, nothing is
trimmed inside a turn, and a device that is too small ends no conversation.
GEMMA3_REPLAY names vrampool-bench, which then replays a recorded run."""

import json
import os
import subprocess

from chat_support import MIB, Chat, main, picture

FEW = ("--temp", "0", "--max-tokens", "6")


def all_clear(chat, run):
    for clear in run["clears"]:
        chat.check(clear["reserved_after_bytes"] <= clear["weights_bytes"] + 4 * MIB, "reserved after /clear", clear)
        chat.equal(clear["allocated_after_bytes"], clear["weights_bytes"], "allocated after /clear")
        chat.check(clear["reserved_after_bytes"] < clear["reserved_before_bytes"], "/clear gives back", clear)


def forty_turns_do_not_grow(chat: Chat):
    """Twenty conversations of two turns, the pictures of them differing in size."""
    pictures = [picture(chat.folder / f"p{i}.png", 8 + 13 * i % 90, 8 + 29 * i % 70, i) for i in range(20)]
    lines = []
    for i in range(20):
        lines += [f"/image {pictures[i]} what is in this picture?", "and what is not?", "/clear"]
    for optimizer in ("threshold=4MiB,interval=1,idle=off", "threshold=1.5GiB,interval=5", "off"):
        run = chat.run(lines, *FEW, "--optimizer", optimizer)
        turns = run["turns"]
        chat.equal((len(turns), len(run["clears"])), (40, 20), "turns and clears")
        chat.calm(run)
        all_clear(chat, run)
        for turn in (0, 1):
            for figure in ("allocated_bytes", "reserved_bytes"):
                values = [t["memory"][figure] for t in turns[turn::2]]
                chat.check(max(values[1:]) <= values[1], figure, "grows:", values)
            chat.equal({t["memory"]["temporary_bytes"] for t in turns}, {0}, "temporary bytes between turns")
            chat.check(all(t["inside"]["peak_vision_bytes"] > 0 for t in turns[0::2]), "pictures were seen")
        chat.equal(len({c["reserved_after_bytes"] for c in run["clears"]}), 1, "different bytes after /clear")


def the_same_request_again(chat: Chat):
    run = chat.run(["the same request", "/clear"] * 5, *FEW)
    chat.equal(len({t["memory"]["allocated_bytes"] for t in run["turns"]}), 1, "allocated after each of five requests")
    one = picture(chat.folder / "one.png", 40, 30, 7)
    sizes = [picture(chat.folder / f"s{i}.png", 3 + 5 * i, 200 - 6 * i, i) for i in range(30)]
    for paths in ([one] * 30, sizes):
        run = chat.run([f"/image {path} look" for path in paths], *FEW)
        turns = run["turns"]
        chat.equal([t["images"] for t in turns], [1] * 30, "pictures")
        rest = {t["memory"]["allocated_bytes"] - t["memory"]["kv_bytes"] for t in turns}
        chat.equal(rest, {run["weights_bytes"]}, "allocated besides the inference cache")
        chat.check(max(t["memory"]["reserved_bytes"] for t in turns) <= turns[0]["memory"]["reserved_bytes"] + 4 * MIB,
                   "reserved is bounded")


def the_optimizer_works_between_turns(chat: Chat):
    long = "a long passage " * 140
    run = chat.run(["hello", long, "and?", "/clear", "hello"], *FEW, "--chunk", "4096", "--optimizer",
                   "threshold=10MiB,interval=1,idle=off")
    chat.calm(run)
    steps = [t["optimizer"] for t in run["turns"]]
    chat.equal([s["acted"] for s in steps], [False, True, False, False], "which steps acted")
    chat.equal([s["reason"] for s in steps[:2]], ["below threshold", "above threshold"], "reasons")
    acted = run["turns"][1]
    chat.check(acted["optimizer"]["released_bytes"] >= 4 * MIB, "released", acted["optimizer"])
    chat.equal(acted["memory"]["reserved_bytes"] - acted["after"]["reserved_bytes"], acted["optimizer"]["released_bytes"],
               "the fall of reserved")
    chat.equal(acted["optimizer"]["gap_before_bytes"], acted["memory"]["gap_bytes"], "the gap that was seen")
    chat.check("gave back" in acted["optimizer"]["text"], "the reason as text")
    for turn in run["turns"]:
        chat.equal(sum(turn["memory"]["gap_by_cause"].values()), turn["memory"]["gap_bytes"], "the gap by cause")
    run = chat.run(["one", "two", "three", "four"], *FEW, "--optimizer", "threshold=1MiB,interval=2,idle=off")
    chat.equal([t["optimizer"]["looked"] for t in run["turns"]], [False, True, False, True], "an interval of 2")
    run = chat.run(["one", "two"], *FEW, "--optimizer", "threshold=1GiB,interval=1,idle=on")
    chat.equal((run["optimizer"]["idle_calls"], run["turns"][0]["optimizer"]["acted"]), (2, False), "idle work of a script")
    chat.check(run["optimizer"]["idle_released_bytes"] > 0, "idle work gives back")


def segments_of_malloc(chat: Chat):
    """Segments go back only as a whole, so that more stays reserved; nothing stays allocated."""
    one = picture(chat.folder / "m.png", 50, 20, 3)
    run = chat.run(["hello", f"/image {one} look", "/clear", "hello again " * 90, "/clear"] * 3, *FEW, "--backing", "malloc",
                   "--optimizer", "threshold=4MiB,interval=1")
    chat.equal({c["allocated_after_bytes"] - c["weights_bytes"] for c in run["clears"]}, {0}, "allocated after /clear")
    chat.equal(len({c["reserved_after_bytes"] for c in run["clears"]}), 1, "reserved after each /clear")
    chat.check(all(c["reserved_after_bytes"] <= c["reserved_before_bytes"] for c in run["clears"]), "/clear reserves nothing")
    chat.equal({t["memory"]["temporary_bytes"] for t in run["turns"]}, {0}, "temporary bytes between turns")
    chat.calm(run)


def too_small_a_device(chat: Chat):
    """The same message until the device is full: the conversation stays as it was, and
    goes on after /shorten and after /clear."""
    model = chat.variant("long", max_position_embeddings=32768)
    message = "the rain in Spain falls on plains and hills " * 80
    lines = ["first", *[message] * 4, "/shorten 4000", "go on", "/clear", "hello", *[message] * 3]
    run = chat.run(lines, *FEW, "--kv", "f32", "--ctx", "32768", "--device", "sim:8MiB", model=model, status=3)
    ends = [t["end"] for t in run["turns"]]
    full = ends.index("out of memory")
    chat.check(1 < full < 5, "the device is full after", full, "turns:", ends)
    chat.equal(set(ends[:full]), {"max tokens"}, "turns before")
    refused = run["turns"][full]
    chat.equal((refused["added"], refused["length"]), (False, run["turns"][full - 1]["length"]), "the conversation")
    chat.equal(refused["memory"]["kv_bytes"], run["turns"][full - 1]["memory"]["kv_bytes"], "the cache as it was")
    chat.check(refused["inside"]["trims"] > 0, "what could be trimmed was")
    chat.check("device" in refused["error"] and "asked for" in refused["error"], "the report:", refused["error"])
    chat.check("whole with" in run["err"] and "/clear" in run["err"], "the advice")
    chat.check(b"weights" in run["out"] and b"gap" in run["out"], "the three layers")
    chat.check(run["shortenings"][0]["length_after"] <= 4000, "shortened")
    chat.equal(ends[5:8], ["max tokens"] * 3, "after /shorten, after /clear, and another message")
    chat.check(run["turns"][6]["length"] < 100, "/clear began anew")
    retried = [t for t in run["turns"] if t["end"] == "max tokens" and t["inside"]["retries"] > 0]
    chat.check(retried, "a turn that found no memory at first went through")
    chat.equal({t["error"] for t in retried}, {""}, "and is no failure")
    few = chat.run(["hello", message], *FEW, "--kv", "f32", "--ctx", "32768", "--device", "sim:8MiB", model=model)
    chat.equal([t["inside"]["trims"] for t in few["turns"]], [0, 0], "trims where there is room")


def memory_ends_in_the_middle_of_an_answer(chat: Chat):
    model = chat.variant("longer", max_position_embeddings=32768)
    most = 8000
    run = chat.run(["the rain in Spain falls on plains and hills " * 80, "/shorten 1"], "--temp", "0", "--max-tokens", most,
                   "--kv", "f32", "--ctx", "32768", "--device", "sim:6MiB", model=model, status=3)
    cut = run["turns"][0]
    chat.equal((cut["end"], cut["added"]), ("out of memory", True), "the answer")
    chat.check(0 < cut["new_tokens"] < most, "tokens before", cut["new_tokens"])
    chat.equal(cut["length"], cut["prompt_tokens"] + cut["new_tokens"] - 1, "what was said is in the conversation")
    chat.check("the answer stops here" in run["err"], "the message")
    chat.equal(run["shortenings"][0]["length_after"], 0, "it can be shortened")


def a_recorded_run_replays(chat: Chat):
    bench = os.environ.get("GEMMA3_REPLAY")
    if not bench:
        return
    trace = chat.folder / "run.vrpt"
    figures = chat.folder / "replay.json"
    one = picture(chat.folder / "t.png", 33, 44, 5)
    run = chat.run(["hello", f"/image {one} look", "/clear", "hello again " * 90, "/shorten 20", "more"], *FEW, "--trace", trace)
    subprocess.run([bench, "replay", trace, "--device", "sim:1GiB", "--json", figures, "--optimizer",
                    "threshold=1MiB,interval=1,at=turn"], check=True, capture_output=True)
    replay = json.loads(figures.read_text())
    chat.equal(replay["failures"], 0, "refused in the replay")
    chat.equal(replay["live_blocks_at_end"], 0, "blocks at the end of the replay")
    chat.equal(replay["steps"], len(run["turns"]) + len(run["clears"]), "turn and clear markers")
    chat.check(run["weights_bytes"] < replay["peak_requested_bytes"] <= run["totals"]["peak_allocated_bytes"],
               "peak of the replay", replay["peak_requested_bytes"], run["totals"]["peak_allocated_bytes"])
    again = chat.run(["hello"], *FEW, "--trace", chat.folder / "other.vrpt")
    chat.check((chat.folder / "other.vrpt").stat().st_size > 100 and again["turns"], "another trace")
    _, err = chat.raw("chat", "--model", chat.model, "--trace", "/nowhere/x", status=1)
    chat.check(b"/nowhere/x" in err, "a trace that cannot be written")


main([forty_turns_do_not_grow, the_same_request_again, the_optimizer_works_between_turns, segments_of_malloc, too_small_a_device,
      memory_ends_in_the_middle_of_an_answer, a_recorded_run_replays])
