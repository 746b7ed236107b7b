"""Makes the tokenizers of this folder and cases.json, the ids that the libraries they come from give.
Made with tokenizers, sentencepiece and gguf of the versions that it prints; run in this folder.

byte_level.json  a small byte-level BPE; cases patch its pre-tokenizer and the like
marked.json      a BPE over characters with byte fallback, as Gemma's tokenizer.json is built
*.model          SentencePiece BPE with byte fallback, without and with a space put before the text;
                 sentencepiece.json lists their pieces as the library shows them
"""
import json
import sentencepiece
import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import AddedToken, Regex
from texts import TEXTS, PROSE, CODE, EMOJI, ODD

CORPUS = (PROSE + CODE + EMOJI + ODD) * 3
USER = ["\n", "\n\n", "▁▁", "▁▁▁", "<i>", "</i>"]
TIKTOKEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=620, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator([CORPUS], trainer)
    t.add_special_tokens([AddedToken("<|endoftext|>", special=True), AddedToken("<|im_start|>", special=True),
                          AddedToken("<mask>", special=True, lstrip=True, normalized=False)])
    t.add_tokens([AddedToken("bibliothèque", normalized=True), AddedToken("hi", single_word=True, normalized=False),
                  AddedToken(" ok", rstrip=True, normalized=False)])
    return json.loads(t.to_str())


def marked():
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=560, show_progress=False, special_tokens=special +
                                  [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=150)
    t.train_from_iterator([CORPUS], trainer)
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in special]
    for a in j["added_tokens"]:
        a.update(special=True, normalized=False)
    next_id = max(j["model"]["vocab"].values()) + 1
    for content in ["\n\n", "\n\n\n", "<i>", "</i>", "▁▁", "▁▁▁"]:
        j["model"]["vocab"].setdefault(content, next_id)
        next_id = max(j["model"]["vocab"].values()) + 1
        j["added_tokens"].append(dict(id=j["model"]["vocab"][content], content=content, single_word=False,
                                      lstrip=False, rstrip=False, normalized=False, special=False))
    j["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return j


def sentencepiece_model(name, prefix):
    open("/tmp/corpus.txt", "w").write(CORPUS)
    sentencepiece.SentencePieceTrainer.train(
        input="/tmp/corpus.txt", model_prefix=f"/tmp/{name}", model_type="bpe", vocab_size=600, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=prefix,
        user_defined_symbols=USER, control_symbols=["<mask>"], minloglevel=2,
        character_coverage=0.98, split_by_whitespace=True, split_digits=True, max_sentence_length=100000)
    data = open(f"/tmp/{name}.model", "rb").read()
    open(f"{name}.model", "wb").write(data)
    return sentencepiece.SentencePieceProcessor(model_proto=data)


def patched(base, patch):
    j = json.loads(json.dumps(base))
    for key, value in patch.items():
        if key == "ignore_merges":
            j["model"][key] = value
        else:
            j[key] = value
    return j


def state(component):
    t = Tokenizer(models.BPE())
    if isinstance(component, (normalizers.Normalizer,)):
        t.normalizer = component
        return json.loads(t.to_str())["normalizer"]
    if isinstance(component, processors.PostProcessor):
        t.post_processor = component
        return json.loads(t.to_str())["post_processor"]
    t.pre_tokenizer = component
    return json.loads(t.to_str())["pre_tokenizer"]


P = pre_tokenizers
bytes_only = P.ByteLevel(add_prefix_space=False, use_regex=False)
split = P.Split(Regex(TIKTOKEN), "isolated")
byte_cases = {
    "gpt-2": dict(pre_tokenizer=state(P.ByteLevel(add_prefix_space=False))),
    "smollm": dict(pre_tokenizer=state(P.Sequence([P.Digits(True), P.ByteLevel(add_prefix_space=False)]))),
    "llama-bpe": dict(pre_tokenizer=state(P.Sequence([split, bytes_only])), ignore_merges=True),
    "dbrx": dict(pre_tokenizer=state(P.Sequence([P.Split(Regex(TIKTOKEN), "removed", invert=True), bytes_only]))),
    "qwen2": dict(normalizer=state(normalizers.NFC()), pre_tokenizer=state(P.Sequence(
        [P.Split(Regex(TIKTOKEN.replace("{1,3}", "")), "isolated"), bytes_only]))),
    "prefix": dict(pre_tokenizer=state(P.ByteLevel(add_prefix_space=True)),
                   normalizer=state(normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("x", "yx")]))),
    "digit runs": dict(pre_tokenizer=state(P.Sequence([P.Digits(False), P.ByteLevel(add_prefix_space=False)])),
                       normalizer=state(normalizers.NFD())),
    "with next": dict(pre_tokenizer=state(P.Sequence([P.Split(" ", "merged_with_next"), bytes_only]))),
    "with previous": dict(pre_tokenizer=state(P.Sequence([P.Split(Regex("[aeiou ]"), "merged_with_previous"), bytes_only]))),
    "between removed": dict(pre_tokenizer=state(P.Sequence([P.Split(Regex("[ \n]"), "removed"), bytes_only]))),
}
marked_cases = {
    "gemma": {},
    "legacy llama": dict(normalizer=state(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])),
                         pre_tokenizer=None),
    "metaspace first": dict(normalizer=None, pre_tokenizer=state(P.Metaspace("▁", "first", False))),
    "metaspace split": dict(normalizer=None, pre_tokenizer=state(P.Metaspace("▁", "always", True))),
    "metaspace never": dict(normalizer=None, pre_tokenizer=state(P.Metaspace("▁", "never", False))),
}

cases = []
listed = {}
for base_name, base, variants in [("byte_level", byte_level(), byte_cases), ("marked", marked(), marked_cases)]:
    json.dump(base, open(f"{base_name}.json", "w"), ensure_ascii=False, separators=(",", ":"))
    for name, patch in variants.items():
        t = Tokenizer.from_str(json.dumps(patched(base, patch)))
        ids = {}
        for text_name, data in TEXTS.items():
            text = data.decode("utf-8", "replace")
            t.encode_special_tokens = True
            plain = t.encode(text, add_special_tokens=False).ids
            t.encode_special_tokens = False
            ids[text_name] = [plain, t.encode(text, add_special_tokens=False).ids]
        cases.append(dict(name=name, base=f"{base_name}.json", patch=patch, ids=ids))
for name, prefix in [("plain", False), ("prefixed", True)]:
    sp = sentencepiece_model(name, prefix)
    ids = range(sp.get_piece_size())
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else
             4 if sp.id_to_piece(i) in USER else 1 for i in ids]
    listed[f"{name}.model"] = dict(pieces=[sp.id_to_piece(i) for i in ids], types=types,
                                   scores=[round(sp.get_score(i), 4) for i in ids])
    ids = {}
    for text_name, data in TEXTS.items():
        plain = sp.encode(data.decode("utf-8", "replace"))
        ids[text_name] = [plain, None]
    cases.append(dict(name=f"sentencepiece {name}", base=f"{name}.model", patch={}, ids=ids))
made = dict(tokenizers=tokenizers.__version__, sentencepiece=sentencepiece.__version__)
print(made)
json.dump(dict(made_with=made, texts={k: v.hex() for k, v in TEXTS.items()}, cases=cases), open("cases.json", "w"),
          ensure_ascii=False, separators=(",", ":"))
json.dump(listed, open("sentencepiece.json", "w"), ensure_ascii=False, separators=(",", ":"))
