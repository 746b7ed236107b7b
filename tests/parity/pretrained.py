"""What the originals make of the two GGUF models: ids of texts and logits, for pretrained.sh.

    pretrained.py texts FOLDER                      writes the texts that are compared
    pretrained.py tokens GGUF TEXTS OURS.jsonl      compares ids
    pretrained.py logits GGUF TEXT IDS.npy          writes the ids of a text, as the logits are compared on
    pretrained.py compare GGUF IDS.npy OURS.npy     runs transformers on the same ids and compares

Originals: SmolLM2's tokenizer is rebuilt in Hugging Face's tokenizers as its tokenizer.json says (digits
one by one, then GPT-2's byte level), Gemma's in Google's SentencePiece; both from the vocabulary in the
file. Logits are those of transformers, which dequantises the file itself.
"""
import json
import os
import sys
import time

import numpy as np
from gguf import GGUFReader

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../data/model/tokenizers"))
from texts import TEXTS  # noqa: E402


def fields(path):
    reader = GGUFReader(path)
    return lambda key: reader.fields["tokenizer.ggml." + key].contents()


def byte_level(get):
    """ids(text, special) by Hugging Face's tokenizers."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    pieces, types = get("tokens"), get("token_type")
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)},
                             merges=[tuple(m.split(" ")) for m in get("merges")]))
    assert get("pre") == "smollm"
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.add_special_tokens([AddedToken(p, special=True, normalized=False)
                          for p, kind in zip(pieces, types) if kind == 3])

    def ids(text, special):
        t.encode_special_tokens = not special
        return t.encode(text, add_special_tokens=False).ids
    return ids


def sentencepiece(get):
    """ids(text, special) by SentencePiece; it has no way to read control tokens, so special is None."""
    from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    for piece, score, kind in zip(get("tokens"), get("scores"), get("token_type")):
        entry = model.pieces.add()
        # GGUF keeps user-defined pieces with plain spaces.
        entry.piece = piece.replace(" ", "\u2581") if kind == 4 else piece
        entry.score, entry.type = score, kind
    model.pieces[get("unknown_token_id")].type = 2
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.byte_fallback = 2, True
    trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = (
        get(k + "_token_id") for k in ("unknown", "bos", "eos", "padding"))
    trainer.unk_piece, trainer.bos_piece, trainer.eos_piece, trainer.pad_piece = (
        model.pieces[i].piece for i in (trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id))
    normalizer.name, normalizer.add_dummy_prefix = "identity", bool(get("add_space_prefix"))
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = True
    processor = SentencePieceProcessor(model_proto=model.SerializeToString())
    return lambda text, special: None if special else processor.encode(text)


def original(path):
    get = fields(path)
    return byte_level(get) if get("model") == "gpt2" else sentencepiece(get)


def write_texts(folder):
    os.makedirs(folder, exist_ok=True)
    for name, data in TEXTS.items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


def compare_tokens(path, folder, ours):
    encode = original(path)
    wrong = total = 0
    with open(ours) as lines:
        for name, line in zip(sorted(os.listdir(folder)), lines, strict=True):
            with open(os.path.join(folder, name), "rb") as text:
                data = text.read()
            got = json.loads(line)
            for special in (False, True):
                wanted = encode(data.decode("utf-8", "replace"), special)
                if wanted is None:
                    continue
                total += len(wanted)
                key = "special" if special else "plain"
                if got[key] != wanted:
                    wrong += 1
                    at = next((i for i, (a, b) in enumerate(zip(got[key], wanted)) if a != b),
                              min(len(wanted), len(got[key])))
                    print(f"  {name} ({key}): differs at token {at}: {got[key][at:at + 8]} for {wanted[at:at + 8]}")
    print(f"tokens: {total} ids of {len(os.listdir(folder))} texts, {wrong} texts differ")
    return wrong == 0


def write_ids(path, text, out):
    get = fields(path)
    with open(text, "rb") as data:
        ids = original(path)(data.read().decode("utf-8", "replace"), False)
    np.save(out, np.array([([get("bos_token_id")] + ids)[:640]], np.int64))


def compare_logits(path, ids_file, ours_file):
    import torch
    import transformers
    torch.set_num_threads(2)
    begin = time.time()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path), dtype=torch.float32,
        attn_implementation="eager")
    with torch.no_grad():
        wanted = model(torch.from_numpy(np.load(ids_file))).logits.numpy()[0]
    ours = np.load(ours_file)
    ours = ours.reshape(-1, ours.shape[-1])
    assert ours.shape == wanted.shape, (ours.shape, wanted.shape)
    largest = np.abs(wanted).max()
    off = np.abs(ours - wanted).max() / largest
    same = float((ours.argmax(-1) == wanted.argmax(-1)).mean())
    print(f"logits: {wanted.shape[0]} positions of {wanted.shape[1]}, largest {largest:.3f}, furthest off "
          f"{off:.2e} of it, same best token {100 * same:.1f} % ({time.time() - begin:.0f} s in transformers "
          f"{transformers.__version__})")
    return off <= 1e-3


command, arguments = sys.argv[1], sys.argv[2:]
good = {"texts": write_texts, "tokens": compare_tokens, "logits": write_ids, "compare": compare_logits}[command](*arguments)
sys.exit(1 if good is False else 0)
