"""Random tokenizers and random hard texts: our ids against those of Hugging Face's tokenizers.

    random_tokenizers.py PROGRAM [--pairs N] [--seed S] [--keep FOLDER]

PROGRAM is parity_tokens. Every tokenizer.json is drawn: its model (byte-level or not, with byte fallback, unknown
token, prefixes and suffixes of words, ignored merges), normalisers, pre-tokenizers, and added tokens with every
combination of flags and with ids that have holes, lie out of order, come twice or belong to others. Each gets ten
texts. Both kinds of ids are compared: special tokens as text, and as tokens. The program also cuts each text in parts
as long documents are cut, and compares the ids of the parts with those of the whole.

A tokenizer that we refuse is no difference; it is counted by reason, and so is what the library itself does not
load. The end is 0 only when nothing differs and most tokenizers were compared.
"""
import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

os.environ["RUST_BACKTRACE"] = "0"  # where the library panics it is quicker without

import tokenizers  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../data/model/tokenizers"))
from texts import CODE, EMOJI, ODD, PROSE, TEXTS  # noqa: E402

TEXTS_EACH = 10
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TIKTOKEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
            r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
EXPRESSIONS = [GPT2, TIKTOKEN, O200K, DEEPSEEK, CLIP, BLOOM, r"[0-9][0-9][0-9]", r"\s+", r"[一-龥぀-ゟ゠-ヿ]+", r"\d{1,3}",
               r"\w+|[^\w\s]+", r"[aeiou ]", r"(?:ab|a|b)+?", r".{2}", r"\n+|.", r"x*a", r"(?<=a)b+", r"[^a-m]++", r"▁+",
               r"\bthe\b", r"^a", r"a$", r"[[:alpha:]]+", r"(a)\1", r"\p{Han}+|\p{Latin}+", r"(?=[a-z])[a-z0-9]+"]


def trained(pre_tokenizer, trainer, model):
    t = Tokenizer(model)
    if pre_tokenizer is not None:
        t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator([(PROSE + CODE + EMOJI + ODD) * 3], trainer)
    return json.loads(t.to_str())["model"]


