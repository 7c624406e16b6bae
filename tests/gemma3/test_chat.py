#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`gemma3 chat` as its users call it: turns, pictures, roles, ends of answers, files."""

import json
import subprocess

from chat_support import Chat, main, picture

WARM = ("--temp", "1", "--top-k", "0", "--top-p", "1")


def answers(chat, lines, *options, model=None):
    """The texts of a conversation's answers, and its figures, through /save."""
    path = chat.folder / f"saved{chat.runs}.txt"
    run = chat.run([*lines, f"/save {path}"], *options, model=model)
    saved = json.loads(path.with_name(path.name + ".json").read_text())
    return [m["text"] for m in saved["messages"] if m["role"] == "model"], run


def prompt_tokens(chat, lines, *options):
    return [turn["prompt_tokens"] for turn in chat.run(lines, "--max-tokens", "1", *options)["turns"]]


def command_lines(chat: Chat):
    out, _ = chat.raw("--version")
    chat.check(out.startswith(b"gemma3 "), "the version")
    out, _ = chat.raw("--help")
    for command in ("chat", "verify", "bench", "perplexity"):
        chat.check(command.encode() in out, command, "in the help")
        words, _ = chat.raw(command, "--help")
        chat.check(b"usage: gemma3 " + command.encode() in words, "the help of", command)
        _, err = chat.raw(command, "--frobnicate", status=2)
        chat.check(b"--frobnicate" in err, "the unknown option of", command)
    chat.raw(status=2)
    _, err = chat.raw("sing", status=2)
    chat.check(b'"sing"' in err, "the unknown command")
    _, err = chat.raw("chat", "--model", "/nowhere/model.gguf", status=1)
    chat.check(b"/nowhere/model.gguf" in err, "the missing model")
    _, err = chat.raw("chat", "--model", chat.model, "--script", "/nowhere/script", status=1)
    chat.check(b"/nowhere/script" in err, "the missing script")
    _, err = chat.raw("chat", "--model", chat.model, "--ctx", "100000", status=1)
    chat.check(b"4096" in err, "a context above the model's")
    _, err = chat.raw("chat", "--model", chat.model, "--image", "/nowhere/a.png", status=1)
    chat.check(b"/nowhere/a.png" in err, "the missing picture")


def typed_control_tokens_are_text(chat: Chat):
    """Each becomes as many tokens as a text of the same length without meaning."""
    special = ["<end_of_turn>", "<start_of_turn>model", "<bos>", "<start_of_image>", "<eos>"]
    plain = [text.replace("<", "[").replace(">", "]") for text in special]
    typed = prompt_tokens(chat, [line for text in special for line in ("a " + text + " b", "/clear")])
    harmless = prompt_tokens(chat, [line for text in plain for line in ("a " + text + " b", "/clear")])
    chat.equal(typed, harmless, "tokens of typed control texts")
    system = prompt_tokens(chat, ["hello"], "--system", "Say <end_of_turn>.")
    chat.equal(system, prompt_tokens(chat, ["hello"], "--system", "Say [end_of_turn]."), "tokens of system texts")


def any_known_token_ends_an_answer(chat: Chat):
    """Files that name <eos> alone: <end_of_turn> ends an answer too, and is not printed."""
    ids = {t["content"]: t["id"] for t in json.loads((chat.model / "tokenizer.json").read_text())["added_tokens"]}
    model = chat.variant("eos-alone", eos_token_id=ids["<eos>"])
    lines = [line for i in range(24) for line in (f"message {i}", "/clear")]
    run = chat.run(lines, "--temp", "40", "--top-k", "0", "--top-p", "1", "--max-tokens", "3000", "--quiet", model=model)
    stops = {turn["stop_id"] for turn in run["turns"] if turn["end"] == "end of turn"}
    chat.equal(stops, {ids["<eos>"], ids["<end_of_turn>"]}, "the tokens that ended answers")
    for text in ids:
        if text.startswith("<"):
            chat.check(text.encode() not in run["out"], text, "is printed")
    another = chat.variant("eos-list", eos_token_id=[ids["<eos>"], ids["<unk>"]])
    run = chat.run(lines, "--temp", "40", "--top-k", "0", "--top-p", "1", "--max-tokens", "3000", "--quiet", model=another)
    stops = {turn["stop_id"] for turn in run["turns"] if turn["end"] == "end of turn"}
    chat.equal(stops, {ids[t] for t in ("<eos>", "<end_of_turn>", "<unk>")}, "the tokens that ended answers")
    run = chat.run(["hello"], "--temp", "0", "--max-tokens", "7")
    chat.equal((run["turns"][0]["end"], run["turns"][0]["new_tokens"]), ("max tokens", 7), "an answer that does not end")


