"""Makes added.json: what Hugging Face's tokenizers gives for the tokenizers of this folder with other added tokens,
normalisers and pre-tokenizers. Run in this folder; prints the version. The folders of stored/ were made by others
with 0.23.3: expected.u32 holds the ids of the texts of texts.json, an EOS after each.
"""
import itertools
import json

import tokenizers
from tokenizers import Tokenizer


def token(content, identifier=0, single_word=False, lstrip=False, rstrip=False, normalized=True, special=False):
    return dict(id=identifier, content=content, single_word=single_word, lstrip=lstrip, rstrip=rstrip, normalized=normalized,
                special=special)



# Every combination of the four flags, beside words and spaces.
EVERY_FLAG = [token(f"<{a:d}{b:d}{c:d}{d:d}>", single_word=a, lstrip=b, rstrip=c, normalized=d)
              for a, b, c, d in itertools.product([False, True], repeat=4)]
LISTS = {
    "every flag": EVERY_FLAG,
    "words": [token("cat", single_word=True), token("two words"), token("the", normalized=False, single_word=True),
              token("   ", normalized=False), token(" ok", rstrip=True, normalized=False), token("é"), token("▁▁", normalized=False),
              token("<1>", rstrip=True), token("<1>2", lstrip=True)],
    "specials": [token("<|x|>", special=True, normalized=False), token("<|n|>", special=True), token("a", special=True, normalized=False),
                 token("x", special=True, single_word=True), token("<|x|>b")],
}
TEXTS = [" ".join(t["content"] for t in EVERY_FLAG), "  ".join(t["content"] for t in EVERY_FLAG), "".join(t["content"] for t in EVERY_FLAG),
         "the cat sat", "  the  cat  ", "".join(f"a{t['content']}b" for t in EVERY_FLAG), "".join(f" {t['content']}b" for t in EVERY_FLAG),
         "".join(f"a{t['content']}\n" for t in EVERY_FLAG), "cats scatter the cat, cat.", "cat_ cat9 cat-cat thecat the", "two words", "two  words two▁words",
         "e\u0301 é caf\u00e9cat", "ok ok  ok   ok", "<1> <1>2 <1>  2", "<|x|>", "a<|x|>b <|n|> x xx x.", "▁▁ ▁a ▁", "\tcat\r\n\r\n the \u00a0 cat\u3000",
         "a\u0000b <0000>\u0000", " ", "", "İstanbul 12345 ﬁ ½ 日本 cat", "<0001", "<1111> <1111>  <1111>"]
NORMALIZERS = {
    "none": None, "NFC": dict(type="NFC"), "NFKD": dict(type="NFKD"), "lowercase": dict(type="Lowercase"),
    "strip": dict(type="Strip", strip_left=True, strip_right=True),
    "legacy": dict(type="Sequence", normalizers=[dict(type="Prepend", prepend="▁"),
                                                 dict(type="Replace", pattern=dict(String=" "), content="▁")]),
    "expression": dict(type="Replace", pattern=dict(Regex=r"\s+"), content=" "),
    "bert": dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
    "nmt": dict(type="Sequence", normalizers=[dict(type="Nmt"), dict(type="StripAccents")]),
}


def metaspace(scheme, split):
    return dict(type="Metaspace", replacement="▁", prepend_scheme=scheme, split=split)