def base_models():
    """(name, model): byte-level, of characters with U+2581, and with marked ends of words."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made = [("bytes", trained(pre_tokenizers.ByteLevel(add_prefix_space=False), trainers.BpeTrainer(
        vocab_size=620, show_progress=False, initial_alphabet=alphabet, special_tokens=["</s>"]), models.BPE()))]
    few = trained(pre_tokenizers.ByteLevel(add_prefix_space=True), trainers.BpeTrainer(
        vocab_size=330, show_progress=False, special_tokens=["</s>", "<unk>"]), models.BPE())
    made.append(("bytes", few))
    specials = ["<unk>", "<s>", "</s>"]
    everything = [f"<0x{b:02X}>" for b in range(256)]
    for size, extra in [(640, everything), (420, everything[:130]), (300, [])]:
        made.append(("marks", trained(pre_tokenizers.Metaspace(), trainers.BpeTrainer(
            vocab_size=size, show_progress=False, special_tokens=specials + extra, limit_alphabet=120), models.BPE())))
    made.append(("plain", trained(None, trainers.BpeTrainer(
        vocab_size=500, show_progress=False, special_tokens=specials + everything, limit_alphabet=110), models.BPE())))
    made.append(("ends", trained(pre_tokenizers.WhitespaceSplit(), trainers.BpeTrainer(
        vocab_size=500, show_progress=False, special_tokens=specials, end_of_word_suffix="</w>",
        continuing_subword_prefix="##", limit_alphabet=100), models.BPE())))
    made.append(("ends", trained(pre_tokenizers.WhitespaceSplit(), trainers.BpeTrainer(
        vocab_size=500, show_progress=False, special_tokens=specials, end_of_word_suffix="</w>", limit_alphabet=100),
        models.BPE())))
    return made


def draw_metaspace(r, mark="▁"):
    step = {"type": "Metaspace", "replacement": mark if r.random() < .9 else "_",
            "prepend_scheme": r.choice(["first", "always", "never"]), "split": r.random() < .6}
    legacy = r.random()
    if legacy < .1:
        del step["prepend_scheme"]
        step.update(add_prefix_space=True, str_rep="▁")
    elif legacy < .15:
        step["add_prefix_space"] = r.random() < .5
    if r.random() < .1:
        del step["split"]
    return step


def draw_split(r):
    pattern = {"Regex": r.choice(EXPRESSIONS)} if r.random() < .7 else {"String": r.choice([" ", "a", "-", "ab", ".", "\\", "▁", "\n"])}
    return {"type": "Split", "pattern": pattern, "invert": r.random() < .3, "behavior": r.choice(
        ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"])}


def draw_pre_tokenizer(r, kind):
    byte_level = {"type": "ByteLevel", "add_prefix_space": r.random() < .4, "trim_offsets": True, "use_regex": r.random() < .7}
    others = [draw_split(r), {"type": "Digits", "individual_digits": r.random() < .5},
              {"type": "Punctuation", "behavior": r.choice(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"])},
              {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"},
              {"type": "CharDelimiterSplit", "delimiter": r.choice([" ", "a", "é"])}]
    if r.random() < .1:
        others += [{"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 3}]
    if kind == "bytes":
        steps = r.sample(others, r.choice([0, 0, 1, 1, 2])) + [byte_level]
        if r.random() < .15:
            steps.append(r.choice(others))
        if r.random() < .05:
            steps.insert(0, draw_metaspace(r))
    elif kind == "marks":
        steps = r.sample(others, 1 if r.random() < .2 else 0) + [draw_metaspace(r)]
        if r.random() < .15:
            steps.append(r.choice(others))
        if r.random() < .15:
            return None
    elif kind == "plain":
        steps = [] if r.random() < .6 else r.sample(others, r.choice([1, 2]))
    else:
        steps = [r.choice(others[3:6])] + r.sample(others, r.choice([0, 0, 1]))
    if not steps:
        return None
    return steps[0] if len(steps) == 1 and r.random() < .7 else {"type": "Sequence", "pretokenizers": steps}


def draw_normalizer(r, kind):
    choices = [{"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
               {"type": "Nmt"}, {"type": "Strip", "strip_left": r.random() < .6, "strip_right": r.random() < .6},
               {"type": "Prepend", "prepend": r.choice(["▁", " ", "xy"])},
               {"type": "Replace", "pattern": {"String": r.choice([" ", "a", "ab", "  ", "e\u0301", "<"])},
                "content": r.choice(["▁", "", "b", " ", "aa"])},
               {"type": "Replace", "pattern": {"Regex": r.choice([r"\s+", r"[ \t]", r" {2,}", r"\p{M}", r"a|b", r"\d", r"x*"])},
                "content": r.choice(["▁", "", " ", "_"])},
               {"type": "BertNormalizer", "clean_text": r.random() < .6, "handle_chinese_chars": r.random() < .6,
                "strip_accents": r.choice([None, True, False]), "lowercase": r.random() < .6}]
    if r.random() < .1:
        choices.append({"type": "ByteLevel"})
    roll = r.random()
    if roll < .35:
        return None
    if roll < .5 and kind in ("marks", "plain"):
        return {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    if roll < .8:
        return r.choice(choices)
    return {"type": "Sequence", "normalizers": r.sample(choices, min(len(choices), r.choice([2, 2, 3])))}


CONTENTS = ["<mark>", "<raw>", "<l>", "<r>", "<lr>", "two words", "   ", "  ", " ", "cat", "the", "<mark>er", "\n", "\n\n", "▁", "▁▁", "é",
            "e\u0301", "a b", " ok", "ok ", "<|x|>", "a", "ab", "Straße", "ＡＢ", "ﬁ", "日本", "_", "-", "'s", "1", "12", "\t", "\u0301", "THE"]


def draw_added(r, model):
    vocab = model["vocab"]
    count = r.choice([0, 1, 2, 3, 5, 8])
    contents = r.sample(CONTENTS, count)
    if r.random() < .3 and contents:
        contents.append(r.choice(contents))  # the same twice
    if r.random() < .2:
        contents.append(r.choice(list(vocab)))
    tokens = []
    for content in ["<unk>", "<s>", "</s>"]:
        if content in vocab and (content == "</s>" or r.random() < .8):
            tokens.append(dict(id=vocab[content], content=content, single_word=False, lstrip=False, rstrip=False,
                               normalized=False, special=True))
    next_id = len(vocab)
    layout = r.choice(["dense", "dense", "holes", "mixed", "same", "taken", "far"])
    ids = []
    for i, content in enumerate(contents):
        identifier = {"dense": next_id + i, "holes": next_id + 3 * i + 2, "mixed": next_id + len(contents) - 1 - i, "same": next_id,
                      "taken": r.randrange(next_id), "far": 100000 + i}[layout]
        ids.append(vocab.get(content, identifier) if r.random() < .8 else identifier)
        special = r.random() < .25
        tokens.append(dict(id=ids[-1], content=content, single_word=r.random() < .3, lstrip=r.random() < .3, rstrip=r.random() < .3,
                           normalized=(not special) if r.random() < .5 else r.random() < .5, special=special))
    if r.random() < .2:
        r.shuffle(tokens)
    return tokens


def draw_tokenizer(r, bases):
    kind, model = r.choice(bases)
    model = dict(model)
    if kind != "bytes" or r.random() < .1:
        model["byte_fallback"] = r.random() < .6
        model["unk_token"] = "<unk>" if "<unk>" in model["vocab"] and r.random() < .7 else None
        model["fuse_unk"] = r.random() < .5
    model["ignore_merges"] = r.random() < .2
    if r.random() < .2:
        model["merges"] = [" ".join(m) if isinstance(m, list) and not any(" " in p for p in m) else m for m in model["merges"]]
        if not all(isinstance(m, str) for m in model["merges"]):
            model["merges"] = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    if r.random() < .15:  # holes in the vocabulary itself
        shift = r.choice([1, 7])
        model["vocab"] = {p: i if i < 100 else i + shift for p, i in model["vocab"].items()}
    made = dict(version="1.0", truncation=None, padding=None, added_tokens=draw_added(r, model), normalizer=draw_normalizer(r, kind),
                pre_tokenizer=draw_pre_tokenizer(r, kind), post_processor=None, decoder=None, model=model)
    if r.random() < .01:
        made["truncation"] = dict(direction="Right", max_length=4, strategy="LongestFirst", stride=0)
    return made


FRAGMENTS = (["the", "cat", "sat", "cats", " ", " ", " ", "  ", "   ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "▁", "▁▁",
              "a", "b", "ab", "aa", "é", "e\u0301", "n\u0303", "\u0301", "\u0323\u0301", "İ", "ß", "Σας", "ǅ", "ﬁ", "ＡＢ", "½", "²", "1", "12",
              "1234567", "٣٤٥", "日本語", "東京", "가각", "\u1100\u1161", "नमस्ते", "สวัสดี", "👨‍👩‍👧", "🇩🇪", "\u200b", "\u200d", "\ufeff",
              "\u0000", "\u0001", "\u007f", "\u00ad", "\ufffd", ".", ",", "!", "...", "-", "_", "'s", "'ll", "'", "\"", "don't", "IT'S", "THE",
              "Straße", "two words", "ok", " ok", "ok ", "<0x0A>", "<unk>", "<s>", "</s>", "\\", "[", "x", "xy", "$", "+", "^", "。", "，"])


def any_character(r):
    """One that was assigned before Unicode 9: the library's tables for some steps are that old."""
    while True:
        c = chr(r.choice([r.randrange(0x250), r.randrange(0x3100), r.randrange(0xFFFF), r.randrange(0x10000, 0x1F700)]))
        if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs"):
            return c