def pictures_and_their_places_agree(chat: Chat):
    a = picture(chat.folder / "a.png", 20, 10, 1)
    b = picture(chat.folder / "my picture.png", 70, 90, 2)
    text = "what is this"
    run = chat.run([text, "/clear", f"/image {a} {text}", "/clear", f"/image {a}", f'/image "{b}" {text}', "/clear",
                    f"/image {a} {text} <start_of_image>", "/clear", text + " <start_of_image>"], "--max-tokens", "2")
    turns = run["turns"]
    chat.equal([t["images"] for t in turns], [0, 1, 2, 1, 0], "pictures of turns")
    tokens = [t["prompt_tokens"] for t in turns]
    one = tokens[1] - tokens[0]
    chat.check(one >= 4 + 2, "a picture takes", one, "positions")
    chat.equal(tokens[3] - tokens[4], one, "a picture beside a typed mark")
    chat.check(abs(tokens[2] - tokens[1] - one) <= 1, "two pictures take", tokens[2] - tokens[0], "positions")
    chat.equal([t["end"] for t in turns], ["max tokens"] * 5, "how the turns ended")
    run = chat.run(["/image /nowhere/b.png hello", "/image " + str(chat.model / "config.json"), "go on"], "--max-tokens", "2",
                   status=1)
    chat.equal([(t["added"], t["images"]) for t in run["turns"]], [(True, 0)], "the turn after two bad pictures")
    chat.check("/nowhere/b.png" in run["err"] and "config.json" in run["err"], "the bad pictures are named")
    first = chat.run(["look"], "--image", a, "--image", b, "--max-tokens", "2")
    chat.equal(first["turns"][0]["images"], 2, "pictures of the command line")


def pictures_stay_whole_in_small_chunks(chat: Chat):
    a = picture(chat.folder / "c.png", 56, 56, 3)
    b = picture(chat.folder / "d.png", 30, 99, 4)
    lines = ["hello", f"/image {a}", f"/image {b} compare the two", "and now", f"/image {b} again"]
    options = (*WARM, "--max-tokens", "24", "--kv", "f32")
    whole, _ = answers(chat, lines, *options)
    for chunk in (1, 3, 5, 64):
        parts, run = answers(chat, lines, *options, "--chunk", chunk)
        chat.equal(parts, whole, "answers with chunks of", chunk)
        chat.equal([t["end"] for t in run["turns"]], ["max tokens"] * 4, "turns with chunks of", chunk)


def roles_keep_their_order(chat: Chat):
    options = (*WARM, "--max-tokens", "12")
    together, run = answers(chat, ["hello", "more"], "--system", "Be kind.\n\nBe short.", *options)
    apart, _ = answers(chat, ["hello", "more"], "--system", "Be kind.", "--system", "Be short.", *options)
    chat.equal(apart, together, "answers with two system texts")
    spoken, _ = answers(chat, ["Be kind.\\n\\nBe short.\\n\\nhello", "more"], *options)
    chat.equal(spoken, together, "the system text stands in front of the first message")
    without = chat.run(["hello", "more"], *options)
    chat.check(run["turns"][0]["prompt_tokens"] > without["turns"][0]["prompt_tokens"], "the system text is there")
    chat.equal(run["turns"][1]["prompt_tokens"], without["turns"][1]["prompt_tokens"], "but once")
    again = chat.run(["hello", "/clear", "hello"], "--system", "Be kind.", *options)
    chat.equal(again["turns"][0]["prompt_tokens"], again["turns"][1]["prompt_tokens"], "and again after /clear")
    empty = chat.run(["hello", "\\n", "more"], *options)
    chat.equal([t["added"] for t in empty["turns"]], [True] * 3, "an empty message is a turn")
    full = chat.run(["x" * 600, "one more", "/shorten 60", "one more"], "--ctx", "512", *options, status=3)
    chat.equal([t["end"] for t in full["turns"]], ["context full", "max tokens", "max tokens"], "a message too long")
    chat.equal([t["added"] for t in full["turns"]], [False, True, True], "the next message is in the conversation")


def shortening_drops_the_oldest_turns(chat: Chat):
    options = ("--temp", "0", "--max-tokens", "1", "--system", "Be kind.")
    lines = ["first message", "second one", "third question"]
    alone = chat.run([lines[2]], *options)["turns"][0]["length"]
    run = chat.run([*lines, f"/shorten {alone}", "fourth", "/shorten 1000", "/shorten 1", "fifth"], *options)
    first, second, third = run["shortenings"]
    chat.equal((first["turns_dropped"], first["length_after"]), (2, alone), "what is left is the last turn alone")
    chat.equal(second["turns_dropped"], 0, "nothing to drop")
    chat.equal((third["length_after"], third["turns_dropped"]), (0, 2), "everything dropped")
    chat.equal(run["turns"][4]["prompt_tokens"], chat.run(["fifth"], *options)["turns"][0]["prompt_tokens"],
               "the conversation begins anew")