def byte_level(prefix, regex=True):
    return dict(type="ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex)


def sequence(*steps):
    return dict(type="Sequence", pretokenizers=list(steps))


def split(pattern, behavior, invert=False):
    return dict(type="Split", pattern=pattern, behavior=behavior, invert=invert)


PRE_TOKENIZERS = {"marked": {}, "byte_level": {}}
for scheme, parted in itertools.product(["first", "always", "never"], [True, False]):
    PRE_TOKENIZERS["marked"][f"metaspace {scheme} {'split' if parted else 'whole'}"] = metaspace(scheme, parted)
PRE_TOKENIZERS["marked"]["none"] = None
MORE = [
    ("marked", "digits, metaspace", sequence(dict(type="Digits", individual_digits=True), metaspace("first", True))),
    ("marked", "white space, metaspace", sequence(dict(type="WhitespaceSplit"), metaspace("always", True))),
    ("marked", "old fields", dict(type="Metaspace", replacement="▁", str_rep="▁", add_prefix_space=True)),
    ("marked", "whitespace", dict(type="Whitespace")),
    ("marked", "bert", dict(type="BertPreTokenizer")),
    ("marked", "delimiter", dict(type="CharDelimiterSplit", delimiter="a")),
    ("byte_level", "prefix", byte_level(True)),
    ("byte_level", "digits, prefix", sequence(dict(type="Digits", individual_digits=True), byte_level(True))),
    ("byte_level", "falcon", sequence(dict(type="Punctuation", behavior="Contiguous"), byte_level(False),
                                      dict(type="Digits", individual_digits=False), split(dict(Regex="[0-9][0-9][0-9]"), "Isolated"))),
    ("byte_level", "bloom", sequence(split(dict(Regex=r" ?[^(\s|[.,!?…。，、।۔،])]+"), "Isolated"), byte_level(False, False))),
]
for behavior, invert in itertools.product(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"], [False, True]):
    MORE.append(("byte_level", f"split {behavior} {invert}", sequence(split(dict(Regex="[aeiou ]"), behavior, invert), byte_level(False, False))))

cases = []


def make(base, name, patch):
    with open(f"{base}.json") as file:
        tokenizer = json.load(file)
    for key, value in patch.items():
        tokenizer[key] = value
    library = Tokenizer.from_str(json.dumps(tokenizer))
    ids = []
    for text in TEXTS:
        library.encode_special_tokens = True
        plain = library.encode(text, add_special_tokens=False).ids
        library.encode_special_tokens = False
        special = library.encode(text, add_special_tokens=False).ids
        ids.append([plain, special] if plain != special else [plain])
    cases.append(dict(name=name, base=f"{base}.json", patch=patch, ids=ids))


def ends(base):
    """The special tokens of the file itself."""
    with open(f"{base}.json") as file:
        return [t for t in json.load(file)["added_tokens"] if t["special"] and not t["lstrip"]]


for name, pre in PRE_TOKENIZERS["marked"].items():
    for listed in LISTS:
        for normalizer in ("none", "NFC") if name != "none" else ("legacy",):
            make("marked", f"{name}, {listed}, {normalizer}", dict(pre_tokenizer=pre, normalizer=NORMALIZERS[normalizer],
                                                                   added_tokens=ends("marked") + LISTS[listed]))
for name, normalizer in NORMALIZERS.items():
    for base, pre in (("marked", metaspace("first", False)), ("byte_level", byte_level(False))):
        make(base, f"{base}, {name}", dict(pre_tokenizer=pre, normalizer=normalizer, added_tokens=ends(base) + LISTS["words"]))
for base, name, pre in MORE:
    make(base, name, dict(pre_tokenizer=pre, normalizer=None, added_tokens=ends(base) + LISTS["words"]))
LAYOUTS = {
    "holes": [token("<a>", 700), token("<b>", 705)], "far": [token("<a>", 4000000000), token("<b>", 5)],
    "not in order": [token("<b>", 621), token("<a>", 620)], "same id": [token("<a>", 620), token("<b>", 620)],
    "of a piece": [token("<a>", 65), token("th", 9999), token("<b>", 66)], "same token": [token("<a>", 620), token("<a>", 900, lstrip=True)],
    "once special": [token("<a>", 620, special=True, normalized=False), token("<a>", 620)], "nothing": [token("", 620), token("<a>", 621)],
}
for name, tokens in LAYOUTS.items():
    for t in tokens:
        t["id"] = min(t["id"], 2**32 - 1)
    make("byte_level", f"ids: {name}", dict(added_tokens=ends("byte_level") + tokens))
    cases[-1]["texts"] = ["one <a> two <b> three", "the <b><a>", " <a> th <a>"]
    with open("byte_level.json") as file:
        tokenizer = dict(json.load(file), **cases[-1]["patch"])
    library = Tokenizer.from_str(json.dumps(tokenizer))
    library.encode_special_tokens = True
    cases[-1]["ids"] = [[library.encode(t, add_special_tokens=False).ids] for t in cases[-1]["texts"]]
    library.encode_special_tokens = False
    for kept, t in zip(cases[-1]["ids"], cases[-1]["texts"]):
        kept.append(library.encode(t, add_special_tokens=False).ids)
print(tokenizers.__version__, len(cases), "cases")
added = []  # lists of added tokens, which cases name by their place
for case in cases:
    tokens = case["patch"]["added_tokens"]
    if tokens not in added:
        added.append(tokens)
    case["patch"]["added_tokens"] = added.index(tokens)
with open("added.json", "w") as out:
    json.dump(dict(made_with=tokenizers.__version__, texts=TEXTS, added=added, cases=cases), out, ensure_ascii=False, separators=(",", ":"))