def draw_text(r, tokenizer):
    roll = r.random()
    if roll < .08:
        return r.choice(list(TEXTS.values())).decode("utf-8", "replace")
    if roll < .12:
        return "".join(r.choice(FRAGMENTS).strip() or "a" for _ in range(r.choice([50, 400])))  # long words
    tokens = [t["content"] for t in tokenizer["added_tokens"]]
    parts = []
    for _ in range(r.choice([1, 2, 3, 5, 8, 13, 30])):
        if tokens and r.random() < .35:
            parts.append(r.choice(tokens))
        elif r.random() < .15:
            parts.append("".join(any_character(r) for _ in range(r.choice([1, 2, 6]))))
        else:
            parts.append(r.choice(FRAGMENTS))
        if r.random() < .25:
            parts.append(r.choice([" ", "  ", "\n"]))
    if r.random() < .05:
        parts.append(r.choice(PROSE.split("\n")))
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a folder for the cases that differ")
    arguments = parser.parse_args()
    bases = base_models()
    pairs = different = unloaded = failed = cuts = shown = 0
    refused, drawn = collections.Counter(), 0
    rounds = (arguments.pairs + TEXTS_EACH - 1) // TEXTS_EACH
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cases.jsonl")
        for begin in range(0, rounds, 100):
            cases = []
            for number in range(begin, min(begin + 100, rounds)):
                r = random.Random(f"{arguments.seed} {number}")
                tokenizer = draw_tokenizer(r, bases)
                cases.append((tokenizer, [draw_text(r, tokenizer) for _ in range(TEXTS_EACH)]))
            with open(path, "w") as out:
                for tokenizer, texts in cases:
                    out.write(json.dumps(dict(tokenizer=json.dumps(tokenizer, ensure_ascii=False), texts=texts)) + "\n")
            got = subprocess.run([arguments.program, "--cases", path], stdout=subprocess.PIPE, check=True).stdout.splitlines()
            assert len(got) == len(cases), "parity_tokens gave fewer lines than cases"
            for (tokenizer, texts), line in zip(cases, got):
                drawn += 1
                ours = json.loads(line)
                try:
                    library = Tokenizer.from_str(json.dumps(tokenizer, ensure_ascii=False))
                except BaseException as failure:  # a panic of the library is none of Exception
                    if isinstance(failure, KeyboardInterrupt):
                        raise
                    unloaded += 1
                    continue
                if "refused" in ours:
                    refused[reason(ours["refused"])] += 1
                    continue
                cuts += ours["cuts"]
                if ours["cut_differs"]:
                    different += 1
                    print("DIFFERS: the parts of a text have other ids than the whole:", ours["cut_differs"],
                          json.dumps({k: v for k, v in tokenizer.items() if k != "model"}, ensure_ascii=False))
                for text, mine in zip(texts, ours["ids"]):
                    try:
                        library.encode_special_tokens = True
                        plain = library.encode(text, add_special_tokens=False).ids
                        library.encode_special_tokens = False
                        special = library.encode(text, add_special_tokens=False).ids
                    except BaseException as failure:
                        if isinstance(failure, KeyboardInterrupt):
                            raise
                        failed += 1
                        continue
                    pairs += 1
                    if mine == [plain, special]:
                        continue
                    different += 1
                    shown += 1
                    if shown <= 20:
                        options = {k: v for k, v in tokenizer["model"].items() if k not in ("vocab", "merges")}
                        print("DIFFERS:", json.dumps(text, ensure_ascii=False)[:600], "\n  theirs", plain[:40], special[:40], "\n  ours  ",
                              mine[0][:40], mine[1][:40], "\n ", json.dumps({k: v for k, v in tokenizer.items() if k != "model"},
                                                                          ensure_ascii=False), options)
                    if arguments.keep:
                        os.makedirs(arguments.keep, exist_ok=True)
                        with open(os.path.join(arguments.keep, f"{shown}.json"), "w") as out:
                            json.dump(dict(tokenizer=tokenizer, text=text, ids=[plain, special]), out)
    share = sum(refused.values()) / max(1, drawn - unloaded)
    print(f"tokenizers {tokenizers.__version__}, seed {arguments.seed}: {drawn} tokenizers drawn, {unloaded} that the library does not "
          f"load, {sum(refused.values())} refused by us ({100 * share:.1f} %); {pairs} pairs of tokenizer and text compared, {failed} that "
          f"the library fails on, {cuts} cuts tried; {different} differ")
    for why, count in refused.most_common():
        print(f"  refused {count}: {why}")
    if share > .35 or pairs < arguments.pairs / 3:
        print("too few were compared for this to be worth anything")
        return 1
    return 1 if different else 0


def reason(message):
    """The part of a refusal that tells its kind."""
    for mark in ("the expression", "the added token", "truncation", "padding"):
        if mark in message:
            return mark + " ..." + message.split(": ")[-1][-60:] if mark == "the expression" else mark
    return message.split(": ", 1)[-1].split(" is not known")[0]


sys.exit(main())