def a_shortened_conversation_never_had_what_was_dropped(chat: Chat):
    """As long as one that began with the first turn that stays, whatever stood in front of it:
    text or pictures, and system texts."""
    a = picture(chat.folder / "e.png", 30, 20, 5)
    b = picture(chat.folder / "f.png", 25, 25, 6)
    turns = ["first message", f"/image {a} look", f"/image {b}\n/image {a} and both of them", "third question"]
    options = ("--temp", "0", "--max-tokens", "1", "--kv", "f32")
    for system in ((), ("--system", "Be kind."), ("--template", "dialogue")):
        for last in range(1, len(turns)):
            for first in range(last):
                kept = turns[last:] + turns[:1]
                fresh = chat.run(kept, *options, *system)["turns"]
                alone = fresh[len(kept) - 2]["length"]
                run = chat.run([turns[first], *kept[:-1], f"/shorten {alone}", kept[-1], f"/shorten {alone}"], *options, *system)
                chat.equal((run["shortenings"][0]["length_after"], run["shortenings"][0]["turns_dropped"]), (alone, 1),
                           "positions after /shorten", system, turns[first], turns[last])
                chat.equal(run["turns"][-1]["length"], fresh[-1]["length"], "positions after another turn")
                chat.check(run["shortenings"][1]["length_after"] <= alone, "shortened again")
                chat.equal([t["end"] for t in run["turns"]], ["max tokens"] * len(run["turns"]), "ends")


def a_model_that_gives_no_numbers(chat: Chat):
    """The turns fail, a script says so with its status, and no token is in the way later."""
    model = chat.not_numbers("nan", "language_model.model.norm.weight")
    for options in (("--temp", "0"), WARM):
        run = chat.run(["hello", "again"], *options, "--max-tokens", "4", model=model, status=1)
        chat.equal([(t["end"], t["new_tokens"], t["added"]) for t in run["turns"]], [("failed", 0, True)] * 2, "turns")
        chat.equal(["not numbers" in t["error"] for t in run["turns"]], [True] * 2, "errors", run["turns"][1]["error"])
        chat.equal((run["totals"]["mistakes"], run["totals"]["refused"]), (2, 0), "mistakes")


def advice_names_what_helps(chat: Chat):
    wide = chat.variant("wide", sliding_window=4096)
    run = chat.run(["hello", "hi"], "--device", "sim:8MiB", "--kv", "f32", "--max-tokens", "1", model=wide, status=3)
    chat.equal([t["end"] for t in run["turns"]], ["out of memory"] * 2, "rings that do not fit")
    chat.equal({t["memory"]["kv_bytes"] for t in run["turns"]}, {0}, "the cache of an empty conversation")
    chat.check("No message fits" in run["err"] and "smaller --ctx" in run["err"], "the advice", run["err"])
    chat.check("shorter message" not in run["err"], "what does not help", run["err"])
    chat.run(["hello"], "--device", "sim:8MiB", "--kv", "f32", "--max-tokens", "1", "--ctx", "64", model=wide)
    run = chat.run(["x" * 600], "--ctx", "512", status=3)
    chat.check("larger --ctx" in run["err"] and "smaller --ctx" not in run["err"], "a message too long", run["err"])


def pictures_without_a_message_are_told_of(chat: Chat):
    a = picture(chat.folder / "g.png", 12, 12, 9)
    run = chat.run(["hello", f"/image {a}"], "--max-tokens", "1", status=1)
    chat.check("1 pictures waited" in run["err"], "the picture that waits", run["err"])
    chat.run(["hello", f"/image {a}", "/clear"], "--max-tokens", "1")
    long = "x" * 600
    run = chat.run(["hello", f"/image {a} {long}", long, "go on"], "--ctx", "512", "--max-tokens", "1", status=3)
    chat.equal([t["images"] for t in run["turns"]], [0, 1, 0, 0], "a refused turn's pictures do not come again")
    chat.equal(run["err"].count("last message and its pictures are not in it"), 1, "what is said of pictures")
    chat.equal(run["err"].count("last message is not in it"), 1, "what is said of a text")


def files_are_opened_first(chat: Chat):
    script = chat.folder / "one.txt"
    script.write_text("hello\n")
    common = ("chat", "--model", chat.model, "--script", script, "--max-tokens", "1")
    for option in ("--stats-json", "--trace"):
        for path, why in ((chat.folder / "no" / "x", b"No such file"), (chat.folder, b"directory")):
            out, err = chat.raw(*common, option, path, status=1)
            chat.check(str(path).encode() in err, "the path of", option, err)
            if b"no trace library" not in err:
                chat.check(why in err, "the reason of", option, err)
            chat.equal(out, b"", "what was done before")
    old = chat.folder / "old.json"
    old.write_text("old figures")
    chat.raw("chat", "--model", "/nowhere", "--script", script, "--stats-json", old, status=1)
    chat.equal(old.read_text(), "old figures", "a file that was there, after a chat that did not begin")
    with open("/dev/full", "wb") as full:
        run = subprocess.run([chat.program, *map(str, common)], stdout=full, stderr=subprocess.PIPE, timeout=300)
    chat.equal(run.returncode, 1, "exit status where output has no room")
    chat.check(b"standard output" in run.stderr, "what is said then", run.stderr)


def files_are_written_once(chat: Chat):
    path = chat.folder / "talk.txt"
    run = chat.run(["hello", f"/save {path}", f"/save {path}"], "--max-tokens", "3", status=1)
    chat.check(str(path).encode() in run["out"], "it says what it wrote")
    chat.check("is there already" in run["err"], "it does not write over a file")
    text = path.read_text(errors="replace")
    chat.check(text.startswith("user: hello") and "model:" in text, "the transcript", text)
    saved = json.loads((chat.folder / "talk.txt.json").read_text())
    chat.equal([m["role"] for m in saved["messages"]], ["user", "model"], "roles")
    chat.equal(saved["turns"][0]["new_tokens"], 3, "figures")
    run = chat.run(["hello", f"/save {chat.folder}/no/such/folder"], "--max-tokens", "3", status=1)
    chat.check("no/such/folder" in run["err"], "the folder that is not there")


def lines_that_cannot_be_done_are_named(chat: Chat):
    run = chat.run(["/nosuch", "/clear now", b"\xff\xfe bytes \x00 and \x1d marks", "//not a command"], "--max-tokens", "2",
                   status=1)
    chat.check("/nosuch" in run["err"] and "now" in run["err"], "the bad lines", run["err"])
    chat.equal(run["totals"]["mistakes"], 2, "mistakes")
    chat.equal([t["added"] for t in run["turns"]], [True, True], "odd bytes are a message")
    one = prompt_tokens(chat, ["//x", "/clear", "\\# x"])
    chat.check(one[0] < one[1], "two slashes are one")
    out, _ = chat.raw("chat", "--model", chat.model, "--script", "-", "--quiet", "--max-tokens", "2", "--stats-json", "-",
                      input=b"# nothing\nhello\n/quit\nnever\n")
    chat.equal(len(json.loads(out[out.index(b"{"):])["turns"]), 1, "a script from standard input")


def what_is_asked_is_printed(chat: Chat):
    run = chat.run(["hello", "/stats"], "--stats", "--max-tokens", "2")
    for word in (b"weights", b"inference cache", b"temporary", b"allocated", b"reserved", b"gap", b"optimizer"):
        chat.check(run["out"].count(word) >= 2, word, "in the reports")
    chat.check(b"\x1b[" not in run["out"], "no colours in a file")
    run = chat.run(["hello"], "--quiet", "--max-tokens", "2")
    chat.check(b"weights" not in run["out"] and b"hello" not in run["out"], "quiet")
    run = chat.run(["hello", "again"], "--optimizer", "off", "--max-tokens", "2")
    chat.equal((run["optimizer"], run["turns"][1]["optimizer"]), (None, None), "no optimizer")
    for options in (("--backing", "malloc"), ("--backing", "vmm"), ("--kv", "f32"), ("--threads", "1")):
        run = chat.run(["hello", "again", "/empty", "/clear", "more"], *options, "--max-tokens", "4")
        chat.equal([t["new_tokens"] for t in run["turns"]], [4] * 3, "turns with", options)


main([command_lines, typed_control_tokens_are_text, any_known_token_ends_an_answer, pictures_and_their_places_agree,
      pictures_stay_whole_in_small_chunks, roles_keep_their_order, shortening_drops_the_oldest_turns,
      a_shortened_conversation_never_had_what_was_dropped, a_model_that_gives_no_numbers, advice_names_what_helps,
      pictures_without_a_message_are_told_of,
      files_are_opened_first, files_are_written_once,
      lines_that_cannot_be_done_are_named, what_is_asked_is_printed])
